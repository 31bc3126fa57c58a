//! Signals in an inbox that the machine's code cannot read: they got there past an older door, or from SQL. Alone they
//! wake nobody: their instance goes on waiting.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

use super::Shared;
use crate::signal::CANCEL;
use crate::store::{Bounds, Events};
use crate::{At, Context, DynMachine, EventKind, SignalId, Transition, Wake, When};

/// Signals that are remembered as told.
const TOLD_MAX: usize = 1_024;
/// Events that are looked at for what an instance waits for: it was woken a moment ago.
const EVENTS_MAX: usize = 32;

/// Signals that the log has told, so that it tells each once.
#[derive(Default)]
pub(super) struct Told(Mutex<VecDeque<SignalId>>);

impl Told {
    /// Whether it is told for the first time, as far as that is remembered.
    fn is_first(&self, id: SignalId) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.contains(&id) {
            return false;
        }
        if told.len() == TOLD_MAX {
            told.pop_front();
        }
        told.push_back(id);
        true
    }
}

/// The wait to go back to, if nothing that woke this step can be read: by what the machine declares of its signals.
pub(super) async fn wait_on(
    shared: &Shared,
    machine: &dyn DynMachine,
    at: &At,
    cx: &Context,
) -> Option<Transition> {
    // Whoever is asked to undo what it did was woken by that.
    if cx.wake != Some(Wake::Signal) || cx.inbox().iter().any(|signal| signal.name == CANCEL) {
        return None;
    }
    let gates = shared.registry.gates(machine.name(), machine.version())?;
    let mut refused = Vec::new();
    for received in cx.received_all() {
        refused.push((received, gates.payload(&received.name, &received.payload).err()?));
    }
    // Nothing at all was received where somebody dropped it meanwhile: that is for the step to see.
    if refused.is_empty() {
        return None;
    }
    let until = deadline(shared, cx).await?;
    for (received, reason) in refused {
        cx.cannot_read(received, reason);
    }
    Some(Transition::Await { at: at.clone(), names: cx.awaits.clone(), timeout: until })
}

/// Until when it waited before it was woken, as its history tells; `None` if that does not tell.
async fn deadline(shared: &Shared, cx: &Context) -> Option<Option<When>> {
    #[derive(Deserialize)]
    struct Waiting {
        until: Option<jiff::Timestamp>,
    }
    let newest = Events::Before(cx.seq.saturating_add(1));
    let events = shared.store.history(cx.id, newest, Bounds::rows(EVENTS_MAX)).await.ok()?;
    let waiting = events.items.into_iter().find(|event| event.kind == EventKind::SignalWaiting)?;
    let Waiting { until } = waiting.data?.decode("event's data").ok()?;
    Some(until.map(When::At))
}

/// Logs the signals that this run could not read, each once.
pub(super) fn warn(shared: &Shared, machine: &dyn DynMachine, cx: &Context) {
    for unread in cx.unreadable() {
        if shared.unread.is_first(unread.id) {
            tracing::warn!(
                id = %cx.id, machine = machine.name(), signal = unread.id.0, name = unread.name,
                error = unread.error,
                "a signal in the inbox cannot be read and is passed over: drop or edit it"
            );
        }
    }
}
