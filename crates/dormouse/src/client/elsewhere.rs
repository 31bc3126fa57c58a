//! Machines whose code is in other processes: what they declare, as those processes left it in the database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Client;
use crate::gate::{Gates, Unfit};
use crate::json::decode_text;
use crate::limits::nearest;
use crate::store::{Declarations, Declared};
use crate::{
    Answering, Declaration, Error, InboxSignal, Instance, Interaction, Json, NewInstance, NewSignal, Result,
};

/// How old what is known may be where asking each time would cost too much.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// What is known of machines elsewhere, and since when.
#[derive(Default)]
pub(super) struct Elsewhere(Mutex<Known>);

#[derive(Default)]
struct Known {
    read_at: Option<Instant>,
    /// Of what was read.
    mark: Option<String>,
    machines: Arc<[Arc<Foreign>]>,
}

/// A version of a machine, as it was declared last.
pub(super) struct Foreign {
    declared: Declared,
    declaration: Option<Arc<Declaration>>,
    gates: Arc<Gates>,
}

impl Foreign {
    fn of(declared: Declared) -> Self {
        match decode_text::<Declaration>(declared.told.as_str()) {
            Ok(declaration) => {
                let gates = Arc::new(Gates::elsewhere(&declaration));
                Self { declared, declaration: Some(Arc::new(declaration)), gates }
            }
            Err(reason) => {
                let reason = format!("what machine {} declares cannot be read: {reason}", declared.name);
                Self { declared, declaration: None, gates: Arc::new(Gates::unreadable(reason)) }
            }
        }
    }
}

impl Elsewhere {
    /// What is known, if it is not older than this; else its mark. While one looks anew, the others go on with what
    /// they have.
    fn known(&self, age_max: Duration) -> Result<Arc<[Arc<Foreign>]>, Option<String>> {
        let mut known = self.lock();
        match known.read_at {
            Some(read_at) if read_at.elapsed() <= age_max => Ok(known.machines.clone()),
            Some(_) => {
                known.read_at = Some(Instant::now());
                Err(known.mark.clone())
            }
            None => Err(None),
        }
    }

    /// Takes what was read, if there was something new. What did not change is not compiled again.
    fn learn(&self, read: Option<Declarations>) -> Arc<[Arc<Foreign>]> {
        let mut known = self.lock();
        let Some(Declarations { mark, machines: declared }) = read else { return known.machines.clone() };
        let foreign =
            |declared: Declared| match known.machines.iter().find(|old| old.declared.told == declared.told) {
                Some(old) => Arc::new(Foreign {
                    declared,
                    declaration: old.declaration.clone(),
                    gates: old.gates.clone(),
                }),
                None => Arc::new(Foreign::of(declared)),
            };
        let machines: Arc<[Arc<Foreign>]> = declared.into_iter().map(foreign).collect();
        *known = Known { read_at: Some(Instant::now()), mark: Some(mark), machines: machines.clone() };
        machines
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// What the machine that runs instances of this name and version declares: as the code that is registered here
    /// says, or else as the worker that registered last left it in the database.
    pub async fn declaration(&self, machine: &str, version: u32) -> Result<Option<Arc<Declaration>>> {
        if let Some(declaration) = self.registry.declaration(machine, version, self.history) {
            return Ok(Some(declaration));
        }
        let elsewhere = self.elsewhere(KNOWN_FOR).await?;
        Ok(running(&elsewhere, machine, version).and_then(|foreign| foreign.declaration.clone()))
    }

    /// What the newest version of each machine declares, by name: of those registered here, and of those that workers
    /// elsewhere declared.
    pub async fn declarations(&self) -> Result<Vec<Arc<Declaration>>> {
        let mut newest: Vec<Arc<Declaration>> = self.registry.declarations(self.history);
        let here = |name: &str| self.registry.machines().any(|machine| machine.name() == name);
        let elsewhere = self.elsewhere(KNOWN_FOR).await?;
        let foreign = elsewhere.iter().filter(|foreign| !here(&foreign.declared.name));
        newest.extend(foreign.filter_map(|foreign| foreign.declaration.clone()));
        newest.sort_by(|one, other| (&one.name, other.version).cmp(&(&other.name, one.version)));
        newest.dedup_by(|later, first| later.name == first.name);
        Ok(newest)
    }

    /// The output that is stored for an answer to this interaction, if it is what the machine that asked takes.
    pub(crate) async fn output(
        &self,
        asked: &Interaction,
        answer: Json,
        by: Option<&str>,
    ) -> Result<Result<Json, Unfit>> {
        self.limits.check_document("output", &answer)?;
        let Some(gates) = self.gates(&asked.machine, asked.version).await? else { return Ok(Ok(answer)) };
        // Only a projector is told who and when, so only for one the store is asked for its time.
        let answering = match gates.build_at(&asked.step) {
            true => Some(Answering { by: by.map(str::to_owned), at: self.store.about().await?.now }),
            false => None,
        };
        Ok(gates.answer(&self.limits, asked, answer, answering.as_ref()))
    }

    /// Refuses a signal that the machine does not declare though it names those it takes, or whose payload it refuses.
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

    /// Why its machine cannot read these signals of an instance's inbox; `None` for those that it can, as far as its code
    /// or what it declares can tell.
    pub async fn unreadable(&self, of: &Instance, signals: &[InboxSignal]) -> Result<Vec<Option<String>>> {
        let gates = if signals.is_empty() { None } else { self.gates(&of.machine, of.version).await? };
        let unreadable = |signal: &InboxSignal| gates.as_ref()?.payload(&signal.name, &signal.payload).err();
        Ok(signals.iter().map(unreadable).collect())
    }

    /// Refuses instances of machines that nobody declares, unless that is asked for.
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

    async fn is_declared(&self, machine: &str, age_max: Duration) -> Result<bool> {
        let elsewhere = self.elsewhere(age_max).await?;
        Ok(elsewhere.iter().any(|foreign| foreign.declared.name == machine))
    }

    /// The known name that a misspelt one may have meant.
    async fn nearest(&self, machine: &str) -> Result<Option<String>> {
        let elsewhere = self.elsewhere(KNOWN_FOR).await?;
        let here = self.registry.machines().map(|code| code.name().to_owned());
        let known = here.chain(elsewhere.iter().map(|foreign| foreign.declared.name.clone()));
        Ok(nearest(machine, known))
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

    /// Whether any machine might refuse this signal; only then does it matter whose it is.
    pub(super) async fn might_refuse(&self, signal: &NewSignal) -> Result<bool> {
        let refuses = |foreign: &Arc<Foreign>| foreign.gates.might_refuse(signal);
        Ok(self.registry.might_refuse(signal) || self.elsewhere(KNOWN_FOR).await?.iter().any(refuses))
    }

    /// Whether every machine would take these answers as they are; only otherwise does it matter whose they are.
    pub(super) async fn takes_as_they_are(&self, answers: &[&Json]) -> Result<bool> {
        let here = answers.iter().all(|answer| self.registry.takes_as_it_is(answer));
        // Answers are few, and checked once: what was declared a moment ago counts.
        let elsewhere = self.elsewhere(Duration::ZERO).await?;
        let is_open =
            |foreign: &Arc<Foreign>| answers.iter().all(|answer| foreign.gates.are_open_for(answer));
        Ok(here && elsewhere.iter().all(is_open))
    }

    /// The doors of the machine that runs instances of this name and version.
    async fn gates(&self, machine: &str, version: u32) -> Result<Option<Arc<Gates>>> {
        if let Some(gates) = self.registry.gates(machine, version) {
            return Ok(Some(gates.clone()));
        }
        // One that is not known may have been declared a moment ago.
        for age_max in [KNOWN_FOR, Duration::ZERO] {
            if let Some(foreign) = running(&self.elsewhere(age_max).await?, machine, version) {
                return Ok(Some(foreign.gates.clone()));
            }
        }
        Ok(None)
    }

    async fn elsewhere(&self, age_max: Duration) -> Result<Arc<[Arc<Foreign>]>> {
        match self.elsewhere.known(age_max) {
            Ok(known) => Ok(known),
            Err(mark) => Ok(self.elsewhere.learn(self.store.declared(mark).await?)),
        }
    }
}

/// Who would run instances of this name and version: of those that can, the one whose worker registered last; of one
/// worker's, that version itself, or else the newest.
fn running<'a>(elsewhere: &'a [Arc<Foreign>], machine: &str, version: u32) -> Option<&'a Foreign> {
    let runs = |declared: &Declared| {
        declared.name == machine && (declared.migrates_from..=declared.version).contains(&version)
    };
    let able = elsewhere.iter().filter(|foreign| runs(&foreign.declared));
    let order = |foreign: &&Arc<Foreign>| {
        let Declared { at, version: its, .. } = foreign.declared;
        (at, its == version, its)
    };
    able.max_by_key(order).map(|found| &**found)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn declared(version: u32, at_s: i64, told: &str) -> Declared {
        let at = Timestamp::from_second(at_s).expect("a moment");
        Declared { name: "m".to_owned(), version, migrates_from: 1, at, told: Json::trusted(told) }
    }

    #[test]
    fn a_declaration_that_cannot_be_read_lets_no_answer_in_unseen() {
        let foreign = Foreign::of(declared(1, 0, r#"{"of": "another time"}"#));
        assert!(foreign.declaration.is_none());
        assert!(!foreign.gates.are_open_for(&Json::null()), "it is not let through as it is");
    }

    #[test]
    fn what_did_not_change_is_not_compiled_again() {
        let elsewhere = Elsewhere::default();
        assert!(matches!(elsewhere.known(KNOWN_FOR), Err(None)), "nothing was read yet");
        let read =
            |mark: &str, machines| elsewhere.learn(Some(Declarations { mark: mark.to_owned(), machines }));
        let first = read("1", vec![declared(1, 1, "{}")]);
        let again = read("2", vec![declared(1, 2, "{}"), declared(2, 2, "[]")]);
        assert!(Arc::ptr_eq(&first[0].gates, &again[0].gates) && again[0].declared.at > first[0].declared.at);
        assert!(Arc::ptr_eq(&elsewhere.learn(None)[1], &again[1]), "what is as it was is not read again");
        assert!(matches!(elsewhere.known(Duration::ZERO), Err(Some(mark)) if mark == "2"));
    }
}
