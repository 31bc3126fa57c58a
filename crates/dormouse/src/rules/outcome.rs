//! A step returned.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;

use super::mail::send;
use super::signal::{leave, wake_by_signal};
use super::{Change, Data, Head, NewEvent};
use crate::clock::micros;
use crate::limits::storable;
use crate::signal::CANCEL;
use crate::{
    EventKind, InboxSignal, Json, Mail, Shape, SignalId, Spawn, Status, Transition, UnitId, UnitStatus, Wake,
    When, WorkerId,
};

/// An inbox of more bytes does not come with a receipt: the row is given back, and claimed again.
pub const INBOX_WITH_RECEIPT_BYTES_MAX: u64 = 65_536;

/// What becomes of the claim after a `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// The worker goes on with the next step.
    Keep,
    /// The row goes back among the runnable ones.
    Release,
}

/// What a step returned, and what the store looked up for it.
#[derive(Clone, Debug)]
pub struct Returned<'a> {
    /// The outcome.
    pub transition: &'a Transition,
    /// The version of the place it leads to.
    pub version: u32,
    /// Whether a `next` keeps the claim.
    pub hold: Hold,
    /// The signals that the step was handed as received.
    pub received: &'a [SignalId],
    /// What it sends to other instances.
    pub mail: &'a [Mail],
    /// What the store looked up.
    pub facts: Facts<'a>,
}

/// What a store looks up, under the instance's lock, before an outcome is decided.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    /// For an await: the first awaited signal in the inbox that the step was not handed ([`unseen`]).
    pub unseen: Option<&'a InboxSignal>,
    /// For an outcome that consumes: what was consumed.
    pub consumed: Option<Consumed>,
    /// For a spawn: how many children were inserted. One whose key is taken is not.
    pub inserted: u32,
    /// For a dispatch: the unit that was opened.
    pub unit: Option<UnitId>,
    /// For `done`: the fields `unread` and `unread_total`, if signals are left that no step has read.
    pub unread: Option<(Json, u64)>,
}

/// The facts of a handed inbox that an outcome depends on. Only the instance's own step consumes signals, so an inbox
/// with as many signals as were handed is the one that was handed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Handed {
    /// How many signals there were.
    pub signals: u32,
    /// The last of them.
    pub last: Option<SignalId>,
    /// For an await: the first awaited one that the step was not handed as received.
    unseen: Option<InboxSignal>,
    /// For an end: names that the step did not receive, with their counts.
    unread: BTreeMap<String, u64>,
}

impl Handed {
    /// The facts of this inbox that this outcome depends on.
    pub fn of(inbox: &[InboxSignal], transition: &Transition, received: &[SignalId]) -> Self {
        let mut handed = Self::default();
        handed.meets(inbox, transition, received);
        handed
    }

    /// Adds signals that have arrived since.
    pub fn meets(&mut self, arrived: &[InboxSignal], transition: &Transition, received: &[SignalId]) {
        self.signals += arrived.len() as u32;
        self.last = arrived.last().map(|signal| signal.id).or(self.last);
        match transition {
            Transition::Await { names, .. } if self.unseen.is_none() => {
                let id = unseen(arrived.iter().map(|signal| (signal.id, &*signal.name)), names, received);
                self.unseen = id.and_then(|id| arrived.iter().find(|signal| signal.id == id)).cloned();
            }
            Transition::Done { .. } => {
                let unread = arrived.iter().filter(|signal| !received.contains(&signal.id));
                for signal in unread.filter(|signal| signal.name != CANCEL) {
                    *self.unread.entry(signal.name.clone()).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    /// Whether the outcome would be another one if a signal had arrived meanwhile.
    pub fn decides(transition: &Transition) -> bool {
        matches!(transition, Transition::Await { .. } | Transition::Done { .. })
    }

    /// The facts, as the worker knows them.
    pub fn facts(&self, transition: &Transition, received: &[SignalId]) -> Facts<'_> {
        let signals = received.len() as u32;
        let inserted = match transition {
            Transition::Spawn(spawn) => spawn.children.len() as u32,
            _ => 0,
        };
        Facts {
            unseen: self.unseen.as_ref(),
            // How large they were, and what was in them, the store finds when it consumes them.
            consumed: consumes(transition).then_some(Consumed { signals, bytes: 0, data: None }),
            inserted,
            unit: None,
            unread: self.unread(),
        }
    }

    /// The names that are left unread, the most frequent first, bounded; and how many signals in all.
    fn unread(&self) -> Option<(Json, u64)> {
        let mut names: Vec<_> = self.unread.iter().collect();
        names.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        let shown = names.iter().take(UNREAD_NAMES_MAX);
        let shown: Vec<_> = shown.map(|(name, count)| json!({ "name": name, "count": count })).collect();
        (!names.is_empty()).then(|| (Json::from(json!(shown)), self.unread.values().sum()))
    }
}

/// Names of unread signals that the event of an end holds.
const UNREAD_NAMES_MAX: usize = 16;

/// Signals that an outcome consumed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// How many.
    pub signals: u32,
    /// How many bytes their payloads had.
    pub bytes: u64,
    /// They themselves, as a JSON array for the event; `None` if the store adds them to it.
    pub data: Option<Json>,
}

/// **A stale commit changes nothing**: an outcome counts only if its worker still holds the row, at the `seq` at which it
/// was handed out.
pub fn owns(head: &Head, worker: WorkerId, seq: u64) -> bool {
    head.worker == Some(worker) && head.seq == seq
}

/// Whether an outcome is progress, and so consumes what its step received.
pub fn consumes(transition: &Transition) -> bool {
    match transition {
        Transition::Next { .. }
        | Transition::Sleep { .. }
        | Transition::Spawn(_)
        | Transition::Dispatch(_) => true,
        Transition::Replay { .. }
        | Transition::Await { .. }
        | Transition::Done { .. }
        | Transition::Fail { .. } => false,
    }
}

/// **Re-await does not spin**: a park is woken only by an awaited signal that the parking step was not handed.
/// Returns the first such one of an inbox, which is in order of arrival.
pub fn unseen<'n>(
    mut inbox: impl Iterator<Item = (SignalId, &'n str)>,
    names: &[String],
    handed: &[SignalId],
) -> Option<SignalId> {
    let wakes =
        |(id, name): &(SignalId, &str)| names.iter().any(|awaited| awaited == name) && !handed.contains(id);
    inbox.find(wakes).map(|(id, _)| id)
}

/// **Run ahead is bounded**: whether the row is given back after a `next`, because its worker has had its turn (`RunAhead` in
/// `engine/step.rs` counts), somebody paused it, or its inbox is too large to come with the receipt.
pub(crate) fn handed_over(head: &Head, hold: Hold) -> bool {
    hold == Hold::Release || head.paused || head.inbox_bytes > INBOX_WITH_RECEIPT_BYTES_MAX
}

impl Head {
    /// What a worker knows of a row whose claim it kept after a `next`.
    pub fn go_on(&mut self, step: &str, version: u32, seq: u64, inbox: usize) {
        self.step.clear();
        self.step.push_str(step);
        (self.version, self.seq, self.inbox) = (version, seq, inbox as u32);
        self.progress();
    }
}

/// Decides what becomes of an instance after its step returned.
pub(crate) fn outcome(change: &mut Change, returned: &Returned<'_>, now: Timestamp) {
    decide(change, returned, now);
    send(change, returned.mail);
}

fn decide(change: &mut Change, returned: &Returned<'_>, now: Timestamp) {
    let Returned { transition, version, hold, received, facts, .. } = returned;
    // A version says how to read the state, so it changes with it: an end leaves both as they were.
    if transition.at().is_some() {
        change.head.version = *version;
    }
    if consumes(transition) && !received.is_empty() {
        let consumed = facts.consumed.as_ref().expect("a store looks up what an outcome consumes");
        change.consumes = received.to_vec();
        leave(&mut change.head, consumed.signals, consumed.bytes);
    }
    let consumed = facts.consumed.as_ref().and_then(|consumed| consumed.data.clone());
    let with_consumed = |data: Data| match &consumed {
        Some(consumed) => data.with_json("consumed", consumed.clone()),
        None => data,
    };
    match transition {
        Transition::Next { at, .. } => {
            change.head.progress();
            change.go_to(at);
            change.record(EventKind::StepCompleted, consumed.is_some().then(|| with_consumed(Data::new())));
            if handed_over(&change.head, *hold) {
                // In a lane it keeps its place: those behind it are meant to come after it.
                let place = if change.head.lane.is_some() { change.head.runnable_at } else { now };
                change.run_at(place);
            }
        }
        Transition::Replay { at, delay, error } => {
            let error = error.as_deref().map(storable);
            change.head.attempt += 1;
            change.head.last_error = error.as_deref().map(str::to_owned);
            change.go_to(at);
            let data = Data::new()
                .with("attempt", change.head.attempt)
                .with("delay_ms", micros(*delay) / 1000)
                .with("error", error.as_deref());
            change.record(EventKind::StepRetried, Some(data));
            if micros(*delay) == 0 {
                change.run_at(now);
            } else {
                change.park(Status::Scheduled, Some(When::In(*delay)), now);
            }
        }
        Transition::Sleep { at, until } => {
            change.head.progress();
            change.go_to(at);
            let data = with_consumed(Data::new()).with_moment("sleep_until", Some(*until));
            change.record(EventKind::StepCompleted, Some(data));
            change.park(Status::Scheduled, Some(*until), now);
        }
        Transition::Await { at, names, timeout } => {
            change.head.progress();
            change.go_to(at);
            park_on_signals(change, names, *timeout, now);
            if let Some(signal) = facts.unseen {
                wake_by_signal(change, signal, now);
            }
        }
        Transition::Spawn(spawn) => {
            change.head.progress();
            change.go_to(&spawn.at);
            park_on_children(change, spawn, facts.inserted, with_consumed, now);
        }
        Transition::Dispatch(dispatch) => {
            change.head.progress();
            change.go_to(&dispatch.at);
            change.head.round += 1;
            let asked = dispatch.asks.len() as u32;
            let data = Data::new()
                .with("unit", facts.unit.map(|unit| unit.0))
                .with("shape", Shape::as_str(dispatch.shape))
                .with("transport", &*dispatch.transport)
                .with("interactions", asked);
            change.record(
                EventKind::UnitOpened,
                Some(with_consumed(data).with_moment("until", dispatch.timeout)),
            );
            if asked == 0 {
                let unit = super::UnitHead::opened(dispatch, facts.unit);
                super::close(change, &unit, UnitStatus::Completed, now);
                return;
            }
            change.head.barrier = Some(dispatch.needed().unwrap_or(asked));
            let item_late = dispatch.item_timeout.map(When::In);
            let nearest = dispatch.timeout.into_iter().chain(item_late).min_by_key(|when| when.moment(now));
            change.park(Status::AwaitingCompletion, nearest, now);
        }
        Transition::Done { output } => {
            change.output = Some(output.clone());
            change.head.last_error = None;
            change.head.inbox = 0;
            change.head.inbox_bytes = 0;
            change.drops_inbox = true;
            let data = facts.unread.as_ref().map(|(names, total)| {
                Data::new().with_json("unread", names.clone()).with("unread_total", *total)
            });
            change.end(Status::Done, EventKind::Done, data, now);
        }
        Transition::Fail { error } => change.fail(&storable(error), now),
    }
}

/// Parks on any of these names.
fn park_on_signals(change: &mut Change, names: &[String], timeout: Option<When>, now: Timestamp) {
    let (names, NewEvent { kind, data }) = waiting(names, timeout);
    change.record(kind, data);
    change.head.awaits = names;
    change.park(Status::AwaitingSignal, timeout, now);
}

/// The names of a wait, in order and each once, and its event.
pub(super) fn waiting(names: &[String], timeout: Option<When>) -> (Vec<String>, NewEvent) {
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    let data = Data::new().with("names", names.clone()).with_moment("until", timeout);
    (names, NewEvent { kind: EventKind::SignalWaiting, data: Some(data) })
}

/// Parks on the barrier of a new round, or runs on if there is nothing to wait for.
fn park_on_children(
    change: &mut Change,
    spawn: &Spawn,
    inserted: u32,
    with_consumed: impl Fn(Data) -> Data,
    now: Timestamp,
) {
    change.head.round += 1;
    let barrier = spawn.barrier(inserted);
    let mut data = Data::new()
        .with("round", change.head.round)
        .with("inserted", inserted)
        .with("dropped", spawn.children.len() as u64 - u64::from(inserted))
        .with("barrier", barrier.ends);
    if let Some(spare) = barrier.spare {
        data = data.with("spare", spare);
    }
    change.record(EventKind::ChildrenSpawned, Some(with_consumed(data).with_moment("until", spawn.timeout)));
    change.head.barrier = Some(barrier.ends);
    change.spare = barrier.spare;
    if barrier.ends == 0 {
        change.wake(Wake::Children, now);
    } else {
        change.park(Status::AwaitingChildren, spawn.timeout, now);
    }
}
