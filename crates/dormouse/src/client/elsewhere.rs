//! Machines whose code is in other processes: the declarations that those processes stored in the database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Client;
use crate::gate::Gates;
use crate::json::decode_text;
use crate::limits::nearest;
use crate::store::{Declarations, Declared};
use crate::{Declaration, Result};

/// How old a remembered declaration may be where reading it each time would cost too much.
pub(super) const KNOWN_FOR: Duration = Duration::from_secs(1);

/// The declarations of machines elsewhere, and when they were read.
#[derive(Default)]
pub(super) struct Elsewhere(Mutex<Known>);

#[derive(Default)]
struct Known {
    read_at: Option<Instant>,
    /// The mark of the declarations that were read.
    mark: Option<String>,
    machines: Arc<[Arc<Foreign>]>,
}

/// The remembered declarations, or that they are too old.
enum Memory {
    /// These; they are recent enough.
    Fresh(Arc<[Arc<Foreign>]>),
    /// They must be read again, unless nothing has changed since this mark.
    Stale { mark: Option<String> },
}

/// A version of a machine, as last declared.
pub(super) struct Foreign {
    declared: Declared,
    declaration: Option<Arc<Declaration>>,
    pub(super) gates: Arc<Gates>,
}

impl Foreign {
    fn of(declared: Declared) -> Self {
        match decode_text::<Declaration>(declared.told.as_str()) {
            Ok(declaration) => {
                let gates = Arc::new(Gates::elsewhere(&declaration));
                Self { declared, declaration: Some(Arc::new(declaration)), gates }
            }
            Err(reason) => {
                let reason =
                    format!("the stored declaration of machine {} cannot be read: {reason}", declared.name);
                Self { declared, declaration: None, gates: Arc::new(Gates::unreadable(reason)) }
            }
        }
    }
}

impl Elsewhere {
    /// The remembered declarations, if they are not older than this. While one caller reads them again, the others use
    /// the old ones.
    fn known(&self, age_max: Duration) -> Memory {
        let mut known = self.lock();
        match known.read_at {
            Some(read_at) if read_at.elapsed() <= age_max => Memory::Fresh(known.machines.clone()),
            Some(_) => {
                known.read_at = Some(Instant::now());
                Memory::Stale { mark: known.mark.clone() }
            }
            None => Memory::Stale { mark: None },
        }
    }

    /// Remembers the declarations that were read, if any are new. Those that did not change are not compiled again.
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
    /// The declaration of the machine that runs instances of this name and version: from the code registered here, or
    /// else from the database, where the worker that registered last stored it.
    pub async fn declaration(&self, machine: &str, version: u32) -> Result<Option<Arc<Declaration>>> {
        if let Some(declaration) = self.registry.declaration(machine, version, self.history) {
            return Ok(Some(declaration));
        }
        let elsewhere = self.elsewhere(KNOWN_FOR).await?;
        Ok(running(&elsewhere, machine, version).and_then(|foreign| foreign.declaration.clone()))
    }

    /// The declaration of the newest version of each machine, by name: of machines registered here and of machines that
    /// workers elsewhere declared.
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

    /// Whether a worker elsewhere declared a machine of this name.
    pub(super) async fn is_declared(&self, machine: &str, age_max: Duration) -> Result<bool> {
        let elsewhere = self.elsewhere(age_max).await?;
        Ok(elsewhere.iter().any(|foreign| foreign.declared.name == machine))
    }

    /// The known name that is most like a misspelt one.
    pub(super) async fn nearest(&self, machine: &str) -> Result<Option<String>> {
        let elsewhere = self.elsewhere(KNOWN_FOR).await?;
        let here = self.registry.machines().map(|code| code.name().to_owned());
        let known = here.chain(elsewhere.iter().map(|foreign| foreign.declared.name.clone()));
        Ok(nearest(machine, known))
    }

    /// The declarations of machines elsewhere, no older than this.
    pub(super) async fn elsewhere(&self, age_max: Duration) -> Result<Arc<[Arc<Foreign>]>> {
        match self.elsewhere.known(age_max) {
            Memory::Fresh(machines) => Ok(machines),
            Memory::Stale { mark } => Ok(self.elsewhere.learn(self.store.declared(mark).await?)),
        }
    }
}

/// The declared machine that would run instances of this name and version. Of those that can, it is the one whose
/// worker registered last; if that worker runs several, the same version, or else the newest.
pub(super) fn running<'a>(elsewhere: &'a [Arc<Foreign>], machine: &str, version: u32) -> Option<&'a Foreign> {
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
    use crate::Json;

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
        let is_stale_at = |age_max, at: Option<&str>| matches!(elsewhere.known(age_max), Memory::Stale { mark } if mark.as_deref() == at);
        assert!(is_stale_at(KNOWN_FOR, None), "nothing was read yet");
        let read =
            |mark: &str, machines| elsewhere.learn(Some(Declarations { mark: mark.to_owned(), machines }));
        let first = read("1", vec![declared(1, 1, "{}")]);
        let again = read("2", vec![declared(1, 2, "{}"), declared(2, 2, "[]")]);
        assert!(Arc::ptr_eq(&first[0].gates, &again[0].gates) && again[0].declared.at > first[0].declared.at);
        assert!(Arc::ptr_eq(&elsewhere.learn(None)[1], &again[1]), "what is as it was is not read again");
        assert!(is_stale_at(Duration::ZERO, Some("2")));
    }
}
