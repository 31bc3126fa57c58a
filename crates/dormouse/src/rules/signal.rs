//! A signal arrives, is consumed, dropped or edited.
//!
//! **Dedup outlives consumption.** Which rows go and which stay, out of the inbox, is the stores' part (`consume` in
//! `store/sqlite/commit.rs`): see [`Change::consumes`].

use jiff::Timestamp;
use serde::Serialize;

use super::{Change, Data, Head};
use crate::signal::CANCEL;
use crate::{EventKind, InboxSignal, Json, SignalId, Status, Wake, When};

/// Whether the instance is parked on this name.
pub(crate) fn awaited_by(head: &Head, name: &str) -> bool {
    head.status == Status::AwaitingSignal && head.awaits.iter().any(|awaited| awaited == name)
}

/// A signal was stored in the inbox.
pub(crate) fn arrive(head: &mut Head, payload_bytes: usize) {
    head.inbox += 1;
    head.inbox_bytes += payload_bytes as u64;
}

/// Signals left the inbox.
pub(crate) fn leave(head: &mut Head, signals: u32, bytes: u64) {
    head.inbox = head.inbox.checked_sub(signals).expect("the inbox holds what leaves it");
    head.inbox_bytes = if head.inbox == 0 { 0 } else { head.inbox_bytes.saturating_sub(bytes) };
}

/// Makes an instance runnable because of a signal, and records which.
pub(crate) fn wake_by_signal(change: &mut Change, signal: &InboxSignal, now: Timestamp) {
    change.wake(Wake::Signal, now);
    let data = Data::new()
        .with("id", signal.id.0)
        .with("name", &*signal.name)
        .with_json("payload", signal.payload.clone());
    let data = match &signal.dedup_key {
        Some(key) => data.with("dedup_key", &**key),
        None => data,
    };
    change.record(EventKind::SignalReceived, Some(data));
}

/// Lets an instance wait again that was woken by a signal which is no longer in its inbox. `left` are the names in its
/// inbox; `until` is the deadline that its wait had.
pub(crate) fn wait_again(change: &mut Change, left: &[String], until: Option<Timestamp>, now: Timestamp) {
    let head = &mut change.head;
    if head.wake != Some(Wake::Signal) || head.awaits.is_empty() {
        return;
    }
    if left.iter().any(|name| head.awaits.contains(name) || name == CANCEL) {
        return;
    }
    head.wake = None;
    if !head.status.is_terminal() {
        change.park(Status::AwaitingSignal, until.map(When::At), now);
    }
}

/// A consumed signal in an event's data. It is written straight to text: a detour over a tree would change its numbers.
pub(crate) fn signal_data(id: SignalId, name: &str, payload: &Json) -> String {
    #[derive(Serialize)]
    struct Shown<'a> {
        id: SignalId,
        name: &'a str,
        payload: &'a Json,
    }
    serde_json::to_string(&Shown { id, name, payload }).expect("names and valid JSON can be written")
}
