//! Keys: an instance's business identity, and when it counts as taken.

use serde::{Deserialize, Serialize};

use crate::Status;

/// The statuses in which a key counts as taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyScope {
    /// While the instance is live.
    #[default]
    Live,
    /// For as long as the row exists, ended or not.
    Always,
    /// In just these statuses.
    In(Vec<Status>),
}

impl KeyScope {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// How stores keep it: nothing for the default, a word, or the statuses.
    pub(crate) fn to_text(&self) -> Option<String> {
        match self {
            Self::Live => None,
            Self::Always => Some("always".to_owned()),
            Self::In(statuses) => {
                Some(statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>().join(","))
            }
        }
    }

    /// What a store kept: see [`KeyScope::to_text`]. `None` if a word in it is not a status.
    pub(crate) fn from_text(text: Option<&str>) -> Option<Self> {
        match text {
            None => Some(Self::Live),
            Some("always") => Some(Self::Always),
            Some(statuses) => {
                let words = statuses.split(',').filter(|word| !word.is_empty());
                words.map(|word| word.parse().ok()).collect::<Option<_>>().map(Self::In)
            }
        }
    }

    /// Whether an instance in this status holds its key.
    pub fn holds(&self, status: Status) -> bool {
        match self {
            Self::Live => !status.is_terminal(),
            Self::Always => true,
            Self::In(statuses) => statuses.contains(&status),
        }
    }
}
