//! What operators ask of a store, and what it answers.

use crate::Status;

/// How to cancel an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CancelRequest {
    /// Why; kept with the instance and in its history.
    pub reason: Option<String>,
    /// Only if the instance is at this `seq`; else [`crate::Error::StaleSeq`].
    pub expected_seq: Option<u64>,
}

/// What became of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// It is cancelled, with this many descendants.
    Done {
        /// Descendants cancelled with it.
        descendants: usize,
    },
    /// It will end: when the step that is running does, or when it has undone what it did.
    Requested,
    /// It had ended before.
    AlreadyEnded(Status),
}

/// A brake's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brake {
    /// Not claimed.
    On,
    /// Claimed as usual.
    Off,
}
