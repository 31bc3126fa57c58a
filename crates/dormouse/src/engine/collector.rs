//! The collector: removes what is past its retention, in batches small enough to go unnoticed.

use std::sync::Arc;

use super::Shared;
use crate::When;
use crate::store::Collect;

/// Rows removed in one write.
const COLLECT_ROWS_MAX: usize = 256;

pub(super) async fn run(shared: Arc<Shared>) {
    let retention = shared.config.retention;
    if retention.ended.is_none() && retention.events.is_none() {
        return std::future::pending().await;
    }
    let mut collect = Collect {
        namespace: None,
        ended_for: retention.ended,
        events_for: retention.events,
        events_after: 0,
        rows_max: COLLECT_ROWS_MAX,
    };
    loop {
        match shared.store.collect(collect.clone()).await {
            Ok(collected) => {
                let gone = (collected.instances + collected.events) as u64;
                metrics::counter!("dormouse_collected_total").increment(gone);
                shared.store.hub().changed();
                collect.events_after = collected.events_next.unwrap_or(0);
                if collected.instances == COLLECT_ROWS_MAX || collected.events_next.is_some() {
                    tokio::task::yield_now().await;
                    continue;
                }
            }
            Err(error) => shared.outage.missed("collect", &error),
        }
        shared.store.sleep(When::In(shared.config.collect_every)).await;
    }
}
