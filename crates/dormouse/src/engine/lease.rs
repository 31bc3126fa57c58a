//! The lease: a heartbeat for everything this worker holds, the reaper for those who stopped theirs, and
//! the steps that run here.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
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
        let lost: Vec<_> = match shared.store.heartbeat(shared.worker, shared.config.lease).await {
            Ok(Lease::Held { cancel, holds }) => {
                renewed = Instant::now();
                cancel.into_iter().for_each(|id| shared.running.cancel(id));
                let unknown = shared.running.unknown(holds);
                // A claim may be on its way here; at the second heartbeat without a step, its answer was lost.
                let lost = unknown.intersection(&unknown_before).copied().collect();
                unknown_before = unknown;
                lost
            }
            Ok(Lease::Lost) => return,
            Err(error) => {
                tracing::warn!(%error, "could not renew the lease");
                if renewed.elapsed() > shared.config.lease {
                    return;
                }
                continue;
            }
        };
        let take_back = async {
            if !lost.is_empty() {
                tracing::info!(claims = lost.len(), "gives back claims that never arrived here");
                give_back(shared, lost).await;
            }
            reap(shared).await
        };
        // Never for so long that our own lease runs out meanwhile.
        match tokio::time::timeout(shared.config.lease / 3, take_back).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "could not reap"),
            Err(_) => tracing::warn!("could not reap in time"),
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

/// The instances whose steps run here.
#[derive(Default)]
pub(super) struct Running {
    runs: Mutex<HashMap<InstanceId, Run>>,
}

struct Run {
    /// The transition that it stands on.
    seq: Arc<AtomicU64>,
    cancel: CancellationToken,
}

impl Running {
    /// Registers a claimed instance until the guard is dropped. None if it runs here at this very `seq`: then the store
    /// forgot its claim, as a server that crashed may, and made it again. The run that is under way has it back.
    pub(super) fn add(
        &self,
        id: InstanceId,
        seq: u64,
        cancel: CancellationToken,
    ) -> Option<RunningGuard<'_>> {
        let mut runs = self.lock();
        if runs.get(&id).is_some_and(|run| run.seq.load(Relaxed) == seq) {
            return None;
        }
        let seq = Arc::new(AtomicU64::new(seq));
        runs.insert(id, Run { seq: seq.clone(), cancel });
        Some(RunningGuard { running: self, id, seq })
    }

    /// Those among them for which no step runs here.
    fn unknown(&self, held: Vec<InstanceId>) -> HashSet<InstanceId> {
        let runs = self.lock();
        held.into_iter().filter(|id| !runs.contains_key(id)).collect()
    }

    fn cancel(&self, id: InstanceId) {
        if let Some(run) = self.lock().get(&id) {
            run.cancel.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<InstanceId, Run>> {
        self.runs.lock().expect("no code panics while it holds this lock")
    }
}

pub(super) struct RunningGuard<'a> {
    running: &'a Running,
    id: InstanceId,
    seq: Arc<AtomicU64>,
}

impl RunningGuard<'_> {
    /// Tells that the run goes on from another transition.
    pub(super) fn go_on(&self, seq: u64) {
        self.seq.store(seq, Relaxed);
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        let mut runs = self.running.lock();
        // Its row may have been claimed again here before this run was quite over.
        if runs.get(&self.id).is_some_and(|run| Arc::ptr_eq(&run.seq, &self.seq)) {
            runs.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: InstanceId = InstanceId(1);

    #[test]
    fn a_run_that_ends_late_leaves_the_next_run_of_its_instance_registered() {
        let running = Running::default();
        let next = CancellationToken::new();
        let late = running.add(ID, 1, CancellationToken::new());
        let registered = running.add(ID, 2, next.clone());
        drop(late);
        running.cancel(ID);
        assert!(next.is_cancelled());
        drop(registered);
        assert!(running.lock().is_empty());
    }

    #[test]
    fn a_claim_that_is_made_again_is_that_of_the_run_which_is_under_way() {
        let running = Running::default();
        let run = running.add(ID, 1, CancellationToken::new()).expect("it is the first");
        assert!(running.add(ID, 1, CancellationToken::new()).is_none());
        run.go_on(2);
        assert!(running.add(ID, 2, CancellationToken::new()).is_none());
        assert!(running.add(ID, 4, CancellationToken::new()).is_some(), "its row has moved on without it");
    }
}
