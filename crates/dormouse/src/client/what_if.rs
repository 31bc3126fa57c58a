//! `what-if`: what an instance would do if something happened to it now. It runs no acts and changes nothing.

use serde::{Deserialize, Serialize};

use super::Client;
use crate::check::{Event, Moment, Unthinkable};
use crate::rules::Head;
use crate::{At, DynMachine, Error, Instance, Json, NewSignal, Result, Status, Target};

/// How many steps are followed in a row.
const DEPTH_MAX: usize = 32;
/// How many ways are followed.
const WAYS_MAX: usize = 50;

/// Something that might happen to an instance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Happening {
    /// A signal comes.
    Signal(NewSignal),
    /// The deadline of its wait passes.
    Deadline,
    /// It has slept long enough.
    Clock,
    /// Its children end.
    Children,
    /// The outside answers.
    Answers,
}

/// What an instance would do, as returned by [`Client::what_if`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Foresight {
    /// Each way it may go, up to where it parks or ends.
    pub ways: Vec<Vec<Look>>,
    /// Whether these are all of them.
    pub is_complete: bool,
}

/// A step that an instance would take, and how it would be after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Look {
    /// The step that runs.
    pub step: String,
    /// A short description of what it does.
    pub what: String,
    /// The status after it.
    pub status: Status,
    /// Where it is then.
    pub to: String,
    /// The state after it, or the output; `None` where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Json>,
}

impl Client {
    /// Returns what an instance would do if something happened to it now. In a flow, conditions and receivers run, but
    /// acts do not: their declared results (`gives`) are used instead. For a plain machine it follows the declared
    /// graph.
    pub async fn what_if(&self, target: impl Into<Target>, happening: Happening) -> Result<Foresight> {
        let target = target.into();
        let instance = self.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
        if instance.status.is_terminal() {
            let Instance { id, status, .. } = instance;
            return Err(Error::WrongStatus {
                id,
                status,
                reason: "it has ended, so nothing more can happen to it",
            });
        }
        let (name, version) = (&instance.machine, instance.version);
        let unknown = || Error::Untold { machine: name.clone(), version };
        let code = self.registry.get(name, version).ok_or_else(unknown)?;
        if let Happening::Signal(signal) = &happening {
            signal.check(&self.limits)?;
            self.check_signal(name, version, &instance.awaits, signal).await?;
        }
        let at = At { step: instance.step.clone().into(), state: instance.state.clone() };
        let at = match code.version() == version {
            true => at,
            false => code.migrate(version, at).map_err(|error| Error::InvalidState(error.to_string()))?,
        };
        let inbox = self.inbox(instance.id).await?;
        let mut inbox: Vec<_> =
            inbox.into_iter().map(|signal| (signal.name, signal.payload.as_str().to_owned())).collect();
        inbox.sort_by(|a, b| a.0.cmp(&b.0));
        let moment = Moment { inbox, ..Moment::of(head(&instance, &at.step), at.state.as_str()) };
        let event = match happening {
            Happening::Signal(NewSignal { name, payload, .. }) => Event::Signal { name, payload },
            Happening::Deadline => Event::Deadline,
            Happening::Clock => Event::Clock,
            Happening::Children => Event::Children,
            Happening::Answers => Event::Unit,
        };
        let Some(after) = moment.when(&event) else {
            let Instance { id, status, .. } = instance;
            return Err(Error::WrongStatus {
                id,
                status,
                reason: "this cannot happen to it in its present status",
            });
        };
        let mut ahead = Way { code: &**code, instance: &instance, ways: Vec::new(), is_complete: true };
        ahead.follow(after, Vec::new());
        Ok(Foresight { ways: ahead.ways, is_complete: ahead.is_complete })
    }
}

/// The parts of an instance's head that decide what may happen to it.
fn head(instance: &Instance, step: &str) -> Head {
    let Instance { id, machine, version, .. } = instance;
    let status = if instance.status == Status::Executing { Status::Runnable } else { instance.status };
    Head {
        status,
        wake: instance.wake,
        wake_at: instance.wake_at,
        awaits: instance.awaits.clone(),
        barrier: instance.barrier,
        ..Head::new(*id, machine, *version, step)
    }
}

/// The ways ahead of an instance.
struct Way<'a> {
    code: &'a dyn DynMachine,
    instance: &'a Instance,
    ways: Vec<Vec<Look>>,
    is_complete: bool,
}

impl Way<'_> {
    fn follow(&mut self, moment: Moment, way: Vec<Look>) {
        if !moment.is_ready() {
            return self.rest(&moment, way);
        }
        if way.len() == DEPTH_MAX || self.ways.len() == WAYS_MAX {
            self.is_complete = false;
            return self.keep(way);
        }
        let nexts = match moment.run(self.code, self.instance.id, self.instance.key.as_deref()) {
            Ok(nexts) => nexts,
            Err(untold) => {
                let what = match untold {
                    Unthinkable::Untold => "runs; what it does is not declared".to_owned(),
                    Unthinkable::Panicked => "panics".to_owned(),
                    Unthinkable::Unrepeatable { first, second } => format!("either {first}, or {second}"),
                };
                let step = moment.head.step.clone();
                let look = Look { to: step.clone(), step, what, status: Status::Executing, state: None };
                return self.keep([way, vec![look]].concat());
            }
        };
        for next in nexts {
            let look = Look {
                step: moment.head.step.clone(),
                what: next.what,
                status: next.moment.head.status,
                to: next.moment.head.step.clone(),
                state: state(&next.moment),
            };
            self.follow(next.moment, [&way[..], &[look]].concat());
        }
    }

    /// An instance that does not run.
    fn rest(&mut self, moment: &Moment, way: Vec<Look>) {
        if !way.is_empty() {
            return self.keep(way);
        }
        let step = moment.head.step.clone();
        let what = "keeps it in the inbox, and goes on waiting".to_owned();
        let look = Look { to: step.clone(), step, what, status: moment.head.status, state: state(moment) };
        self.keep(vec![look]);
    }

    fn keep(&mut self, way: Vec<Look>) {
        if self.ways.len() < WAYS_MAX {
            self.ways.push(way);
        }
    }
}

fn state(moment: &Moment) -> Option<Json> {
    (moment.is_known && moment.state != "null").then(|| Json::trusted(moment.state.as_str()))
}
