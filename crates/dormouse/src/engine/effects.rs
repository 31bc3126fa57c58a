//! Effects: what follows a commit and may be lost. Waking a parent is not here: it is in the commit.

use super::Shared;
use super::dispatcher::one_line;
use crate::store::{Effects, Filter, Receipt};
use crate::{Context, Instance, InstanceId, Status, Transition};

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

/// How an outcome ends its instance, if it does.
pub(super) enum End {
    Done,
    Failed(String),
}

impl End {
    pub(super) fn of(transition: &Transition) -> Option<Self> {
        match transition {
            Transition::Done { .. } => Some(Self::Done),
            Transition::Fail { error } => Some(Self::Failed(error.clone())),
            _ => None,
        }
    }
}

/// Counts an instance that its outcome has ended, and logs one that failed.
pub(super) fn report_end(
    shared: &Shared,
    (machine, step): (&str, &str),
    cx: &Context,
    end: Option<End>,
    receipt: &Receipt,
) {
    let outcome = match (receipt, end) {
        (Receipt::Cancelled, _) => Status::Cancelled,
        (Receipt::Released, Some(End::Done)) => Status::Done,
        (Receipt::Released, Some(End::Failed(error))) => {
            warn_failed(machine, cx.key(), cx.id, step, &error);
            Status::Failed
        }
        _ => return,
    };
    count_end(shared, machine, outcome);
}

/// The same for instances that ended without an outcome, such as those whose workers died too often.
pub(super) async fn report_ends(shared: &Shared, ended: &[InstanceId]) {
    for id in ended {
        // Lists go from newer to older: the first one before the next id is this one.
        let after = Some(InstanceId(id.0.saturating_add(1)));
        let only = Filter { after, heads_only: true, limit: 1, ..Filter::default() };
        let Ok(page) = shared.store.list(only).await else { return };
        let Some(Instance { machine, key, step, status, last_error, .. }) =
            page.instances.into_iter().find(|found| found.id == *id)
        else {
            continue;
        };
        if status == Status::Failed {
            warn_failed(&machine, key.as_deref(), *id, &step, last_error.as_deref().unwrap_or_default());
        }
        count_end(shared, &machine, status);
    }
}

fn warn_failed(machine: &str, key: Option<&str>, id: InstanceId, step: &str, error: &str) {
    tracing::warn!(machine, key, %id, step, error = one_line(error), "an instance failed");
}

fn count_end(shared: &Shared, machine: &str, outcome: Status) {
    let machine = shared.machine_label(machine);
    metrics::counter!("dormouse_ends_total", "machine" => machine, "outcome" => outcome.as_str())
        .increment(1);
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
