//! Inserting instances, alone or as children.

use rusqlite::params;

use super::counts::Place;
use super::deliver::{Sent, deliver_to};
use super::kept::{Received, receive_kept};
use super::row::{names_text, run_columns};
use super::tx::Tx;
use crate::limits::sorted;
use crate::rules::{self, Begun};
use crate::share::own_share;
use crate::{Children, History, InboxMax, Inserted, InstanceId, NewInstance, Result, Status};

/// Whose child an instance is.
#[derive(Clone, Copy)]
pub(super) struct Parentage {
    pub(super) parent: InstanceId,
    pub(super) round: u32,
    pub(super) on_cancel: Children,
}

/// Whose mail starts an instance.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) id: InstanceId,
    /// The event that sent the mail.
    pub(super) seq: u64,
    /// How many starts by mail led to it.
    pub(super) depth: u32,
}

/// Inserts an instance that mail starts.
pub(super) fn insert_sent(tx: &mut Tx<'_>, mut new: NewInstance, sender: Sender) -> Result<Inserted> {
    new.sent_by = Some((sender.id, sender.seq));
    let inserted = insert(tx, &[new], None)?.pop().expect("one instance, one answer");
    if let Inserted::New(id) = inserted {
        tx.sql("update instances set depth = ?2 where id = ?1")?.execute((id.0, sender.depth))?;
    }
    Ok(inserted)
}

/// Inserts instances, and then delivers their signals: to them, or to the holder of their key.
pub(super) fn insert(
    tx: &mut Tx<'_>,
    batch: &[NewInstance],
    parentage: Option<Parentage>,
) -> Result<Vec<Inserted>> {
    let mut inserted = Vec::with_capacity(batch.len());
    for (index, new) in batch.iter().enumerate() {
        inserted.push(insert_one(tx, new, parentage.map(|parentage| (parentage, index)))?);
    }
    let mut rooms = Vec::with_capacity(batch.len());
    for (new, inserted) in batch.iter().zip(&inserted) {
        let received = match (&new.key, inserted) {
            (Some(key), Inserted::New(id)) => receive_kept(tx, &new.namespace, key, *id)?,
            _ => Received::default(),
        };
        // What was kept for a new instance takes no room from what comes with it.
        let InboxMax { signals, bytes } = new.inbox_max;
        rooms.push(InboxMax {
            signals: signals.saturating_add(received.signals),
            bytes: bytes.saturating_add(received.bytes),
        });
    }
    let sent = batch.iter().zip(&inserted).zip(rooms).flat_map(|((new, inserted), inbox_max)| {
        let target = Some(inserted.id());
        new.signals.iter().map(move |signal| Sent { target, namespace: None, signal, inbox_max })
    });
    let mut delivered = deliver_to(tx, sent)?.into_iter();
    for (new, inserted) in batch.iter().zip(&mut inserted) {
        let delivered = delivered.by_ref().take(new.signals.len());
        match inserted {
            Inserted::Taken { signals, .. } => signals.extend(delivered),
            Inserted::New(_) => delivered.for_each(drop),
        }
    }
    Ok(inserted)
}

/// Inserts one instance in the status in which it starts, or returns who holds its key. A child has an index: its place
/// in what was spawned.
fn insert_one(tx: &mut Tx<'_>, new: &NewInstance, parentage: Option<(Parentage, usize)>) -> Result<Inserted> {
    let (parentage, index) = parentage.unzip();
    let Begun { status, arms, awaits, events } = rules::begin(new, tx.now());
    let wake_at = arms.map(|when| when.moment(tx.now()));
    let blocked = new.lane.is_some() && status == Status::Runnable;
    let keeps_history = new.history.unwrap_or_default() == History::On;
    let inserted = tx.sql(include_str!("insert.sql"))?.execute(params![
        new.namespace,
        new.machine,
        new.version,
        status.as_str(),
        new.at.step,
        events.len() as i64,
        new.queue,
        new.priority,
        tx.now_us(),
        wake_at.map(jiff::Timestamp::as_microsecond),
        names_text(&awaits),
        parentage.map(|p| p.parent.0),
        parentage.map(|p| p.round),
        parentage.is_some_and(|p| p.on_cancel == Children::Cancel),
        new.lane,
        blocked,
        keeps_history,
        new.key,
        new.key_scope.to_text(),
        new.at.state.as_str(),
        index.map(|index| index as u32),
        names_text(&sorted(&new.tags)),
        own_share(&new.namespace, new.share.as_deref()),
        new.trace,
        new.cost,
    ])?;
    if inserted == 0 {
        let key = new.key.as_deref().expect("only a key can be taken");
        let holder = tx.key_holder(&new.namespace, key)?.expect("a taken key has a holder");
        return Ok(Inserted::Taken { holder, signals: Vec::new() });
    }
    let id = InstanceId(tx.conn().last_insert_rowid());
    let NewInstance { namespace, queue, machine, version, at, .. } = new;
    tx.counts.add(Place { namespace, queue, machine, version: *version, step: &at.step, status }, 1);
    for tag in sorted(&new.tags) {
        tx.sql(include_str!("tag_add.sql"))?.execute((&new.namespace, tag, id.0))?;
    }
    if keeps_history {
        let mut record = tx.sql(include_str!("record.sql"))?;
        let (started_at, took, progress) = run_columns(None);
        let (step, mut state) = (&*new.at.step, Some(new.at.state.as_str()));
        for (seq, event) in (1_i64..).zip(events) {
            let (kind, data) = (event.kind.as_str(), event.data.map(|data| data.text(tx.now())));
            let (version, now, state) = (new.version, tx.now_us(), state.take());
            record.execute(params![
                id.0, seq, kind, version, step, now, data, state, started_at, took, progress
            ])?;
        }
    }
    match (&new.lane, wake_at) {
        (_, Some(at)) => tx.effects.arm(at),
        (Some(lane), None) if blocked => {
            tx.lanes.insert((new.namespace.clone(), lane.clone()));
        }
        (_, None) if status == Status::Runnable => tx.effects.runnable(&new.queue),
        _ => {}
    }
    Ok(Inserted::New(id))
}
