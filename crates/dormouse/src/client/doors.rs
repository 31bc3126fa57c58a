//! Every signal and every answer is checked here before the store sees it: by the code that is registered here, or else
//! against what a worker elsewhere declared.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use super::elsewhere::{Foreign, KNOWN_FOR, running};
use crate::gate::{Gates, Unfit};
use crate::{Answering, Error, InboxSignal, Instance, Interaction, Json, NewInstance, NewSignal, Result};

impl Client {
    /// The output to store for an answer to this interaction, if the machine that asked accepts it.
    pub(crate) async fn output(
        &self,
        asked: &Interaction,
        answer: Json,
        by: Option<&str>,
    ) -> Result<Result<Json, Unfit>> {
        self.limits.check_document("output", &answer)?;
        let Some(gates) = self.gates(&asked.machine, asked.version).await? else { return Ok(Ok(answer)) };
        // Only a projector needs to know who answered and when, so only then is the store asked for its time.
        let answering = match gates.build_at(&asked.step) {
            true => Some(Answering { by: by.map(str::to_owned), at: self.store.about().await?.now }),
            false => None,
        };
        Ok(gates.answer(&self.limits, asked, answer, answering.as_ref()))
    }

    /// Refuses a signal whose name is not among those that the machine declares, or whose payload the machine refuses.
    pub(super) async fn check_signal(
        &self,
        machine: &str,
        version: u32,
        awaits: &[String],
        signal: &NewSignal,
    ) -> Result<()> {
        match self.gates(machine, version).await? {
            Some(gates) => gates.check_signal(machine, awaits, signal),
            None => Ok(()),
        }
    }

    /// Why the machine cannot read these signals of an instance's inbox; `None` for those that its code, or its
    /// declaration, can read.
    pub async fn unreadable(&self, of: &Instance, signals: &[InboxSignal]) -> Result<Vec<Option<String>>> {
        let gates = if signals.is_empty() { None } else { self.gates(&of.machine, of.version).await? };
        let unreadable = |signal: &InboxSignal| gates.as_ref()?.payload(&signal.name, &signal.payload).err();
        Ok(signals.iter().map(unreadable).collect())
    }

    /// Refuses instances of machines that nobody declares, unless the caller allows it with `even_if_unknown`.
    pub(super) async fn check_known(&self, batch: &[NewInstance]) -> Result<()> {
        for NewInstance { machine, .. } in batch.iter().filter(|new| !new.even_if_unknown) {
            let is_here = self.registry.machines().any(|code| code.name() == machine);
            if is_here || self.is_declared(machine, KNOWN_FOR).await? {
                continue;
            }
            // It may have been declared a moment ago.
            if !self.is_declared(machine, Duration::ZERO).await? {
                let nearest = self.nearest(machine).await?;
                return Err(Error::UnknownMachine { machine: machine.clone(), nearest });
            }
        }
        Ok(())
    }

    /// Refuses instances that bring a signal their own machine refuses.
    pub(super) async fn check_signals(&self, batch: &[NewInstance]) -> Result<()> {
        for new in batch {
            let awaits = new.awaits.as_ref().map(|(names, _)| names.as_slice()).unwrap_or_default();
            for signal in &new.signals {
                self.check_signal(&new.machine, new.version, awaits, signal).await?;
            }
        }
        Ok(())
    }

    /// Whether any machine might refuse this signal. Only then must its target be looked up.
    pub(super) async fn might_refuse(&self, signal: &NewSignal) -> Result<bool> {
        let refuses = |foreign: &Arc<Foreign>| foreign.gates.might_refuse(signal);
        Ok(self.registry.might_refuse(signal) || self.elsewhere(KNOWN_FOR).await?.iter().any(refuses))
    }

    /// Whether every machine would accept these answers as they are. If not, their interactions must be looked up.
    pub(super) async fn takes_as_they_are(&self, answers: &[&Json]) -> Result<bool> {
        let here = answers.iter().all(|answer| self.registry.takes_as_it_is(answer));
        // Answers are few and checked once, so even a declaration of a moment ago must count.
        let elsewhere = self.elsewhere(Duration::ZERO).await?;
        let is_open =
            |foreign: &Arc<Foreign>| answers.iter().all(|answer| foreign.gates.are_open_for(answer));
        Ok(here && elsewhere.iter().all(is_open))
    }

    /// The checks of the machine that runs instances of this name and version.
    async fn gates(&self, machine: &str, version: u32) -> Result<Option<Arc<Gates>>> {
        if let Some(gates) = self.registry.gates(machine, version) {
            return Ok(Some(gates.clone()));
        }
        // An unknown machine may have been declared a moment ago.
        for age_max in [KNOWN_FOR, Duration::ZERO] {
            if let Some(foreign) = running(&self.elsewhere(age_max).await?, machine, version) {
                return Ok(Some(foreign.gates.clone()));
            }
        }
        Ok(None)
    }
}
