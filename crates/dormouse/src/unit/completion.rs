//! An answer to an interaction, and what becomes of it.

use jiff::Timestamp;

use super::{InteractionId, UnitId};
use crate::words::words;
use crate::{Error, InstanceId, Json};

/// An answer to an interaction.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The namespace it is answered in.
    pub namespace: String,
    /// Which interaction.
    pub to: Which,
    /// The output, or why there is none.
    pub result: Result<Json, String>,
    /// Who answers, if it was claimed.
    pub assignee: Option<String>,
    /// Who is recorded as having answered; by default the assignee.
    pub by: Option<String>,
    /// What the resume token was made for, if it was answered with one.
    pub proof: Option<Proof>,
}

impl Completion {
    /// Who answers, if that is known.
    pub fn answered_by(&self) -> Option<&str> {
        self.by.as_deref().or(self.assignee.as_deref())
    }
}

/// How a completion names its interaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// By its id.
    Id(InteractionId),
    /// By the correlation id that its request carried.
    Correlation(String),
}

impl From<InteractionId> for Which {
    fn from(id: InteractionId) -> Self {
        Self::Id(id)
    }
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Correlation(id) => write!(f, "with correlation id {id:?}"),
        }
    }
}

/// What a resume token was made for, to compare with the interaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The instance.
    pub instance: InstanceId,
    /// The unit.
    pub unit: UnitId,
    /// The send it went out with.
    pub sends: u32,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// The result of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Completed {
    /// It is the answer.
    Admitted {
        /// Whether it closed the unit, and so woke the instance.
        woke: bool,
    },
    /// It was answered before; this is the answer that was admitted then.
    Repeat(Result<Json, String>),
    /// It was refused, and nothing was changed.
    Refused(Refusal),
    /// Its output was refused before the store was asked. The interaction still waits for its answer.
    Unfit {
        /// Which of the checks it failed.
        refusal: Refusal,
        /// What is wrong with it, and where.
        reason: String,
    },
}

impl Completed {
    /// Turns a refusal into an error that names the interaction as the caller did.
    pub fn admitted(self, to: Which) -> Result<Self, Error> {
        let (refusal, reason) = match self {
            Self::Refused(Refusal::Busy) => return Err(Error::Busy(Refusal::Busy.told().into())),
            Self::Refused(refusal) => (refusal, None),
            Self::Unfit { refusal, reason } => (refusal, Some(reason)),
            admitted => return Ok(admitted),
        };
        Err(Error::CompletionRefused { to, refusal, reason })
    }
}

words! {
    /// Why a completion is refused.
    #[non_exhaustive]
    Refusal: "reason to refuse a completion" {
        /// There is no such interaction.
        Unknown => "unknown",
        /// Its deadline has passed, or its unit was closed without it.
        Late => "late",
        /// Its instance was cancelled.
        Cancelled => "cancelled",
        /// Somebody else than the holder of this resume token has answered it.
        Answered => "answered",
        /// It is another namespace's.
        OtherNamespace => "other_namespace",
        /// Several open interactions have this correlation id.
        Ambiguous => "ambiguous",
        /// Somebody else has claimed it.
        Claimed => "claimed",
        /// Its unit expects a list, but the output is not a list, or is too long.
        NotAList => "not_a_list",
        /// Its output is not of the type that the machine accepts.
        Malformed => "malformed",
        /// Its output does not fit the machine's schema.
        Schema => "schema",
        /// The machine could not build the step's output from it.
        Projection => "projection",
        /// It must be checked or built by the machine's code, which this process does not have.
        Unchecked => "unchecked",
        /// The resume token is not one of ours, or was altered, or was made for something else.
        Forged => "forged",
        /// The resume token has expired.
        Expired => "expired",
        /// Somebody else's transaction holds its instance at the moment.
        Busy => "busy",
    }
}

impl Refusal {
    /// The reason as a sentence, for error messages.
    pub const fn told(self) -> &'static str {
        match self {
            Self::Unknown => "there is no such interaction",
            Self::Late => "its deadline has passed, or its unit was closed without it",
            Self::Cancelled => "its instance was cancelled",
            Self::Answered => "somebody else has already answered it",
            Self::OtherNamespace => "it belongs to another namespace",
            Self::Ambiguous => "several open interactions have this correlation id: name it by its id",
            Self::Claimed => "somebody else has claimed it: wait until their claim ends",
            Self::NotAList => {
                "its unit expects a list, but the output is not a list, or is longer than the limit"
            }
            Self::Malformed => "its output is not of the type that the machine accepts",
            Self::Schema => "its output does not fit the machine's schema",
            Self::Projection => "the machine cannot build the step's output from it",
            Self::Unchecked => {
                "this process has no code of the machine to check it: answer through a program that registers the machine"
            }
            Self::Forged => {
                "the resume token is not one of ours, was altered, or was made for something else"
            }
            Self::Expired => "the resume token has expired",
            Self::Busy => "another transaction holds its instance at the moment: send it again",
        }
    }
}
