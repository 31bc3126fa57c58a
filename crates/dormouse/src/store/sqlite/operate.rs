//! What people and programs do to instances from outside: cancel, retry, pause.

use jiff::Timestamp;
use rusqlite::OptionalExtension;

use super::kept::receive_kept;
use super::row::{Row, names, names_text};
use super::tx::Tx;
use super::undo::{ask_to_undo, forget_request, undoes};
use super::units;
use crate::rules::{self, Cancelled, Cause, Head, LastWait};
use crate::store::{Brake, Cancel, CancelRequest, TagChange, share_id};
use crate::{At, Error, InstanceId, Result, Status, Target};

pub(super) fn cancel(
    tx: &mut Tx<'_>,
    namespace: &str,
    target: &Target,
    request: &CancelRequest,
) -> Result<Cancel> {
    let mut row = find(tx, namespace, target, request.expected_seq)?;
    if row.head().status.is_terminal() {
        return Ok(Cancel::AlreadyEnded(row.head().status));
    }
    let cause = Cause { reason: request.reason.clone(), with: None };
    rules::cancelled_because(&mut row.change.head, &cause);
    let undoes = undoes(tx, row.head())?;
    if row.head().status == Status::Executing {
        ask_to_end(tx, row)?;
        return Ok(Cancel::Requested);
    }
    let descendants = end_or_undo_tree(tx, row)?;
    Ok(if undoes { Cancel::Requested } else { Cancel::Done { descendants } })
}

/// Cancels an instance and, for each spawn that chose so, its live children and theirs. Returns how many those are.
pub(super) fn end_or_undo_tree(tx: &mut Tx<'_>, row: Row) -> Result<usize> {
    let Head { id, cancel_reason, cancelled_with, .. } = row.head();
    let cause = Cause { reason: cancel_reason.clone(), with: cancelled_with.or(Some(*id)) };
    let mut parents = vec![*id];
    end_or_undo(tx, row)?;
    let mut descendants = 0;
    while let Some(parent) = parents.pop() {
        for child in live_children(tx, parent)? {
            let mut child = tx.load(child)?.expect("a child was just listed");
            rules::cancelled_because(&mut child.change.head, &cause);
            if child.head().status == Status::Executing {
                // Its own children are cancelled with it, when its running step ends.
                ask_to_end(tx, child)?;
            } else if !child.head().status.is_terminal() {
                parents.push(child.id());
                end_or_undo(tx, child)?;
            }
            descendants += 1;
        }
    }
    Ok(descendants)
}

/// Ends it; or, where its machine undoes, asks it to. One whose step was running has been asked before.
fn end_or_undo(tx: &mut Tx<'_>, mut row: Row) -> Result<()> {
    if row.head().status != Status::Executing && undoes(tx, row.head())? {
        return ask_to_undo(tx, row);
    }
    let unit = units::parked_on(tx, row.head())?;
    rules::end_cancelled(&mut row.change, unit.as_ref(), tx.now());
    tx.save(&mut row)
}

pub(super) fn live_children(tx: &Tx<'_>, parent: InstanceId) -> Result<Vec<InstanceId>> {
    let mut sql = tx.sql(
        "select id from instances where parent = ?1 and parent is not null and cascade = 1 and ended_at is null",
    )?;
    let ids = sql.query_map([parent.0], |row| Ok(InstanceId(row.get(0)?)))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// Asks an instance whose step is running: it is cancelled when that ends, or, where its machine undoes, undoes then.
pub(super) fn ask_to_end(tx: &mut Tx<'_>, mut row: Row) -> Result<()> {
    if undoes(tx, row.head())? {
        return ask_to_undo(tx, row);
    }
    let asked = rules::cancel(&mut row.change, None, tx.now());
    assert_eq!(asked, Cancelled::Asked, "instance {} runs", row.id());
    note_cancel(tx, row.head())?;
    tx.effects.cancel.push(row.id());
    Ok(())
}

/// Writes that a cancel is asked for, and why, where nothing else of its instance changes.
pub(super) fn note_cancel(tx: &Tx<'_>, head: &Head) -> Result<()> {
    let sql =
        "update instances set cancel_requested = ?2, cancel_reason = ?3, cancelled_with = ?4 where id = ?1";
    let with = head.cancelled_with.map(|id| id.0);
    tx.sql(sql)?.execute((head.id.0, head.cancel_requested, &head.cancel_reason, with))?;
    Ok(())
}

pub(super) fn retry(
    tx: &mut Tx<'_>,
    namespace: &str,
    target: &Target,
    at: Option<&At>,
    expected_seq: Option<u64>,
) -> Result<InstanceId> {
    let mut row = find(tx, namespace, target, expected_seq)?;
    let Head { id, status, key, .. } = row.head();
    if !matches!(status, Status::Failed | Status::Cancelled) {
        let reason = "only a failed or cancelled instance can be retried";
        return Err(Error::WrongStatus { id: *id, status: *status, reason });
    }
    if let Some(key) = key
        && let Some(holder) = tx.key_holder(&row.head().namespace, key)?.filter(|holder| holder != id)
    {
        return Err(Error::KeyTaken { key: key.clone(), holder });
    }
    forget_request(tx, &mut row.change.head)?;
    let last = LastWait { until: last_deadline(tx, row.id())?, was_unit: units::has_unit(tx, row.head())? };
    rules::retry(&mut row.change, at, last, tx.now());
    tx.save(&mut row)?;
    let Head { id, namespace, key, .. } = row.head();
    if let Some(key) = key {
        receive_kept(tx, namespace, key, *id)?;
    }
    Ok(*id)
}

/// The deadline of an instance's last await, as its history has it.
pub(super) fn last_deadline(tx: &Tx<'_>, id: InstanceId) -> Result<Option<Timestamp>> {
    let mut sql = tx.sql(include_str!("last_deadline.sql"))?;
    let until: Option<String> = sql.query_row([id.0], |row| row.get(0)).optional()?.flatten();
    Ok(until.and_then(|until| until.parse().ok()))
}

pub(super) fn pause(
    tx: &mut Tx<'_>,
    namespace: &str,
    target: &Target,
    brake: Brake,
    expected_seq: Option<u64>,
) -> Result<InstanceId> {
    let mut row = find(tx, namespace, target, expected_seq)?;
    let Head { id, status, .. } = *row.head();
    if status.is_terminal() {
        let reason = "only a live instance can be paused or resumed";
        return Err(Error::WrongStatus { id, status, reason });
    }
    rules::pause(&mut row.change, brake == Brake::On);
    tx.effects.braked |= brake == Brake::On;
    tx.save(&mut row)?;
    Ok(id)
}

pub(super) fn tag(
    tx: &mut Tx<'_>,
    namespace: &str,
    target: &Target,
    change: &TagChange,
) -> Result<Vec<String>> {
    let id = find(tx, namespace, target, None)?.id();
    let tags: Option<String> =
        tx.sql("select tags from instances where id = ?1")?.query_row([id.0], |row| row.get(0))?;
    let had = names(tags.as_deref())?;
    let has = change.apply(had.clone())?;
    for gone in had.iter().filter(|tag| !has.contains(tag)) {
        tx.sql(include_str!("tag_remove.sql"))?.execute((namespace, gone, id.0))?;
    }
    for new in has.iter().filter(|tag| !had.contains(tag)) {
        tx.sql(include_str!("tag_add.sql"))?.execute((namespace, new, id.0))?;
    }
    if has != had {
        tx.sql("update instances set tags = ?2 where id = ?1")?.execute((id.0, names_text(&has)))?;
    }
    Ok(has)
}

pub(super) fn pause_queue(tx: &mut Tx<'_>, namespace: &str, queue: &str, brake: Brake) -> Result<()> {
    match brake {
        Brake::On => {
            tx.effects.braked = true;
            tx.sql(
                "insert into paused_queues (namespace, queue, at) values (?1, ?2, ?3) on conflict do nothing",
            )?
            .execute((namespace, queue, tx.now_us()))?;
        }
        Brake::Off => {
            tx.sql("delete from paused_queues where namespace = ?1 and queue = ?2")?
                .execute((namespace, queue))?;
            tx.effects.runnable(queue);
        }
    }
    Ok(())
}

pub(super) fn weigh(tx: &Tx<'_>, namespace: &str, share: &str, weight: u32) -> Result<()> {
    let id = share_id(namespace, Some(share));
    if weight == 1 {
        tx.sql("delete from shares where share = ?1")?.execute([id])?;
    } else {
        tx.sql(include_str!("weigh.sql"))?.execute((id, namespace, weight))?;
    }
    Ok(())
}

/// The instance that an operator means, at the `seq` at which it is expected.
pub(super) fn find(tx: &Tx<'_>, namespace: &str, target: &Target, expected_seq: Option<u64>) -> Result<Row> {
    let row = tx.find(namespace, target)?.ok_or_else(|| Error::NotFound(target.clone()))?;
    match expected_seq {
        Some(expected) if expected != row.head().seq => {
            Err(Error::StaleSeq { id: row.id(), expected, actual: row.head().seq })
        }
        _ => Ok(row),
    }
}
