//! Inboxes and children that are too large to come with a claim.

use crate::{ChildView, InboxSignal};

/// The inbox and children of a claimed row, if they are too large to come with its claim.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Its inbox.
    pub inbox: Vec<InboxSignal>,
    /// The children of the round it was parked on.
    pub children: Vec<ChildView>,
}

/// The most bytes of an inbox, or of a round's children, that come with a claim.
pub(crate) const READ_WITH_CLAIM_MAX: u64 = crate::rules::INBOX_WITH_RECEIPT_BYTES_MAX;
