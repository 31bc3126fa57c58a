//! The dry run before a deploy: which live instances the registered code could not run.

use crate::store::{Filter, Store};
use crate::{DifferenceKind, Instance, InstanceId, Registry, Result, diff};

/// A live instance that the registered code cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreadable {
    /// The instance.
    pub id: InstanceId,
    /// Its machine.
    pub machine: String,
    /// Its version.
    pub version: u32,
    /// Its step.
    pub step: String,
    /// Why not.
    pub reason: String,
}

/// Looks at every live instance of every namespace, a page at a time, until `rows_max` are found.
pub(super) async fn unreadable(
    store: &dyn Store,
    registry: &Registry,
    rows_max: usize,
) -> Result<Vec<Unreadable>> {
    let mut unreadable = Vec::new();
    let mut filter = Filter { limit: 500, ..Filter::default() };
    loop {
        let page = store.list(filter.clone()).await?;
        for instance in page.instances.into_iter().filter(|instance| !instance.status.is_terminal()) {
            let unfit =
                diff::unfit(registry, &instance).filter(|(kind, _)| *kind != DifferenceKind::WaitChanged);
            if let Some((_, reason)) = unfit {
                let Instance { id, machine, version, step, .. } = instance;
                unreadable.push(Unreadable { id, machine, version, step, reason });
            }
            if unreadable.len() == rows_max {
                return Ok(unreadable);
            }
        }
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return Ok(unreadable),
        }
    }
}
