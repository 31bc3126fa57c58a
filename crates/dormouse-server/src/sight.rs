//! Which machines a caller may see.
//!
//! All tenants share the declarations of workers and the code that is registered with this process. A tenant, which is
//! a caller with an API key, sees only the machines that live workers run for its namespace, and those that it has
//! instances of. A caller who may choose the namespace sees all of them.

use std::collections::HashSet;

use dormouse::{Client, Error};

use crate::access::{Caller, Pass};
use crate::problem::Problem;

pub(crate) enum Sight {
    All,
    Only(HashSet<String>),
}

impl Caller {
    /// Whether the caller is confined to one namespace.
    pub(crate) fn is_tenant(&self) -> bool {
        matches!(self.pass, Pass::Key { .. })
    }
}

impl Sight {
    /// `client` is in the caller's namespace.
    pub(crate) async fn of(caller: &Caller, client: &Client) -> Result<Self, Problem> {
        if !caller.is_tenant() {
            return Ok(Self::All);
        }
        let (store, namespace) = (client.store(), client.namespace());
        let (stats, now) = (store.stats(Some(namespace.to_owned())).await?, store.about().await?.now);
        let serving =
            stats.workers.iter().filter(|at| at.lease_until >= now && at.namespaces.contains(namespace));
        let served = serving.flat_map(|worker| &worker.machines).map(|(name, _)| name.clone());
        let own = stats.instances.iter().filter(|count| count.count > 0);
        Ok(Self::Only(served.chain(own.map(|count| count.machine.clone())).collect()))
    }

    pub(crate) fn sees(&self, machine: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(machines) => machines.contains(machine),
        }
    }
}

/// The problem of a failed start, without names of machines that the caller may not see.
pub(crate) async fn refused(error: Error, caller: &Caller, client: &Client) -> Problem {
    let Error::UnknownMachine { machine, nearest: Some(nearest) } = error else { return error.into() };
    match Sight::of(caller, client).await {
        Ok(sight) => {
            let nearest = Some(nearest).filter(|nearest| sight.sees(nearest));
            Error::UnknownMachine { machine, nearest }.into()
        }
        Err(problem) => problem,
    }
}
