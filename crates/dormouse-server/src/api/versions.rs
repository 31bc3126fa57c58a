//! Versions in flight: what live instances are of, and whether anybody runs it.

use std::collections::{BTreeMap, BTreeSet};

use dormouse::store::Count;
use schemars::JsonSchema;
use serde::Serialize;

use super::Overview;

/// A version that has live instances.
#[derive(Serialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InFlight {
    pub(crate) version: u32,
    /// How many instances of it have not ended.
    pub(crate) live: u64,
    /// How many live workers run it; with none, its instances wait until one does.
    pub(crate) workers: usize,
}

impl Overview {
    /// The versions of a machine that have live instances, oldest first.
    pub(crate) fn in_flight(&self, machine: &str) -> Vec<InFlight> {
        let mut live = BTreeMap::<u32, u64>::new();
        let is_live = |count: &&Count| count.machine == machine && !count.status.is_terminal();
        for count in self.counts.iter().filter(is_live) {
            *live.entry(count.version).or_default() += count.count;
        }
        let runs = |version| {
            let is_it = |(name, runs): &(String, u32)| name == machine && *runs == version;
            self.live_workers().filter(|worker| worker.machines.iter().any(is_it)).count()
        };
        live.into_iter().map(|(version, live)| InFlight { version, live, workers: runs(version) }).collect()
    }

    /// The versions of every machine that have live instances and that no live worker runs.
    pub(crate) fn unserved(&self) -> Vec<(&str, InFlight)> {
        let machines: BTreeSet<&str> = self.counts.iter().map(|count| count.machine.as_str()).collect();
        let versions = |name| self.in_flight(name).into_iter().map(move |version| (name, version));
        machines.into_iter().flat_map(versions).filter(|(_, version)| version.workers == 0).collect()
    }
}
