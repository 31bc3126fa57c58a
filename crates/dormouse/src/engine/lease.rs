//! The lease: one heartbeat for everything this worker holds, the reaper for workers that stopped theirs, and the list
//! of claims that are held here.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::{Shared, effects};
use crate::store::{Lease, Tried, Written};
use crate::{InstanceId, Result};

/// Claims taken back in one write, so that other work goes on in between.
const REAP_ROWS_MAX: usize = 512;

/// Writes that settle lanes whose limit has changed, with one heartbeat.
const SETTLE_WRITES_MAX: usize = 16;

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
                shared.outage.succeeded("heartbeat");
                cancel.into_iter().for_each(|id| shared.running.cancel(id));
                shared.running.never_arrived(holds, &mut unknown_before)
            }
            Ok(Lease::Lost) => return,
            Err(error) => {
                shared.outage.failed("heartbeat", &error);
                if renewed.elapsed() > shared.config.lease {
                    return;
                }
                continue;
            }
        };
        let take_back = async {
            if !lost.is_empty() {
                tracing::info!(claims = lost.len(), "giving back claims that never arrived here");
                // Rows that are locked now are found again at the next heartbeat.
                let _ = give_back(shared, lost, Tried::Yes).await;
            }
            reap(shared).await?;
            settle_limits(shared).await
        };
        // Never so long that our own lease expires meanwhile.
        match tokio::time::timeout(shared.config.lease / 3, take_back).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => shared.outage.missed("reap", &error),
            Err(_) => tracing::warn!("could not reap in time"),
        }
    }
}

/// Gives back claims for which no step runs. Returns those that it still holds, because another transaction locks their
/// rows.
pub(super) async fn give_back(shared: &Shared, claims: Vec<Claim>, tried: Tried) -> Vec<InstanceId> {
    match shared.store.release(shared.worker, claims, tried).await {
        Ok(Written { value: busy, effects }) => {
            shared.store.poke(&effects);
            busy
        }
        Err(error) => {
            shared.outage.missed("release", &error);
            Vec::new()
        }
    }
}

/// Ends the lease and takes back its remaining claims at once.
pub(super) async fn give_up(shared: &Shared, cut_short: Vec<Claim>) {
    // Steps that did not end in time did not crash.
    if !cut_short.is_empty() {
        // Rows that are locked now are taken back with the lease, or by the next reaper.
        let _ = give_back(shared, cut_short, Tried::Yes).await;
    }
    let given_up = async {
        shared.store.deregister(shared.worker).await?;
        reap(shared).await
    };
    if let Err(error) = given_up.await {
        tracing::warn!(%error, "could not deregister; the lease will expire by itself");
    }
}

async fn reap(shared: &Shared) -> Result<()> {
    loop {
        let Written { value: reaped, effects } =
            shared.store.reap(REAP_ROWS_MAX, shared.config.crashes_max).await?;
        shared.store.poke(&effects);
        effects::report_ends(shared, &effects.ended).await;
        if reaped > 0 {
            tracing::info!(reaped, "took back claims of workers that are gone");
            metrics::counter!("dormouse_reaped_total").increment(reaped as u64);
        }
        if reaped < REAP_ROWS_MAX {
            return Ok(());
        }
    }
}

/// Settles lanes whose limit has changed, if whoever changed it could not.
async fn settle_limits(shared: &Shared) -> Result<()> {
    for _ in 0..SETTLE_WRITES_MAX {
        let Written { value: more, effects } = shared.store.settle_limits().await?;
        shared.store.poke(&effects);
        if !more {
            break;
        }
    }
    Ok(())
}

/// Notifies running steps that a cancel of their instance was requested. A missed hint comes with the heartbeat.
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

/// An instance and the `seq` at which it is claimed.
pub(super) type Claim = (InstanceId, u64);

/// The instances that are claimed here: their steps run, are about to run, or will not run and are being given back.
#[derive(Default)]
pub(super) struct Running {
    runs: Mutex<HashMap<InstanceId, Run>>,
}

struct Run {
    /// The transition that it stands on.
    seq: Arc<AtomicU64>,
    cancel: CancellationToken,
    /// It is being given back: a claim of it, at whatever `seq`, is another one.
    is_given_back: bool,
}

impl Running {
    /// Registers a claimed instance until its entry is dropped. Returns `None` if it already runs here at this `seq`:
    /// then the store lost its claim, as a crashed server may, and made it again, and the run under way keeps it.
    pub(super) fn add(
        self: &Arc<Self>,
        id: InstanceId,
        seq: u64,
        cancel: CancellationToken,
    ) -> Option<Registered> {
        let mut runs = self.lock();
        if runs.get(&id).is_some_and(|run| !run.is_given_back && run.seq.load(Relaxed) == seq) {
            return None;
        }
        let seq = Arc::new(AtomicU64::new(seq));
        runs.insert(id, Run { seq: seq.clone(), cancel, is_given_back: false });
        Some(Registered { running: self.clone(), id, seq })
    }

    /// The held claims whose answer was lost. A claim for which no step runs here may still be on its way; at the
    /// second heartbeat it is not. An instance that is claimed often may be seen twice on its way, but with another
    /// `seq`, so it is not the same claim.
    fn never_arrived(&self, held: Vec<Claim>, unknown_before: &mut HashSet<Claim>) -> Vec<Claim> {
        let runs = self.lock();
        let unknown: HashSet<_> = held.into_iter().filter(|(id, _)| !runs.contains_key(id)).collect();
        let lost = unknown.intersection(unknown_before).copied().collect();
        *unknown_before = unknown;
        lost
    }

    /// Everything that is claimed here.
    pub(super) fn all(&self) -> Vec<Claim> {
        self.lock().iter().map(|(id, run)| (*id, run.seq.load(Relaxed))).collect()
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

/// A claimed instance's entry in that list, until it is dropped.
pub(super) struct Registered {
    running: Arc<Running>,
    id: InstanceId,
    seq: Arc<AtomicU64>,
}

impl Registered {
    /// Notes that the run goes on from another transition.
    pub(super) fn go_on(&self, seq: u64) {
        self.seq.store(seq, Relaxed);
    }

    /// Notes that it will not run and is about to be given back. As soon as it is, it may be claimed here again.
    pub(super) fn give_back(&self) {
        let mut runs = self.running.lock();
        if let Some(run) = runs.get_mut(&self.id).filter(|run| Arc::ptr_eq(&run.seq, &self.seq)) {
            run.is_given_back = true;
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut runs = self.running.lock();
        // Its row may have been claimed again here before this run had ended.
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
        let running = Arc::new(Running::default());
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
    fn a_claim_is_lost_that_two_heartbeats_find_without_a_run_and_not_two_claims_on_their_way() {
        let running = Arc::new(Running::default());
        let mut unknown = HashSet::new();
        let mut beat = |held: &[Claim]| running.never_arrived(held.to_vec(), &mut unknown);
        assert_eq!(beat(&[(ID, 1)]), [], "its answer may be on its way");
        assert_eq!(beat(&[(ID, 3)]), [], "it ran, was woken, and was claimed again: that one is on its way");
        assert_eq!(beat(&[(ID, 3)]), [(ID, 3)], "an answer does not take this long");
        let run = running.add(ID, 5, CancellationToken::new());
        assert_eq!((beat(&[(ID, 5)]), beat(&[(ID, 5)])), (vec![], vec![]), "it runs");
        drop(run);
    }

    #[test]
    fn a_claim_that_is_made_again_is_that_of_the_run_which_is_under_way() {
        let running = Arc::new(Running::default());
        let run = running.add(ID, 1, CancellationToken::new()).expect("it is the first");
        assert!(running.add(ID, 1, CancellationToken::new()).is_none());
        run.go_on(2);
        assert!(running.add(ID, 2, CancellationToken::new()).is_none());
        assert!(running.add(ID, 4, CancellationToken::new()).is_some(), "its row has moved on without it");
    }

    #[test]
    fn a_claim_that_is_given_back_may_come_again_before_that_is_known_to_have_been_done() {
        let running = Arc::new(Running::default());
        let mut unknown = HashSet::new();
        let given_back = running.add(ID, 1, CancellationToken::new()).expect("it is the first");
        given_back.give_back();
        let mut beat = || running.never_arrived(vec![(ID, 1)], &mut unknown);
        assert_eq!((beat(), beat()), (vec![], vec![]), "nobody need give it back a second time");
        let next = CancellationToken::new();
        let again = running.add(ID, 1, next.clone()).expect("the store gave it to this worker once more");
        given_back.give_back();
        drop(given_back);
        assert!(running.add(ID, 1, CancellationToken::new()).is_none(), "that one runs");
        running.cancel(ID);
        assert!(next.is_cancelled());
        drop(again);
    }
}
