//! The machines a process knows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::DynMachine;
use crate::limits::check_name;
use crate::store::Definition;
use crate::unit::{Gate, Unfit};
use crate::{Accepts, Error, History, Interaction, Json, Limits, NewInstance, NewSignal, Result, Takes};

/// The machines registered with an engine, by name and version.
#[derive(Clone, Default)]
pub struct Registry {
    by_name: HashMap<String, BTreeMap<u32, Arc<dyn DynMachine>>>,
    /// What the newest version of each takes as answers.
    gates: HashMap<String, Arc<[Gate]>>,
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
        let gates = match gates(&*machine) {
            Ok(gates) => gates,
            Err(reason) => return refuse(reason),
        };
        let versions = self.by_name.entry(machine.name().to_owned()).or_default();
        if versions.contains_key(&machine.version()) {
            return refuse(format!("version {} is registered already", machine.version()));
        }
        if versions.keys().all(|version| *version < machine.version()) {
            self.gates.insert(machine.name().to_owned(), gates);
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

    /// Whether every machine would take this answer as it is; only otherwise does it matter whose it is.
    pub(crate) fn takes_as_it_is(&self, answer: &Json) -> bool {
        self.gates.values().flat_map(|gates| gates.iter()).all(|gate| gate.is_open_for(answer))
    }

    /// The output that is stored for an answer to this interaction, as the newest version of its machine declares it.
    pub(crate) fn admit(&self, limits: &Limits, asked: &Interaction, answer: Json) -> Result<Json, Unfit> {
        let gates = self.gates.get(&asked.machine).map(|gates| gates.iter()).unwrap_or_default();
        let mut of_step = gates.filter(|gate| gate.step == asked.step);
        of_step.try_fold(answer, |answer, gate| gate.admit(limits, &asked.request, answer))
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

/// What a machine takes as answers, ready to be checked; or what is wrong with how it says so.
fn gates(machine: &dyn DynMachine) -> Result<Arc<[Gate]>, String> {
    let steps = machine.steps();
    let gates = machine.takes().into_iter().map(Takes::gate).collect::<Result<Vec<Gate>, _>>()?;
    match gates.iter().find(|gate| !steps.iter().any(|step| step == gate.step)) {
        Some(stray) => Err(format!("it says what it takes at {:?}, which is none of its steps", stray.step)),
        None => Ok(gates.into()),
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}
