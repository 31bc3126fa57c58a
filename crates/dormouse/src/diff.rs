//! The gate before a deploy: compares the registered machines with the live rows, without running them.

use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::graph::{Graph, NodeKind, On};
use crate::store::{Filter, Store};
use crate::{At, DynMachine, Instance, InstanceId, Registry, Result, Status};

/// Instances read at a time.
const PAGE_ROWS: usize = 500;
/// Instances named as examples of one difference.
const EXAMPLES_MAX: usize = 3;
/// How many different reasons are kept; further ones at the same step are counted together.
const DIFFERENCES_MAX: usize = 200;

/// How the registered machines differ from what the live instances need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Diff {
    /// How many live instances were compared.
    pub live: u64,
    /// Where this code could not run them, or would not do what they expect.
    pub differences: Vec<Difference>,
}

/// One way in which live instances do not fit the registered code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Difference {
    /// What does not fit.
    pub kind: DifferenceKind,
    /// Their machine.
    pub machine: String,
    /// Their version.
    pub version: u32,
    /// Where they are.
    pub step: String,
    /// Why they do not fit.
    pub reason: String,
    /// How many they are.
    pub count: u64,
    /// Some of them, the newest first.
    pub examples: Vec<InstanceId>,
}

/// What does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DifferenceKind {
    /// No registered code runs this machine and version.
    NoCode,
    /// The migration to this version fails or panics.
    MigrationFails,
    /// There is no such step any more.
    StepGone,
    /// The state does not decode any more.
    StateUnreadable,
    /// The step exists, but does not wait for what they are parked on.
    WaitChanged,
}

impl DifferenceKind {
    /// In a few words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoCode => "no code",
            Self::MigrationFails => "migration fails",
            Self::StepGone => "step gone",
            Self::StateUnreadable => "state unreadable",
            Self::WaitChanged => "wait changed",
        }
    }
}

/// Compares every live instance of every namespace; `progress` is called with the number compared so far.
pub(crate) async fn diff(
    store: &dyn Store,
    registry: &Registry,
    mut progress: impl FnMut(u64),
) -> Result<Diff> {
    let mut diff = Diff::default();
    let mut filter = Filter { limit: PAGE_ROWS, ..Filter::default() };
    loop {
        let page = store.list(filter.clone()).await?;
        for instance in page.instances.into_iter().filter(|instance| !instance.status.is_terminal()) {
            diff.live += 1;
            if let Some((kind, reason)) = unfit(registry, &instance) {
                diff.add(kind, reason, instance);
            }
        }
        progress(diff.live);
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    let place = |found: &Difference| (found.machine.clone(), found.version, found.step.clone());
    diff.differences.sort_by_cached_key(|found| (place(found), found.kind, Reverse(found.count)));
    Ok(diff)
}

impl Diff {
    /// Counts an instance with others that do not fit for the same reason.
    fn add(&mut self, kind: DifferenceKind, reason: String, instance: Instance) {
        let Instance { id, machine, version, step, .. } = instance;
        let is_full = self.differences.len() >= DIFFERENCES_MAX;
        let is_same = |found: &&mut Difference| {
            (found.kind, &found.machine, found.version, &found.step) == (kind, &machine, version, &step)
                && (found.reason == reason || is_full)
        };
        match self.differences.iter_mut().find(is_same) {
            Some(found) => {
                found.count += 1;
                if found.examples.len() < EXAMPLES_MAX {
                    found.examples.push(id);
                }
            }
            None => self.differences.push(Difference {
                kind,
                machine,
                version,
                step,
                reason,
                count: 1,
                examples: vec![id],
            }),
        }
    }
}

/// Returns why the registered code could not go on with an instance, in a dry run.
pub(crate) fn unfit(registry: &Registry, instance: &Instance) -> Option<(DifferenceKind, String)> {
    let Instance { machine, version, .. } = instance;
    let Some(code) = registry.get(machine, *version) else {
        #[cfg(feature = "schedules")]
        if machine == crate::SCHEDULE_MACHINE {
            // Every engine runs schedules, whatever else is registered with it.
            return None;
        }
        let reason = format!("no registered code runs machine {machine} version {version}");
        return Some((DifferenceKind::NoCode, reason));
    };
    let at = At { step: instance.step.clone().into(), state: instance.state.clone() };
    let at = match lifted(code, *version, at) {
        Ok(at) => at,
        Err(reason) => {
            return Some((DifferenceKind::MigrationFails, format!("its migration fails: {reason}")));
        }
    };
    if !code.steps().iter().any(|step| *step == at.step) {
        return Some((DifferenceKind::StepGone, gone(&**code, &at.step)));
    }
    if let Err(reason) = code.check(&at) {
        return Some((DifferenceKind::StateUnreadable, reason));
    }
    let changed = code.graph().and_then(|graph| wait_changed(&graph, &at.step, instance));
    changed.map(|reason| (DifferenceKind::WaitChanged, reason))
}

fn lifted(code: &Arc<dyn DynMachine>, version: u32, at: At) -> Result<At, String> {
    if code.version() == version {
        return Ok(at);
    }
    match catch_unwind(AssertUnwindSafe(|| code.migrate(version, at))) {
        Ok(lifted) => lifted.map_err(|error| error.to_string()),
        Err(_) => Err("it panics".to_owned()),
    }
}

/// A part that moved into another scene has another path, and the same last name.
fn gone(code: &dyn DynMachine, step: &str) -> String {
    let last = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let moved = code.steps().into_iter().find(|other| last(other) == last(step));
    let hint = moved.map(|other| format!("; is it {other:?} now?")).unwrap_or_default();
    format!("step {step:?} no longer exists{hint}")
}

/// Compares what an instance is parked on with what this code waits for at that step.
fn wait_changed(graph: &Graph, step: &str, instance: &Instance) -> Option<String> {
    let node = graph.nodes.iter().find(|node| node.step == step)?;
    // A flow parks at the part that waits; a machine parks at the step that follows the wait.
    let parks_here = !matches!(node.kind, NodeKind::Act);
    let ways = || {
        graph.edges.iter().filter(move |edge| if parks_here { edge.from == step } else { edge.to == step })
    };
    let now = match instance.status {
        Status::AwaitingSignal => {
            let waits_for = |on: &On| matches!(on, On::Signal(name) if instance.awaits.contains(name));
            if ways().any(|edge| waits_for(&edge.on)) {
                return None;
            }
            let names: Vec<_> = ways().filter_map(|edge| signal_of(&edge.on)).collect();
            let now = if names.is_empty() { "nothing".to_owned() } else { names.join(" or ") };
            return Some(format!(
                "it waits for {}, but this code waits for {now} there",
                quoted(&instance.awaits)
            ));
        }
        Status::AwaitingChildren => On::Children,
        Status::AwaitingCompletion => On::Answers,
        _ => return None,
    };
    let what = if now == On::Children { "children" } else { "answers from outside" };
    (!ways().any(|edge| edge.on == now))
        .then(|| format!("it waits for {what}, but this code does not wait for them there"))
}

fn signal_of(on: &On) -> Option<String> {
    match on {
        On::Signal(name) => Some(format!("{name:?}")),
        _ => None,
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ")
}
