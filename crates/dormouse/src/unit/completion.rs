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
    /// Who is noted as having answered; without this, the assignee.
    pub by: Option<String>,
    /// What a resume token says it was made for.
    pub proof: Option<Proof>,
}

impl Completion {
    /// Who answers, as far as it is known.
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

/// What a resume token was made for, to be compared with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The instance.
    pub instance: InstanceId,
    /// The unit.
    pub unit: UnitId,
    /// The send it went out with.
    pub sends: u32,
    /// When it is no longer good.
    pub expires_at: Timestamp,
}

/// What became of a completion.
#[derive(Clone, Debug, PartialEq)]
pub enum Completed {
    /// It is the answer.
    Admitted {
        /// Whether it closed the unit, and so woke the instance.
        woke: bool,
    },
    /// It was answered before: this is the answer that was admitted.
    Repeat(Result<Json, String>),
    /// It was refused, and nothing was changed.
    Refused(Refusal),
    /// Its output was refused at the door, before the store was asked: the interaction waits on.
    Unfit {
        /// Which of the checks it failed.
        refusal: Refusal,
        /// What is wrong with it, and where.
        reason: String,
    },
}

impl Completed {
    /// The same as a result, where what was refused is an error that names the interaction as its caller did.
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
        /// Its time is over, or its unit was closed without it.
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
        /// Its unit asks for a list, and this is none, or one that is too long.
        NotAList => "not_a_list",
        /// Its output is not what the machine said it takes, by type.
        Malformed => "malformed",
        /// Its output does not fit the machine's schema.
        Schema => "schema",
        /// The machine could not build the step's output from it.
        Projection => "projection",
        /// It must be checked or built by what this process does not have.
        Unchecked => "unchecked",
        /// The resume token is not one of ours, or was altered, or was made for something else.
        Forged => "forged",
        /// The resume token's time is over.
        Expired => "expired",
        /// Somebody else's transaction holds its instance at this moment.
        Busy => "busy",
    }
}

impl Refusal {
    /// The reason in words.
    pub const fn told(self) -> &'static str {
        match self {
            Self::Unknown => "there is no such interaction",
            Self::Late => "its time is over, or its unit was closed without it",
            Self::Cancelled => "its instance was cancelled",
            Self::Answered => "somebody else has answered it",
            Self::OtherNamespace => "it belongs to another namespace",
            Self::Ambiguous => "several open interactions have this correlation id: name it by its id",
            Self::Claimed => "somebody else has claimed it: wait until that claim is over",
            Self::NotAList => "its unit asks for a list, and this is none, or a longer one than is taken",
            Self::Malformed => "its output is not what the machine takes",
            Self::Schema => "its output does not fit the machine's schema",
            Self::Projection => "the machine cannot build the step's output from it",
            Self::Unchecked => {
                "it cannot be checked here: answer where the machine's code is, such as the program that runs its workers"
            }
            Self::Forged => {
                "the resume token is not one of ours, was altered, or was made for something else"
            }
            Self::Expired => "the resume token has expired",
            Self::Busy => "another transaction holds its instance at this moment: send it again",
        }
    }
}
