//! Versions in flight: the versions that live instances have, and whether a worker runs them.

use std::collections::BTreeMap;

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
    /// How many live workers run it; while there are none, its instances wait.
    pub(crate) workers: usize,
}

impl Overview {
    /// Where the instances of a machine are.
    pub(crate) fn places(&self, machine: &str) -> &[Count] {
        let from = self.counts.partition_point(|count| count.machine.as_str() < machine);
        let rest = &self.counts[from..];
        &rest[..rest.partition_point(|count| count.machine == machine)]
    }

    /// The versions of a machine that have live instances, oldest first.
    pub(crate) fn in_flight(&self, machine: &str) -> Vec<InFlight> {
        self.versions(machine, self.places(machine))
    }

    /// The versions of every machine that have live instances but no live worker.
    pub(crate) fn unserved(&self) -> Vec<(&str, InFlight)> {
        let machines = self.counts.chunk_by(|one, other| one.machine == other.machine);
        let named = machines.filter_map(|places| Some((places.first()?.machine.as_str(), places)));
        let versions = named.flat_map(|(name, places)| {
            self.versions(name, places).into_iter().map(move |version| (name, version))
        });
        versions.filter(|(_, version)| version.workers == 0).collect()
    }

    fn versions(&self, machine: &str, places: &[Count]) -> Vec<InFlight> {
        let mut live = BTreeMap::<u32, u64>::new();
        for place in places.iter().filter(|place| !place.status.is_terminal()) {
            *live.entry(place.version).or_default() += place.count;
        }
        let runs = self.runs.get(machine);
        let workers = |version: u32| runs.and_then(|runs| runs.get(&version)).copied().unwrap_or(0);
        live.into_iter()
            .map(|(version, live)| InFlight { version, live, workers: workers(version) })
            .collect()
    }
}
