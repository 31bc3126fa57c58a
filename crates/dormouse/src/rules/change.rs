//! A change: what becomes of an instance, as data. Stores write it; nothing in it has happened yet.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Head, UnitHead};
use crate::{At, EventKind, InstanceId, Json, Mail, Run, SignalId, Status, UnitStatus, Wake, When};

/// What becomes of an instance. A store applies all of it in one transaction, or nothing.
///
/// Its JSON form has these names. Documents stand in it as they are. The data of an event are the fields in order, and the
/// name of the one that holds a moment with how that was asked for: at a moment, or so long after the commit.
///
/// ```
/// use std::time::Duration;
///
/// use dormouse::jiff::Timestamp;
/// use dormouse::rules::{Facts, Head, Hold, Input, Returned, decide};
/// use dormouse::{At, InstanceId, Json, Status, Transition, WorkerId};
/// use serde_json::json;
///
/// let head = Head::new(InstanceId(7), "checkout", 1, "start");
/// let head = decide(head, Input::Claim(WorkerId(1)), Timestamp::UNIX_EPOCH).head;
/// let transition = Transition::Await {
///     at: At { step: "waiting".into(), state: Json::from(json!({ "order": 42 })) },
///     names: vec!["paid".to_owned()],
///     timeout: Some(Duration::from_secs(60).into()),
/// };
/// let (hold, facts) = (Hold::Release, Facts::default());
/// let returned = Returned { transition: &transition, version: 1, hold, received: &[], mail: &[], facts };
/// let change = decide(head, Input::Outcome(returned), Timestamp::UNIX_EPOCH);
///
/// let json = serde_json::to_value(&change)?;
/// assert_eq!(json["head"]["status"], "awaiting_signal");
/// assert_eq!(json["head"]["wake_at"], "1970-01-01T00:01:00Z");
/// assert_eq!(json["state"], json!({ "order": 42 }));
/// assert_eq!(json["arms"], json!({ "in": { "secs": 60, "nanos": 0 } }));
/// assert_eq!(json["events"][0]["kind"], "signal.waiting");
/// assert_eq!(json["events"][0]["data"]["fields"], json!([["names", ["paid"]]]));
/// assert_eq!(json["events"][0]["data"]["moment"], json!(["until", { "in": { "secs": 60, "nanos": 0 } }]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// The row after it.
    pub head: Head,
    /// The state after it; `None` leaves the state as it is.
    pub state: Option<Json>,
    /// The output, of an instance that is done.
    pub output: Option<Json>,
    /// The events to record, in order. Each has the next `seq`, and the version and step that are in `head`; the first
    /// one records the new state too.
    pub events: Vec<NewEvent>,
    /// The run of the step that led to it: recorded with the first event.
    pub run: Option<Run>,
    /// The signals that are consumed. One with a dedup key stays, out of the inbox, so that the key outlives it.
    pub consumes: Vec<SignalId>,
    /// Whether all signals are deleted, dedup keys included: nothing reads them after `done`.
    pub drops_inbox: bool,
    /// When the clock wakes it, as it was asked for. `head.wake_at` is the moment that this is, counted from `now`.
    pub arms: Option<When>,
    /// A parent's barrier that this end is taken off.
    pub joins: Option<Join>,
    /// The new status of the unit that it was parked on; its open interactions are cancelled.
    pub closes_unit: Option<UnitStatus>,
    /// The unit as an answer left it.
    pub unit: Option<UnitHead>,
    /// How many ends other than `done` its barrier bears: one that is raised, or after such an end. `None`: as before.
    pub spare: Option<u32>,
    /// What it sends to other instances: stored with the change, and delivered after it.
    #[serde(default)]
    pub mail: Vec<Mail>,
}

/// An end that is taken off the barrier of the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The parent.
    pub parent: InstanceId,
    /// The round of the parent whose barrier it is.
    pub round: u32,
    /// How the child ended.
    pub status: Status,
}

/// An event to be recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// What happened.
    pub kind: EventKind,
    /// What else there is to record.
    pub data: Option<Data>,
}

/// An event's data: an object whose fields are JSON, and perhaps a moment that is counted from the commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// The fields, in order.
    pub fields: Vec<(Cow<'static, str>, Json)>,
    /// The field that holds a moment; without one it is null. The store that commits knows what time it is.
    pub moment: Option<(Cow<'static, str>, Option<When>)>,
}

impl Data {
    /// Data without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<serde_json::Value>) -> Self {
        self.fields.push((name.into(), Json::from(value.into())));
        self
    }

    /// Adds a field whose JSON is taken as it stands.
    #[must_use]
    pub fn with_json(mut self, name: &'static str, value: Json) -> Self {
        self.fields.push((name.into(), value));
        self
    }

    /// Adds the field that holds a moment.
    #[must_use]
    pub fn with_moment(mut self, name: &'static str, moment: Option<When>) -> Self {
        self.moment = Some((name.into(), moment));
        self
    }

    /// The object's text, seen from `now`.
    pub fn text(&self, now: Timestamp) -> String {
        let mut text = self.fields_text();
        if let Some((name, moment)) = &self.moment {
            text.pop();
            let moment = moment.map(|when| when.moment(now).to_string());
            push_field(&mut text, name, &json!(moment).to_string());
            text.push('}');
        }
        text
    }

    /// The object's text without the moment, for a store that adds it.
    pub(crate) fn fields_text(&self) -> String {
        let mut text = String::from("{");
        for (name, value) in &self.fields {
            push_field(&mut text, name, value.as_str());
        }
        text.push('}');
        text
    }
}

/// Adds a field to an object's text. Names are ours: none needs escaping.
fn push_field(text: &mut String, name: &str, value: &str) {
    if text.len() > 1 {
        text.push(',');
    }
    text.push('"');
    text.push_str(name);
    text.push_str("\":");
    text.push_str(value);
}

impl Change {
    /// No change yet.
    pub fn of(head: Head) -> Self {
        Self {
            head,
            state: None,
            output: None,
            events: Vec::new(),
            run: None,
            consumes: Vec::new(),
            drops_inbox: false,
            arms: None,
            joins: None,
            closes_unit: None,
            unit: None,
            spare: None,
            mail: Vec::new(),
        }
    }

    /// Counts a transition, and has it recorded.
    pub(crate) fn record(&mut self, kind: EventKind, data: Option<Data>) {
        self.head.seq += 1;
        self.events.push(NewEvent { kind, data });
    }

    /// Moves it to another place.
    pub(super) fn go_to(&mut self, at: &At) {
        self.head.step.clear();
        self.head.step.push_str(&at.step);
        self.state = Some(at.state.clone());
    }

    /// Makes it runnable, at this place in line.
    pub(crate) fn run_at(&mut self, place: Timestamp) {
        self.head.status = Status::Runnable;
        self.head.runnable_at = place;
        self.head.worker = None;
        self.head.wake_at = None;
        self.arms = None;
    }

    /// Makes it runnable because what it was parked on is there.
    pub(super) fn wake(&mut self, why: Wake, now: Timestamp) {
        self.head.wake = Some(why);
        self.run_at(now);
    }

    /// Parks it, perhaps with a moment at which the clock wakes it.
    pub(super) fn park(&mut self, status: Status, until: Option<When>, now: Timestamp) {
        self.head.status = status;
        self.head.worker = None;
        self.head.wake_at = until.map(|until| until.moment(now));
        self.arms = until;
    }

    /// Ends it. Its end is taken off the parent's barrier once, however often it is retried and ends again.
    pub(super) fn end(&mut self, status: Status, kind: EventKind, data: Option<Data>, now: Timestamp) {
        if self.head.status == Status::AwaitingSignal {
            self.head.parked_until = self.head.wake_at;
        }
        self.park(status, None, now);
        self.head.cancel_requested = false;
        self.head.ended_at = Some(now);
        self.record(kind, data);
        if !std::mem::replace(&mut self.head.joined, true) {
            self.joins = self.head.parent.map(|(parent, round)| Join { parent, round, status });
        }
    }

    /// Ends it as failed.
    pub(crate) fn fail(&mut self, error: &str, now: Timestamp) {
        self.head.last_error = Some(error.to_owned());
        self.end(Status::Failed, EventKind::Failed, Some(Data::new().with("error", error)), now);
    }
}
