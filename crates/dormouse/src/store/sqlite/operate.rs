//! What people and programs do to instances from outside: cancel, retry, pause.

use jiff::Timestamp;
use rusqlite::OptionalExtension;

use super::insert::tags_text;
use super::row::{End, Row, names};
use super::tx::Tx;
use super::undo::{ask_to_undo, forget_request, undoes};
use super::units;
use crate::store::{Brake, Cancel, CancelRequest, TagChange};
use crate::{At, Error, EventKind, InstanceId, Result, Status, Target, Wake};

pub(super) fn cancel(
    tx: &mut Tx<'_>,
    namespace: &str,
    target: &Target,
    request: &CancelRequest,
) -> Result<Cancel> {
    let mut row = find(tx, namespace, target, request.expected_seq)?;
    if row.status.is_terminal() {
        return Ok(Cancel::AlreadyEnded(row.status));
    }
    because(tx, &mut row, &Cause { reason: request.reason.clone(), with: None })?;
    let undoes = undoes(tx, &row)?;
    if row.status == Status::Executing {
        ask_to_end(tx, &mut row)?;
        return Ok(Cancel::Requested);
    }
    let descendants = cancel_row(tx, &mut row)?;
    Ok(if undoes { Cancel::Requested } else { Cancel::Done { descendants } })
}

/// Why an instance is cancelled.
pub(super) struct Cause {
    pub(super) reason: Option<String>,
    /// The ancestor that takes it along.
    pub(super) with: Option<InstanceId>,
}

/// Notes why an instance is cancelled, or asked to end. What was said first stays.
pub(super) fn because(tx: &Tx<'_>, row: &mut Row, cause: &Cause) -> Result<()> {
    if cause.reason.is_none() && cause.with.is_none() {
        return Ok(());
    }
    row.cancel_reason = row.cancel_reason.take().or_else(|| cause.reason.clone());
    row.cancelled_with = row.cancelled_with.or(cause.with);
    let with = row.cancelled_with.map(|id| id.0);
    tx.sql("update instances set cancel_reason = ?2, cancelled_with = ?3 where id = ?1")?.execute((
        row.id.0,
        &row.cancel_reason,
        with,
    ))?;
    Ok(())
}

/// Cancels an instance and, for each spawn that chose so, its live children and theirs.
pub(super) fn cancel_row(tx: &mut Tx<'_>, row: &mut Row) -> Result<usize> {
    end_or_undo(tx, row)?;
    let cause = Cause { reason: row.cancel_reason.clone(), with: row.cancelled_with.or(Some(row.id)) };
    let mut parents = vec![row.id];
    let mut descendants = 0;
    while let Some(parent) = parents.pop() {
        for child in live_children(tx, parent)? {
            let mut child = tx.load(child)?.expect("a child was just listed");
            because(tx, &mut child, &cause)?;
            if child.status == Status::Executing {
                // Its own children are cancelled with it, when its running step ends.
                ask_to_end(tx, &mut child)?;
            } else if !child.status.is_terminal() {
                end_or_undo(tx, &mut child)?;
                parents.push(child.id);
            }
            descendants += 1;
        }
    }
    Ok(descendants)
}

/// Ends it; or, where its machine undoes, asks it to. One whose step was running has been asked before.
fn end_or_undo(tx: &mut Tx<'_>, row: &mut Row) -> Result<()> {
    if row.status != Status::Executing && undoes(tx, row)? {
        return ask_to_undo(tx, row);
    }
    tx.end(row, &End::Cancelled)
}

pub(super) fn live_children(tx: &Tx<'_>, parent: InstanceId) -> Result<Vec<InstanceId>> {
    let mut sql = tx.sql(
        "select id from instances where parent = ?1 and parent is not null and cascade = 1 and ended_at is null",
    )?;
    let ids = sql.query_map([parent.0], |row| Ok(InstanceId(row.get(0)?)))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// Asks an instance whose step is running: it is cancelled when that ends, or, where its machine undoes, undoes then.
pub(super) fn ask_to_end(tx: &mut Tx<'_>, row: &mut Row) -> Result<()> {
    if undoes(tx, row)? {
        return ask_to_undo(tx, row);
    }
    tx.sql("update instances set cancel_requested = 1 where id = ?1")?.execute([row.id.0])?;
    tx.effects.cancel.push(row.id);
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
    if !matches!(row.status, Status::Failed | Status::Cancelled) {
        let reason = "only a failed or cancelled instance can be retried";
        return Err(Error::WrongStatus { id: row.id, status: row.status, reason });
    }
    if let Some(key) = &row.key
        && let Some(holder) = tx.key_holder(&row.namespace, key)?.filter(|holder| *holder != row.id)
    {
        return Err(Error::KeyTaken { key: key.clone(), holder });
    }
    forget_request(tx, &mut row)?;
    row.attempt = 0;
    row.ended_at = None;
    row.cancel_reason = None;
    row.cancelled_with = None;
    let was_parked = row.wake.is_none();
    match at {
        Some(at) => {
            row.go_to(at);
            row.awaits = row.awaits.filter(|_| !was_parked);
            row.barrier = row.barrier.filter(|_| !was_parked);
            row.run_at(tx.now_us());
        }
        // It was cancelled while it waited, so it waits again; had it been woken, its step would run.
        None if was_parked && row.awaits.is_some() => {
            let until =
                row.parked_until.map_or_else(|| last_deadline(tx, row.id), |until| Ok(Some(until)))?;
            row.park(Status::AwaitingSignal, until);
        }
        // Its unit was cancelled with it: it sees which answers had come.
        None if was_parked && row.barrier.is_some() && units::has_unit(tx, &row)? => {
            row.wake(Wake::Unit, tx.now_us());
        }
        // Its children were cancelled with it, or have ended meanwhile: it sees how.
        None if was_parked && row.barrier.is_some() => row.wake(Wake::Children, tx.now_us()),
        None => row.run_at(tx.now_us()),
    }
    tx.record(&mut row, EventKind::Retried, None)?;
    tx.save(&mut row)?;
    Ok(row.id)
}

/// The deadline of an instance's last await, as its history tells it.
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
    if row.status.is_terminal() {
        let reason = "only a live instance can be paused or resumed";
        return Err(Error::WrongStatus { id: row.id, status: row.status, reason });
    }
    row.paused = brake == Brake::On;
    tx.effects.braked |= row.paused;
    tx.save(&mut row)?;
    Ok(row.id)
}

pub(super) fn tag(
    tx: &mut Tx<'_>,
    namespace: &str,
    target: &Target,
    change: &TagChange,
) -> Result<Vec<String>> {
    let row = find(tx, namespace, target, None)?;
    let tags: Option<String> =
        tx.sql("select tags from instances where id = ?1")?.query_row([row.id.0], |row| row.get(0))?;
    let had = names(tags.as_deref())?;
    let has = change.apply(had.clone())?;
    for gone in had.iter().filter(|tag| !has.contains(tag)) {
        tx.sql(include_str!("tag_remove.sql"))?.execute((namespace, gone, row.id.0))?;
    }
    for new in has.iter().filter(|tag| !had.contains(tag)) {
        tx.sql(include_str!("tag_add.sql"))?.execute((namespace, new, row.id.0))?;
    }
    if has != had {
        tx.sql("update instances set tags = ?2 where id = ?1")?.execute((row.id.0, tags_text(&has)))?;
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

/// The instance that an operator means, at the `seq` at which it is expected.
pub(super) fn find(tx: &Tx<'_>, namespace: &str, target: &Target, expected_seq: Option<u64>) -> Result<Row> {
    let row = tx.find(namespace, target)?.ok_or_else(|| Error::NotFound(target.clone()))?;
    match expected_seq {
        Some(expected) if expected != row.seq => {
            Err(Error::StaleSeq { id: row.id, expected, actual: row.seq })
        }
        _ => Ok(row),
    }
}
