//! The machines a process knows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::DynMachine;
use crate::limits::check_name;
use crate::store::Definition;
use crate::{Accepts, Error, History, Json, NewInstance, NewSignal, Result};

/// The machines registered with an engine, by name and version.
#[derive(Clone, Default)]
pub struct Registry {
    by_name: HashMap<String, BTreeMap<u32, Arc<dyn DynMachine>>>,
}

impl Registry {
    /// Adds a machine; the same name and version twice is refused.
    pub fn add(&mut self, machine: Arc<dyn DynMachine>) -> Result<()> {
        check_name("machine name", machine.name())?;
        let refuse = |reason| Err(Error::InvalidMachine { machine: machine.name().to_owned(), reason });
        if machine.migrates_from() > machine.version() {
            return refuse(format!(
                "it says it migrates from version {}, which is newer than its own {}",
                machine.migrates_from(),
                machine.version()
            ));
        }
        for step in machine.steps() {
            check_name("step name", &step)?;
        }
        let versions = self.by_name.entry(machine.name().to_owned()).or_default();
        if versions.contains_key(&machine.version()) {
            return refuse(format!("version {} is registered already", machine.version()));
        }
        versions.insert(machine.version(), machine);
        Ok(())
    }

    /// The machine that runs instances of this name and version: that version itself, or the newest
    /// one that migrates from it.
    pub fn get(&self, name: &str, version: u32) -> Option<&Arc<dyn DynMachine>> {
        let versions = self.by_name.get(name)?;
        versions
            .get(&version)
            .or_else(|| versions.values().rev().find(|m| (m.migrates_from()..m.version()).contains(&version)))
    }

    /// Every name and version that instances can have and this process can run.
    pub fn runs(&self) -> Vec<(String, u32)> {
        let mut runs: Vec<_> = self
            .machines()
            .flat_map(|m| (m.migrates_from()..=m.version()).map(|version| (m.name().to_owned(), version)))
            .collect();
        runs.sort();
        runs.dedup();
        runs
    }

    /// Every machine.
    pub fn machines(&self) -> impl Iterator<Item = &Arc<dyn DynMachine>> {
        self.by_name.values().flat_map(BTreeMap::values)
    }

    /// Every machine as it is declared, where `history` decides for those that do not.
    pub(crate) fn definitions(&self, history: History) -> Vec<Definition> {
        let definition = |machine: &Arc<dyn DynMachine>| Definition {
            name: machine.name().to_owned(),
            version: machine.version(),
            steps: machine.steps(),
            queue: machine.queue().to_owned(),
            keeps_history: machine.history().unwrap_or(history) == History::On,
        };
        self.machines().map(definition).collect()
    }

    /// Whether any machine would refuse this payload of a signal; only then does it matter whose it is.
    pub(crate) fn might_refuse(&self, signal: &str, payload: &Json) -> bool {
        let refuses = |accepts: &Accepts| accepts.name == signal && (accepts.check)(payload).is_err();
        self.machines().any(|machine| machine.accepts().iter().any(refuses))
    }

    /// Whether any machine would refuse this output; only then does it matter whose it is.
    pub(crate) fn might_refuse_output(&self, output: &Json) -> bool {
        self.machines().any(|machine| machine.takes().iter().any(|takes| (takes.check)(output).is_err()))
    }

    /// Whether the newest version of a machine declares another output for what a step reads.
    pub(crate) fn refuses_output(&self, machine: &str, step: &str, output: &Json) -> bool {
        let newest = self.by_name.get(machine).and_then(|versions| versions.values().next_back());
        let declared = newest.map(|machine| machine.takes()).unwrap_or_default();
        declared.iter().any(|takes| takes.step == step && (takes.check)(output).is_err())
    }

    /// Refuses an instance that brings a signal its own machine refuses.
    pub(crate) fn check_signals(&self, new: &NewInstance) -> Result<()> {
        let check =
            |signal: &NewSignal| self.check_payload(&new.machine, new.version, &signal.name, &signal.payload);
        new.signals.iter().try_for_each(check)
    }

    /// Refuses a payload that the machine's declaration of the signal refuses.
    pub(crate) fn check_payload(
        &self,
        machine: &str,
        version: u32,
        signal: &str,
        payload: &Json,
    ) -> Result<()> {
        let Some(definition) = self.get(machine, version) else { return Ok(()) };
        let accepts = definition.accepts();
        let Some(Accepts { check, .. }) = accepts.iter().find(|accepts| accepts.name == signal) else {
            return Ok(());
        };
        check(payload).map_err(|reason| Error::PayloadRefused {
            signal: signal.to_owned(),
            machine: machine.to_owned(),
            reason,
        })
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}
