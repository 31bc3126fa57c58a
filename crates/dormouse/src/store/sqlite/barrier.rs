//! Barriers on children: what an end takes off, when one is released, and what becomes of those it leaves behind.
//!
//! The count of a plain barrier, on which every end counts, is a column of its instance. One that counts only children
//! that are done, or that lets go of the rest, has a row of its own in `barriers` beside it.

use rusqlite::OptionalExtension;

use super::operate::{Cause, ask_to_end, because, cancel_row};
use super::row::Row;
use super::tx::Tx;
use crate::{Children, EventKind, InstanceId, Result, Status, Wake};

/// Children that are let go of in one write.
const REST_MAX: usize = 256;

/// Why those that a barrier leaves behind are cancelled.
const LEFT_BEHIND: &str = "its parent no longer waits for it";

/// What is special about a barrier.
struct Special {
    /// Ends other than `done` that it bears; `None`: every end counts.
    spare: Option<u32>,
    on_release: Children,
}

/// Notes what is special about the barrier of an instance's new round.
pub(super) fn raise(tx: &Tx<'_>, row: &Row, spare: Option<u32>, on_release: Children) -> Result<()> {
    if spare.is_none() && on_release == Children::Keep {
        return Ok(());
    }
    tx.sql("delete from barriers where instance = ?1")?.execute([row.id.0])?;
    tx.sql("insert into barriers (instance, round, spare, cancels_rest) values (?1, ?2, ?3, ?4)")?
        .execute((row.id.0, row.round, spare, on_release == Children::Cancel))?;
    Ok(())
}

/// Takes one ended child off a barrier; the end that releases it wakes the parent.
pub(super) fn join(tx: &mut Tx<'_>, parent: InstanceId, round: u32, status: Status) -> Result<()> {
    match special(tx, parent, round)? {
        None => join_plain(tx, parent, round),
        Some(special) => join_special(tx, parent, round, &special, status),
    }
}

/// The hot path: the head of a parent is read only once its last child has ended.
fn join_plain(tx: &mut Tx<'_>, parent: InstanceId, round: u32) -> Result<()> {
    if tx.sql(include_str!("join.sql"))?.execute((parent.0, round))? == 0 {
        return Ok(());
    }
    let mut barrier = tx.sql("select barrier from instances where id = ?1")?;
    let ends: i64 = barrier.query_row([parent.0], |row| row.get(0))?;
    if ends > 0 {
        return Ok(());
    }
    let mut row = tx.load(parent)?.expect("its barrier was just updated");
    wake(tx, &mut row)
}

fn join_special(
    tx: &mut Tx<'_>,
    parent: InstanceId,
    round: u32,
    special: &Special,
    status: Status,
) -> Result<()> {
    let Some(mut row) = tx.load(parent)? else { return Ok(()) };
    let ends = row.barrier.unwrap_or(0);
    if row.status != Status::AwaitingChildren || row.round != round || ends == 0 {
        return Ok(());
    }
    let counts = status == Status::Done || special.spare.is_none();
    let is_unreachable = !counts && special.spare == Some(0);
    if !counts && !is_unreachable {
        tx.sql("update barriers set spare = spare - 1 where instance = ?1 and round = ?2")?
            .execute((parent.0, round))?;
        return Ok(());
    }
    if counts && ends > 1 {
        tx.sql(include_str!("join.sql"))?.execute((parent.0, round))?;
        return Ok(());
    }
    row.barrier = Some(0);
    match special.on_release {
        Children::Keep => wake(tx, &mut row),
        // The clock lets go of the rest, some at a time, and then wakes it.
        Children::Cancel => {
            row.wake_at = Some(tx.now());
            tx.save(&mut row)
        }
    }
}

/// Wakes a parent whose barrier is released.
pub(super) fn wake(tx: &mut Tx<'_>, row: &mut Row) -> Result<()> {
    row.wake(Wake::Children, tx.now_us());
    tx.record(row, EventKind::ChildrenJoined, Some(format!(r#"{{"round":{}}}"#, row.round)))?;
    tx.save(row)
}

/// Lets go of the children that the released barrier of this instance leaves behind, if it is one that does: they are
/// cancelled, and count for it no more. Some at a time; says whether that was all.
pub(super) fn let_go_of_rest(tx: &mut Tx<'_>, parent: InstanceId) -> Result<bool> {
    let rest = {
        let mut sql = tx.sql(include_str!("rest.sql"))?;
        let rest = sql.query_map((parent.0, REST_MAX as i64 + 1), |row| row.get(0))?;
        rest.collect::<rusqlite::Result<Vec<i64>>>()?
    };
    for child in rest.iter().take(REST_MAX) {
        let mut child = tx.load(InstanceId(*child))?.expect("a child was just listed");
        child.joined = true;
        because(tx, &mut child, &Cause { reason: Some(LEFT_BEHIND.to_owned()), with: None })?;
        if child.status == Status::Executing {
            tx.sql("update instances set joined = 1 where id = ?1")?.execute([child.id.0])?;
            ask_to_end(tx, &mut child)?;
        } else {
            cancel_row(tx, &mut child)?;
            // It has ended before its parent, or whoever wakes with that, can want its lane.
            tx.settle_lanes()?;
        }
    }
    Ok(rest.len() <= REST_MAX)
}

fn special(tx: &Tx<'_>, instance: InstanceId, round: u32) -> Result<Option<Special>> {
    let mut sql = tx.sql("select spare, cancels_rest from barriers where instance = ?1 and round = ?2")?;
    let special = sql.query_row((instance.0, round), |row| {
        let on_release = if row.get(1)? { Children::Cancel } else { Children::Keep };
        Ok(Special { spare: row.get(0)?, on_release })
    });
    Ok(special.optional()?)
}
