//! Await units: requests of a step to the outside world, on whose answers its instance parks.

mod answers;
mod completion;
mod interaction;
mod takes;

use std::marker::PhantomData;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::answers::{Answers, Verdict, VerdictStream};
pub use self::completion::{Completed, Completion, Proof, Refusal, Which};
pub use self::interaction::{Interaction, InteractionId, InteractionStatus, UnitId, UnitStatus, UnitView};
pub use self::takes::{Answering, Takes};
use crate::limits::{Limits, check_name};
use crate::words::words;
use crate::{At, Error, Json, Result, When};

/// The transport of a unit that names none. Nothing is sent: people and programs list the interactions and answer them.
pub const INTERACTION_API: &str = "api";
/// How many items of an `each` are in flight at a time by default.
const IN_FLIGHT: u32 = 64;

words! {
    /// How the requests and the outputs of a unit relate.
    #[non_exhaustive]
    Shape: "shape of a unit" {
        /// One request, one output.
        One => "one",
        /// One request per item, one output for each, in item order.
        Each => "each",
        /// One request, a list of outputs.
        OneToMany => "one_to_many",
        /// One request over a batch of items, one output.
        ManyToOne => "many_to_one",
        /// One request over a batch of items, a list of outputs.
        ManyToMany => "many_to_many",
    }
}

impl Shape {
    /// Whether a completion's output must be a list.
    pub const fn answers_with_a_list(self) -> bool {
        matches!(self, Self::OneToMany | Self::ManyToMany)
    }
}

words! {
    /// What a failed or late item does to its unit.
    #[non_exhaustive]
    OnFailure: "way to take a failed item" {
        /// The unit fails; its open interactions are cancelled.
        Fail => "fail",
        /// The item's verdict reports it, and the unit goes on.
        Report => "report",
    }
}

/// Requests to the outside world, answered together: see [`crate::Outcome::dispatch`].
///
/// ```
/// use std::time::Duration;
/// use dormouse::{OnFailure, Unit};
///
/// let rows = vec![("a", 1), ("b", 2)];
/// let unit = Unit::each(rows).transport("bank").in_flight(100).idempotency_key(|row| format!("row-{}", row.0))
///     .item_timeout(Duration::from_secs(60)).on_failure(OnFailure::Report);
/// ```
///
/// `K` decides which options there are: a unit that asks [`PerItem`] has more of them than one that asks [`AsOne`].
#[derive(Clone, Debug)]
#[must_use = "a unit is opened by returning `Outcome::dispatch`"]
pub struct Unit<R, K = AsOne> {
    kind: PhantomData<K>,
    shape: Shape,
    requests: Vec<R>,
    items: usize,
    transport: String,
    timeout: Option<When>,
    item_timeout: Option<Duration>,
    in_flight: Option<u32>,
    on_failure: OnFailure,
    quorum: Option<u32>,
    idempotency_keys: Vec<String>,
    correlation_ids: Vec<String>,
    assignees: Vec<String>,
    group: Option<String>,
}

/// The kind of a [`Unit`] that makes one request: all shapes but [`Shape::Each`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AsOne;

/// The kind of a [`Unit`] that makes one request for each item: [`Unit::each`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PerItem;

impl<R: Serialize> Unit<R> {
    /// One request, one output.
    pub fn one(request: R) -> Self {
        Self::of(Shape::One, vec![request], 1)
    }

    /// One request, a list of outputs.
    pub fn one_to_many(request: R) -> Self {
        Self::of(Shape::OneToMany, vec![request], 1)
    }
}

impl<R: Serialize> Unit<R, PerItem> {
    /// One request per item, at most 64 of them unresolved at a time unless [`Unit::in_flight`] says otherwise.
    pub fn each(items: impl IntoIterator<Item = R>) -> Self {
        let items: Vec<R> = items.into_iter().collect();
        let count = items.len();
        Self {
            in_flight: Some(IN_FLIGHT),
            on_failure: OnFailure::Report,
            ..Self::of(Shape::Each, items, count)
        }
    }

    /// How many items may be unresolved at a time.
    pub fn in_flight(mut self, items_max: u32) -> Self {
        self.in_flight = Some(items_max);
        self
    }

    /// How many items must complete; then the others are cancelled. By default the unit waits for all.
    pub fn quorum(mut self, completed: u32) -> Self {
        self.quorum = Some(completed);
        self
    }
}

impl<R: Serialize, K> Unit<R, K> {
    fn of(shape: Shape, requests: Vec<R>, items: usize) -> Self {
        Self {
            kind: PhantomData,
            shape,
            requests,
            items,
            transport: INTERACTION_API.to_owned(),
            timeout: None,
            item_timeout: None,
            in_flight: None,
            on_failure: OnFailure::Fail,
            quorum: None,
            idempotency_keys: Vec::new(),
            correlation_ids: Vec::new(),
            assignees: Vec::new(),
            group: None,
        }
    }

    /// Sends the requests by this transport. By default nothing is sent: the requests are listed in the interaction
    /// API.
    pub fn transport(mut self, name: impl Into<String>) -> Self {
        self.transport = name.into();
        self
    }

    /// Sets the deadline of the whole unit. When it passes, the step wakes; that is not a failure.
    pub fn timeout(mut self, after: impl Into<When>) -> Self {
        self.timeout = Some(after.into());
        self
    }

    /// How long each request may go unanswered, from the moment at which it may be sent.
    pub fn item_timeout(mut self, after: Duration) -> Self {
        self.item_timeout = Some(after);
        self
    }

    /// What a failed or late item does to the unit. The default is `Report` for `each` and `Fail` for all others.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Names each request's effect, so that a receiver that gets it twice acts once. By default a random key is made.
    pub fn idempotency_key(mut self, key: impl FnMut(&R) -> String) -> Self {
        self.idempotency_keys = self.requests.iter().map(key).collect();
        self
    }

    /// Gives each request an id by which its answer can name it.
    pub fn correlation_id(mut self, id: impl FnMut(&R) -> String) -> Self {
        self.correlation_ids = self.requests.iter().map(id).collect();
        self
    }

    /// Lists the requests for this person or program. Others may still answer; see [`Interaction::answered_by`].
    pub fn for_assignee(self, who: impl Into<String>) -> Self {
        let who = who.into();
        self.for_assignees(|_| who.clone())
    }

    /// Lists each request for the person or program that this returns.
    pub fn for_assignees(mut self, who: impl FnMut(&R) -> String) -> Self {
        self.assignees = self.requests.iter().map(who).collect();
        self
    }

    /// Lists the requests for this group. Anyone may claim and answer them.
    pub fn for_group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    pub(crate) fn dispatch(self, at: At) -> Result<Dispatch> {
        let mut keys = self.idempotency_keys.into_iter();
        let mut correlations = self.correlation_ids.into_iter();
        let mut assignees = self.assignees.into_iter();
        let group = self.group;
        let random = fastrand::u128(..);
        let ask = |(item, request): (usize, &R)| {
            Ok(Ask {
                request: Json::encode("request", request)?,
                idempotency_key: keys.next().unwrap_or_else(|| format!("{random:032x}-{item}")),
                correlation_id: correlations.next(),
                for_assignee: assignees.next(),
                for_group: group.clone(),
            })
        };
        Ok(Dispatch {
            at,
            shape: self.shape,
            asks: self.requests.iter().enumerate().map(ask).collect::<Result<_>>()?,
            items: self.items,
            transport: self.transport,
            timeout: self.timeout,
            item_timeout: self.item_timeout,
            in_flight: self.in_flight,
            on_failure: self.on_failure,
            quorum: self.quorum,
            outputs_max: 0,
        })
    }
}

impl<R: Serialize> Unit<Vec<R>> {
    /// One request over a batch of items, one output.
    pub fn many_to_one(items: impl IntoIterator<Item = R>) -> Self {
        let items: Vec<R> = items.into_iter().collect();
        let count = items.len();
        Self::of(Shape::ManyToOne, vec![items], count)
    }

    /// One request over a batch of items, a list of outputs.
    pub fn many_to_many(items: impl IntoIterator<Item = R>) -> Self {
        let items: Vec<R> = items.into_iter().collect();
        let count = items.len();
        Self::of(Shape::ManyToMany, vec![items], count)
    }
}

/// A unit over JSON, with the step that follows when it is closed, as the engine commits it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// The step and state that follow when the unit is closed.
    pub at: At,
    /// Its shape.
    pub shape: Shape,
    /// Its requests, one for each interaction.
    pub asks: Vec<Ask>,
    /// How many items it has: for `each` one per request; for a batch, those in its one request.
    pub items: usize,
    /// How it is sent.
    pub transport: String,
    /// The unit's deadline.
    pub timeout: Option<When>,
    /// Each interaction's deadline, from the moment at which it may be sent.
    pub item_timeout: Option<Duration>,
    /// How many interactions may be unresolved at a time; `None` is all.
    pub in_flight: Option<u32>,
    /// What a failed or late item does.
    pub on_failure: OnFailure,
    /// How many items must complete; `None` waits for all.
    pub quorum: Option<u32>,
    /// The longest list that an answer may have: the engine's limit.
    pub outputs_max: usize,
}

/// One request of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The request.
    pub request: Json,
    /// The name of its effect, the same however often it is sent.
    pub idempotency_key: String,
    /// The id that its answer carries.
    pub correlation_id: Option<String>,
    /// The person or program that is asked.
    pub for_assignee: Option<String>,
    /// The group that is asked.
    pub for_group: Option<String>,
}

impl Dispatch {
    pub(crate) fn check(&self, limits: &Limits) -> Result<()> {
        let refuse = |reason: String| Err(Error::InvalidOutcome(reason));
        check_name("transport", &self.transport)?;
        let (items, limit, what) = match self.shape {
            Shape::Each => (self.items, limits.each_max, "`each`"),
            _ => (self.items, limits.items_max, "a batch"),
        };
        if items > limit {
            return refuse(format!("{what} of {items} items is over the limit of {limit}: ask in parts"));
        }
        if self.in_flight == Some(0) {
            return refuse("with 0 items in flight nothing is ever asked; allow at least 1".to_owned());
        }
        if self.quorum == Some(0) {
            return refuse("a quorum of 0 waits for nothing; use `next`".to_owned());
        }
        if self.shape != Shape::Each && (self.quorum.is_some() || self.in_flight.is_some()) {
            return refuse("`quorum` and `in_flight` only fit `each`".to_owned());
        }
        self.asks.iter().try_for_each(|ask| {
            limits.check_document("request", &ask.request)?;
            check_name("idempotency key", &ask.idempotency_key)?;
            let names = [
                ("correlation id", &ask.correlation_id),
                ("assignee", &ask.for_assignee),
                ("group", &ask.for_group),
            ];
            names.into_iter().try_for_each(|(what, name)| match name {
                Some(name) => check_name(what, name),
                None => Ok(()),
            })
        })
    }

    /// How many interactions must complete before the rest is cancelled; `None` waits for all.
    pub(crate) fn needed(&self) -> Option<u32> {
        self.quorum.map(|quorum| quorum.min(self.asks.len() as u32))
    }
}
