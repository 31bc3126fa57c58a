//! Turns a description into the steps of a machine, and checks everything that can be checked before it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::groups::OnCancel;
use super::machine::{FlowMachine, Step, Task, To};
use super::parts::{ActKind, Kind, Part, Place};
use super::{Flow, FlowState};
use crate::NAME_BYTES_MAX;

/// Something in a flow that is wrong or looks wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub what: String,
    /// The part's path.
    pub path: String,
    /// Where the part is written.
    pub place: Place,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.path, self.what)
    }
}

/// Why a flow is not well formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// The flow.
    pub flow: String,
    /// Everything that is wrong with it.
    pub errors: Vec<Finding>,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the flow {} is not well formed:", self.flow)?;
        self.errors.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for Findings {}

pub(super) fn build<S: FlowState, D: Send + Sync + 'static>(
    flow: Flow<S, D>,
    deps: Arc<D>,
) -> Result<FlowMachine<S, D>, Findings> {
    let Flow { name, version, queue, place, examples, indexes, parts } = flow;
    let mut builder = Builder {
        steps: Vec::new(),
        places: BTreeMap::new(),
        signals: BTreeMap::new(),
        found: Found::default(),
    };
    builder.check_sequence("", &parts);
    let first = builder.sequence("", None, parts, To::Done);
    let Builder { mut steps, found: Found { mut errors, warnings }, .. } = builder;
    let first = match first {
        To::Step(first) => first,
        To::Done => {
            let what = "it has no parts; add one with `then`".to_owned();
            errors.push(Finding { what, path: name.clone(), place });
            0
        }
    };
    if !errors.is_empty() {
        return Err(Findings { flow: name, errors });
    }
    for warning in &warnings {
        tracing::warn!(flow = name, "{warning}");
    }
    // They were made from the last to the first.
    let last = steps.len() - 1;
    steps.reverse();
    for step in &mut steps {
        step.task.each_target(&mut |to| {
            if let To::Step(index) = to {
                *index = last - *index;
            }
        });
    }
    let named = (name, version, queue);
    Ok(FlowMachine::new(named, (steps, last - first), (examples, indexes), warnings, deps))
}

/// The outermost saga that a part is in.
#[derive(Clone, Copy)]
struct Saga<'a> {
    path: &'a str,
    on_cancel: OnCancel,
}

#[derive(Default)]
struct Found {
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

struct Builder<S, D> {
    steps: Vec<Step<S, D>>,
    places: BTreeMap<String, Place>,
    signals: BTreeMap<String, (String, Place)>,
    found: Found,
}

impl<S: FlowState, D: Send + Sync + 'static> Builder<S, D> {
    fn error(&mut self, path: &str, place: Place, what: impl Into<String>) {
        self.found.errors.push(Finding { what: what.into(), path: path.to_owned(), place });
    }

    fn warn(&mut self, path: &str, place: Place, what: impl Into<String>) {
        self.found.warnings.push(Finding { what: what.into(), path: path.to_owned(), place });
    }

    /// Checks parts in the order in which they are written, so that of two that conflict the second is reported.
    fn check_sequence(&mut self, within: &str, parts: &[Part<S, D>]) {
        let mut ended = None;
        for part in parts {
            let path = join(within, &part.name);
            if let Some(end) = ended.take() {
                self.error(&path, part.place, format!("it is never reached, as {end} always ends the flow"));
            }
            self.check_name(&path, part);
            self.check_part(&path, part);
            if always_ends(part) {
                ended = Some(path);
            }
        }
    }

    fn check_name(&mut self, path: &str, part: &Part<S, D>) {
        if part.name.starts_with('{') {
            self.error(path, part.place, "a closure has no name: give the part one with `named`");
        } else if part.name.is_empty() || part.name.contains(['/', '!']) {
            self.error(
                path,
                part.place,
                "a part's name must not be empty, nor hold a slash or an exclamation mark",
            );
        } else if path.len() > NAME_BYTES_MAX - UNDONE.len() {
            self.error(
                path,
                part.place,
                format!("its path is longer than {} bytes", NAME_BYTES_MAX - UNDONE.len()),
            );
        }
        if let Some(first) = self.places.insert(path.to_owned(), part.place) {
            self.error(path, part.place, format!("another part at {first} has the same path"));
        }
    }

    fn check_part(&mut self, path: &str, part: &Part<S, D>) {
        match &part.kind {
            Kind::Wait(wait) => {
                if let Some((other, first)) =
                    self.signals.insert(wait.signal.clone(), (path.to_owned(), part.place))
                {
                    let signal = &wait.signal;
                    let what = format!("{other} at {first} waits for the signal {signal:?} already");
                    self.error(path, part.place, what);
                }
                if wait.on_timeout.is_some() && wait.timeout.is_none() {
                    self.error(path, part.place, "it says what to do `on_timeout`, but has no `timeout`");
                }
                if wait.timeout.is_none() && wait.sender.is_none() {
                    let what =
                        "it may wait forever: give it a `timeout`, or note who sends it with `sent_by`";
                    self.warn(path, part.place, what);
                }
            }
            Kind::Scene { parts, .. } => {
                if parts.is_empty() {
                    self.warn(path, part.place, "it has no parts");
                }
                self.check_sequence(path, parts);
            }
            Kind::Branch { cases, otherwise } => {
                for case in cases {
                    let way = join(path, &case.name);
                    if let Some(first) = self.places.insert(way.clone(), part.place) {
                        self.error(&way, part.place, format!("another way at {first} has the same name"));
                    }
                    self.check_sequence(&way, &case.parts);
                }
                match otherwise {
                    Some(parts) => self.check_sequence(&join(path, OTHERWISE), parts),
                    None => {
                        let what =
                            "nothing follows if no case holds: add `otherwise`, or `otherwise_nothing`";
                        self.error(path, part.place, what);
                    }
                }
            }
            Kind::Repeat { rounds_max, parts, .. } => {
                if rounds_max.is_none() {
                    self.error(path, part.place, "it may repeat forever: bound it with `at_most`");
                }
                if parts.is_empty() {
                    self.error(path, part.place, "it has no parts to repeat; add one");
                }
                self.check_sequence(path, parts);
            }
            Kind::Act(_) | Kind::Sleep(_) | Kind::Fan(_) | Kind::Dispatch(_) | Kind::Stop(_) => {}
        }
    }

    /// Makes the steps of parts that follow each other, and returns where they begin.
    fn sequence(&mut self, within: &str, saga: Option<Saga<'_>>, parts: Vec<Part<S, D>>, after: To) -> To {
        parts.into_iter().rev().fold(after, |after, part| self.part(within, saga, part, after))
    }

    fn part(&mut self, within: &str, saga: Option<Saga<'_>>, part: Part<S, D>, after: To) -> To {
        let path = join(within, &part.name);
        let task = match part.kind {
            Kind::Scene { parts, saga: None } => return self.sequence(&path, saga, parts, after),
            // Within another saga it is a scene: a failure in it undoes the whole outer saga.
            Kind::Scene { parts, saga: Some(on_cancel) } if saga.is_some() => {
                if let Some(outer) = saga.filter(|outer| outer.on_cancel != on_cancel) {
                    let (outer, way) = (outer.path, "`undo_on_cancel`");
                    let what = format!("it is undone with {outer}: set {way} on both, or on neither");
                    self.error(&path, part.place, what);
                }
                return self.sequence(&path, saga, parts, after);
            }
            Kind::Scene { parts, saga: Some(on_cancel) } => {
                if parts.iter().any(is_undone) {
                    self.push(&path, UNDONE, None, Task::Undone);
                }
                let own = Saga { path: &path, on_cancel };
                // A cancel that comes with the last of its parts is still to be answered at its end.
                let at_end = Some(own).filter(|own| own.on_cancel == OnCancel::Undo);
                let end = self.push(&path, END, at_end, Task::Settle { scene: path.clone(), next: after });
                return self.sequence(&path, Some(own), parts, end);
            }
            Kind::Act(act) => {
                let undo = act.undo.clone().filter(|_| saga.is_some());
                let undoes = undo.is_some();
                if let Some(undo) = undo {
                    self.push(&path, UNDO, saga, Task::Undo { run: undo, retry: act.undo_retry });
                }
                let ActKind { run, retry, limit, gives, .. } = act;
                Task::Act { run, retry, limit, undoes, gives, next: after }
            }
            Kind::Wait(wait) => Task::Wait { wait, next: after },
            Kind::Sleep(until) => {
                // A sleep leads to a step, if only to one that ends.
                let next = match after {
                    To::Done => {
                        self.push(&path, END, saga, Task::Settle { scene: path.clone(), next: after })
                    }
                    step => step,
                };
                Task::Sleep { until, next }
            }
            Kind::Fan(fan) => Task::Fan { fan, next: after },
            Kind::Dispatch(asking) => Task::Dispatch { asking, next: after },
            Kind::Stop(reason) => Task::Stop(reason),
            Kind::Branch { cases, otherwise } => {
                let mut ways = Vec::new();
                for case in cases.into_iter().rev() {
                    let to = self.sequence(&join(&path, &case.name), saga, case.parts, after);
                    ways.push((case.name, Some(case.holds), to));
                }
                ways.reverse();
                let to = self.sequence(&join(&path, OTHERWISE), saga, otherwise.unwrap_or_default(), after);
                ways.push((OTHERWISE.to_owned(), None, to));
                Task::Branch(ways)
            }
            Kind::Repeat { goes_on, rounds_max, parts } => {
                // The last of its parts leads back to it, so it is there first.
                let again = self.push(&path, "", saga, Task::Stop(Arc::new(|_| String::new())));
                let To::Step(index) = again else { unreachable!("a step was pushed") };
                let body = self.sequence(&path, saga, parts, again);
                let rounds_max = rounds_max.unwrap_or(0);
                self.steps[index].task = Task::Repeat { goes_on, rounds_max, body, next: after };
                return again;
            }
        };
        self.push(&path, "", saga, task)
    }

    fn push(&mut self, path: &str, suffix: &str, saga: Option<Saga<'_>>, task: Task<S, D>) -> To {
        let path = format!("{path}{suffix}");
        let undoes = |saga: Saga<'_>| saga.on_cancel == OnCancel::Undo && !matches!(task, Task::Undo { .. });
        let undoes_on_cancel = saga.is_some_and(undoes);
        let saga = saga.map(|saga| saga.path.to_owned());
        self.steps.push(Step { path, saga, undoes_on_cancel, task });
        To::Step(self.steps.len() - 1)
    }
}

/// What the step that undoes an act is named after it, the one at which a saga is undone, and the one at which a part is
/// over.
pub(super) const UNDO: &str = "!undo";
pub(super) const UNDONE: &str = "!undone";
pub(super) const END: &str = "!end";
/// The way of a branch where no case holds.
const OTHERWISE: &str = "otherwise";

fn join(within: &str, name: &str) -> String {
    if within.is_empty() { name.to_owned() } else { format!("{within}/{name}") }
}

/// Whether there is something to undo in a part of a saga.
fn is_undone<S, D>(part: &Part<S, D>) -> bool {
    match &part.kind {
        Kind::Act(act) => act.undo.is_some(),
        Kind::Scene { parts, .. } | Kind::Repeat { parts, .. } => parts.iter().any(is_undone),
        Kind::Branch { cases, otherwise } => {
            let cases = cases.iter().flat_map(|case| &case.parts);
            cases.chain(otherwise.iter().flatten()).any(is_undone)
        }
        _ => false,
    }
}

/// Whether nothing can come after a part.
fn always_ends<S, D>(part: &Part<S, D>) -> bool {
    let ends = |parts: &[Part<S, D>]| parts.last().is_some_and(always_ends);
    match &part.kind {
        Kind::Stop(_) => true,
        Kind::Scene { parts, .. } => ends(parts),
        Kind::Branch { cases, otherwise } => {
            otherwise.as_deref().is_some_and(ends) && cases.iter().all(|case| ends(&case.parts))
        }
        _ => false,
    }
}
