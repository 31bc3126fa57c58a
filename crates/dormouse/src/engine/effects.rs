//! Effects: what follows a commit and may be lost. Waking a parent is not here: it is in the commit.

use super::Shared;
use crate::store::{Effects, Receipt};

/// Pokes whoever can go on, and counts what became of the outcomes. Places in queues come back by
/// themselves, when the steps that hold them see their receipts.
pub(super) fn apply(shared: &Shared, receipts: &[Receipt], effects: &Effects) {
    shared.store.poke(effects);
    let stale = receipts.iter().filter(|receipt| matches!(receipt, Receipt::Stale)).count();
    metrics::counter!("dormouse_commits_total").increment((receipts.len() - stale) as u64);
    if stale > 0 {
        tracing::warn!(stale, "outcomes came after their claim was lost; nothing was changed by them");
        metrics::counter!("dormouse_stale_total").increment(stale as u64);
    }
    tracing::trace!(outcomes = receipts.len(), ended = effects.ended.len(), "committed");
}
