//! Declarations: what a machine says of itself, as data. Its workers store it in the database, for processes that do
//! not have its code.

use serde::{Deserialize, Deserializer, Serialize};

use super::DynMachine;
use crate::graph::Graph;
use crate::{At, Form, History, Outline};

/// A machine as its code declares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// The oldest version it takes over.
    pub migrates_from: u32,
    /// Its steps; by default an instance starts at the first.
    pub steps: Vec<String>,
    /// The queue in which its instances wait by default.
    pub queue: String,
    /// Whether its transitions are recorded.
    pub keeps_history: bool,
    /// What the state of its steps must look like so that it decodes. A step that is not named here accepts any state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<Stated>,
    /// The signals that it declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepts: Vec<Accepted>,
    /// Whether it accepts signals that it does not declare.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub accepts_others: bool,
    /// The steps that declare which answers they take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes: Vec<Taken>,
    /// The steps at which a cancel asks an instance first to undo what it did, and then to end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undo_on_cancel: Vec<String>,
    /// The fields of its states that instances are found by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<String>,
    /// Its steps and the ways between them, if it declares them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Graph>,
}

/// The outline of the state of some steps, as a machine declares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stated {
    /// The steps.
    pub steps: Vec<String>,
    /// What their state must look like so that it decodes.
    #[serde(deserialize_with = "known")]
    pub outline: Outline,
}

/// A signal, as a machine declares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The signal's name.
    pub signal: String,
    /// Another name by which it may be sent: that of the part of a flow that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<String>,
    /// What its payloads look like.
    pub form: Form,
    /// The JSON Schema that they fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<serde_json::Value>,
    /// What its payloads must look like so that they decode.
    #[serde(default = "anything", deserialize_with = "known")]
    pub outline: Outline,
}

/// The answer that a step takes from its unit, as a machine declares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The step that reads it.
    pub step: String,
    /// What an answer looks like as it comes in.
    pub form: Form,
    /// The JSON Schema that it fits, as it comes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<serde_json::Value>,
    /// What it must look like as it comes in, so that it decodes.
    #[serde(default = "anything", deserialize_with = "known")]
    pub outline: Outline,
    /// Whether the machine's code builds the output from it.
    pub is_built: bool,
}

impl Declaration {
    /// The declaration of a machine's code. `history` applies to a machine that does not choose for itself.
    pub(crate) fn of(machine: &dyn DynMachine, history: History) -> Self {
        Self {
            name: machine.name().to_owned(),
            version: machine.version(),
            migrates_from: machine.migrates_from(),
            steps: machine.steps(),
            queue: machine.queue().to_owned(),
            keeps_history: machine.history().unwrap_or(history) == History::On,
            states: machine.states(),
            accepts_others: machine.accepts_others(),
            accepts: machine.accepts().iter().map(Accepted::from).collect(),
            takes: machine.takes().iter().map(Taken::from).collect(),
            undo_on_cancel: machine.undo_on_cancel(),
            indexes: machine.indexes(),
            graph: machine.graph(),
        }
    }

    /// Whether it runs instances of this version.
    pub fn runs(&self, version: u32) -> bool {
        (self.migrates_from..=self.version).contains(&version)
    }

    /// The declaration of a signal, if there is one.
    pub fn accepted(&self, signal: &str) -> Option<&Accepted> {
        let is_it = |told: &&Accepted| told.signal == signal || told.also.as_deref() == Some(signal);
        self.accepts.iter().find(is_it)
    }

    /// What the state of a step must look like, if that is declared.
    pub fn state(&self, step: &str) -> Option<&Outline> {
        let stated = self.states.iter().find(|stated| stated.steps.iter().any(|known| known == step));
        stated.map(|stated| &stated.outline)
    }

    /// Returns why an instance of exactly this version could not run from this step and state.
    pub(crate) fn check(&self, at: &At) -> Result<(), String> {
        let At { step, state } = at;
        if !self.steps.is_empty() && !self.steps.iter().any(|known| known == step) {
            return Err(format!("it has no step {step:?}; it has {}", self.steps.join(", ")));
        }
        let checked = self.state(step).map_or(Ok(()), |outline| outline.check(state));
        checked.map_err(|reason| format!("the state of step {step}: {reason}"))
    }

    /// The declaration of the answers that a step takes, if there is one.
    pub fn taken(&self, step: &str) -> Option<&Taken> {
        self.takes.iter().find(|taken| taken.step == step)
    }
}

fn yes() -> bool {
    true
}

fn anything() -> Outline {
    Outline::Any
}

/// An outline of a kind that this version knows. A kind that a later version declares lets everything through.
fn known<'de, D: Deserializer<'de>>(told: D) -> Result<Outline, D::Error> {
    let told = serde_json::Value::deserialize(told)?;
    Ok(Outline::deserialize(told).unwrap_or(Outline::Any))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_of_a_later_kind_lets_everything_through() {
        let told = r#"{"steps":["a"],"outline":{"kind":"of_another_time","of":{"x":1}}}"#;
        let stated: Stated = serde_json::from_str(told).expect("it is read all the same");
        assert_eq!(stated.outline, Outline::Any);
        let told = serde_json::to_string(&Stated { outline: Outline::Flag, ..stated }).expect("text");
        assert_eq!(serde_json::from_str::<Stated>(&told).expect("as it was").outline, Outline::Flag);
    }
}
