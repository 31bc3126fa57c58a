//! Checks before anything is stored: steps and states against the code that will read them or its declaration, and
//! queues against the known ones.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Client;
use crate::limits::nearest;
use crate::{At, DynMachine, Error, Json, NewInstance, Result};

/// A reason may quote the value that does not fit, and that may be long.
const REASON_CHARS_MAX: usize = 500;

/// The queue of instances that name no other.
const DEFAULT_QUEUE: &str = "default";

impl Client {
    /// Refuses an instance that is malformed, or whose state its machine could not read. Its code decides if it is
    /// registered here, otherwise its declaration.
    pub async fn check(&self, new: &NewInstance) -> Result<()> {
        new.check(&self.limits)?;
        self.check_place(&new.machine, new.version, &new.at).await
    }

    /// Refuses a step and state from which instances of this machine and version could not run.
    pub(super) async fn check_place(&self, machine: &str, version: u32, at: &At) -> Result<()> {
        let checked = match self.registry.get(machine, version) {
            Some(code) => by_code(&**code, version, at),
            None => match self.declaration(machine, version).await? {
                // Only its own version reads a state as it is; an older one is migrated first.
                Some(declared) if declared.version == version => declared.check(at),
                _ => Ok(()),
            },
        };
        checked.map_err(|reason| {
            let told: String = reason.chars().take(REASON_CHARS_MAX).collect();
            Error::InvalidState(format!("machine {machine} cannot run from there: {told}"))
        })
    }

    /// Refuses a state that was edited by hand if it has new members that the machine does not read: they would be
    /// ignored, which is not what anybody meant.
    pub(super) async fn check_edited(
        &self,
        machine: &str,
        version: u32,
        before: &Json,
        at: &At,
    ) -> Result<()> {
        let Some(declared) = self.declaration(machine, version).await? else { return Ok(()) };
        let Some(outline) = declared.state(&at.step).filter(|_| declared.version == version) else {
            return Ok(());
        };
        let had = outline.strays(before);
        match outline.strays(&at.state).into_iter().find(|stray| !had.contains(stray)) {
            Some(stray) => Err(Error::InvalidState(format!(
                "machine {machine} has no member {stray:?} in the state of step {}, and would ignore it",
                at.step
            ))),
            None => Ok(()),
        }
    }

    /// Refuses states that come as JSON and that their machine could not read. A typed state always fits.
    pub(super) async fn check_places(&self, batch: &[NewInstance]) -> Result<()> {
        for new in batch.iter().filter(|new| !new.is_typed) {
            self.check_place(&new.machine, new.version, &new.at).await?;
        }
        Ok(())
    }

    /// Refuses a queue that no machine, worker, brake or instance names.
    pub(super) async fn check_queue(&self, queue: &str) -> Result<()> {
        let declared = self.declarations().await?;
        let mut known: BTreeSet<String> = declared.iter().map(|declared| declared.queue.clone()).collect();
        known.insert(DEFAULT_QUEUE.to_owned());
        if known.contains(queue) {
            return Ok(());
        }
        let stats = self.store.stats(Some(self.namespace.to_string())).await?;
        known.extend(stats.workers.into_iter().flat_map(|worker| worker.queues));
        let backlog = self.store.backlog(Some(self.namespace.to_string())).await?;
        known.extend(backlog.queues.into_iter().map(|queue| queue.name));
        if known.contains(queue) {
            return Ok(());
        }
        let nearest = nearest(queue, known.into_iter());
        Err(Error::UnknownQueue { queue: queue.to_owned(), nearest })
    }
}

/// Returns why this code could not run an instance of this version from this step and state.
fn by_code(code: &dyn DynMachine, version: u32, at: &At) -> Result<(), String> {
    if code.version() == version {
        return code.check(at);
    }
    let lifted = catch_unwind(AssertUnwindSafe(|| code.migrate(version, at.clone())));
    match lifted {
        Ok(Ok(at)) => code.check(&at),
        Ok(Err(error)) => Err(format!("migrating it from version {version} failed: {error}")),
        Err(_) => Err(format!("migrating it from version {version} panicked")),
    }
}
