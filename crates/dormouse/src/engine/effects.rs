//! Effects: what follows a commit and may be lost. Waking a parent is not here: it is in the commit.

use super::Shared;
use crate::store::{Effects, Receipt};

/// Sends pokes, and counts committed and stale outcomes. Places in queues become free by themselves.
pub(super) fn apply(shared: &Shared, receipts: &[Receipt], effects: &Effects) {
    shared.store.poke(effects);
    let (commits, stale) = tally(receipts);
    metrics::counter!("dormouse_commits_total").increment(commits as u64);
    if stale > 0 {
        tracing::warn!(stale, "outcomes arrived after their claims were lost; they changed nothing");
        metrics::counter!("dormouse_stale_total").increment(stale as u64);
    }
    tracing::trace!(outcomes = receipts.len(), ended = effects.ended.len(), "committed");
}

/// How many outcomes were committed, and how many were stale. An outcome whose row another transaction locks is
/// neither: it is tried again.
fn tally(receipts: &[Receipt]) -> (usize, usize) {
    receipts.iter().fold((0, 0), |(commits, stale), receipt| match receipt {
        Receipt::Held { .. } | Receipt::Released | Receipt::Cancelled => (commits + 1, stale),
        Receipt::Stale => (commits, stale + 1),
        Receipt::Busy => (commits, stale),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_that_comes_again_is_not_counted_as_committed() {
        let receipts = [Receipt::Released, Receipt::Busy, Receipt::Stale, Receipt::Cancelled, Receipt::Busy];
        assert_eq!(tally(&receipts), (2, 1));
    }
}
