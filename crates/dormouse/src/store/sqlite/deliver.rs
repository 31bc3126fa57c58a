//! Delivering signals: store the row, then wake the instance if it is parked on its name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rusqlite::params;

use super::kept::keep;
use super::row::Row;
use super::tx::{Tx, resolve};
use crate::rules::{self, Head};
use crate::store::Delivery;
use crate::{Delivered, InboxMax, InboxSignal, InstanceId, NewSignal, Result, SignalId, Trace};

pub(super) fn deliver(tx: &mut Tx<'_>, batch: &[Delivery]) -> Result<Vec<Delivered>> {
    let addressed = |delivery: &'_ Delivery| resolve(tx.conn(), &delivery.namespace, &delivery.target);
    let targets = batch.iter().map(addressed).collect::<Result<Vec<_>>>()?;
    let sent = targets.into_iter().zip(batch).map(|(target, delivery)| {
        let Delivery { namespace, signal, inbox_max, .. } = delivery;
        Sent { target, namespace: Some(namespace), signal, inbox_max: *inbox_max }
    });
    let mut delivered = deliver_to(tx, sent)?;
    let mut unheard: Vec<_> = batch.iter().zip(&mut delivered).collect();
    unheard
        .retain(|(delivery, answer)| delivery.signal.keep_for.is_some() && **answer == Delivered::NoTarget);
    // In the order of the keys, as on PostgreSQL, where they are locked in it.
    unheard.sort_by_key(|(delivery, _)| (&delivery.namespace, delivery.target.to_string()));
    for (delivery, answer) in unheard {
        *answer = keep(tx, delivery)?;
    }
    Ok(delivered)
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
    let mut targets = BTreeMap::new();
    for (place, sent) in batch.enumerate() {
        let answer = match sent.target.map(|id| target(tx, &mut targets, id)).transpose()?.flatten() {
            Some(target) if sent.may_go_to(target.row.head()) => {
                let answer = store(tx, target.row.head(), &sent)?;
                if let Delivered::Accepted { id, .. } = answer {
                    target.meets(Woken { place, id, signal: sent.signal });
                }
                answer
            }
            _ => Delivered::NoTarget,
        };
        delivered.push(answer);
    }
    wake(tx, targets, &mut delivered)?;
    Ok(delivered)
}

/// An instance that signals of a batch go to, as it is after those that were stored.
struct Addressed<'a> {
    row: Row,
    arrived: bool,
    woken: Option<Woken<'a>>,
}

/// The signal that wakes an instance, and its place in the batch.
struct Woken<'a> {
    place: usize,
    id: SignalId,
    signal: &'a NewSignal,
}

/// A target is loaded once, however many signals of the batch it gets.
fn target<'t, 'a>(
    tx: &Tx<'_>,
    targets: &'t mut BTreeMap<InstanceId, Addressed<'a>>,
    id: InstanceId,
) -> Result<Option<&'t mut Addressed<'a>>> {
    Ok(match targets.entry(id) {
        Entry::Occupied(found) => Some(found.into_mut()),
        Entry::Vacant(vacant) => {
            let row = tx.load(id)?;
            row.map(|row| vacant.insert(Addressed { row, arrived: false, woken: None }))
        }
    })
}

impl Sent<'_> {
    fn may_go_to(&self, head: &Head) -> bool {
        !head.status.is_terminal() && self.namespace.is_none_or(|name| name == head.namespace)
    }
}

impl<'a> Addressed<'a> {
    /// A signal is in its inbox.
    fn meets(&mut self, woken: Woken<'a>) {
        let head = &mut self.row.change.head;
        self.arrived = true;
        rules::arrive(head, woken.signal.payload.as_str().len());
        if rules::awaited_by(head, &woken.signal.name) {
            self.woken.get_or_insert(woken);
        }
    }
}

fn store(tx: &Tx<'_>, head: &Head, sent: &Sent<'_>) -> Result<Delivered> {
    let NewSignal { name, payload, dedup_key, trace, .. } = sent.signal;
    let payload = payload.as_str();
    if !sent.inbox_max.allows(head.inbox as usize + 1, head.inbox_bytes + payload.len() as u64) {
        let is_there = "select 1 from signals where instance = ?1 and dedup_key = ?2";
        let repeats = dedup_key.is_some() && tx.sql(is_there)?.exists((head.id.0, dedup_key))?;
        return Ok(if repeats { Delivered::Duplicate } else { Delivered::InboxFull });
    }
    let mut sql = tx.sql(include_str!("deliver.sql"))?;
    if sql.execute(params![head.id.0, name, dedup_key, tx.now_us(), payload, trace])? == 0 {
        return Ok(Delivered::Duplicate);
    }
    Ok(Delivered::Accepted { id: SignalId(tx.conn().last_insert_rowid()), woke: false })
}

/// Writes what the signals did to their targets. A wake that fails for a taken key may change the others of this batch, its
/// parent for one: after such a one they are loaded again.
fn wake(
    tx: &mut Tx<'_>,
    targets: BTreeMap<InstanceId, Addressed<'_>>,
    delivered: &mut [Delivered],
) -> Result<()> {
    let mut touched_others = false;
    for target in targets.values().filter(|target| target.arrived && target.woken.is_none()) {
        tx.note_inbox(target.row.head())?;
    }
    for Addressed { mut row, woken, .. } in targets.into_values() {
        let Some(Woken { place, id, signal }) = woken else { continue };
        if touched_others {
            tx.note_inbox(row.head())?;
            row = tx.load(row.id())?.expect("it has just been sent a signal");
            if !rules::awaited_by(row.head(), &signal.name) {
                continue;
            }
        }
        let NewSignal { name, payload, dedup_key, trace, .. } = signal.clone();
        let (at, trace) = (tx.now(), Trace::stored(trace));
        let signal = InboxSignal { id, name, payload, dedup_key, at, trace };
        rules::wake_by_signal(&mut row.change, &signal, tx.now());
        tx.save(&mut row)?;
        touched_others |= row.head().status.is_terminal();
        delivered[place] = Delivered::Accepted { id, woke: true };
    }
    Ok(())
}
