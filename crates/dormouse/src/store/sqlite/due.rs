//! The one clock: every row whose moment has come becomes runnable.

use rusqlite::OptionalExtension;

use super::barrier;
use super::kept::expire_kept;
use super::rate;
use super::tx::{Tx, timestamp};
use super::units;
use crate::rules;
use crate::store::Due;
use crate::{InstanceId, Result, Status};

pub(super) fn due(tx: &mut Tx<'_>, rows_max: usize) -> Result<Due> {
    rate::due(tx)?;
    let mut ids: Vec<i64> = tx
        .sql(include_str!("due.sql"))?
        .query_map((tx.now_us(), rows_max as i64), |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    // They wake together: of those whose wake takes the same key, the oldest gets it.
    ids.sort_unstable();
    // Before any parent wakes, the children that it leaves behind are cancelled; a parent with more of them waits.
    let mut held = Vec::new();
    for id in &ids {
        if !barrier::let_go_of_rest(tx, InstanceId(*id))? {
            held.push(*id);
        }
    }
    let (mut woken, mut parked_on_units) = (0, Vec::new());
    for id in ids.iter().filter(|id| !held.contains(id)) {
        let mut row = tx.load(InstanceId(*id))?.expect("a due row is there");
        // It was let go, or woken by a child's end, a moment ago.
        if row.head().wake_at.is_none_or(|at| at > tx.now()) {
            continue;
        }
        match row.head().status {
            Status::AwaitingCompletion => parked_on_units.push(row),
            _ => {
                rules::fire(&mut row.change, tx.now());
                tx.save(&mut row)?;
            }
        }
        woken += 1;
    }
    if !parked_on_units.is_empty() {
        // A lane goes to the others first, as on PostgreSQL, where units are fired by themselves.
        tx.settle_lanes()?;
        parked_on_units.iter_mut().try_for_each(|row| units::fire(tx, row))?;
    }
    // That may have set another moment.
    tx.settle_lanes()?;
    let next: Option<i64> =
        tx.sql(include_str!("due_next.sql"))?.query_row([], |row| row.get(0)).optional()?.flatten();
    let (expired, next_expiry) = expire_kept(tx, rows_max)?;
    let next = next.into_iter().chain(next_expiry).min();
    Ok(Due { woken, expired, next: next.map(timestamp) })
}
