//! Looking ahead: what a machine may do, explored without doing it.
//!
//! [`machine`] explores a flow, or a machine that declares its [graph](crate::graph), against signals that come early,
//! late, twice or never, deadlines, and crashes between any two commits, and reports what it finds wrong with the
//! shortest trace that shows it.

mod explore;
mod moment;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::explore::Explorer;
pub(crate) use self::moment::{Event, Moment, Unthinkable};
pub use crate::ahead::{Ahead, Foreseen};
use crate::{DynMachine, Registry, ahead};

/// Explores a machine as far as the usual bounds allow. `known` are the machines that its children may be of.
pub fn machine(machine: &dyn DynMachine, known: &Registry) -> Report {
    Explorer::new(machine, known).explore()
}

/// The result of exploring a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The machine.
    pub machine: String,
    /// Its version.
    pub version: u32,
    /// How many different situations were visited.
    pub moments: usize,
    /// Whether these are all situations.
    pub is_exhaustive: bool,
    /// What is wrong, or worth knowing.
    pub problems: Vec<Problem>,
}

/// Something that was found, and the shortest way there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// The kind of problem.
    pub kind: ProblemKind,
    /// The step it is about.
    pub step: String,
    /// What it is, and what to do.
    pub what: String,
    /// The shortest way there, from the start.
    pub trace: Vec<String>,
}

/// What exploring can find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// It declares too little to be explored.
    Unknown,
    /// A step that nothing follows and that does not end the machine.
    DeadEnd,
    /// A wait that nothing will end.
    EndlessWait,
    /// From here on it loops forever.
    NoWayOut,
    /// No path ends as done.
    NeverDone,
    /// A step that is never reached.
    Unreached,
    /// A signal that it accepts but never reads.
    Unread,
    /// A step that returns something else when it runs again, as it does after a crash.
    Unrepeatable,
    /// Code that panics.
    Panic,
    /// A signal that may be left unread when the instance ends. It is not a fault in itself.
    LeftOver,
}

impl ProblemKind {
    /// Whether it is a fault, and not merely worth knowing.
    pub fn is_fault(self) -> bool {
        self != Self::LeftOver
    }
}

impl Report {
    /// Whether no fault was found, and nothing was left unexplored.
    pub fn is_clean(&self) -> bool {
        self.is_exhaustive && self.faults().next().is_none()
    }

    /// What is wrong.
    pub fn faults(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.kind.is_fault())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, version, moments, is_exhaustive, problems } = self;
        let faults = match self.faults().count() {
            0 => "no fault".to_owned(),
            1 => "1 fault".to_owned(),
            many => format!("{many} faults"),
        };
        write!(f, "{machine} version {version}: {faults} in {moments} situations")?;
        if !is_exhaustive {
            write!(f, ", and there are more than were visited")?;
        }
        problems.iter().try_for_each(|problem| write!(f, "\n{problem}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.kind.is_fault() { "fault" } else { "note" };
        write!(f, "  {word}: {}: {}", self.step, self.what)?;
        self.trace.iter().enumerate().try_for_each(|(index, line)| write!(f, "\n    {}. {line}", index + 1))
    }
}
