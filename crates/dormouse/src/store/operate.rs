//! The requests of operators, and their results.

use std::time::Duration;

use crate::limits::sorted;
use crate::limits::{check_tag_count, check_tags};
use crate::{Error, Json, Result, SignalId, Status};

/// How to cancel an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CancelRequest {
    /// Why; kept with the instance and in its history.
    pub reason: Option<String>,
    /// Only if the instance is at this `seq`; else [`crate::Error::StaleSeq`].
    pub expected_seq: Option<u64>,
}

/// The result of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// It is cancelled, with this many descendants.
    Done {
        /// Descendants cancelled with it.
        descendants: usize,
    },
    /// It will end when its running step ends, or when it has undone what it did.
    Requested,
    /// It had ended before.
    AlreadyEnded(Status),
}

/// What to do with a signal in an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amend {
    /// Removes it, and its dedup key with it: it can be sent again.
    Drop,
    /// Gives it another payload.
    Edit(Json),
}

/// Which signal of an instance to amend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmendRequest {
    /// The signal.
    pub signal: SignalId,
    /// What to do with it.
    pub amend: Amend,
    /// Only if the instance is at this `seq`; else [`crate::Error::StaleSeq`].
    pub expected_seq: Option<u64>,
}

/// A brake's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brake {
    /// Not claimed.
    On,
    /// Claimed as usual.
    Off,
}

/// Tags to add to an instance and to remove from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagChange {
    /// To add.
    pub add: Vec<String>,
    /// To remove; one that is also to be added stays.
    pub remove: Vec<String>,
}

impl TagChange {
    /// Refuses invalid tags, and tags that are both added and removed.
    pub(crate) fn check(&self) -> Result<()> {
        check_tags(&self.add)?;
        check_tags(&self.remove)?;
        match self.add.iter().find(|tag| self.remove.contains(tag)) {
            Some(both) => {
                let (value, reason) = (both.clone(), "it is both added and removed; choose one");
                Err(Error::InvalidName { what: "tag", value, reason })
            }
            None => Ok(()),
        }
    }

    /// The tags of an instance that had these, in order; refused if they would be too many.
    pub(crate) fn apply(&self, tags: Vec<String>) -> Result<Vec<String>> {
        let kept = tags.into_iter().filter(|tag| !self.remove.contains(tag));
        let all: Vec<String> = kept.chain(self.add.iter().cloned()).collect();
        let all = sorted(&all);
        check_tag_count(&all)?;
        Ok(all.into_iter().map(str::to_owned).collect())
    }
}

/// What to remove.
#[derive(Clone, Debug)]
pub struct Collect {
    /// Of this namespace; `None` is every one.
    pub namespace: Option<String>,
    /// Instances that ended longer ago than this.
    pub ended_for: Option<Duration>,
    /// Events of live instances older than this.
    pub events_for: Option<Duration>,
    /// Look at events after this one: where the batch before stopped.
    pub events_after: i64,
    /// At most this many instances; and at most this many events are looked at.
    pub rows_max: usize,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Instances, each with its history and inbox.
    pub instances: usize,
    /// Events of live instances.
    pub events: usize,
    /// Where to look on for events; `None` if all were looked at.
    pub events_next: Option<i64>,
}
