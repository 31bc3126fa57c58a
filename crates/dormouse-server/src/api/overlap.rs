//! The overlap policies of schedules, as words.

use dormouse::Overlap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Overlap")]
pub(super) enum OverlapWord {
    /// It is skipped.
    Skip,
    /// It starts beside the other.
    Allow,
    /// It starts when the other has ended.
    Wait,
    /// The other is cancelled, and it starts when the other has ended.
    Cancel,
}

impl From<OverlapWord> for Overlap {
    fn from(word: OverlapWord) -> Self {
        match word {
            OverlapWord::Skip => Self::Skip,
            OverlapWord::Allow => Self::Allow,
            OverlapWord::Wait => Self::Wait,
            OverlapWord::Cancel => Self::Cancel,
        }
    }
}

impl From<Overlap> for OverlapWord {
    fn from(overlap: Overlap) -> Self {
        match overlap {
            Overlap::Skip => Self::Skip,
            Overlap::Allow => Self::Allow,
            Overlap::Wait => Self::Wait,
            Overlap::Cancel => Self::Cancel,
        }
    }
}
