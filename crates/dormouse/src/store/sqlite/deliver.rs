//! Delivering signals: store the row, then wake the instance if it is parked on its name.

use std::collections::BTreeMap;

use rusqlite::params;

use super::row::Row;
use super::tx::{Tx, resolve};
use crate::rules::{self, Head};
use crate::store::Delivery;
use crate::{Delivered, InboxMax, InboxSignal, InstanceId, NewSignal, Result, SignalId};

pub(super) fn deliver(tx: &mut Tx<'_>, batch: &[Delivery]) -> Result<Vec<Delivered>> {
    let addressed = |delivery: &'_ Delivery| resolve(tx.conn(), &delivery.namespace, &delivery.target);
    let targets = batch.iter().map(addressed).collect::<Result<Vec<_>>>()?;
    let sent = targets.into_iter().zip(batch).map(|(target, delivery)| {
        let Delivery { namespace, signal, inbox_max, .. } = delivery;
        Sent { target, namespace: Some(namespace), signal, inbox_max: *inbox_max }
    });
    deliver_to(tx, sent)
}

/// A signal on its way.
pub(super) struct Sent<'a> {
    /// The instance, if it is known.
    pub(super) target: Option<InstanceId>,
    /// The namespace in which it has to be, if it was named by who sent this.
    pub(super) namespace: Option<&'a str>,
    pub(super) signal: &'a NewSignal,
    /// How much the inbox may hold that it goes to.
    pub(super) inbox_max: InboxMax,
}

/// Delivers to instances that are known. All of it is stored before any of it wakes someone: what comes together
/// is there together, whatever becomes of its target.
pub(super) fn deliver_to<'a>(
    tx: &mut Tx<'_>,
    batch: impl Iterator<Item = Sent<'a>>,
) -> Result<Vec<Delivered>> {
    let mut delivered = Vec::new();
    // In the order of their ids: of those whose wake takes the same key, the oldest gets it.
    let mut targets: BTreeMap<InstanceId, Option<Woken<'a>>> = BTreeMap::new();
    for (place, Sent { target, namespace, signal, inbox_max }) in batch.enumerate() {
        let hears = |row: &Row| {
            let Head { status, namespace: of, .. } = row.head();
            !status.is_terminal() && namespace.is_none_or(|name| name == of)
        };
        let row = target.map(|id| tx.load(id)).transpose()?.flatten();
        let Some(mut head) = row.filter(hears).map(|row| row.change.head) else {
            delivered.push(Delivered::NoTarget);
            continue;
        };
        let (payload, dedup_key) = (signal.payload.as_str(), &signal.dedup_key);
        let bytes = head.inbox_bytes + payload.len() as u64;
        if !inbox_max.allows(head.inbox as usize + 1, bytes) {
            let is_there = "select 1 from signals where instance = ?1 and dedup_key = ?2";
            let repeats = dedup_key.is_some() && tx.sql(is_there)?.exists((head.id.0, dedup_key))?;
            delivered.push(if repeats { Delivered::Duplicate } else { Delivered::InboxFull });
            continue;
        }
        let stored = tx.sql(include_str!("deliver.sql"))?.execute(params![
            head.id.0,
            signal.name,
            dedup_key,
            tx.now_us(),
            payload
        ])?;
        if stored == 0 {
            delivered.push(Delivered::Duplicate);
            continue;
        }
        let id = SignalId(tx.conn().last_insert_rowid());
        delivered.push(Delivered::Accepted { id, woke: false });
        let woken = targets.entry(head.id).or_default();
        rules::arrive(&mut head, payload.len());
        tx.note_inbox(&head)?;
        if rules::awaited_by(&head, &signal.name) {
            woken.get_or_insert(Woken { place, id, signal });
        }
    }
    for (target, woken) in targets {
        let Some(Woken { place, id, signal }) = woken else { continue };
        let NewSignal { name, payload, dedup_key } = signal.clone();
        let mut row = tx.load(target)?.expect("it has just been sent a signal");
        rules::wake_by_signal(
            &mut row.change,
            &InboxSignal { id, name, payload, dedup_key, at: tx.now() },
            tx.now(),
        );
        tx.save(&mut row)?;
        delivered[place] = Delivered::Accepted { id, woke: true };
    }
    Ok(delivered)
}

/// The signal that wakes an instance, and its place in the batch.
struct Woken<'a> {
    place: usize,
    id: SignalId,
    signal: &'a NewSignal,
}
