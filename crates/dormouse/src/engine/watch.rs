//! Looks for what keeps many instances from moving, and logs each trouble once, and once more when it is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Shared;
use crate::client::troubles;
use crate::store::Namespaces;
use crate::{DEFAULT_NAMESPACE, Trouble, TroubleKind};

/// The namespaces that are looked at; more are left out.
const NAMESPACES_MAX: usize = 32;

/// Which trouble it is, apart from its figures.
type Which = (TroubleKind, String, String, Option<u32>);

pub(super) async fn run(shared: Arc<Shared>) {
    let mut watch = Watch::default();
    loop {
        // A worker that is gone is known to be gone after its lease.
        tokio::time::sleep(shared.config.watch_every).await;
        let mut found = Vec::new();
        let mut is_known = true;
        for namespace in namespaces(&shared).await {
            match troubles(&*shared.store, &namespace).await {
                Ok(more) => found.extend(more),
                // Nothing is known of this one, so nothing is said.
                Err(error) => {
                    shared.outage.missed("troubles", &error);
                    is_known = false;
                }
            }
        }
        if is_known {
            watch.look(found);
        }
    }
}

/// The namespaces that this engine serves. One that serves all looks at those that have instances.
async fn namespaces(shared: &Shared) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = match &shared.config.namespaces {
        Namespaces::Only(names) => names.iter().cloned().collect(),
        Namespaces::All => match shared.store.stats(None).await {
            Ok(stats) => stats.instances.into_iter().map(|count| count.namespace).collect(),
            Err(_) => BTreeSet::from([DEFAULT_NAMESPACE.to_owned()]),
        },
    };
    while names.len() > NAMESPACES_MAX {
        names.pop_last();
    }
    names
}

#[derive(Default)]
struct Watch {
    /// What was there at the last look, and whether it is in the log. What passes between two looks is no trouble: a
    /// worker may just be starting.
    known: BTreeMap<Which, bool>,
}

impl Watch {
    fn look(&mut self, found: Vec<Trouble>) {
        let mut now = BTreeMap::new();
        for trouble in found.iter().filter(|trouble| is_logged_here(trouble.kind)) {
            let which = (trouble.kind, trouble.namespace.clone(), trouble.name.clone(), trouble.version);
            let was = self.known.remove(&which);
            if was == Some(false) {
                let (namespace, name, count) = (&*trouble.namespace, &*trouble.name, trouble.count);
                tracing::warn!(namespace, name, count, advice = trouble.advice(), "{}", trouble.told());
            }
            now.insert(which, was.is_some());
        }
        for ((kind, namespace, name, version), is_logged) in std::mem::replace(&mut self.known, now) {
            if is_logged {
                let kind = kind.as_str();
                tracing::warn!(kind, namespace, name, version, "this trouble is over");
            }
        }
    }
}

/// Sends that fail are logged by the dispatcher that sends, and a pause is what somebody wanted.
fn is_logged_here(kind: TroubleKind) -> bool {
    !matches!(kind, TroubleKind::SendsFail | TroubleKind::BreakerOpen | TroubleKind::QueuePaused)
}
