//! What a schedule does where an occurrence meets a live run, and where nobody was there.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// What happens at an occurrence while an earlier run of the schedule lives.
    Overlap: "overlap policy" {
        /// It is skipped.
        Skip => "skip",
        /// It starts beside the other.
        Allow => "allow",
        /// It starts when the other has ended, and those after it in their order.
        Wait => "wait",
        /// The other is cancelled, and it starts when the other has ended.
        Cancel => "cancel",
    }
}

#[expect(clippy::derivable_impls, reason = "the enum is written by a macro, which knows no default")]
impl Default for Overlap {
    fn default() -> Self {
        Self::Skip
    }
}

/// What happens to occurrences that nobody was there to start, because no worker ran or the schedule was paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are missed. One that is late by up to ten seconds is started all the same.
    None,
    /// The last of them is started.
    #[default]
    Last,
    /// Those that are not older than this are started, each with its own moment; the others are missed.
    Within(SignedDuration),
}
