//! Resolving items, and closing the unit when that decides it.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::super::row::Row;
use super::super::transports::free_place;
use super::super::tx::{Tx, timestamp};
use super::query::word;
use crate::rules::{self, Answered, Head, UnitHead};
use crate::store::outbox_queue;
use crate::{INTERACTION_API, InteractionId, Json, Result, Status, UnitId, UnitStatus};

/// Late items resolved in one go, so that other work goes on in between.
const LATE_ITEMS_MAX: i64 = 512;

/// What came back with an answer.
#[derive(Clone, Copy, Default)]
pub(super) struct Output<'a> {
    pub(super) output: Option<&'a Json>,
    pub(super) by: Option<&'a str>,
}

/// The unit that an instance is parked on.
pub(super) fn load(tx: &Tx<'_>, head: &Head) -> Result<UnitHead> {
    assert_eq!(head.status, Status::AwaitingCompletion, "instance {} is parked on no unit", head.id);
    of_round(tx, head)
}

/// The unit of an instance's round.
fn of_round(tx: &Tx<'_>, head: &Head) -> Result<UnitHead> {
    let read = |unit: &rusqlite::Row<'_>| {
        Ok(UnitHead {
            id: UnitId(unit.get("id")?),
            transport: unit.get("transport")?,
            on_failure: word(unit, "on_failure")?,
            shape: word(unit, "shape")?,
            interactions: unit.get("interactions")?,
            quorum: unit.get("quorum")?,
            completed: unit.get("completed")?,
            failed: unit.get("failed")?,
            next_item: unit.get("next_item")?,
            item_timeout_us: unit.get("item_timeout_us")?,
            outputs_max: unit.get("outputs_max")?,
            deadline: unit.get::<_, Option<i64>>("deadline")?.map(timestamp),
            status: word(unit, "status")?,
        })
    };
    let unit = tx.sql(include_str!("../unit_load.sql"))?.query_row((head.id.0, head.round), read)?;
    assert_eq!(unit.status, UnitStatus::Open, "an instance is parked on a unit while that is open");
    Ok(unit)
}

/// Resolves one open item, and then closes the unit or gives the next item its place in flight.
pub(super) fn resolve(
    tx: &mut Tx<'_>,
    row: &mut Row,
    unit: &mut UnitHead,
    item: (InteractionId, u32),
    how: &Answered<'_>,
    with: Output<'_>,
) -> Result<()> {
    let (status, answered, error) = match how {
        Answered::Completed => ("completed", true, None),
        Answered::Failed(error) => ("failed", true, Some(*error)),
        Answered::NotSent(error) => ("failed", false, Some(*error)),
        Answered::TimedOut => ("timed_out", false, None),
    };
    let changed = tx.sql(include_str!("../interaction_resolve.sql"))?.execute(params![
        item.0.0,
        status,
        tx.now_us(),
        answered,
        error,
        with.output.map(Json::as_str),
        with.by,
    ])?;
    assert_eq!(changed, 1, "interaction {} is open", item.0);
    if unit.transport != INTERACTION_API {
        free_place(tx, &unit.transport)?;
    }
    if rules::answer(&mut row.change, unit, item, how, tx.now()) {
        ask_next(tx, unit)?;
    }
    match row.change.closes_unit.take() {
        Some(status) => close(tx, unit, status),
        None => save(tx, unit),
    }
}

/// Gives the next item its place in flight.
fn ask_next(tx: &mut Tx<'_>, unit: &mut UnitHead) -> Result<()> {
    let now = tx.now_us();
    let send_at = (unit.transport != INTERACTION_API).then_some(now);
    let deadline = unit.item_deadline(tx.now()).map(Timestamp::as_microsecond);
    let place = params![unit.id.0, unit.next_item, now, deadline, send_at];
    tx.sql(include_str!("../unit_next.sql"))?.execute(place)?;
    if send_at.is_some() {
        tx.effects.runnable(&outbox_queue(&unit.transport));
    }
    unit.next_item += 1;
    Ok(())
}

/// Closes a unit and cancels its open interactions.
fn close(tx: &mut Tx<'_>, unit: &mut UnitHead, status: UnitStatus) -> Result<()> {
    unit.status = status;
    let items = if status == UnitStatus::TimedOut { "timed_out" } else { "cancelled" };
    let let_go = tx.sql(include_str!("../unit_let_go.sql"))?.execute((unit.id.0, items, tx.now_us()))?;
    if let_go > 0 && unit.transport != INTERACTION_API {
        free_place(tx, &unit.transport)?;
    }
    save(tx, unit)
}

fn save(tx: &Tx<'_>, unit: &UnitHead) -> Result<()> {
    let closed_at = (unit.status != UnitStatus::Open).then_some(tx.now_us());
    let status = unit.status.as_str();
    let values = params![unit.id.0, status, unit.completed, unit.failed, unit.next_item, closed_at];
    tx.sql(include_str!("../unit_save.sql"))?.execute(values)?;
    Ok(())
}

/// The clock: the unit is late, or some of its items are, or it was armed for an item that was answered meanwhile.
pub(in crate::store::sqlite) fn fire(tx: &mut Tx<'_>, row: &mut Row) -> Result<()> {
    let mut unit = load(tx, row.head())?;
    if unit.deadline.is_some_and(|deadline| deadline <= tx.now()) {
        rules::close(&mut row.change, &unit, UnitStatus::TimedOut, tx.now());
        return tx.save(row);
    }
    let late: Vec<(i64, u32)> = tx
        .sql(include_str!("../unit_due.sql"))?
        .query_map((unit.id.0, tx.now_us(), LATE_ITEMS_MAX), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (id, item) in late {
        let item = (InteractionId(id), item);
        resolve(tx, row, &mut unit, item, &Answered::TimedOut, Output::default())?;
        if unit.status != UnitStatus::Open {
            return tx.save(row);
        }
    }
    let next: Option<i64> =
        tx.sql(include_str!("../unit_due_next.sql"))?.query_row([unit.id.0], |row| row.get(0))?;
    row.change.head.wake_at = unit.deadline.into_iter().chain(next.map(timestamp)).min();
    tx.save(row)
}

/// Lets go of the unit of an instance's last round, as a change says.
pub(in crate::store::sqlite) fn let_go(tx: &mut Tx<'_>, head: &Head, status: UnitStatus) -> Result<()> {
    let mut unit = of_round(tx, head)?;
    close(tx, &mut unit, status)
}

/// The unit of an instance that may be parked on one.
pub(in crate::store::sqlite) fn parked_on(tx: &Tx<'_>, head: &Head) -> Result<Option<UnitHead>> {
    (head.status == Status::AwaitingCompletion).then(|| of_round(tx, head)).transpose()
}

/// Whether what an instance was last parked on is a unit.
pub(in crate::store::sqlite) fn has_unit(tx: &Tx<'_>, head: &Head) -> Result<bool> {
    let mut sql = tx.sql("select 1 from units where instance = ?1 and round = ?2")?;
    Ok(sql.query_row((head.id.0, head.round), |_| Ok(())).optional()?.is_some())
}
