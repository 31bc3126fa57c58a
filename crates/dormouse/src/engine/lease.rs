//! The lease: a heartbeat for everything this worker holds, the reaper for those who stopped theirs, and
//! the steps that run here.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::store::{Lease, Written};
use crate::{InstanceId, Result};

/// Claims taken back in one write, so that other work goes on in between.
const REAP_ROWS_MAX: usize = 512;

/// Renews the lease and reaps, until the lease is lost.
pub(super) async fn keep(shared: &Shared) {
    let mut beat = tokio::time::interval(shared.config.lease / 3);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut renewed = Instant::now();
    let mut unknown_before = HashSet::new();
    loop {
        beat.tick().await;
        match shared.store.heartbeat(shared.worker, shared.config.lease).await {
            Ok(Lease::Held { cancel, holds }) => {
                renewed = Instant::now();
                cancel.into_iter().for_each(|id| shared.running.cancel(id));
                let unknown = shared.running.unknown(holds);
                // A claim may be on its way here; at the second heartbeat without a step, its answer was lost.
                let lost: Vec<_> = unknown.intersection(&unknown_before).copied().collect();
                unknown_before = unknown;
                if !lost.is_empty() {
                    tracing::info!(claims = lost.len(), "gives back claims that never arrived here");
                    give_back(shared, lost).await;
                }
            }
            Ok(Lease::Lost) => return,
            Err(error) => {
                tracing::warn!(%error, "could not renew the lease");
                if renewed.elapsed() > shared.config.lease {
                    return;
                }
            }
        }
        if let Err(error) = reap(shared).await {
            tracing::warn!(%error, "could not reap");
        }
    }
}

/// Gives back claims that no step runs for.
pub(super) async fn give_back(shared: &Shared, instances: Vec<InstanceId>) {
    match shared.store.release(shared.worker, instances).await {
        Ok(Written { effects, .. }) => shared.store.poke(&effects),
        Err(error) => tracing::warn!(%error, "could not give back claims"),
    }
}

/// Ends the lease and takes back at once what was still held.
pub(super) async fn give_up(shared: &Shared) {
    let given_up = async {
        shared.store.deregister(shared.worker).await?;
        reap(shared).await
    };
    if let Err(error) = given_up.await {
        tracing::warn!(%error, "could not deregister; the lease will run out");
    }
}

async fn reap(shared: &Shared) -> Result<()> {
    loop {
        let Written { value: reaped, effects } = shared.store.reap(REAP_ROWS_MAX).await?;
        shared.store.poke(&effects);
        if reaped > 0 {
            tracing::info!(reaped, "took back claims of workers that are gone");
            metrics::counter!("dormouse_reaped_total").increment(reaped as u64);
        }
        if reaped < REAP_ROWS_MAX {
            return Ok(());
        }
    }
}

/// Tells running steps that someone wants their instance cancelled. A missed hint comes with the heartbeat.
pub(super) async fn pass_on_cancels(shared: Arc<Shared>) {
    let mut cancels = shared.store.hub().cancels();
    loop {
        match cancels.recv().await {
            Ok(id) => shared.running.cancel(id),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// The instances whose steps run here, each with the `seq` at which it was claimed.
#[derive(Default)]
pub(super) struct Running {
    tokens: Mutex<HashMap<InstanceId, (u64, CancellationToken)>>,
}

impl Running {
    /// Registers a running instance until the guard is dropped.
    pub(super) fn add(&self, id: InstanceId, seq: u64, cancel: CancellationToken) -> RunningGuard<'_> {
        self.lock().insert(id, (seq, cancel));
        RunningGuard { running: self, id, seq }
    }

    /// Those among them for which no step runs here.
    fn unknown(&self, held: Vec<InstanceId>) -> HashSet<InstanceId> {
        let running = self.lock();
        held.into_iter().filter(|id| !running.contains_key(id)).collect()
    }

    fn cancel(&self, id: InstanceId) {
        if let Some((_, token)) = self.lock().get(&id) {
            token.cancel();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<InstanceId, (u64, CancellationToken)>> {
        self.tokens.lock().expect("no code panics while it holds this lock")
    }
}

pub(super) struct RunningGuard<'a> {
    running: &'a Running,
    id: InstanceId,
    seq: u64,
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        let mut tokens = self.running.lock();
        // Its row may have been claimed again here before this run was quite over.
        if tokens.get(&self.id).is_some_and(|(seq, _)| *seq == self.seq) {
            tokens.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_ends_late_leaves_the_next_run_of_its_instance_registered() {
        let running = Running::default();
        let (id, next) = (InstanceId(1), CancellationToken::new());
        let late = running.add(id, 1, CancellationToken::new());
        let registered = running.add(id, 2, next.clone());
        drop(late);
        running.cancel(id);
        assert!(next.is_cancelled());
        drop(registered);
        assert!(running.lock().is_empty());
    }
}
