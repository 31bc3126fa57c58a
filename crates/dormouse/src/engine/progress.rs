//! Progress: reports of running steps are stored for those who watch, a few times a second at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Shared;
use crate::store::{NewProgress, Written};
use crate::{InstanceId, Json};

/// Reports within this time are one write.
const GATHER: Duration = Duration::from_millis(100);

/// Reports that are not stored yet: the last one of each running step, so their number is bounded by the places.
#[derive(Debug, Default)]
pub(super) struct Reported {
    latest: Mutex<HashMap<InstanceId, (u64, Json)>>,
    news: Notify,
}

impl Reported {
    pub(super) fn add(&self, instance: InstanceId, seq: u64, value: Json) {
        self.lock().insert(instance, (seq, value));
        self.news.notify_one();
    }

    fn take(&self) -> Vec<NewProgress> {
        let latest = std::mem::take(&mut *self.lock());
        latest.into_iter().map(|(instance, (seq, value))| NewProgress { instance, seq, value }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<InstanceId, (u64, Json)>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores reports, at once after a quiet time. A report that cannot be stored is dropped here; the step's outcome still
/// records it.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        shared.reported.news.notified().await;
        let batch = shared.reported.take();
        if !batch.is_empty() {
            match shared.store.report(shared.worker, batch).await {
                Ok(Written { effects, .. }) => shared.store.poke(&effects),
                Err(error) => tracing::debug!(%error, "could not store the progress that steps reported"),
            }
        }
        tokio::time::sleep(GATHER).await;
    }
}
