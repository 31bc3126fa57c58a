//! Barriers on children: what an end takes off, when one is released, and what becomes of those it leaves behind.
//!
//! The count of a plain barrier, on which every end counts, is a column of its instance. One that counts only children
//! that are done, or that lets go of the rest, has a row of its own in `barriers` beside it.

use rusqlite::OptionalExtension;

use super::operate::{ask_to_end, end_or_undo_tree};
use super::tx::Tx;
use crate::rules::{self, Barrier, Head, Join, Released};
use crate::{Children, InstanceId, Result, Status};

/// How many children are cancelled in one write.
const REST_MAX: usize = 256;

/// Notes what is special about the barrier of an instance's new round.
pub(super) fn raise(tx: &Tx<'_>, head: &Head, spare: Option<u32>, on_release: Children) -> Result<()> {
    if spare.is_none() && on_release == Children::Keep {
        return Ok(());
    }
    tx.sql("delete from barriers where instance = ?1")?.execute([head.id.0])?;
    tx.sql("insert into barriers (instance, round, spare, cancels_rest) values (?1, ?2, ?3, ?4)")?
        .execute((head.id.0, head.round, spare, on_release == Children::Cancel))?;
    Ok(())
}

/// Takes one ended child off a barrier; the end that releases it wakes the parent.
pub(super) fn join(tx: &mut Tx<'_>, join: Join) -> Result<()> {
    let Join { parent, round, .. } = join;
    match special(tx, parent, round)? {
        None if is_lowered(tx, &join)? => Ok(()),
        special => release(tx, join, special),
    }
}

/// The hot path: the head of a parent is read only once its last child has ended.
fn is_lowered(tx: &Tx<'_>, join: &Join) -> Result<bool> {
    let Join { parent, round, .. } = join;
    Ok(tx.sql(include_str!("join.sql"))?.execute((parent.0, round))? == 1)
}

/// Decides what an end does that is special, or the last.
fn release(tx: &mut Tx<'_>, join: Join, special: Option<Barrier>) -> Result<()> {
    let Join { parent, round, status } = join;
    let Some(mut row) = tx.load(parent)? else { return Ok(()) };
    match rules::join(&mut row.change, round, status, special, tx.now()) {
        Released::NotWaiting => Ok(()),
        Released::Lowered => match row.change.spare {
            Some(spare) => {
                tx.sql("update barriers set spare = ?3 where instance = ?1 and round = ?2")?
                    .execute((parent.0, round, spare))?;
                Ok(())
            }
            None => is_lowered(tx, &join).map(drop),
        },
        Released::Woken | Released::LetsGoOfRest => tx.save(&mut row),
    }
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
        rules::let_go_by_parent(&mut child.change.head);
        if child.head().status == Status::Executing {
            tx.sql("update instances set joined = 1 where id = ?1")?.execute([child.id().0])?;
            ask_to_end(tx, child)?;
        } else {
            end_or_undo_tree(tx, child)?;
            // It has ended before its parent, or anything that wakes with the parent, can want its lane.
            tx.settle_lanes()?;
        }
    }
    Ok(rest.len() <= REST_MAX)
}

fn special(tx: &Tx<'_>, instance: InstanceId, round: u32) -> Result<Option<Barrier>> {
    let mut sql = tx.sql("select spare, cancels_rest from barriers where instance = ?1 and round = ?2")?;
    let special = sql.query_row((instance.0, round), |row| {
        let on_release = if row.get(1)? { Children::Cancel } else { Children::Keep };
        Ok(Barrier { spare: row.get(0)?, on_release })
    });
    Ok(special.optional()?)
}
