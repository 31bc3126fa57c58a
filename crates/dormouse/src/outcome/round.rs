//! Children that are spawned together, and the barrier on them.

use super::{Children, Quorum, Spawn};
use crate::{At, NewInstance, When};

/// The children of one spawn, and what releases the barrier on them: see [`crate::Outcome::spawn`], which takes one of
/// these, or plain children, all of which are waited for.
///
/// ```
/// use std::time::Duration;
/// use dormouse::{Children, NewInstance, Round};
///
/// # fn offers(carriers: Vec<NewInstance>) -> Round {
/// Round::of(carriers).quorum(3).timeout(Duration::from_secs(10)).on_release(Children::Cancel)
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "no child is inserted before `Outcome::spawn` is returned"]
pub struct Round {
    children: Vec<NewInstance>,
    timeout: Option<When>,
    quorum: Option<Quorum>,
    fail_fast: bool,
    on_release: Children,
    on_cancel: Children,
}

impl Round {
    /// These children; without an option, the parent waits until all of them have ended, however they end.
    pub fn of(children: impl IntoIterator<Item = NewInstance>) -> Self {
        Self {
            children: children.into_iter().collect(),
            timeout: None,
            quorum: None,
            fail_fast: false,
            on_release: Children::Keep,
            on_cancel: Children::Cancel,
        }
    }

    /// Sets the deadline of the barrier. When it passes, the parent wakes; that is not a failure.
    pub fn timeout(mut self, after: impl Into<When>) -> Self {
        self.timeout = Some(after.into());
        self
    }

    /// Wakes the parent once this many of the children are `done`, or once so many have failed or were cancelled that
    /// this can no longer be reached. A unit's quorum counts the same way.
    pub fn quorum(mut self, done: u32) -> Self {
        self.quorum = Some(Quorum::Done(done));
        self
    }

    /// Wakes the parent once this many of the children have ended, whether they are `done`, failed or were cancelled.
    pub fn quorum_of_ends(mut self, ended: u32) -> Self {
        self.quorum = Some(Quorum::Ended(ended));
        self
    }

    /// Wakes the parent at the first child that fails or is cancelled, and cancels the children that still live.
    pub fn fail_fast(mut self) -> Self {
        self.fail_fast = true;
        self.on_release(Children::Cancel)
    }

    /// Says what happens to the children that still live when a quorum, a failure or the deadline releases the barrier.
    /// By default they run on, unless [`Round::fail_fast`] is set.
    pub fn on_release(mut self, children: Children) -> Self {
        self.on_release = children;
        self
    }

    /// Says what cancelling the parent does to these children while they live. By default it cancels them.
    pub fn on_cancel(mut self, children: Children) -> Self {
        self.on_cancel = children;
        self
    }

    pub(super) fn spawn(self, at: At) -> Spawn {
        let Self { children, timeout, quorum, fail_fast, on_release, on_cancel } = self;
        Spawn { at, children, timeout, quorum, fail_fast, on_release, on_cancel }
    }
}

impl<I: IntoIterator<Item = NewInstance>> From<I> for Round {
    fn from(children: I) -> Self {
        Self::of(children)
    }
}
