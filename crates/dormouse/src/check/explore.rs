//! Visits every situation that a machine can reach, the nearest first, and reports what is wrong with them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::{Event, Moment, Problem, ProblemKind, Report, Unthinkable};
use crate::graph::{DONE, FAILED, Graph, NodeKind, On};
use crate::rules::{self, Head};
use crate::{DynMachine, InstanceId, Json, Registry, Status};

/// A signal comes at most twice before it is read: once, and once more before the first is read.
const COPIES_MAX: usize = 2;
const INBOX_MAX: usize = 3;
const MOMENTS_MAX: usize = 100_000;

/// Explores a machine: see [`machine`](super::machine).
pub struct Explorer<'a> {
    machine: &'a dyn DynMachine,
    known: &'a Registry,
    graph: Option<Graph>,
    signals: Vec<Sendable>,
    moments_max: usize,
    seen: Vec<Seen>,
    places: HashMap<Moment, usize>,
    consumed: BTreeSet<String>,
    /// Whether some step could not be followed. Then a situation that was not visited proves nothing.
    is_cut_short: bool,
    problems: BTreeMap<(ProblemKind, String), Problem>,
}

/// A signal that the machine waits for somewhere.
struct Sendable {
    name: String,
    examples: Vec<Json>,
    /// Whether the graph says that it will come: who sends it, or a deadline.
    is_expected: bool,
}

/// A situation, and how it was reached.
struct Seen {
    moment: Moment,
    from: Option<usize>,
    line: String,
    next: Vec<usize>,
}

impl<'a> Explorer<'a> {
    /// Explores this machine; `known` has the machines that its children may be of.
    pub fn new(machine: &'a dyn DynMachine, known: &'a Registry) -> Self {
        let graph = machine.graph();
        let signals = graph.as_ref().map(|graph| sendable(machine, graph)).unwrap_or_default();
        Self {
            machine,
            known,
            graph,
            signals,
            moments_max: MOMENTS_MAX,
            seen: Vec::new(),
            places: HashMap::new(),
            consumed: BTreeSet::new(),
            is_cut_short: false,
            problems: BTreeMap::new(),
        }
    }

    /// Sets how many situations to visit before giving up.
    #[must_use]
    pub fn moments_max(self, moments_max: usize) -> Self {
        Self { moments_max, ..self }
    }

    /// Visits every situation and reports the problems found.
    pub fn explore(mut self) -> Report {
        let is_exhaustive = match self.graph.take() {
            None => {
                let what = "the machine declares no graph, so its steps are unknown: describe them in `Machine::graph`";
                self.found(ProblemKind::Unknown, self.machine.name().to_owned(), what.to_owned(), None);
                false
            }
            Some(graph) => {
                let is_exhaustive = self.walk();
                if is_exhaustive && !self.is_cut_short {
                    self.look_at_the_whole(&graph);
                }
                is_exhaustive
            }
        };
        Report {
            machine: self.machine.name().to_owned(),
            version: self.machine.version(),
            moments: self.seen.len(),
            is_exhaustive,
            problems: self.problems.into_values().collect(),
        }
    }

    /// Visits every situation once, the nearest first. Returns false if there are too many.
    fn walk(&mut self) -> bool {
        let mut queue = VecDeque::new();
        let starts = self.machine.starts();
        if starts.is_empty() {
            let what = "no example of its first state could be made up: give one with `such_as`";
            self.found(ProblemKind::Unknown, self.machine.name().to_owned(), what.to_owned(), None);
            return false;
        }
        for at in &starts {
            let line = match at.state.as_str() {
                "null" => format!("starts at {}", at.step),
                state => format!("starts at {} with {state}", at.step),
            };
            self.see(Moment::start(at), None, line, &mut queue);
        }
        while let Some(place) = queue.pop_front() {
            if self.seen.len() > self.moments_max {
                return false;
            }
            let moment = self.seen[place].moment.clone();
            self.step_on(place, &moment, &mut queue);
            self.let_happen(place, &moment, &mut queue);
        }
        true
    }

    fn see(&mut self, moment: Moment, from: Option<usize>, line: String, queue: &mut VecDeque<usize>) {
        let place = *self.places.entry(moment.clone()).or_insert_with(|| {
            self.seen.push(Seen { moment, from, line, next: Vec::new() });
            queue.push_back(self.seen.len() - 1);
            self.seen.len() - 1
        });
        if let Some(from) = from {
            self.seen[from].next.push(place);
        }
    }

    /// Follows everything that the step may do.
    fn step_on(&mut self, place: usize, moment: &Moment, queue: &mut VecDeque<usize>) {
        if !moment.is_ready() {
            return;
        }
        let step = moment.head.step.clone();
        let nexts = match moment.run(self.machine, InstanceId(1), None) {
            Ok(nexts) => nexts,
            Err(Unthinkable::Untold) => Vec::new(),
            Err(Unthinkable::Panicked) => {
                self.is_cut_short = true;
                let what =
                    "its code panics with this state; a condition or a receiver must not panic".to_owned();
                return self.found(ProblemKind::Panic, step, what, Some(place));
            }
            Err(Unthinkable::Unrepeatable { first, second }) => {
                self.is_cut_short = true;
                let what = format!(
                    "it runs again if the process dies before its commit, and then answers differently: it {first}, \
                     then it {second}. Decide from the state alone, or in an act"
                );
                return self.found(ProblemKind::Unrepeatable, step, what, Some(place));
            }
        };
        if nexts.is_empty() {
            let what = "nothing follows this step, and it does not end the machine".to_owned();
            self.found(ProblemKind::DeadEnd, step.clone(), what, Some(place));
        }
        for next in nexts {
            self.consumed.extend(next.consumed);
            self.see(next.moment, Some(place), format!("{step}: {}", next.what), queue);
        }
    }

    /// Follows everything that may happen from outside.
    fn let_happen(&mut self, place: usize, moment: &Moment, queue: &mut VecDeque<usize>) {
        if moment.is_ended() {
            return;
        }
        let others = [
            (Event::Deadline, "nothing comes in time"),
            (Event::Clock, "the moment comes"),
            (Event::Children, "the children end"),
            (Event::Unit, "the answers come"),
        ];
        for (event, line) in others {
            if let Some(after) = moment.when(&event) {
                self.see(after, Some(place), line.to_owned(), queue);
            }
        }
        self.judge_wait(place, moment);
        for index in 0..self.signals.len() {
            let Sendable { name, examples, .. } = &self.signals[index];
            let copies = moment.inbox.iter().filter(|(other, _)| other == name).count();
            if copies >= COPIES_MAX || moment.inbox.len() >= INBOX_MAX {
                continue;
            }
            let when = match copies {
                _ if rules::awaited_by(&moment.head, name) => "while it is awaited",
                0 => "while nothing waits for it",
                _ => "again, before it is read",
            };
            let happens: Vec<_> = examples
                .iter()
                .filter_map(|payload| {
                    let event = Event::Signal { name: name.clone(), payload: payload.clone() };
                    let with = if payload.as_str() == "null" { "" } else { payload.as_str() };
                    Some((moment.when(&event)?, format!("the signal {name:?} {with} comes {when}")))
                })
                .collect();
            for (after, line) in happens {
                self.see(after, Some(place), line, queue);
            }
        }
    }

    /// Reports a wait that nothing will ever end.
    fn judge_wait(&mut self, place: usize, moment: &Moment) {
        let Head { status, step, awaits: names, .. } = &moment.head;
        match status {
            _ if moment.has_deadline() => {}
            Status::AwaitingSignal => {
                let is_expected = |signal: &Sendable| signal.is_expected && names.contains(&signal.name);
                if !self.signals.iter().any(is_expected) {
                    let what = format!(
                        "it waits for {:?} forever: nothing says who sends it; add a `timeout`, or note the sender \
                         with `sent_by`",
                        names[0]
                    );
                    self.found(ProblemKind::EndlessWait, step.clone(), what, Some(place));
                }
            }
            Status::AwaitingChildren => {
                let unknown = |(name, version): &&(String, u32)| self.known.get(name, *version).is_none();
                if let Some((name, version)) = moment.children.iter().find(unknown) {
                    let what = format!(
                        "it waits for a child of {name} version {version}, which is not registered here"
                    );
                    self.found(ProblemKind::EndlessWait, step.clone(), what, Some(place));
                }
            }
            _ => {}
        }
    }

    /// Reports problems that only show once every situation was visited.
    fn look_at_the_whole(&mut self, graph: &Graph) {
        let visited: BTreeSet<String> = self.seen.iter().map(|seen| seen.moment.head.step.clone()).collect();
        for node in &graph.nodes {
            let counts = !matches!(node.kind, NodeKind::Undo | NodeKind::End)
                && ![DONE, FAILED].contains(&node.step.as_str());
            if counts && !visited.contains(&node.step) {
                let what = "it is never reached: none of the states that were tried leads here; if an act can \
                            return one that does, declare it with `gives`";
                self.found(ProblemKind::Unreached, node.step.clone(), what.to_owned(), None);
            }
        }
        let is_done = |seen: &Seen| seen.moment.head.status == Status::Done;
        let failed = self.seen.iter().position(|seen| seen.moment.head.status == Status::Failed);
        if let (Some(failed), false) = (failed, self.seen.iter().any(is_done)) {
            let what = "no path ends as done".to_owned();
            self.found(ProblemKind::NeverDone, self.machine.name().to_owned(), what, Some(failed));
        }
        self.look_for_rounds();
        self.look_at_signals();
    }

    /// Finds the nearest situation from which nothing leads to an end, nor to what was found already.
    fn look_for_rounds(&mut self) {
        let mut leads_out: Vec<bool> =
            self.seen.iter().map(|seen| seen.moment.is_ended() || seen.next.is_empty()).collect();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.seen.len()];
        for (from, seen) in self.seen.iter().enumerate() {
            seen.next.iter().for_each(|&to| before[to].push(from));
        }
        let mut queue: Vec<usize> = (0..self.seen.len()).filter(|&place| leads_out[place]).collect();
        while let Some(place) = queue.pop() {
            for &from in &before[place] {
                if !std::mem::replace(&mut leads_out[from], true) {
                    queue.push(from);
                }
            }
        }
        // A wait that nothing ends lasts forever too, and has been reported already.
        let told = |moment: &Moment| self.problems.keys().any(|(_, step)| *step == moment.head.step);
        let found = (0..self.seen.len()).find(|&place| !leads_out[place] && !told(&self.seen[place].moment));
        if let Some(place) = found {
            let step = self.seen[place].moment.head.step.clone();
            let what = "from here on it loops forever: no path leads to an end".to_owned();
            self.found(ProblemKind::NoWayOut, step, what, Some(place));
        }
    }

    fn look_at_signals(&mut self) {
        let declared = self.machine.accepts().into_iter().map(|accepts| accepts.name.to_owned());
        let waited: Vec<String> = self.signals.iter().map(|signal| signal.name.clone()).collect();
        let names: BTreeSet<String> = declared.chain(waited).collect();
        for name in names {
            let lies = |seen: &Seen| seen.moment.inbox.iter().filter(|(other, _)| *other == name).count();
            let place = self.seen.iter().position(|seen| seen.moment.is_ended() && lies(seen) == 1);
            if !self.consumed.contains(&name) {
                let what = format!("the signal {name:?} is accepted, but no step ever reads it");
                self.found(ProblemKind::Unread, self.machine.name().to_owned(), what, place);
            } else if let Some(place) = place.filter(|&place| self.is_in_good_time(place, &name)) {
                let step = self.seen[place].moment.head.step.clone();
                let what = format!(
                    "the signal {name:?} may be left unread, although it comes only once and in time"
                );
                self.found(ProblemKind::LeftOver, step, what, Some(place));
            }
        }
    }

    /// Whether the signal came once on the way here, and no deadline passed.
    fn is_in_good_time(&self, place: usize, name: &str) -> bool {
        let trace = self.trace(place);
        let start = format!("the signal {name:?}");
        trace.iter().filter(|line| line.starts_with(&start)).count() == 1
            && !trace.iter().any(|line| line == "nothing comes in time")
    }

    /// Records the first problem of each kind at each step, which is also the nearest.
    fn found(&mut self, kind: ProblemKind, step: String, what: String, place: Option<usize>) {
        let trace = place.map(|place| self.trace(place)).unwrap_or_default();
        self.problems.entry((kind, step.clone())).or_insert(Problem { kind, step, what, trace });
    }

    fn trace(&self, place: usize) -> Vec<String> {
        let mut lines: Vec<String> = std::iter::successors(Some(place), |&place| self.seen[place].from)
            .map(|place| self.seen[place].line.clone())
            .collect();
        lines.reverse();
        lines
    }
}

/// The signals that a machine's graph waits for, each with examples of what it carries.
fn sendable(machine: &dyn DynMachine, graph: &Graph) -> Vec<Sendable> {
    let mut signals: Vec<Sendable> = Vec::new();
    for edge in &graph.edges {
        let On::Signal(name) = &edge.on else { continue };
        let has_deadline = graph.edges.iter().any(|other| other.from == edge.from && other.on == On::Timeout);
        let is_expected = edge.by.is_some() || has_deadline;
        match signals.iter_mut().find(|signal| signal.name == *name) {
            Some(signal) => signal.is_expected |= is_expected,
            None => {
                let examples = machine.examples(name);
                signals.push(Sendable { name: name.clone(), examples, is_expected });
            }
        }
    }
    signals
}
