//! The part of the store that keeps units: opening one is an outcome, all else about it is here.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::{Namespaces, Portion, Reply, Written};
use crate::unit::words;
use crate::{Error, InstanceId, Interaction, InteractionId, InteractionStatus, Json, UnitId, UnitView};

/// The verbs of units and interactions.
///
/// Whatever resolves an interaction holds its instance, as every other transition does: so it is admitted once, and
/// the last one wakes the instance in the same commit.
pub trait UnitStore: Send + Sync + 'static {
    /// Completes or fails interactions, and says for each what became of it. One whose instance somebody else holds is
    /// not waited for: it is refused as [`Refusal::Busy`], and may be sent again.
    fn complete(&self, batch: Vec<Completion>) -> Reply<'_, Written<Vec<Completed>>>;

    /// Takes up to `rows_max` interactions of a transport that are to be sent now. Nobody else is handed them for as
    /// long as `lease` says; what is not told of by then ([`UnitStore::sent`]) is handed out again.
    fn outbox(
        &self,
        transport: String,
        namespaces: Namespaces,
        rows_max: usize,
        lease: Duration,
    ) -> Reply<'_, Outbox>;

    /// Says what became of sends. Those that cannot be noted now, as somebody else holds their instance, come back.
    fn sent(&self, batch: Vec<SendReport>) -> Reply<'_, Written<Vec<SendReport>>>;

    /// Claims an open interaction for a person or a program, for a while; claiming it again extends the claim, and a
    /// claim for no time at all gives it back.
    fn assign(
        &self,
        namespace: String,
        id: InteractionId,
        assignee: String,
        lease: Duration,
    ) -> Reply<'_, Assigned>;

    /// The unit that an instance is parked on, or was until it progressed.
    fn unit(&self, instance: InstanceId) -> Reply<'_, Option<UnitView>>;

    /// Up to `items_max` interactions of a unit from `from_item` on, in item order.
    fn items(&self, unit: UnitId, from_item: u32, items_max: usize) -> Reply<'_, Vec<Interaction>>;

    /// One interaction; of several with one correlation id, an open one before others, and the newest.
    fn interaction(&self, namespace: String, which: Which) -> Reply<'_, Option<Interaction>>;

    /// Interactions, oldest first. Items that wait for a place in flight are not among them. A page ends with the one whose
    /// documents reach [`PAGE_BYTES_MAX`](crate::store::PAGE_BYTES_MAX), and goes on after it.
    fn interactions(&self, filter: InteractionFilter) -> Reply<'_, Portion<Interaction>>;

    /// How many of these interactions there are, by transport and status, and the oldest of each.
    fn count_interactions(&self, filter: InteractionFilter) -> Reply<'_, Vec<InteractionCount>>;
}

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
            Self::Refused(Refusal::Busy) => return Err(Error::Busy(Refusal::Busy.told().to_owned())),
            Self::Refused(refusal) => (refusal, None),
            Self::Unfit { refusal, reason } => (refusal, Some(reason)),
            admitted => return Ok(admitted),
        };
        Err(Error::CompletionRefused { to, refusal, reason })
    }
}

words! {
    /// Why a completion is refused.
    Refusal {
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

/// Interactions in a sender's hands.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// What is to be sent.
    pub taken: Vec<Interaction>,
    /// When there may be more.
    pub next: Option<Timestamp>,
    /// The store's time.
    pub now: Option<Timestamp>,
}

/// What became of one send.
#[derive(Clone, Debug)]
pub struct SendReport {
    /// The interaction.
    pub id: InteractionId,
    /// Which of its sends this was: an older one says nothing.
    pub sends: u32,
    /// What became of it.
    pub outcome: SendOutcome,
}

/// How a send ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// It was accepted.
    Sent,
    /// It is to be sent again.
    Retry {
        /// After this time.
        after: Duration,
        /// What went wrong.
        error: String,
    },
    /// It will never be accepted.
    Rejected(String),
}

/// What became of a claim on an interaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// It is the asker's until then.
    Until(Timestamp),
    /// Somebody else has it.
    Taken {
        /// Who.
        by: String,
        /// Until when.
        until: Timestamp,
    },
    /// It is not open: unknown, of another namespace, resolved, or still waiting for its place in flight.
    NotOpen,
}

/// Which interactions to list or count.
#[derive(Clone, Debug, Default)]
pub struct InteractionFilter {
    /// In this namespace.
    pub namespace: Option<String>,
    /// In this status.
    pub status: Option<InteractionStatus>,
    /// Sent by this transport.
    pub transport: Option<String>,
    /// Asked by this machine.
    pub machine: Option<String>,
    /// Whose answer this step will see.
    pub step: Option<String>,
    /// Asked by this instance.
    pub instance: Option<InstanceId>,
    /// Asked of this person or program, or claimed by them at this moment.
    pub assignee: Option<String>,
    /// Asked of this group.
    pub group: Option<String>,
    /// Opened before this.
    pub opened_before: Option<Timestamp>,
    /// Continue after this one: the last of the page before.
    pub after: Option<InteractionId>,
    /// At most this many.
    pub limit: usize,
}

/// How many interactions of a transport are in a status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InteractionCount {
    /// Their transport.
    pub transport: String,
    /// Their status.
    pub status: InteractionStatus,
    /// How many they are.
    pub count: u64,
    /// When the oldest of them was opened.
    pub oldest: Timestamp,
}

/// The name by which a transport's outbox is poked: one that no queue can have.
pub(crate) fn outbox_queue(transport: &str) -> String {
    format!("{OUTBOX_PREFIX}{transport}")
}

/// Names hold no control characters, so no queue is called so.
pub(crate) const OUTBOX_PREFIX: &str = "outbox\t";
