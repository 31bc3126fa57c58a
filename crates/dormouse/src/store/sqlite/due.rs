//! The one clock: every row whose moment has come becomes runnable.

use rusqlite::OptionalExtension;

use super::tx::{Tx, timestamp};
use super::units;
use crate::store::Due;
use crate::{EventKind, InstanceId, Result, Status, Wake};

pub(super) fn due(tx: &mut Tx<'_>, rows_max: usize) -> Result<Due> {
    let mut ids: Vec<i64> = tx
        .sql(include_str!("due.sql"))?
        .query_map((tx.now_us(), rows_max as i64), |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    // They wake together: of those whose wake takes the same key, the oldest gets it.
    ids.sort_unstable();
    for id in &ids {
        fire(tx, InstanceId(*id))?;
    }
    let next: Option<i64> =
        tx.sql(include_str!("due_next.sql"))?.query_row([], |row| row.get(0)).optional()?.flatten();
    Ok(Due { woken: ids.len(), next: next.map(timestamp) })
}

fn fire(tx: &mut Tx<'_>, id: InstanceId) -> Result<()> {
    let mut row = tx.load(id)?.expect("a due row is there");
    if row.status == Status::AwaitingCompletion {
        return units::fire(tx, &mut row);
    }
    let (why, kind) = match row.status {
        Status::AwaitingSignal => (Wake::Timeout, EventKind::SignalTimeout),
        Status::AwaitingChildren => (Wake::Timeout, EventKind::ChildrenTimeout),
        // A backoff's end is no news: the retried step sees why it woke in the first place.
        Status::Scheduled => (row.wake.unwrap_or(Wake::Clock), EventKind::TimerFired),
        other => panic!("instance {id} is {other} and yet has a wake_at"),
    };
    row.wake(why, tx.now_us());
    tx.record(&mut row, kind, None)?;
    tx.save(&mut row)
}
