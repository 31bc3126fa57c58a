//! Signals in an inbox that the machine's code cannot read: an older version accepted them, or SQL inserted them. They
//! do not wake their instance: it goes on waiting.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

use super::Shared;
use crate::signal::CANCEL;
use crate::store::{Bounds, Events};
use crate::{At, Context, DynMachine, EventKind, SignalId, Transition, Wake, When};

/// How many logged signals are remembered.
const TOLD_MAX: usize = 1_024;
/// How many events are searched for the instance's last wait: it was woken a moment ago.
const EVENTS_MAX: usize = 32;

/// Signals that were logged, so that each is logged once.
#[derive(Default)]
pub(super) struct Told(Mutex<VecDeque<SignalId>>);

impl Told {
    /// Whether it has not been logged yet, as far as that is remembered.
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

/// The wait to go back to, if none of the signals that woke this step fits the machine's declaration.
pub(super) async fn wait_on(
    shared: &Shared,
    machine: &dyn DynMachine,
    at: &At,
    cx: &Context,
) -> Option<Transition> {
    // A saga that is asked to undo its acts was woken by that request.
    if cx.wake != Some(Wake::Signal) || cx.inbox().iter().any(|signal| signal.name == CANCEL) {
        return None;
    }
    let gates = shared.registry.gates(machine.name(), machine.version())?;
    let mut refused = Vec::new();
    for received in cx.received_all() {
        refused.push((received, gates.payload(&received.name, &received.payload).err()?));
    }
    // Somebody may have dropped the signal meanwhile, so that nothing was received: the step decides what to do.
    if refused.is_empty() {
        return None;
    }
    let until = deadline(shared, cx).await?;
    for (received, reason) in refused {
        cx.cannot_read(received, reason);
    }
    Some(Transition::Await { at: at.clone(), names: cx.awaits.clone(), timeout: until })
}

/// Until when it waited before it was woken, from its history; `None` if the history does not say.
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
                "a signal in the inbox cannot be read and is skipped: drop or edit it"
            );
        }
    }
}
