//! Claim: free places in a queue are filled with runnable rows.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use super::{FAULT_PAUSE, Shared, step};
use crate::store::{Claim, Claimed, Written};

/// Rows taken in one claim, however many places are free.
const CLAIM_ROWS_MAX: usize = 512;

/// Claims whenever there is a free place and perhaps a row for it, until told to stop.
pub(super) async fn run(shared: Arc<Shared>, name: String, steps_max: usize, steps: TaskTracker) {
    // Whoever waits for the steps to end waits for the claim that is under way, too: dropped, it would be taken
    // by the store and run by nobody.
    let claiming = steps.token();
    let places = Arc::new(Semaphore::new(steps_max));
    let mut pokes = shared.store.hub().queue(&name);
    while let Some(mut free) = shared.stop.run_until_cancelled(take_free(&places)).await {
        // A poke that comes while we claim is seen by the wait below.
        pokes.borrow_and_update();
        let asked = free.num_permits();
        let claimed = claim(&shared, &name, asked).await;
        let took = claimed.len();
        for row in claimed {
            let place = free.split(1).expect("no more rows than free places");
            spawn(&shared, &steps, row, place);
        }
        drop(free);
        if took < asked {
            // The backlog is empty: only something new, or another process, can change that.
            let news = tokio::time::timeout(shared.config.poll, pokes.changed());
            let _ = shared.stop.run_until_cancelled(news).await;
        }
        if shared.stop.is_cancelled() {
            break;
        }
    }
    drop(claiming);
    std::future::pending::<()>().await;
}

/// Waits for one free place and takes all that are free with it.
async fn take_free(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let mut free = places.clone().acquire_owned().await.expect("a queue's places are never closed");
    let more = places.available_permits().min(CLAIM_ROWS_MAX - 1);
    if let Ok(rest) = places.clone().try_acquire_many_owned(more as u32) {
        free.merge(rest);
    }
    free
}

async fn claim(shared: &Shared, queue: &str, rows_max: usize) -> Vec<Claimed> {
    while !shared.stop.is_cancelled() {
        let claim = Claim {
            worker: shared.worker,
            queue: queue.to_owned(),
            namespaces: shared.config.namespaces.clone(),
            machines: shared.machines.clone(),
            rows_max,
        };
        match shared.store.claim(claim).await {
            Ok(Written { value: claimed, effects }) => {
                shared.store.poke(&effects);
                metrics::counter!("dormouse_claims_total").increment(claimed.len() as u64);
                if !claimed.is_empty() {
                    tracing::trace!(queue, rows = claimed.len(), "claimed");
                }
                return claimed;
            }
            Err(error) => {
                tracing::warn!(queue, %error, "could not claim");
                tokio::time::sleep(FAULT_PAUSE).await;
            }
        }
    }
    Vec::new()
}

fn spawn(shared: &Arc<Shared>, steps: &TaskTracker, row: Claimed, place: OwnedSemaphorePermit) {
    let shared = shared.clone();
    let abandon = shared.abandon.clone();
    // A panic that is not the user's leaves its row claimed: only giving up the registration frees it.
    let broken = shared.broken.clone().drop_guard();
    steps.spawn(async move {
        abandon.run_until_cancelled(step::run(&shared, row)).await;
        broken.disarm();
        drop(place);
    });
}
