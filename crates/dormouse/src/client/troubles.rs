//! What keeps many instances from moving, over a whole namespace.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Client;
use crate::store::{BreakerStatus, OUTBOX_MAX, Stats, Store, TransportView, WorkerView};
use crate::words::words;
use crate::{InstanceId, Result};

words! {
    /// A kind of trouble.
    TroubleKind: "kind of trouble" {
        /// No worker is live, and instances wait.
        NoWorker => "no_worker",
        /// Instances are live whose machine, or whose version of it, no live worker runs.
        NobodyRuns => "nobody_runs",
        /// Instances are runnable in a queue that no live worker serves.
        NobodyServes => "nobody_serves",
        /// Requests are to be sent by a transport that no live worker has.
        NobodySends => "nobody_sends",
        /// Requests could not be sent and are tried again.
        SendsFail => "sends_fail",
        /// A transport's breaker is open, and requests wait for it.
        BreakerOpen => "breaker_open",
        /// A queue is paused.
        QueuePaused => "queue_paused",
    }
}

/// Something that keeps many instances from moving.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// What kind.
    pub kind: TroubleKind,
    /// In which namespace.
    pub namespace: String,
    /// The machine, queue or transport; empty if there is no worker at all.
    pub name: String,
    /// The version of the machine.
    pub version: Option<u32>,
    /// How many instances, or requests; of requests, counted up to [`OUTBOX_MAX`].
    pub count: u64,
    /// Since when the oldest of the requests may be sent.
    pub since: Option<Timestamp>,
    /// An instance that it concerns.
    pub instance: Option<InstanceId>,
    /// The last error of a send.
    pub error: Option<String>,
    /// When the next send is due.
    pub next_at: Option<Timestamp>,
    /// How many sends failed in a row, of a transport whose breaker is open.
    pub failures: Option<u32>,
}

impl Trouble {
    fn new(kind: TroubleKind, namespace: &str, name: &str, count: u64) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            version: None,
            count,
            since: None,
            instance: None,
            error: None,
            next_at: None,
            failures: None,
        }
    }

    /// What is wrong, in one sentence.
    pub fn told(&self) -> String {
        let Self { name, count, .. } = self;
        let some = |one: &str| if *count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
        let requests = match *count {
            OUTBOX_MAX.. => format!("{OUTBOX_MAX} or more requests"),
            _ => some("request"),
        };
        match self.kind {
            TroubleKind::NoWorker => {
                format!("no worker is live, and {} wait to run or to wake", some("instance"))
            }
            TroubleKind::NobodyRuns => {
                let version =
                    self.version.map(|version| format!("version {version} of ")).unwrap_or_default();
                format!("no live worker runs {version}machine {name:?}, which has {}", some("live instance"))
            }
            TroubleKind::NobodyServes => {
                format!("no live worker serves queue {name:?}, which has {}", some("runnable instance"))
            }
            TroubleKind::NobodySends => {
                format!("no live worker has transport {name:?}, by which {requests} should be sent")
            }
            TroubleKind::SendsFail => {
                let error = self.error.as_deref().unwrap_or("no reason was given");
                format!("{requests} could not be sent by transport {name:?}, trying again: {error}")
            }
            TroubleKind::BreakerOpen => {
                let error = self.error.as_deref().unwrap_or("no reason was given");
                let until = self.next_at.map(|at| format!(" until {at:.0}")).unwrap_or_default();
                let failures = self.failures.unwrap_or_default();
                format!(
                    "transport {name:?} is open{until} after {failures} failures, and {requests} wait: {error}"
                )
            }
            TroubleKind::QueuePaused => {
                format!("queue {name:?} is paused and has {}", some("runnable instance"))
            }
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self.kind {
            TroubleKind::NoWorker => {
                "start your program with `worker` or `serve`: only an engine runs steps and fires timers"
            }
            TroubleKind::NobodyRuns if self.version.is_some() => {
                "start a program that has this version, or one that migrates from it (`MIGRATES_FROM`)"
            }
            TroubleKind::NobodyRuns => {
                "start a program that registers it, or cancel them (`ls --machine NAME`, `cancel`)"
            }
            TroubleKind::NobodyServes => {
                "let a worker serve it: `.queue(NAME, 64)` where the engine is set up"
            }
            TroubleKind::NobodySends => {
                "correct the name where the unit is made, or let an engine have it: `.transport(NAME, ..)`"
            }
            TroubleKind::SendsFail => {
                "look at the other side; they are sent again by themselves (`interactions ls --status pending`)"
            }
            TroubleKind::BreakerOpen => {
                "look at the other side; a probe closes it by itself, and so can you: `transports close NAME`"
            }
            TroubleKind::QueuePaused => "resume it with `resume --queue NAME`",
        }
    }
}

impl Client {
    /// What keeps many instances of this client's namespace from moving: machines, queues and transports that no live
    /// worker serves, sends that fail, paused queues. For one instance, use [`Client::explain`].
    pub async fn troubles(&self) -> Result<Vec<Trouble>> {
        troubles(&*self.store, &self.namespace).await
    }
}

pub(crate) async fn troubles(store: &dyn Store, namespace: &str) -> Result<Vec<Trouble>> {
    let only = Some(namespace.to_owned());
    let (stats, now) = (store.stats(only.clone()).await?, store.about().await?.now);
    let serves = |worker: &&WorkerView| worker.lease_until >= now && worker.namespaces.contains(namespace);
    let workers: Vec<_> = stats.workers.iter().filter(serves).collect();
    let mut found = if workers.is_empty() {
        let live = stats.statuses.iter().filter(|(status, _)| !status.is_terminal());
        let waiting = live.map(|(_, count)| count).sum();
        let none = Trouble::new(TroubleKind::NoWorker, namespace, "", waiting);
        (waiting > 0).then_some(none).into_iter().collect()
    } else {
        machines(&stats, namespace, &workers)
    };
    for queue in store.backlog(only.clone()).await?.queues {
        let is_served = workers.iter().any(|worker| worker.queues.contains(&queue.name));
        let kind = match (queue.paused, is_served) {
            (true, _) => TroubleKind::QueuePaused,
            (false, false) if queue.runnable > 0 && !workers.is_empty() => TroubleKind::NobodyServes,
            _ => continue,
        };
        found.push(Trouble::new(kind, namespace, &queue.name, queue.runnable));
    }
    for outbox in store.outboxes(only).await? {
        let transport = store.transport(outbox.transport.clone()).await?;
        let open = transport.filter(|transport| transport.breaker.status != BreakerStatus::Closed);
        let names = |names: &Vec<String>| names.contains(&outbox.transport);
        let is_had = workers.iter().any(|worker| worker.transports.as_ref().is_none_or(names));
        let (kind, count) = match (is_had, outbox.failing) {
            (false, _) => (TroubleKind::NobodySends, outbox.count),
            (true, _) if open.is_some() => (TroubleKind::BreakerOpen, outbox.count),
            (true, 0) => continue,
            (true, failing) => (TroubleKind::SendsFail, failing),
        };
        let first = outbox.first;
        let mut trouble = Trouble {
            since: Some(outbox.oldest_at),
            instance: first.as_ref().map(|first| first.instance),
            next_at: first.as_ref().map(|first| first.next_at),
            error: first.map(|first| first.error),
            ..Trouble::new(kind, namespace, &outbox.transport, count)
        };
        if let (TroubleKind::BreakerOpen, Some(TransportView { breaker, .. })) = (kind, open) {
            trouble.failures = Some(breaker.failures);
            trouble.next_at = breaker.open_until;
            trouble.error = breaker.error.or(trouble.error);
        }
        found.push(trouble);
    }
    Ok(found)
}

/// Machines, or versions of them, that have live instances and nobody who runs them.
fn machines(stats: &Stats, namespace: &str, workers: &[&WorkerView]) -> Vec<Trouble> {
    let mut live = BTreeMap::<(&str, u32), u64>::new();
    for count in stats.instances.iter().filter(|count| !count.status.is_terminal()) {
        *live.entry((&count.machine, count.version)).or_default() += count.count;
    }
    let runs = |is_it: &dyn Fn(&(String, u32)) -> bool| {
        workers.iter().any(|worker| worker.machines.iter().any(is_it))
    };
    let mut unserved = BTreeMap::<(&str, Option<u32>), u64>::new();
    for ((machine, version), count) in live.into_iter().filter(|(_, count)| *count > 0) {
        if runs(&|(name, its)| name == machine && *its == version) {
            continue;
        }
        let version = runs(&|(name, _)| name == machine).then_some(version);
        *unserved.entry((machine, version)).or_default() += count;
    }
    let trouble = |((machine, version), count)| Trouble {
        version,
        ..Trouble::new(TroubleKind::NobodyRuns, namespace, machine, count)
    };
    unserved.into_iter().map(trouble).collect()
}
