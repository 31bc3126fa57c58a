//! The clock: sleeps until the next moment, and is woken early when a nearer one appears.

use std::sync::Arc;

use super::{FAULT_PAUSE, Shared};
use crate::When;
use crate::store::{Due, Written};

/// Rows woken in one write, so that other work goes on in between.
const DUE_ROWS_MAX: usize = 512;

pub(super) async fn run(shared: Arc<Shared>) {
    let mut nearer = shared.store.hub().timer();
    loop {
        nearer.borrow_and_update();
        // While we ask, every arming is news.
        shared.store.hub().set_armed(None);
        let Due { woken, expired, next } = match shared.store.due(DUE_ROWS_MAX).await {
            Ok(Written { value, effects }) => {
                shared.store.poke(&effects);
                shared.outage.succeeded("due");
                value
            }
            Err(error) => {
                shared.outage.failed("due", &error);
                tokio::time::sleep(FAULT_PAUSE).await;
                continue;
            }
        };
        if woken > 0 {
            tracing::trace!(woken, "the clock woke instances");
            metrics::counter!("dormouse_woken_total").increment(woken as u64);
        }
        if expired > 0 {
            tracing::info!(expired, "kept signals expired before an instance with their key started");
            metrics::counter!("dormouse_kept_expired_total").increment(expired as u64);
        }
        if woken == DUE_ROWS_MAX || expired == DUE_ROWS_MAX {
            continue;
        }
        shared.store.hub().set_armed(next);
        let moment = async {
            match next {
                Some(at) => shared.store.sleep(When::At(at)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = moment => {}
            _ = nearer.changed() => {}
            // Another process may have armed something nearer.
            () = tokio::time::sleep(shared.config.poll) => {}
        }
    }
}
