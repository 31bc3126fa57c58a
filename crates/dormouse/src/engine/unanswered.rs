//! A metric for each transport: since when its oldest open request is unanswered.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Shared;
use crate::store::InteractionFilter;
use crate::transport::NamedTransport;
use crate::{InteractionStatus, Result};

/// How often to look.
const EVERY: Duration = Duration::from_secs(15);

pub(super) async fn run(shared: Arc<Shared>, named: NamedTransport) {
    loop {
        match oldest(&shared, &named.name).await {
            // A timestamp, not an age, so that it needs no updates as time passes. 0 if all are answered.
            Ok(oldest) => {
                metrics::gauge!("dormouse_unanswered_since_seconds", "transport" => named.name.clone())
                    .set(oldest.map_or(0.0, |at| at.as_second() as f64));
            }
            Err(error) => tracing::debug!(%error, "could not look for the oldest unanswered request"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn oldest(shared: &Shared, transport: &str) -> Result<Option<Timestamp>> {
    let mut oldest = None;
    for status in [InteractionStatus::Pending, InteractionStatus::Dispatched] {
        let filter = InteractionFilter {
            status: Some(status),
            transport: Some(transport.to_owned()),
            limit: 1,
            ..InteractionFilter::default()
        };
        let first = shared.store.interactions(filter).await?.items.pop();
        oldest = oldest.into_iter().chain(first.and_then(|interaction| interaction.opened_at)).min();
    }
    Ok(oldest)
}
