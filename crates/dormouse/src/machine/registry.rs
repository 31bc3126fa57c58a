//! The machines a process knows.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use super::DynMachine;
use crate::gate::Gates;
use crate::limits::{check_name, check_version};
use crate::search::{INDEXES_MAX, check_field};
use crate::{Declaration, Error, History, Json, NewInstance, NewSignal, Result};

/// How many versions the oldest one that a machine migrates from may be behind its own.
const MIGRATES_MAX: u32 = 1_000;

/// The machines registered with an engine, by name and version.
#[derive(Clone, Default)]
pub struct Registry {
    by_name: HashMap<String, BTreeMap<u32, Registered>>,
}

#[derive(Clone)]
struct Registered {
    machine: Arc<dyn DynMachine>,
    gates: Arc<Gates>,
    /// Its declaration, once it was asked for.
    declared: OnceLock<Arc<Declaration>>,
}

impl Registered {
    /// Its declaration. `history` applies if the machine does not choose for itself.
    fn declaration(&self, history: History) -> Arc<Declaration> {
        let declared = self.declared.get_or_init(|| Arc::new(Declaration::of(&*self.machine, history)));
        let keeps_history = self.machine.history().unwrap_or(history) == History::On;
        if declared.keeps_history == keeps_history {
            return declared.clone();
        }
        Arc::new(Declaration { keeps_history, ..(**declared).clone() })
    }
}

impl Registry {
    /// Adds a machine; the same name and version twice is refused.
    pub fn add(&mut self, machine: Arc<dyn DynMachine>) -> Result<()> {
        check_name("machine name", machine.name())?;
        let refuse = |reason| Err(Error::InvalidMachine { machine: machine.name().to_owned(), reason });
        if machine.migrates_from() > machine.version() {
            return refuse(format!(
                "it migrates from version {}, which is newer than its own version {}",
                machine.migrates_from(),
                machine.version()
            ));
        }
        if machine.version() - machine.migrates_from() > MIGRATES_MAX {
            return refuse(format!(
                "it migrates from version {} to {}, and every claim names each version between: number versions one after \
                 the other, with at most {MIGRATES_MAX} between the oldest and the newest",
                machine.migrates_from(),
                machine.version()
            ));
        }
        for step in machine.steps() {
            check_name("step name", &step)?;
        }
        let indexes = machine.indexes();
        if indexes.len() > INDEXES_MAX {
            return refuse(format!("it indexes {} fields; {INDEXES_MAX} are the most", indexes.len()));
        }
        if let Some(reason) = indexes.iter().find_map(|field| check_field(field).err()) {
            return refuse(format!("`indexes` {reason}"));
        }
        let gates = match Gates::of(&*machine) {
            Ok(gates) => Arc::new(gates),
            Err(reason) => return refuse(reason),
        };
        if let Err(reason) = check_version(machine.version()) {
            return refuse(reason);
        }
        let versions = self.by_name.entry(machine.name().to_owned()).or_default();
        if versions.contains_key(&machine.version()) {
            return refuse(format!("version {} is registered already", machine.version()));
        }
        versions.insert(machine.version(), Registered { machine, gates, declared: OnceLock::new() });
        Ok(())
    }

    /// The machine that runs instances of this name and version: that version itself, or the newest
    /// one that migrates from it.
    pub fn get(&self, name: &str, version: u32) -> Option<&Arc<dyn DynMachine>> {
        self.registered(name, version).map(|registered| &registered.machine)
    }

    fn registered(&self, name: &str, version: u32) -> Option<&Registered> {
        let versions = self.by_name.get(name)?;
        let migrates =
            |newer: &&Registered| (newer.machine.migrates_from()..newer.machine.version()).contains(&version);
        versions.get(&version).or_else(|| versions.values().rev().find(migrates))
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
        self.all().map(|registered| &registered.machine)
    }

    fn all(&self) -> impl Iterator<Item = &Registered> {
        self.by_name.values().flat_map(BTreeMap::values)
    }

    /// The declaration of every machine. `history` applies to those that do not choose for themselves.
    pub(crate) fn declarations(&self, history: History) -> Vec<Arc<Declaration>> {
        self.all().map(|registered| registered.declaration(history)).collect()
    }

    /// The declaration of the machine that runs instances of this name and version.
    pub(crate) fn declaration(&self, name: &str, version: u32, history: History) -> Option<Arc<Declaration>> {
        self.registered(name, version).map(|registered| registered.declaration(history))
    }

    /// The checks of the machine that runs instances of this name and version.
    pub(crate) fn gates(&self, name: &str, version: u32) -> Option<&Arc<Gates>> {
        self.registered(name, version).map(|registered| &registered.gates)
    }

    /// Refuses an instance that brings a signal its own machine refuses.
    pub(crate) fn check_signals(&self, new: &NewInstance) -> Result<()> {
        let Some(gates) = self.gates(&new.machine, new.version) else { return Ok(()) };
        let awaits = new.awaits.as_ref().map(|(names, _)| names.as_slice()).unwrap_or_default();
        new.signals.iter().try_for_each(|signal| gates.check_signal(&new.machine, awaits, signal))
    }

    /// Whether any machine might refuse this signal. Only then must its target be looked up.
    pub(crate) fn might_refuse(&self, signal: &NewSignal) -> bool {
        self.all().any(|registered| registered.gates.might_refuse(signal))
    }

    /// Whether every machine would accept this answer as it is. If not, its interaction must be looked up.
    pub(crate) fn takes_as_it_is(&self, answer: &Json) -> bool {
        self.all().all(|registered| registered.gates.are_open_for(answer))
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}
