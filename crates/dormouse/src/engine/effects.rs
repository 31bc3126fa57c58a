//! Effects: what follows a commit and may be lost. Waking a parent is not here: it is in the commit.

use super::Shared;
use crate::store::{Effects, Receipt};

/// Pokes whoever can go on, and counts what became of the outcomes. Places in queues come back by
/// themselves, when the steps that hold them see their receipts.
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

/// How many outcomes were committed, and how many were stale. One whose row another transaction holds is neither: it
/// comes again.
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
