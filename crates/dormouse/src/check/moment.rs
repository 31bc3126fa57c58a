//! A situation of one instance, and what may happen next: the engine's rules, in thought.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;

use super::ahead::{Ahead, Foreseen, context, told};
use crate::{At, Context, DynMachine, InboxSignal, InstanceId, Json, SignalId, Spawn, Transition, Wake};

/// Where an instance is, what it waits for, and what lies in its inbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    pub(crate) step: String,
    /// JSON.
    pub(crate) state: String,
    pub(crate) phase: Phase,
    /// Name and payload, sorted by name; those of one name in order of arrival.
    pub(crate) inbox: Vec<(String, String)>,
    pub(crate) is_known: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Ready {
        wake: Option<Wake>,
        awaits: Vec<String>,
    },
    Waiting {
        names: Vec<String>,
        has_deadline: bool,
    },
    Sleeping,
    /// Machine and version of each child.
    Children {
        children: Vec<(String, u32)>,
        has_deadline: bool,
    },
    Unit {
        has_deadline: bool,
    },
    Done,
    Failed(String),
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

/// Why a step cannot be thought through.
pub(crate) enum Unthinkable {
    /// Its machine does not tell.
    Untold,
    Panicked,
    /// Asked twice, it answered differently.
    Unrepeatable {
        first: String,
        second: String,
    },
}

impl Moment {
    pub(crate) fn start(at: &At) -> Self {
        let phase = Phase::Ready { wake: None, awaits: Vec::new() };
        Self {
            step: at.step.to_string(),
            state: at.state.as_str().to_owned(),
            phase,
            inbox: Vec::new(),
            is_known: true,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Failed(_))
    }

    pub(crate) fn at(&self) -> At {
        At { step: self.step.clone().into(), state: Json::trusted(self.state.as_str()) }
    }

    /// All that its step may do. A crash before the commit runs it again, so it is asked twice.
    pub(crate) fn run(
        &self,
        machine: &dyn DynMachine,
        id: InstanceId,
        key: Option<&str>,
    ) -> Result<Vec<Next>, Unthinkable> {
        let Phase::Ready { wake, awaits } = &self.phase else { return Ok(Vec::new()) };
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
        let signal = |(place, (name, payload)): (usize, &(String, String))| InboxSignal {
            id: SignalId(place as i64),
            name: name.clone(),
            payload: Json::trusted(payload.as_str()),
            dedup_key: None,
            at: Timestamp::UNIX_EPOCH,
        };
        self.inbox.iter().enumerate().map(signal).collect()
    }

    /// The situation once an outcome is committed.
    fn after(&self, foreseen: Foreseen, cx: &Context) -> Next {
        let Foreseen { what, transition, is_known } = foreseen;
        let received: Vec<usize> = cx.handed_ids().iter().map(|id| id.0 as usize).collect();
        let is_progress = !matches!(transition, Transition::Await { .. } | Transition::Replay { .. });
        let taken = |place: &usize| is_progress && received.contains(place);
        let mut consumed = Vec::new();
        let mut inbox = Vec::new();
        for (place, signal) in self.inbox.iter().enumerate() {
            if taken(&place) {
                consumed.push(signal.0.clone());
            } else {
                inbox.push(signal.clone());
            }
        }
        // A signal that the parking step was handed does not wake it again.
        let wakes = |names: &[String]| {
            let is_new = |(place, _): &(usize, &(String, String))| !received.contains(place);
            self.inbox.iter().enumerate().filter(is_new).any(|(_, (name, _))| names.contains(name))
        };
        let phase = match &transition {
            Transition::Next { .. } | Transition::Replay { .. } => {
                Phase::Ready { wake: None, awaits: Vec::new() }
            }
            Transition::Sleep { .. } => Phase::Sleeping,
            Transition::Await { names, .. } if wakes(names) => {
                Phase::Ready { wake: Some(Wake::Signal), awaits: names.clone() }
            }
            Transition::Await { names, timeout, .. } => {
                Phase::Waiting { names: names.clone(), has_deadline: timeout.is_some() }
            }
            Transition::Spawn(Spawn { children, timeout, .. }) => {
                let children = children.iter().map(|child| (child.machine.clone(), child.version)).collect();
                Phase::Children { children, has_deadline: timeout.is_some() }
            }
            Transition::Dispatch(dispatch) => Phase::Unit { has_deadline: dispatch.timeout.is_some() },
            Transition::Done { .. } => Phase::Done,
            Transition::Fail { error } => Phase::Failed(error.clone()),
        };
        let (step, state) = match &transition {
            Transition::Done { output } => (self.step.clone(), output.as_str().to_owned()),
            other => other.at().map_or_else(
                || (self.step.clone(), self.state.clone()),
                |at| (at.step.to_string(), at.state.as_str().to_owned()),
            ),
        };
        Next { what, moment: Self { step, state, phase, inbox, is_known }, consumed }
    }

    /// The situation after something happened, if it can happen now.
    pub(crate) fn when(&self, event: &Event) -> Option<Self> {
        let ready = |wake, awaits: &[String]| {
            let phase = Phase::Ready { wake: Some(wake), awaits: awaits.to_vec() };
            Some(Self { phase, ..self.clone() })
        };
        match (event, &self.phase) {
            (_, Phase::Done | Phase::Failed(_)) => None,
            (Event::Signal { name, payload }, phase) => {
                let mut moment = self.clone();
                let place = moment.inbox.partition_point(|(other, _)| other <= name);
                moment.inbox.insert(place, (name.clone(), payload.as_str().to_owned()));
                if let Phase::Waiting { names, .. } = phase
                    && names.contains(name)
                {
                    moment.phase = Phase::Ready { wake: Some(Wake::Signal), awaits: names.clone() };
                }
                Some(moment)
            }
            (Event::Deadline, Phase::Waiting { names, has_deadline: true }) => ready(Wake::Timeout, names),
            (
                Event::Deadline,
                Phase::Children { has_deadline: true, .. } | Phase::Unit { has_deadline: true },
            ) => ready(Wake::Timeout, &[]),
            (Event::Clock, Phase::Sleeping) => ready(Wake::Clock, &[]),
            (Event::Children, Phase::Children { .. }) => ready(Wake::Children, &[]),
            (Event::Unit, Phase::Unit { .. }) => ready(Wake::Unit, &[]),
            _ => None,
        }
    }
}

/// The first thing in which two answers of one step differ.
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
