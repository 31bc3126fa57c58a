//! Inserting instances, alone or as children.

use rusqlite::params;

use super::commit::Waiting;
use super::counts::Place;
use super::deliver::{Sent, deliver_to};
use super::row::told_run;
use super::tx::Tx;
use crate::limits::sorted;
use crate::{Children, EventKind, History, Inserted, InstanceId, KeyScope, NewInstance, Result, Status};

/// Whose child an instance is.
#[derive(Clone, Copy)]
pub(super) struct Parentage {
    pub(super) parent: InstanceId,
    pub(super) round: u32,
    pub(super) on_cancel: Children,
}

/// Inserts instances, and then delivers their signals: to them, or to whoever holds their key.
pub(super) fn insert(
    tx: &mut Tx<'_>,
    batch: &[NewInstance],
    parentage: Option<Parentage>,
) -> Result<Vec<Inserted>> {
    let mut inserted = Vec::with_capacity(batch.len());
    for (index, new) in batch.iter().enumerate() {
        inserted.push(insert_one(tx, new, parentage.map(|parentage| (parentage, index)))?);
    }
    let sent = batch.iter().zip(&inserted).flat_map(|(new, inserted)| {
        let target = Some(inserted.id());
        let inbox_max = new.inbox_max;
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

/// Inserts one instance in the status in which it starts, or tells who holds its key. A child has an index: its place
/// in what was spawned.
fn insert_one(tx: &mut Tx<'_>, new: &NewInstance, parentage: Option<(Parentage, usize)>) -> Result<Inserted> {
    let (parentage, index) = parentage.unzip();
    let parked = new.awaits.as_ref().map(|(names, timeout)| Waiting::new(names, *timeout, tx.now()));
    let starts_at = new.start_at.map(|when| when.moment(tx.now())).filter(|at| *at > tx.now());
    let (status, wake_at) = match (&parked, starts_at) {
        (Some(waiting), _) => (Status::AwaitingSignal, waiting.until),
        (None, Some(at)) => (Status::Scheduled, Some(at)),
        (None, None) => (Status::Runnable, None),
    };
    let blocked = new.lane.is_some() && status == Status::Runnable;
    let keeps_history = new.history.unwrap_or_default() == History::On;
    let inserted = tx.sql(include_str!("insert.sql"))?.execute(params![
        new.namespace,
        new.machine,
        new.version,
        status.as_str(),
        new.at.step,
        1 + i64::from(parked.is_some()),
        new.queue,
        new.priority,
        tx.now_us(),
        wake_at.map(jiff::Timestamp::as_microsecond),
        parked.as_ref().map(Waiting::awaits),
        parentage.map(|p| p.parent.0),
        parentage.map(|p| p.round),
        parentage.is_some_and(|p| p.on_cancel == Children::Cancel),
        new.lane,
        blocked,
        keeps_history,
        new.key,
        scope_text(&new.key_scope),
        new.at.state.as_str(),
        index.map(|index| index as u32),
        tags_text(&new.tags),
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
        let forked = new.forked_from.map(|(from, seq)| format!(r#"{{"forked_from":{from},"seq":{seq}}}"#));
        let (step, state) = (&*new.at.step, new.at.state.as_str());
        let mut record = tx.sql(include_str!("record.sql"))?;
        let kind = EventKind::Created.as_str();
        let (started_at, took, progress) = told_run(None);
        let told =
            params![id.0, 1, kind, new.version, step, tx.now_us(), forked, state, started_at, took, progress];
        record.execute(told)?;
        if let Some(waiting) = &parked {
            let (kind, data) = (EventKind::SignalWaiting.as_str(), waiting.data());
            let (state, version) = (None::<&str>, new.version);
            let told =
                params![id.0, 2, kind, version, step, tx.now_us(), data, state, started_at, took, progress];
            record.execute(told)?;
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

/// The `tags` column: a JSON array in order, each tag once; null if there are none.
pub(super) fn tags_text(tags: &[String]) -> Option<String> {
    (!tags.is_empty()).then(|| serde_json::json!(sorted(tags)).to_string())
}

fn scope_text(scope: &KeyScope) -> Option<String> {
    match scope {
        KeyScope::Live => None,
        KeyScope::Always => Some("always".to_owned()),
        KeyScope::In(statuses) => {
            Some(statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>().join(","))
        }
    }
}
