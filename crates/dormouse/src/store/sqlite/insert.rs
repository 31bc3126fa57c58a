//! Inserting instances, alone or as children.

use rusqlite::params;

use super::commit::{Park, park_on_signals};
use super::counts::Place;
use super::deliver::deliver_to;
use super::tx::Tx;
use crate::{
    Children, EventKind, History, Inserted, InstanceId, KeyScope, NewInstance, NewSignal, Result, Status,
};

/// Whose child an instance is.
#[derive(Clone, Copy)]
pub(super) struct Parentage {
    pub(super) parent: InstanceId,
    pub(super) round: u32,
    pub(super) on_cancel: Children,
}

/// Inserts one instance, or tells who holds its key.
pub(super) fn insert(tx: &mut Tx<'_>, new: &NewInstance, parentage: Option<Parentage>) -> Result<Inserted> {
    let wake_at = new.start_at.map(|when| when.moment(tx.now())).filter(|at| *at > tx.now());
    let status = if wake_at.is_some() { Status::Scheduled } else { Status::Runnable };
    let blocked = match &new.lane {
        Some(lane) if status == Status::Runnable => tx.lane_is_held(&new.namespace, lane, InstanceId(0))?,
        _ => false,
    };
    let keeps_history = new.history.unwrap_or_default() == History::On;
    let inserted = tx.sql(include_str!("insert.sql"))?.execute(params![
        new.namespace,
        new.machine,
        new.version,
        status.as_str(),
        new.at.step,
        new.queue,
        new.priority,
        tx.now_us(),
        wake_at.map(jiff::Timestamp::as_microsecond),
        0,
        parentage.map(|p| p.parent.0),
        parentage.map(|p| p.round),
        parentage.is_some_and(|p| p.on_cancel == Children::Cancel),
        new.lane,
        blocked,
        keeps_history,
        new.key,
        scope_text(&new.key_scope),
        new.at.state.as_str(),
    ])?;
    if inserted == 0 {
        return taken(tx, new);
    }
    let id = InstanceId(tx.conn().last_insert_rowid());
    let NewInstance { namespace, queue, machine, at, .. } = new;
    tx.counts.add(Place { namespace, queue, machine, step: &at.step, status }, 1);
    if keeps_history {
        let forked = new.forked_from.map(|(from, seq)| format!(r#"{{"forked_from":{from},"seq":{seq}}}"#));
        tx.sql(include_str!("record.sql"))?.execute(params![
            id.0,
            1,
            EventKind::Created.as_str(),
            new.version,
            new.at.step,
            tx.now_us(),
            forked,
            new.at.state.as_str()
        ])?;
    }
    match wake_at {
        Some(at) => tx.effects.arm(at),
        None if !blocked => tx.effects.runnable(&new.queue),
        None => {}
    }
    if let Some((names, timeout)) = &new.awaits {
        let mut row = tx.load(id)?.expect("it was just inserted");
        park_on_signals(tx, &mut row, &[], &Park { at: &new.at, names, timeout: *timeout })?;
        tx.save(&mut row)?;
    }
    for signal in &new.signals {
        deliver_to(tx, id, signal)?;
    }
    Ok(Inserted::New(id))
}

/// The key is taken: the signals that came along are for its holder.
fn taken(tx: &mut Tx<'_>, new: &NewInstance) -> Result<Inserted> {
    let key = new.key.as_deref().expect("only a key can be taken");
    let holder = tx.key_holder(&new.namespace, key)?.expect("a taken key has a holder");
    let deliver = |signal: &NewSignal| deliver_to(tx, holder, signal);
    let signals = new.signals.iter().map(deliver).collect::<Result<_>>()?;
    Ok(Inserted::Taken { holder, signals })
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
