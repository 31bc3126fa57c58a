//! Outcomes to be sent in another way when they are sent again.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use crate::InstanceId;
use crate::store::Commit;

/// The most outcomes that are remembered. Only an engine that gave up on them leaves any behind, and its rows are
/// reaped.
const MARKED_MAX: usize = 100_000;

/// A set of outcomes.
#[derive(Default)]
pub(super) struct Marks {
    commits: Mutex<HashSet<(InstanceId, u64)>>,
}

impl Marks {
    pub(super) fn add<'a>(&self, commits: impl IntoIterator<Item = &'a Commit>) {
        let mut marked = self.lock();
        if marked.len() > MARKED_MAX {
            marked.clear();
        }
        marked.extend(commits.into_iter().map(|commit| (commit.head.id, commit.head.seq)));
    }

    pub(super) fn remove<'a>(&self, commits: impl IntoIterator<Item = &'a Commit>) {
        let mut marked = self.lock();
        if !marked.is_empty() {
            commits.into_iter().for_each(|commit| {
                marked.remove(&(commit.head.id, commit.head.seq));
            });
        }
    }

    pub(super) fn contains(&self, commit: &Commit) -> bool {
        let marked = self.lock();
        !marked.is_empty() && marked.contains(&(commit.head.id, commit.head.seq))
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(InstanceId, u64)>> {
        self.commits.lock().expect("no code panics while it holds this lock")
    }
}

/// What a store remembers of commits.
#[derive(Default)]
pub(super) struct Memory {
    /// **A lost answer**: they may have happened, so the next try is sent as such, and answered with what became of the first
    /// (`receipt_before` in `commit.sql`).
    pub(super) lost: Marks,
    /// Another transaction holds their row. They are tried without waiting, so that they hold up no group.
    pub(super) busy: Marks,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Handed, Head, Hold};
    use crate::{Json, Transition};

    #[test]
    fn a_lost_answer_is_asked_for_by_instance_and_seq_until_it_is_there() {
        let commit = |id, seq| Commit {
            head: Head { seq, ..Head::new(InstanceId(id), "m", 1, "start") },
            version: 1,
            received: vec![],
            transition: Transition::Done { output: Json::null() },
            hold: Hold::Release,
            run: None,
            handed: Handed::default(),
            lane: None,
            mail: vec![],
        };
        let lost = Marks::default();
        lost.add(&[commit(1, 4), commit(2, 4)]);
        assert!(lost.contains(&commit(1, 4)), "the next try is sent as one that may have happened");
        assert!(!lost.contains(&commit(1, 5)), "the step after it is not");
        lost.remove(&[commit(1, 4)]);
        assert!(!lost.contains(&commit(1, 4)) && lost.contains(&commit(2, 4)));
    }
}
