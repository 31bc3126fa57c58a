//! Instances without a store: what becomes of each is decided by `dormouse::rules` alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use dormouse::jiff::Timestamp;
use dormouse::rules::{
    Answered, Barrier, Cause, Change, Consumed, Crash, Facts, Head, Hold, Input, LastWait, Returned,
    Undelivered, UnitHead, consumes, decide, owns, settle, start, unseen,
};
use dormouse::store::Tried;
use dormouse::{
    At, Children, EventKind, InboxSignal, InstanceId, InteractionId, Json, Mail, NewInstance, SignalId,
    Status, Transition, UnitId, UnitStatus, When, WorkerId,
};
use serde_json::{Value, json};

pub struct Model {
    pub now: Timestamp,
    pub rows: BTreeMap<InstanceId, Row>,
    /// Mail that is not delivered yet, with the event of its sender that sent it.
    pub mail: Vec<Letter>,
    /// Lanes that the write under way has touched: at its end, each that nobody holds goes to the next in line.
    lanes: BTreeSet<String>,
}

/// An instance, and what stands beside its row.
pub struct Row {
    pub head: Head,
    pub state: Json,
    pub output: Option<Json>,
    pub history: Vec<(EventKind, Option<Value>)>,
    pub inbox: Vec<InboxSignal>,
    pub dedup: HashSet<String>,
    pub unit: Option<UnitHead>,
    pub items: Vec<Item>,
    priority: i32,
    is_cancelled_with_parent: bool,
    /// What is special about the barrier of its last round.
    barrier: Option<Barrier>,
}

/// A piece of mail under way.
pub struct Letter {
    pub sender: InstanceId,
    pub seq: u64,
    pub mail: Mail,
    pub undelivered: bool,
}

/// A request of the unit.
#[derive(Clone)]
pub struct Item {
    pub id: InteractionId,
    pub is_open: bool,
    /// Whether it has its place in flight, and until when it may be answered then.
    pub asked: Option<Option<Timestamp>>,
}

/// A commit, and what the store made for it.
pub struct Returning<'a> {
    pub id: InstanceId,
    pub worker: WorkerId,
    pub seq: u64,
    pub version: u32,
    pub transition: &'a Transition,
    pub hold: Hold,
    pub received: &'a [SignalId],
    pub mail: &'a [Mail],
    /// The children that it spawned.
    pub children: &'a [InstanceId],
    /// The unit that it opened, and its interactions.
    pub unit: Option<(UnitId, Vec<InteractionId>)>,
}

/// What a receipt should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    Held(u64),
    Released,
    Cancelled,
    Stale,
}

impl Model {
    pub fn new(now: Timestamp) -> Self {
        Self { now, rows: BTreeMap::new(), mail: Vec::new(), lanes: BTreeSet::new() }
    }

    pub fn insert(&mut self, id: InstanceId, new: &NewInstance, signals: Vec<InboxSignal>) {
        self.begin(id, new, None);
        signals.into_iter().for_each(|signal| self.arrive(id, signal));
        self.settle_lanes();
    }

    fn begin(&mut self, id: InstanceId, new: &NewInstance, child_of: Option<((InstanceId, u32), Children)>) {
        let (parent, on_cancel) = child_of.unzip();
        let change = start(id, new, parent, self.now);
        let row = Row {
            head: change.head.clone(),
            state: new.at.state.clone(),
            output: None,
            history: Vec::new(),
            inbox: Vec::new(),
            dedup: HashSet::new(),
            unit: None,
            items: Vec::new(),
            priority: new.priority,
            is_cancelled_with_parent: on_cancel == Some(Children::Cancel),
            barrier: None,
        };
        self.rows.insert(id, row);
        self.apply(change);
    }

    /// A signal, unless it is a duplicate or its instance has ended; returns whether it is stored.
    pub fn deliver(&mut self, id: InstanceId, signal: InboxSignal) {
        self.arrive(id, signal);
        self.settle_lanes();
    }

    /// Whether a signal would be stored, and if not, whether it is a duplicate.
    pub fn hears(&self, id: InstanceId, dedup_key: Option<&str>) -> Result<(), bool> {
        let row = &self.rows[&id];
        let is_duplicate = dedup_key.is_some_and(|key| row.dedup.contains(key));
        if row.head.status.is_terminal() || is_duplicate {
            return Err(is_duplicate && !row.head.status.is_terminal());
        }
        Ok(())
    }

    fn arrive(&mut self, id: InstanceId, signal: InboxSignal) {
        let row = self.rows.get_mut(&id).expect("it is there");
        row.dedup.extend(signal.dedup_key.clone());
        row.inbox.push(signal.clone());
        self.happens(id, Input::Signal(&signal));
    }

    /// Those that a claim takes, in no order.
    pub fn claimable(&self, rows_max: usize) -> BTreeSet<InstanceId> {
        let mut open: Vec<_> = self.rows.values().filter(|row| row.head.status == Status::Runnable).collect();
        open.retain(|row| row.head.is_open());
        open.sort_by_key(|row| (row.priority, row.head.runnable_at, row.head.id));
        open.into_iter().take(rows_max).map(|row| row.head.id).collect()
    }

    pub fn claim(&mut self, id: InstanceId, worker: WorkerId) {
        self.happens(id, Input::Claim(worker));
        self.settle_lanes();
    }

    pub fn commit(&mut self, returning: &Returning<'_>) -> Receives {
        let Returning { id, worker, seq, version, transition, hold, received, mail, children, unit } =
            returning;
        let row = &self.rows[id];
        if !owns(&row.head, *worker, *seq) {
            return Receives::Stale;
        }
        let is_cancelled = row.head.cancel_requested;
        let names = match transition {
            Transition::Await { names, .. } => &names[..],
            _ => &[],
        };
        let inbox = row.inbox.clone();
        let unseen = unseen(inbox.iter().map(|signal| (signal.id, &*signal.name)), names, received);
        let mut facts = Facts { inserted: children.len() as u32, ..Facts::default() };
        facts.unseen = inbox.iter().find(|signal| Some(signal.id) == unseen);
        facts.unit = unit.as_ref().map(|(unit, _)| *unit);
        facts.consumed = (consumes(transition) && !received.is_empty()).then(|| consumed(&inbox, received));
        if matches!(transition, Transition::Done { .. }) {
            facts.unread = unread(&inbox, received);
        }
        let round = row.head.round + 1;
        let returned = Returned { transition, version: *version, hold: *hold, received, mail, facts };
        if let (Transition::Spawn(spawn), false) = (transition, is_cancelled) {
            for (child, new) in children.iter().zip(&spawn.children) {
                self.begin(*child, new, Some(((*id, round), spawn.on_cancel)));
            }
        }
        if is_cancelled {
            self.cancel_tree(*id, Input::Outcome(returned));
            self.settle_lanes();
            return Receives::Cancelled;
        }
        if let Transition::Dispatch(dispatch) = transition {
            let deadline = dispatch.timeout.map(|timeout| moment(timeout, self.now));
            let opened =
                UnitHead { deadline, ..UnitHead::opened(dispatch, unit.as_ref().map(|(id, _)| *id)) };
            let ids = unit.as_ref().map(|(_, ids)| ids.clone()).unwrap_or_default();
            let asked = |item| (item < opened.next_item as usize).then(|| opened.item_deadline(self.now));
            let item = |(place, id)| Item { id, is_open: true, asked: asked(place) };
            let items = ids.into_iter().enumerate().map(item).collect();
            let row = self.rows.get_mut(id).expect("it is there");
            (row.unit, row.items) = (Some(opened), items);
        }
        if let Transition::Spawn(spawn) = transition {
            let row = self.rows.get_mut(id).expect("it is there");
            (row.unit, row.barrier) = (None, Some(Barrier { spare: None, on_release: spawn.on_release }));
        }
        let change = decide(self.rows[id].head.clone(), Input::Outcome(returned), self.now);
        let letter =
            |mail: &Mail| Letter { sender: *id, seq: seq + 1, mail: mail.clone(), undelivered: false };
        self.mail.extend(change.mail.iter().map(letter));
        self.apply(change);
        self.settle_lanes();
        let head = &self.rows[id].head;
        if head.status == Status::Executing { Receives::Held(head.seq) } else { Receives::Released }
    }

    /// A piece of mail cannot be delivered.
    pub fn undelivered(&mut self, letter: &Letter, what: Json, reason: &str) {
        let seq = letter.seq;
        self.happens(letter.sender, Input::Undelivered(Undelivered { seq, what, reason }));
    }

    /// Everything whose moment has come.
    pub fn due(&mut self) {
        let is_due = |row: &&Row| row.head.wake_at.is_some_and(|at| at <= self.now);
        let ids: Vec<_> = self.rows.values().filter(is_due).map(|row| row.head.id).collect();
        ids.iter().for_each(|id| self.let_go_of_rest(*id));
        let mut parked_on_units = Vec::new();
        for id in ids {
            match self.rows[&id].head.status {
                Status::AwaitingCompletion => parked_on_units.push(id),
                _ => self.happens(id, Input::Clock),
            }
        }
        self.settle_lanes();
        parked_on_units.into_iter().for_each(|id| self.fire_unit(id));
        self.settle_lanes();
    }

    /// Children that a released barrier leaves behind are cancelled.
    fn let_go_of_rest(&mut self, parent: InstanceId) {
        let Row { head, barrier, .. } = &self.rows[&parent];
        let lets_go = barrier.is_some_and(|barrier| barrier.on_release == Children::Cancel);
        if head.status != Status::AwaitingChildren || !lets_go {
            return;
        }
        let round = head.round;
        let is_rest = |row: &&Row| {
            row.head.parent == Some((parent, round)) && !row.head.joined && row.head.ended_at.is_none()
        };
        let rest: Vec<_> = self.rows.values().filter(is_rest).map(|row| row.head.id).collect();
        for child in rest {
            let input = Input::LetGo(self.parked_on(child));
            self.cancel_tree(child, input);
            self.settle_lanes();
        }
    }

    fn fire_unit(&mut self, id: InstanceId) {
        let Row { unit, items, .. } = &self.rows[&id];
        let unit = unit.clone().expect("it is parked on one");
        if unit.deadline.is_some_and(|deadline| deadline <= self.now) {
            return self.happens(id, Input::UnitClosed(unit, UnitStatus::TimedOut));
        }
        let mut late: Vec<_> = (0..items.len()).filter(|item| items[*item].is_late(self.now)).collect();
        late.sort_by_key(|item| (items[*item].asked, *item));
        for item in late {
            self.answer(id, item, Answered::TimedOut);
            if self.rows[&id].head.status != Status::AwaitingCompletion {
                return;
            }
        }
        let row = self.rows.get_mut(&id).expect("it is there");
        let open = row.items.iter().filter(|item| item.is_open);
        row.head.wake_at = open.filter_map(|item| item.asked?).chain(unit.deadline).min();
    }

    /// Whether an answer to this item is let in now.
    pub fn takes_answer(&self, id: InstanceId, item: usize) -> bool {
        let item = &self.rows[&id].items[item];
        item.is_open && item.asked.is_some() && !item.is_late(self.now)
    }

    pub fn complete(&mut self, id: InstanceId, item: usize, how: Answered<'_>) {
        self.answer(id, item, how);
        self.settle_lanes();
    }

    fn answer(&mut self, id: InstanceId, item: usize, how: Answered<'_>) {
        let row = self.rows.get_mut(&id).expect("it is there");
        row.items[item].is_open = false;
        let unit = row.unit.clone().expect("it is parked on one");
        let asked = unit.next_item as usize;
        let item = (row.items[item].id, item as u32);
        self.happens(id, Input::Answer { unit, item, how });
        let row = self.rows.get_mut(&id).expect("it is there");
        let unit = row.unit.as_ref().expect("it was parked on one");
        if unit.next_item as usize > asked {
            row.items[asked].asked = Some(unit.item_deadline(self.now));
        }
    }

    pub fn cancel(&mut self, id: InstanceId, reason: Option<&str>) {
        let cause = Cause { reason: reason.map(str::to_owned), with: None };
        let input = Input::Cancel(cause, self.parked_on(id));
        self.cancel_tree(id, input);
        self.settle_lanes();
    }

    /// Something that cancels an instance; if it ends by that, the children that go with it are cancelled too.
    fn cancel_tree(&mut self, id: InstanceId, input: Input<'_>) {
        self.happens(id, input);
        let Head { status, cancel_reason, cancelled_with, .. } = &self.rows[&id].head;
        if *status != Status::Cancelled {
            return;
        }
        let cause = Cause { reason: cancel_reason.clone(), with: cancelled_with.or(Some(id)) };
        let mut parents = vec![id];
        while let Some(parent) = parents.pop() {
            let goes_along = |row: &&Row| {
                let is_child = row.head.parent.is_some_and(|(of, _)| of == parent);
                is_child && row.is_cancelled_with_parent && !row.head.status.is_terminal()
            };
            let children: Vec<_> = self.rows.values().filter(goes_along).map(|row| row.head.id).collect();
            for child in children {
                self.happens(child, Input::Cancel(cause.clone(), self.parked_on(child)));
                parents.extend(self.rows[&child].head.status.is_terminal().then_some(child));
            }
        }
    }

    pub fn retry(&mut self, id: InstanceId, at: Option<&At>) {
        let row = &self.rows[&id];
        let waited = row.history.iter().rev().find(|(kind, _)| *kind == EventKind::SignalWaiting);
        let until = waited.and_then(|(_, data)| data.as_ref()?["until"].as_str()?.parse().ok());
        let last = LastWait { until, was_unit: row.unit.is_some() };
        self.happens(id, Input::Retry(at, last));
        self.settle_lanes();
    }

    pub fn pause(&mut self, id: InstanceId, on: bool) {
        self.happens(id, Input::Pause(on));
        self.settle_lanes();
    }

    /// A worker died with all that it held.
    pub fn reap(&mut self, worker: WorkerId, name: &str, crashes_max: u32) {
        let held = self.rows.values().filter(|row| row.head.worker == Some(worker));
        let held: Vec<_> = held.map(|row| row.head.id).collect();
        for (place, id) in (0..).zip(held) {
            self.cancel_tree(id, Input::Reap(Crash { worker: Some(name), crashes_max, place }));
        }
        self.settle_lanes();
    }

    pub fn release(&mut self, id: InstanceId, name: &str, tried: Tried) {
        let input = match tried {
            Tried::Yes => Input::GivenBack(Some(name)),
            Tried::No => Input::Unused,
        };
        self.cancel_tree(id, input);
        self.settle_lanes();
    }

    fn parked_on(&self, id: InstanceId) -> Option<UnitHead> {
        let row = &self.rows[&id];
        row.unit.clone().filter(|_| row.head.status == Status::AwaitingCompletion)
    }

    fn happens(&mut self, id: InstanceId, input: Input<'_>) {
        let head = self.rows[&id].head.clone();
        self.apply(decide(head, input, self.now));
    }

    /// What a store does with a change.
    fn apply(&mut self, change: Change) {
        let Change { mut head, state, output, events, consumes, drops_inbox, joins, closes_unit, .. } =
            change;
        let row = self.rows.get_mut(&head.id).expect("it is there");
        if settle(row.head.is_open(), &mut head) {
            self.lanes.extend(head.lane.clone());
        }
        if head.keeps_history {
            let data = |data: dormouse::rules::Data| {
                serde_json::from_str(&data.text(self.now)).expect("an event's data are JSON")
            };
            row.history.extend(events.into_iter().map(|event| (event.kind, event.data.map(data))));
        }
        row.state = state.unwrap_or_else(|| row.state.clone());
        row.output = output.or_else(|| row.output.take());
        row.inbox.retain(|signal| !consumes.contains(&signal.id));
        if drops_inbox {
            row.inbox.clear();
            row.dedup.clear();
        }
        if let (Some(barrier), Some(spare)) = (&mut row.barrier, change.spare) {
            barrier.spare = Some(spare);
        }
        row.unit = change.unit.or_else(|| row.unit.take());
        if let (Some(unit), Some(status)) = (&mut row.unit, closes_unit) {
            unit.status = status;
            row.items.iter_mut().for_each(|item| item.is_open = false);
        }
        row.head = head;
        if let Some(join) = joins {
            let barrier = self.rows[&join.parent].barrier;
            let (round, status) = (join.round, join.status);
            self.happens(join.parent, Input::ChildEnd { round, status, barrier });
        }
    }

    fn settle_lanes(&mut self) {
        for lane in std::mem::take(&mut self.lanes) {
            let in_lane = |row: &&mut Row| row.head.lane.as_ref() == Some(&lane);
            let mut rows: Vec<_> = self.rows.values_mut().filter(in_lane).collect();
            let holds = |row: &&mut Row| {
                matches!(row.head.status, Status::Executing | Status::Runnable) && !row.head.blocked
            };
            if rows.iter().any(holds) {
                continue;
            }
            rows.retain(|row| row.head.blocked && !row.head.paused);
            if let Some(next) =
                rows.into_iter().min_by_key(|row| (row.priority, row.head.runnable_at, row.head.id))
            {
                next.head.blocked = false;
            }
        }
    }
}

impl Item {
    fn is_late(&self, now: Timestamp) -> bool {
        self.is_open && self.asked.flatten().is_some_and(|deadline| deadline <= now)
    }
}

fn consumed(inbox: &[InboxSignal], received: &[SignalId]) -> Consumed {
    let gone: Vec<_> = inbox.iter().filter(|signal| received.contains(&signal.id)).collect();
    let shown: Vec<_> = gone
        .iter()
        .map(|signal| json!({ "id": signal.id, "name": signal.name, "payload": signal.payload }))
        .collect();
    Consumed {
        signals: gone.len() as u32,
        bytes: gone.iter().map(|signal| signal.payload.as_str().len() as u64).sum(),
        data: Some(Json::from(Value::from(shown))),
    }
}

/// What no step has read: names and counts, the most first.
fn unread(inbox: &[InboxSignal], received: &[SignalId]) -> Option<(Json, u64)> {
    let mut names = BTreeMap::<&str, u64>::new();
    let unread = inbox.iter().filter(|signal| !received.contains(&signal.id));
    unread.for_each(|signal| *names.entry(&signal.name).or_default() += 1);
    let total = names.values().sum();
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown: Vec<_> = names.iter().map(|(name, count)| json!({ "name": name, "count": count })).collect();
    (total > 0).then(|| (Json::from(Value::from(shown)), total))
}

fn moment(when: When, now: Timestamp) -> Timestamp {
    match when {
        When::At(at) => at,
        When::In(duration) => now + duration,
    }
}
