//! A situation of one instance, and what may happen next, decided by the same rules as in the stores.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;

use super::ahead::{Ahead, Foreseen, context, told};
use crate::rules::{self, Consumed, Facts, Head, Hold, Input, Returned, UnitHead};
use crate::{
    Ask, At, Context, DynMachine, InboxSignal, InstanceId, Json, SignalId, Status, Transition, UnitStatus,
};

/// Where an instance is, what it waits for, and what is in its inbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    /// As in the stores, except that counters and dates stand still, so that equal situations are equal.
    pub(crate) head: Head,
    /// JSON: the state, or the output once it is done.
    pub(crate) state: String,
    /// Name and payload, sorted by name; those of one name in order of arrival.
    pub(crate) inbox: Vec<(String, String)>,
    /// Machine and version of each child that it waits for.
    pub(crate) children: Vec<(String, u32)>,
    pub(crate) is_known: bool,
}

/// What may happen to an instance that does not run.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Signal { name: String, payload: Json },
    Deadline,
    Clock,
    Children,
    Unit,
}

/// What a step would do, and the situation after it.
pub(crate) struct Next {
    pub(crate) what: String,
    pub(crate) moment: Moment,
    /// The names of the signals it consumed.
    pub(crate) consumed: Vec<String>,
}

/// Why a step cannot be explored.
pub(crate) enum Unthinkable {
    /// Its machine does not declare what it does.
    Untold,
    Panicked,
    /// Two runs returned different outcomes.
    Unrepeatable {
        first: String,
        second: String,
    },
}

impl Moment {
    pub(crate) fn start(at: &At) -> Self {
        Self::of(Head::new(InstanceId(1), "", 1, &at.step), at.state.as_str())
    }

    /// An instance that has nothing in its inbox.
    pub(crate) fn of(head: Head, state: &str) -> Self {
        Self {
            head: standing_still(head),
            state: state.to_owned(),
            inbox: Vec::new(),
            children: Vec::new(),
            is_known: true,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.head.status.is_terminal()
    }

    /// Whether its step would run.
    pub(crate) fn is_ready(&self) -> bool {
        self.head.status == Status::Runnable
    }

    pub(crate) fn has_deadline(&self) -> bool {
        self.head.wake_at.is_some()
    }

    pub(crate) fn at(&self) -> At {
        At { step: self.head.step.clone().into(), state: Json::trusted(self.state.as_str()) }
    }

    /// Everything that its step may do. A crash before the commit runs it again, so it is run twice and compared.
    pub(crate) fn run(
        &self,
        machine: &dyn DynMachine,
        id: InstanceId,
        key: Option<&str>,
    ) -> Result<Vec<Next>, Unthinkable> {
        if !self.is_ready() {
            return Ok(Vec::new());
        }
        let Head { wake, awaits, .. } = &self.head;
        let at = self.at();
        let ask = || {
            let cx = context(id, key.map(str::to_owned), *wake, awaits.clone(), self.handed());
            let ahead = Ahead { at: &at, cx: &cx, is_known: self.is_known };
            let foreseen = catch_unwind(AssertUnwindSafe(|| machine.foresee(&ahead)));
            foreseen.map(|foreseen| foreseen.map(|foreseen| (foreseen, cx)))
        };
        let Ok(first) = ask() else { return Err(Unthinkable::Panicked) };
        let Some((foreseen, cx)) = first else { return Err(Unthinkable::Untold) };
        if let Ok(Some((again, _))) = ask()
            && let Some((first, second)) = different(&foreseen, &again)
        {
            return Err(Unthinkable::Unrepeatable { first, second });
        }
        Ok(foreseen.into_iter().map(|foreseen| self.after(foreseen, &cx)).collect())
    }

    fn handed(&self) -> Vec<InboxSignal> {
        self.inbox.iter().enumerate().map(|(place, (name, payload))| stored(place, name, payload)).collect()
    }

    /// The situation once an outcome is committed.
    fn after(&self, foreseen: Foreseen, cx: &Context) -> Next {
        let Foreseen { what, mut transition, is_known } = foreseen;
        if let Transition::Dispatch(dispatch) = &mut transition
            && dispatch.asks.is_empty()
        {
            // A graph does not say what is asked, only that something is.
            dispatch.asks.push(something());
        }
        let handed = self.handed();
        let received = cx.handed_ids();
        let names = match &transition {
            Transition::Await { names, .. } => &names[..],
            _ => &[],
        };
        let unseen = rules::unseen(handed.iter().map(|one| (one.id, &*one.name)), names, &received);
        let mut children = Vec::new();
        if let Transition::Spawn(spawn) = &transition {
            children = spawn.children.iter().map(|child| (child.machine.clone(), child.version)).collect();
        }
        let facts = Facts {
            unseen: unseen.and_then(|id| handed.iter().find(|one| one.id == id)),
            consumed: Some(Consumed { signals: received.len() as u32, ..Consumed::default() }),
            inserted: children.len().max(1) as u32,
            ..Facts::default()
        };
        let (status, inbox) = (Status::Executing, self.inbox.len() as u32);
        let head = Head { status, inbox, ..self.head.clone() };
        let (version, hold) = (head.version, Hold::Release);
        let returned =
            Returned { transition: &transition, version, hold, received: &received, mail: &[], facts };
        let change = rules::decide(head, Input::Outcome(returned), NOW);
        // Signals that an end leaves unread stay here, so that they can be reported.
        let used = |one: &InboxSignal| {
            change.consumes.contains(&one.id) || (change.drops_inbox && received.contains(&one.id))
        };
        let (gone, kept): (Vec<_>, Vec<_>) = handed.iter().cloned().partition(used);
        let state = change.output.as_ref().or(change.state.as_ref()).map(Json::as_str);
        let moment = Self {
            state: state.unwrap_or(&self.state).to_owned(),
            head: standing_still(change.head),
            inbox: kept.into_iter().map(|one| (one.name, one.payload.as_str().to_owned())).collect(),
            children,
            is_known,
        };
        Next { what, moment, consumed: gone.into_iter().map(|one| one.name).collect() }
    }

    /// The situation after something happened, if it can happen now.
    pub(crate) fn when(&self, event: &Event) -> Option<Self> {
        let Head { status, round, .. } = self.head;
        let waits = |on| status == on;
        if self.is_ended() {
            return None;
        }
        let mut moment = self.clone();
        let unit = UnitHead::default();
        let input = match event {
            Event::Signal { name, payload } => {
                let place = moment.inbox.partition_point(|(other, _)| other <= name);
                moment.inbox.insert(place, (name.clone(), payload.as_str().to_owned()));
                let signal = stored(place, name, payload.as_str());
                return Some(moment.decided(Input::Signal(&signal)));
            }
            Event::Deadline if !self.has_deadline() || waits(Status::Scheduled) => return None,
            Event::Deadline if waits(Status::AwaitingCompletion) => {
                Input::UnitClosed(unit, UnitStatus::TimedOut)
            }
            Event::Deadline if status.is_settled() => Input::Clock,
            Event::Clock if waits(Status::Scheduled) => Input::Clock,
            Event::Children if waits(Status::AwaitingChildren) => {
                // All of them end: the last one is what counts.
                moment.head.barrier = Some(1);
                Input::ChildEnd { round, status: Status::Done, barrier: None }
            }
            Event::Unit if waits(Status::AwaitingCompletion) => {
                Input::UnitClosed(unit, UnitStatus::Completed)
            }
            _ => return None,
        };
        Some(moment.decided(input))
    }

    fn decided(self, input: Input<'_>) -> Self {
        let head = standing_still(rules::decide(self.head, input, NOW).head);
        Self { head, children: Vec::new(), ..self }
    }
}

/// The moment at which everything that is explored happens.
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A head without counters and dates.
fn standing_still(head: Head) -> Head {
    Head {
        seq: 1,
        attempt: 0,
        round: 0,
        runnable_at: NOW,
        worker: None,
        inbox: 0,
        inbox_bytes: 0,
        wake_at: head.wake_at.map(|_| NOW),
        barrier: head.barrier.filter(|_| head.status == Status::AwaitingChildren).map(|_| 1),
        last_error: head.last_error.filter(|_| head.status == Status::Failed),
        ended_at: head.ended_at.map(|_| NOW),
        parked_until: None,
        crashes: 0,
        crashes_seq: 0,
        ..head
    }
}

/// A request about which nothing is known.
fn something() -> Ask {
    Ask {
        request: Json::null(),
        idempotency_key: String::new(),
        correlation_id: None,
        for_assignee: None,
        for_group: None,
    }
}

fn stored(place: usize, name: &str, payload: &str) -> InboxSignal {
    let (name, payload) = (name.to_owned(), Json::trusted(payload));
    InboxSignal { id: SignalId(place as i64), name, payload, dedup_key: None, at: NOW, trace: None }
}

/// The first difference between two outcomes of one step.
fn different(first: &[Foreseen], second: &[Foreseen]) -> Option<(String, String)> {
    let shown = |foreseen: Option<&Foreseen>| {
        foreseen.map_or_else(
            || "nothing".to_owned(),
            |foreseen| {
                let state = foreseen.transition.at().map(|at| format!(" with {}", at.state.as_str()));
                format!("{}{}", told(&foreseen.transition), state.unwrap_or_default())
            },
        )
    };
    (0..first.len().max(second.len()))
        .map(|place| (shown(first.get(place)), shown(second.get(place))))
        .find(|(first, second)| first != second)
}
