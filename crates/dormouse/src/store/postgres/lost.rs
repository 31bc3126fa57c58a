//! Commits whose answer was lost. They may have happened, so the next try is sent as such, and is answered with
//! what became of the first.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use crate::InstanceId;
use crate::store::Commit;

/// Outcomes kept in mind. More are only lost by an engine that gave up on them, whose rows are reaped.
const LOST_MAX: usize = 100_000;

#[derive(Default)]
pub(super) struct Lost {
    commits: Mutex<HashSet<(InstanceId, u64)>>,
}

impl Lost {
    pub(super) fn add(&self, commits: &[Commit]) {
        let mut lost = self.lock();
        if lost.len() > LOST_MAX {
            lost.clear();
        }
        lost.extend(commits.iter().map(|commit| (commit.id, commit.seq)));
    }

    pub(super) fn found(&self, commits: &[Commit]) {
        let mut lost = self.lock();
        if !lost.is_empty() {
            commits.iter().for_each(|commit| {
                lost.remove(&(commit.id, commit.seq));
            });
        }
    }

    pub(super) fn contains(&self, commit: &Commit) -> bool {
        let lost = self.lock();
        !lost.is_empty() && lost.contains(&(commit.id, commit.seq))
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(InstanceId, u64)>> {
        self.commits.lock().expect("no code panics while it holds this lock")
    }
}
