//! Resolving items, and closing the unit when that decides it.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};
use serde_json::json;

use super::super::row::Row;
use super::super::tx::{Tx, timestamp};
use super::query::word;
use crate::clock::later;
use crate::store::outbox_queue;
use crate::{
    EventKind, INTERACTION_API, InteractionId, Json, OnFailure, Result, Shape, Status, UnitId, UnitStatus,
    Wake,
};

/// Late items resolved in one go, so that other work goes on in between.
const LATE_ITEMS_MAX: i64 = 512;

/// The unit that an instance is parked on, as it is changed within a write.
pub(super) struct OpenUnit {
    pub(super) id: UnitId,
    pub(super) transport: String,
    pub(super) on_failure: OnFailure,
    pub(super) shape: Shape,
    pub(super) interactions: u32,
    pub(super) quorum: Option<u32>,
    pub(super) completed: u32,
    pub(super) failed: u32,
    pub(super) next_item: u32,
    pub(super) item_timeout_us: Option<i64>,
    pub(super) outputs_max: usize,
    pub(super) deadline: Option<Timestamp>,
    pub(super) status: UnitStatus,
}

/// How an interaction is resolved.
pub(super) enum Resolution<'a> {
    /// Answered from outside, perhaps by somebody who is known.
    Completed(&'a Json, Option<&'a str>),
    /// Answered from outside, with a failure.
    Failed(&'a str, Option<&'a str>),
    /// Refused by its receiver, or given up by its sender.
    NotSent(&'a str),
    TimedOut,
}

impl Resolution<'_> {
    fn answered_by(&self) -> Option<&str> {
        match self {
            Self::Completed(_, by) | Self::Failed(_, by) => *by,
            Self::NotSent(_) | Self::TimedOut => None,
        }
    }
}

impl OpenUnit {
    /// The unit of an instance that is parked on it.
    pub(super) fn of(tx: &Tx<'_>, row: &Row) -> Result<Self> {
        assert_eq!(row.status, Status::AwaitingCompletion, "instance {} is parked on no unit", row.id);
        let read = |unit: &rusqlite::Row<'_>| {
            Ok(Self {
                id: UnitId(unit.get("id")?),
                transport: unit.get("transport")?,
                on_failure: word(unit, "on_failure", OnFailure::parse)?,
                shape: word(unit, "shape", Shape::parse)?,
                interactions: unit.get("interactions")?,
                quorum: unit.get("quorum")?,
                completed: unit.get("completed")?,
                failed: unit.get("failed")?,
                next_item: unit.get("next_item")?,
                item_timeout_us: unit.get("item_timeout_us")?,
                outputs_max: unit.get("outputs_max")?,
                deadline: unit.get::<_, Option<i64>>("deadline")?.map(timestamp),
                status: word(unit, "status", UnitStatus::parse)?,
            })
        };
        let unit = tx.sql(include_str!("../unit_load.sql"))?.query_row((row.id.0, row.round), read)?;
        assert_eq!(unit.status, UnitStatus::Open, "an instance is parked on a unit while that is open");
        Ok(unit)
    }

    /// When an item that is opened now is late: by its own time or with its unit, whichever is nearer.
    pub(super) fn item_deadline_us(&self, now: Timestamp) -> Option<i64> {
        let timeout_us = self.item_timeout_us.map(i64::unsigned_abs);
        let own = timeout_us.map(|timeout| later(now, Duration::from_micros(timeout)));
        own.into_iter().chain(self.deadline).min().map(Timestamp::as_microsecond)
    }

    /// How many more answers, at the least, close it.
    pub(super) fn to_come(&self) -> u32 {
        match self.quorum {
            Some(quorum) => quorum - self.completed,
            None => self.interactions - self.completed - self.failed,
        }
    }

    /// Resolves one open item, and then closes the unit or gives the next item its place in flight.
    pub(super) fn resolve(
        &mut self,
        tx: &mut Tx<'_>,
        row: &mut Row,
        (id, item): (InteractionId, u32),
        how: &Resolution<'_>,
    ) -> Result<()> {
        let (status, kind, answered, error, output) = match how {
            Resolution::Completed(output, _) => {
                ("completed", EventKind::InteractionCompleted, true, None, Some(*output))
            }
            Resolution::Failed(error, _) => {
                ("failed", EventKind::InteractionFailed, true, Some(*error), None)
            }
            Resolution::NotSent(error) => ("failed", EventKind::InteractionFailed, false, Some(*error), None),
            Resolution::TimedOut => ("timed_out", EventKind::InteractionTimedOut, false, None, None),
        };
        let output = output.map(Json::as_str);
        let changed = tx.sql(include_str!("../interaction_resolve.sql"))?.execute(params![
            id.0,
            status,
            tx.now_us(),
            answered,
            error,
            output,
            how.answered_by(),
        ])?;
        assert_eq!(changed, 1, "interaction {id} is open");
        let data = match error {
            Some(error) => json!({ "unit": self.id, "interaction": id, "item": item, "error": error }),
            None => json!({ "unit": self.id, "interaction": id, "item": item }),
        };
        tx.record(row, kind, Some(data.to_string()))?;
        match how {
            Resolution::Completed(..) => self.completed += 1,
            _ => self.failed += 1,
        }
        match self.verdict(how) {
            Some(status) => self.close(tx, row, status),
            None => {
                self.open_next(tx)?;
                row.barrier = Some(self.to_come());
                self.save(tx)
            }
        }
    }

    /// Whether the last resolution decides the unit.
    fn verdict(&self, last: &Resolution<'_>) -> Option<UnitStatus> {
        let is_failure = !matches!(last, Resolution::Completed(..));
        if is_failure && self.on_failure == OnFailure::Fail {
            return Some(UnitStatus::Failed);
        }
        match self.quorum {
            Some(quorum) if self.completed >= quorum => Some(UnitStatus::Completed),
            Some(quorum) if self.interactions - self.failed < quorum => Some(UnitStatus::Failed),
            None if self.completed + self.failed == self.interactions => Some(UnitStatus::Completed),
            _ => None,
        }
    }

    fn open_next(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        if self.next_item == self.interactions {
            return Ok(());
        }
        let now = tx.now_us();
        let send_at = (self.transport != INTERACTION_API).then_some(now);
        let place = params![self.id.0, self.next_item, now, self.item_deadline_us(tx.now()), send_at];
        tx.sql(include_str!("../unit_next.sql"))?.execute(place)?;
        if send_at.is_some() {
            tx.effects.runnable(&outbox_queue(&self.transport));
        }
        self.next_item += 1;
        Ok(())
    }

    /// Closes it and wakes its instance; what is still open in it is let go.
    pub(super) fn close(&mut self, tx: &mut Tx<'_>, row: &mut Row, status: UnitStatus) -> Result<()> {
        self.let_go(tx, status)?;
        let (kind, wake) = match status {
            UnitStatus::Completed => (EventKind::UnitCompleted, Wake::Unit),
            UnitStatus::Failed => (EventKind::UnitFailed, Wake::Unit),
            UnitStatus::TimedOut => (EventKind::UnitTimedOut, Wake::Timeout),
            UnitStatus::Open | UnitStatus::Cancelled => panic!("a unit that is {status} wakes nobody"),
        };
        tx.record(row, kind, Some(self.closing_data()))?;
        row.barrier = Some(0);
        row.wake(wake, tx.now_us());
        Ok(())
    }

    fn let_go(&mut self, tx: &Tx<'_>, status: UnitStatus) -> Result<()> {
        self.status = status;
        let items = if status == UnitStatus::TimedOut { "timed_out" } else { "cancelled" };
        tx.sql(include_str!("../unit_let_go.sql"))?.execute((self.id.0, items, tx.now_us()))?;
        self.save(tx)
    }

    fn save(&self, tx: &Tx<'_>) -> Result<()> {
        let closed_at = (self.status != UnitStatus::Open).then_some(tx.now_us());
        let status = self.status.as_str();
        let values = params![self.id.0, status, self.completed, self.failed, self.next_item, closed_at];
        tx.sql(include_str!("../unit_save.sql"))?.execute(values)?;
        Ok(())
    }

    fn closing_data(&self) -> String {
        json!({ "unit": self.id, "completed": self.completed, "failed": self.failed }).to_string()
    }
}

/// The clock: the unit is late, or some of its items are, or it was armed for an item that was answered meanwhile.
pub(in crate::store::sqlite) fn fire(tx: &mut Tx<'_>, row: &mut Row) -> Result<()> {
    let mut unit = OpenUnit::of(tx, row)?;
    if unit.deadline.is_some_and(|deadline| deadline <= tx.now()) {
        unit.close(tx, row, UnitStatus::TimedOut)?;
        return tx.save(row);
    }
    let late: Vec<(i64, u32)> = tx
        .sql(include_str!("../unit_due.sql"))?
        .query_map((unit.id.0, tx.now_us(), LATE_ITEMS_MAX), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (id, item) in late {
        unit.resolve(tx, row, (InteractionId(id), item), &Resolution::TimedOut)?;
        if unit.status != UnitStatus::Open {
            return tx.save(row);
        }
    }
    let next: Option<i64> =
        tx.sql(include_str!("../unit_due_next.sql"))?.query_row([unit.id.0], |row| row.get(0))?;
    row.wake_at = unit.deadline.into_iter().chain(next.map(timestamp)).min();
    tx.save(row)
}

/// Closes the unit of an instance that is cancelled.
pub(in crate::store::sqlite) fn cancel_unit(tx: &Tx<'_>, row: &mut Row) -> Result<()> {
    let mut unit = OpenUnit::of(tx, row)?;
    unit.let_go(tx, UnitStatus::Cancelled)?;
    tx.record(row, EventKind::UnitCancelled, Some(unit.closing_data()))
}

/// Lets go of the unit of an instance that could not be parked on it.
pub(in crate::store::sqlite) fn let_go_unit(tx: &Tx<'_>, row: &Row) -> Result<()> {
    OpenUnit::of(tx, row)?.let_go(tx, UnitStatus::Cancelled)
}

/// Whether what an instance was last parked on is a unit.
pub(in crate::store::sqlite) fn has_unit(tx: &Tx<'_>, row: &Row) -> Result<bool> {
    let mut sql = tx.sql("select 1 from units where instance = ?1 and round = ?2")?;
    Ok(sql.query_row((row.id.0, row.round), |_| Ok(())).optional()?.is_some())
}
