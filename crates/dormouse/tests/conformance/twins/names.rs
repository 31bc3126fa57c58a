//! The two stores give other ids to the same things. Whatever PostgreSQL says is told in SQLite's ids, and what has
//! no order by its contract is put in one.

use std::collections::HashMap;
use std::fmt::Debug;

use dormouse::store::{
    Assigned, Awaited, Backlog, Cancel, Change, Claimed, Collected, Completed, Due, Effects, Judged,
    LaneView, Lease, LimitView, Outbox, Page, Receipt, Situation, Stats, TransportView, WorkerView, Written,
};
use dormouse::{
    ChildView, Delivered, Error, Event, InboxSignal, Inserted, Instance, InstanceId, Interaction,
    InteractionId, Json, ParentRef, ShareWeight, SignalId, Status, UnitId, UnitView, WorkerId,
};
use serde_json::Value;

/// Which ids mean the same on both sides.
#[derive(Default)]
pub struct Names {
    pub instances: Pairs,
    pub signals: Pairs,
    pub workers: Pairs,
    pub units: Pairs,
    pub interactions: Pairs,
}

#[derive(Default)]
pub struct Pairs {
    to_left: HashMap<i64, i64>,
    to_right: HashMap<i64, i64>,
}

impl Pairs {
    pub fn add(&mut self, left: i64, right: i64) {
        self.to_left.insert(right, left);
        self.to_right.insert(left, right);
    }

    pub fn knows_left(&self, left: i64) -> bool {
        self.to_right.contains_key(&left)
    }

    pub fn knows_right(&self, right: i64) -> bool {
        self.to_left.contains_key(&right)
    }

    /// The other side's id; one that nobody has, for what only this side knows.
    pub fn right(&self, left: i64) -> i64 {
        self.to_right.get(&left).copied().unwrap_or(-left)
    }

    fn left(&self, right: i64) -> i64 {
        self.to_left.get(&right).copied().unwrap_or(-right)
    }
}

/// How to tell an answer: as it is, or in the other side's ids.
pub struct Ids<'a>(pub Option<&'a Names>);

impl Ids<'_> {
    fn instance(&self, id: i64) -> i64 {
        self.0.map_or(id, |names| names.instances.left(id))
    }

    fn signal(&self, id: i64) -> i64 {
        self.0.map_or(id, |names| names.signals.left(id))
    }

    fn worker(&self, id: i64) -> i64 {
        self.0.map_or(id, |names| names.workers.left(id))
    }

    fn unit(&self, id: i64) -> i64 {
        self.0.map_or(id, |names| names.units.left(id))
    }

    fn interaction(&self, id: i64) -> i64 {
        self.0.map_or(id, |names| names.interactions.left(id))
    }

    /// Errors name instances.
    fn text(&self, text: &str) -> String {
        const BEFORE: &str = "instance ";
        let mut told = String::new();
        let mut rest = text;
        while let Some(found) = rest.find(BEFORE) {
            let (before, after) = rest.split_at(found + BEFORE.len());
            let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            told.push_str(before);
            match after[..digits].parse() {
                Ok(id) => told.push_str(&self.instance(id).to_string()),
                Err(_) => told.push_str(&after[..digits]),
            }
            rest = &after[digits..];
        }
        told + rest
    }

    /// An event's data: an object in which some members are ids.
    fn data(&self, data: &Json) -> Json {
        let mut value: Value = serde_json::from_str(data.as_str()).expect("an event's data is JSON");
        if let Some(id) = value.get("id").and_then(Value::as_i64) {
            value["id"] = self.signal(id).into();
        }
        for consumed in value.get_mut("consumed").and_then(Value::as_array_mut).into_iter().flatten() {
            consumed["id"] = self.signal(consumed["id"].as_i64().expect("a signal's id")).into();
        }
        if let Some(id) = value.get("forked_from").and_then(Value::as_i64) {
            value["forked_from"] = self.instance(id).into();
        }
        if let Some(id) = value.get("with").and_then(Value::as_i64) {
            value["with"] = self.instance(id).into();
        }
        if let Some(id) = value.get("unit").and_then(Value::as_i64) {
            value["unit"] = self.unit(id).into();
        }
        if let Some(id) = value.get("interaction").and_then(Value::as_i64) {
            value["interaction"] = self.interaction(id).into();
        }
        if let Some(error) = value.get("error").and_then(Value::as_str) {
            value["error"] = self.text(error).into();
        }
        Json::from(value)
    }
}

/// An answer that can be told so that two of them can be compared.
pub trait Told: Debug + Sized {
    fn told(self, ids: &Ids<'_>) -> Self;

    /// Takes over what the other says beyond this, and may: PostgreSQL pokes the queue of a row that a claim may have
    /// passed over because it was locked, and SQLite has no such locks.
    fn allow(&mut self, _other: &Self) {}
}

/// An answer or a refusal, as text.
pub fn told<T: Told>(answer: Result<T, Error>, ids: &Ids<'_>) -> String {
    match answer {
        Ok(answer) => format!("{:#?}", answer.told(ids)),
        Err(error) => format!("refused: {}", ids.text(&error.to_string())),
    }
}

macro_rules! has_no_ids {
    ($($kind:ty),+) => { $(impl Told for $kind {
        fn told(self, _ids: &Ids<'_>) -> Self {
            self
        }
    })+ };
}

has_no_ids!(
    usize,
    bool,
    (),
    String,
    Due,
    Cancel,
    Collected,
    Completed,
    Assigned,
    LimitView,
    ShareWeight,
    Judged,
    TransportView
);

impl Told for UnitView {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self { id: UnitId(ids.unit(self.id.0)), instance: self.instance.told(ids), ..self }
    }
}

impl Told for Interaction {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self {
            id: InteractionId(ids.interaction(self.id.0)),
            unit: UnitId(ids.unit(self.unit.0)),
            instance: self.instance.told(ids),
            ..self
        }
    }
}

impl Told for Outbox {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self { taken: self.taken.told(ids), ..self }
    }
}

impl Told for InstanceId {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self(ids.instance(self.0))
    }
}

impl Told for (InstanceId, u64) {
    fn told(self, ids: &Ids<'_>) -> Self {
        (self.0.told(ids), self.1)
    }
}

impl Told for SignalId {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self(ids.signal(self.0))
    }
}

impl Told for WorkerId {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self(ids.worker(self.0))
    }
}

impl<T: Told> Told for Vec<T> {
    fn told(self, ids: &Ids<'_>) -> Self {
        self.into_iter().map(|each| each.told(ids)).collect()
    }
}

impl<T: Told> Told for Option<T> {
    fn told(self, ids: &Ids<'_>) -> Self {
        self.map(|each| each.told(ids))
    }
}

impl<T: Told> Told for Written<T> {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self { value: self.value.told(ids), effects: self.effects.told(ids) }
    }

    fn allow(&mut self, other: &Self) {
        self.effects.queues.extend(other.effects.queues.iter().cloned());
    }
}

fn in_order<T: Told + Ord>(all: Vec<T>, ids: &Ids<'_>) -> Vec<T> {
    let mut all = all.told(ids);
    all.sort_unstable();
    all.dedup();
    all
}

impl Told for Effects {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self { ended: in_order(self.ended, ids), cancel: in_order(self.cancel, ids), ..self }
    }
}

impl Told for Inserted {
    fn told(self, ids: &Ids<'_>) -> Self {
        match self {
            Self::New(id) => Self::New(id.told(ids)),
            Self::Taken { holder, signals } => {
                Self::Taken { holder: holder.told(ids), signals: signals.told(ids) }
            }
        }
    }
}

impl Told for Delivered {
    fn told(self, ids: &Ids<'_>) -> Self {
        match self {
            Self::Accepted { id, woke } => Self::Accepted { id: id.told(ids), woke },
            // Which number a kept signal has is a store's own matter; the lists are compared.
            Self::Kept { until, .. } => Self::Kept { id: dormouse::KeptId(0), until },
            other => other,
        }
    }
}

impl Told for InboxSignal {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self { id: self.id.told(ids), ..self }
    }
}

impl Told for ChildView {
    fn told(self, ids: &Ids<'_>) -> Self {
        // A child that is claimed in the same batch as its parent is seen before or after that.
        let status = if self.status == Status::Executing { Status::Runnable } else { self.status };
        Self { id: self.id.told(ids), status, error: self.error.map(|error| ids.text(&error)), ..self }
    }
}

impl Told for Claimed {
    fn told(self, ids: &Ids<'_>) -> Self {
        let parent = self.parent.map(|parent| ParentRef { id: parent.id.told(ids), ..parent });
        let (inbox, children) = (self.inbox.told(ids), self.children.told(ids));
        Self { id: self.id.told(ids), parent, inbox, children, ..self }
    }
}

impl Told for Receipt {
    fn told(self, ids: &Ids<'_>) -> Self {
        match self {
            Self::Held { seq, inbox, now } => Self::Held { seq, inbox: inbox.told(ids), now },
            other => other,
        }
    }
}

impl Told for Lease {
    fn told(self, ids: &Ids<'_>) -> Self {
        match self {
            Self::Held { cancel, holds } => {
                Self::Held { cancel: in_order(cancel, ids), holds: in_order(holds, ids) }
            }
            Self::Lost => Self::Lost,
        }
    }
}

impl Told for Instance {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self {
            id: self.id.told(ids),
            parent: self.parent.told(ids),
            cancelled_with: self.cancelled_with.told(ids),
            worker: self.worker.told(ids),
            last_error: self.last_error.map(|error| ids.text(&error)),
            ..self
        }
    }
}

impl Told for Page {
    fn told(self, ids: &Ids<'_>) -> Self {
        let Self { instances, next, next_at, looked } = self;
        Self { instances: instances.told(ids), next: next.told(ids), next_at, looked }
    }
}

impl Told for Event {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self { data: self.data.map(|data| ids.data(&data)), ..self }
    }
}

impl Told for WorkerView {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self { id: self.id.told(ids), ..self }
    }
}

impl Told for Situation {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self {
            instance: self.instance.told(ids),
            lane: self.lane.told(ids),
            workers: self.workers.told(ids),
            ..self
        }
    }
}

impl Told for LaneView {
    fn told(mut self, ids: &Ids<'_>) -> Self {
        self.holders = self.holders.told(ids);
        self.holders.sort_unstable();
        self
    }
}

impl Told for Stats {
    fn told(mut self, ids: &Ids<'_>) -> Self {
        self.instances.sort_unstable_by_key(|count| format!("{count:?}"));
        self.awaiting.sort_unstable();
        Self { workers: self.workers.told(ids), ..self }
    }
}

impl Told for Backlog {
    fn told(mut self, ids: &Ids<'_>) -> Self {
        self.awaiting.sort_unstable_by_key(|awaited| awaited.names.clone());
        Self { awaiting: self.awaiting.told(ids), ..self }
    }
}

impl Told for Awaited {
    fn told(self, ids: &Ids<'_>) -> Self {
        Self { oldest: self.oldest.told(ids), ..self }
    }
}

impl Told for Change {
    fn told(self, ids: &Ids<'_>) -> Self {
        // Where it stands in the feed is each store's own.
        Self { id: 0, instance: self.instance.told(ids), ..self }
    }
}
