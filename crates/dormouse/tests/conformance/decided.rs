//! The pure rules and the stores decide alike.
//!
//! Each seed is a random sequence of calls. Beside the store, a model keeps the head of each instance, and changes it by
//! `dormouse::rules` alone. After each call, heads, inboxes, new events and effects are compared. Ids are the store's.
//!
//! `DORMOUSE_DECIDED_SEEDS=500` runs that many new seeds; `DORMOUSE_DECIDED_SEED=7` runs one again.

#![allow(unreachable_pub, reason = "a test target has no outside")]

mod draw;
mod model;

use std::collections::{BTreeMap, BTreeSet};

use dormouse::jiff::Timestamp;
use dormouse::rules::{Answered, Head};
use dormouse::store::{
    Brake, Cancel, CancelRequest, Claimed, Completed, Completion, Effects, Filter, Post, Posted, Posting,
    Receipt, Tried,
};
use dormouse::{
    At, Delivered, Error, EventKind, InboxSignal, Inserted, Instance, InstanceId, InteractionId, Json,
    Limits, Mail, MailId, NewInstance, NewSignal, Status, Target, Transition, Wake, WorkerId,
};
use serde_json::{Value, json};

use self::draw::Draw;
use self::model::{Model, Receives, Returning};
use crate::kit::{Kit, commit, received};

/// Seeds that are always run.
const SEEDS: u64 = 12;
/// Others, each time new ones.
const NEW_SEEDS: usize = 2;
/// Calls in a sequence.
const CALLS: usize = 250;
/// Crashes in a row after which an instance has failed.
const CRASHES_MAX: u32 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_decides_as_the_rules_do() {
    let mut met = Met::new();
    for seed in seeds() {
        Run::on(Kit::sqlite_memory(), seed).await.calls(&mut met).await;
    }
    check_met(&met);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_decides_as_the_rules_do() {
    let mut met = Met::new();
    for seed in seeds() {
        Run::on(Kit::postgres().await, seed).await.calls(&mut met).await;
    }
    check_met(&met);
}

/// The events that sequences came by, and how often.
type Met = BTreeMap<&'static str, usize>;

/// Else the sequences have lost their way.
fn check_met(met: &Met) {
    println!("met: {met:?}");
    use EventKind::*;
    let kinds = [
        StepCompleted,
        StepRetried,
        SignalWaiting,
        SignalReceived,
        SignalTimeout,
        ChildrenSpawned,
        ChildrenJoined,
        ChildrenTimeout,
        UnitOpened,
        UnitCompleted,
        UnitTimedOut,
        UnitFailed,
        UnitCancelled,
        InteractionCompleted,
        InteractionFailed,
        InteractionTimedOut,
        MailUndelivered,
        TimerFired,
        Reaped,
        Retried,
        Done,
        Failed,
        Cancelled,
    ];
    let one_seed = std::env::var("DORMOUSE_DECIDED_SEED").is_ok();
    assert!(one_seed || kinds.iter().all(|kind| met.contains_key(kind.as_str())), "{met:?}");
}

fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("DORMOUSE_DECIDED_SEED") {
        return vec![seed];
    }
    let many = number("DORMOUSE_DECIDED_SEEDS").map_or(NEW_SEEDS, |seeds| seeds as usize);
    (0..SEEDS).chain((0..many).map(|_| fastrand::u64(..))).collect()
}

struct Run {
    kit: Kit,
    model: Model,
    draw: Draw,
    seed: u64,
    worker: WorkerId,
    /// The store's ids of the model's mail.
    letters: Vec<MailId>,
    /// Steps under way.
    steps: Vec<Claimed>,
    /// The heads before the call, and how much of each history was compared.
    before: BTreeMap<InstanceId, Head>,
    compared: BTreeMap<InstanceId, usize>,
    log: Vec<String>,
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("DORMOUSE_DECIDED_SEED={} after:\n{}", self.seed, self.log.join("\n"));
        }
    }
}

impl Run {
    async fn on(kit: Kit, seed: u64) -> Self {
        Self {
            model: Model::new(kit.now()),
            worker: kit.worker("w").await,
            kit,
            draw: Draw::new(seed),
            seed,
            letters: Vec::new(),
            steps: Vec::new(),
            before: BTreeMap::new(),
            compared: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    async fn calls(mut self, met: &mut Met) {
        for _ in 0..CALLS {
            self.call().await;
        }
        for (kind, _) in self.model.rows.values().flat_map(|row| &row.history) {
            *met.entry(kind.as_str()).or_default() += 1;
        }
    }

    fn note(&mut self, call: &'static str, what: String) {
        self.log.push(format!("{:3}  {call} {what}", self.log.len()));
    }

    async fn call(&mut self) {
        self.before = self.model.rows.iter().map(|(id, row)| (*id, row.head.clone())).collect();
        let few = self.model.rows.len() < 5;
        let effects = match if few { self.draw.under(50) } else { self.draw.under(100) } {
            0..10 => self.insert().await,
            10..22 => self.deliver().await,
            22..25 => self.post().await,
            25..40 => self.claim().await,
            40..70 => self.commit().await,
            70..78 => self.due().await,
            78..86 => self.complete().await,
            86..89 => self.cancel().await,
            89..93 => self.retry().await,
            93..96 => self.pause().await,
            96..98 => self.release().await,
            _ => self.reap().await,
        };
        if let Some(effects) = effects {
            self.compare_effects(&effects);
        }
        self.compare().await;
    }

    async fn insert(&mut self) -> Option<Effects> {
        let new = self.draw.instance(true);
        let NewInstance { lane, priority, awaits, start_at, signals, .. } = &new;
        self.note(
            "insert",
            format!("lane {lane:?}, {priority}, awaits {awaits:?}, {start_at:?}, {signals:?}"),
        );
        let inserted = self.kit.store.insert(vec![new.clone()]).await.expect("an insert");
        let Inserted::New(id) = inserted.value[0] else { panic!("nothing has a key") };
        let inbox = self.inbox(id).await;
        self.model.insert(id, &new, inbox);
        Some(inserted.effects)
    }

    async fn deliver(&mut self) -> Option<Effects> {
        let id = self.any(|status| status == Status::AwaitingSignal)?;
        let signal = self.draw.signal();
        self.note("deliver", format!("to {id}: {signal:?}"));
        let hears = self.model.hears(id, signal.dedup_key.as_deref());
        let delivery = dormouse::store::Delivery {
            namespace: "default".to_owned(),
            target: Target::Id(id),
            signal: signal.clone(),
            inbox_max: dormouse::InboxMax::default(),
            kept_max: dormouse::KeptMax::default(),
        };
        let delivered = self.kit.store.deliver(vec![delivery]).await.expect("a delivery");
        match (delivered.value[0], hears) {
            (Delivered::Accepted { id: stored, woke }, Ok(())) => {
                let NewSignal { name, payload, dedup_key, .. } = signal;
                let at = self.model.now;
                self.model.deliver(id, InboxSignal { id: stored, name, payload, dedup_key, at, trace: None });
                assert_eq!(
                    woke,
                    self.before[&id].status != self.model.rows[&id].head.status,
                    "whether it woke"
                );
            }
            (Delivered::Duplicate, Err(true)) | (Delivered::NoTarget, Err(false)) => {}
            other => panic!("the store and the rules disagree about a signal: {other:?}"),
        }
        Some(delivered.effects)
    }

    async fn claim(&mut self) -> Option<Effects> {
        let rows_max = 1 + self.draw.under(4);
        self.note("claim", rows_max.to_string());
        let expected = self.model.claimable(rows_max);
        let machines = (1..=9).map(|version| ("m", version)).collect::<Vec<_>>();
        let claimed = self.kit.claim_from(self.worker, "default", &machines, rows_max).await;
        let ids: BTreeSet<_> = claimed.iter().map(|row| row.id).collect();
        assert_eq!(ids, expected, "the first in line are claimed");
        for row in &claimed {
            self.model.claim(row.id, self.worker);
            let known = &self.model.rows[&row.id];
            assert_eq!(
                (row.seq, row.wake, &row.awaits),
                (known.head.seq, known.head.wake, &known.head.awaits)
            );
            assert_eq!(row.inbox, known.inbox, "what the step of {} is handed", row.id);
        }
        self.steps.extend(claimed);
        None
    }

    async fn commit(&mut self) -> Option<Effects> {
        let step = self.draw.pick(self.steps.len())?;
        let claimed = self.steps[step].clone();
        let transition = self.draw.outcome();
        let mut outcome = commit(&claimed, transition.clone());
        let ids: Vec<_> = self.model.rows.keys().copied().collect();
        let mail = self.draw.mail(claimed.id, &ids);
        outcome.mail.clone_from(&mail);
        outcome.hold = self.draw.hold();
        outcome.version = (claimed.version + u32::from(self.draw.under(12) == 0)).min(9);
        outcome.head.seq += u64::from(self.draw.under(15) == 0);
        let (id, seq, handed) = (claimed.id, outcome.head.seq, received(&claimed));
        self.note("commit", format!("{id} at {seq}, {handed:?}, {:?}: {transition:?}", outcome.hold));
        let (version, hold) = (outcome.version, outcome.hold);
        let written = self.kit.store.commit(self.worker, [outcome].into()).await.expect("a commit");
        let children = match &transition {
            Transition::Spawn(_) => self.new_children(id).await,
            _ => Vec::new(),
        };
        let unit = match (&transition, &written.value[0]) {
            (Transition::Dispatch(_), Receipt::Released) => Some(self.unit(id).await),
            _ => None,
        };
        let returning = Returning {
            id,
            worker: self.worker,
            seq,
            version,
            transition: &transition,
            hold,
            received: &handed,
            mail: &mail,
            children: &children,
            unit,
        };
        let receives = self.model.commit(&returning);
        if !mail.is_empty() && matches!(receives, Receives::Held(_) | Receives::Released) {
            let waiting = self.kit.store.mail_of(id, 1000).await.expect("a read");
            let new = waiting.into_iter().map(|piece| piece.id).filter(|id| !self.letters.contains(id));
            let new: Vec<_> = new.collect();
            assert_eq!(new.len(), mail.len(), "all of the mail is stored");
            self.letters.extend(new);
        }
        match (&written.value[0], receives) {
            (Receipt::Held { seq, inbox, .. }, Receives::Held(expected)) => {
                assert_eq!((*seq, inbox), (expected, &self.model.rows[&id].inbox));
                let at = transition.at().expect("only a `next` keeps its claim").clone();
                let (seq, inbox, awaits) = (*seq, inbox.clone(), Vec::new());
                let claimed = Claimed { version, at, seq, inbox, awaits, ..claimed };
                self.steps[step] = Claimed { attempt: 0, wake: None, barrier: None, ..claimed };
            }
            (Receipt::Stale, Receives::Stale) => {}
            (Receipt::Released, Receives::Released) | (Receipt::Cancelled, Receives::Cancelled) => {
                self.steps.remove(step);
            }
            other => panic!("the store and the rules disagree about a receipt: {other:?}"),
        }
        Some(written.effects)
    }

    /// Delivers the first piece of mail that is due.
    async fn post(&mut self) -> Option<Effects> {
        let due = self.kit.store.mail_due(1).await.expect("a read").mail.pop()?;
        // The store's numbers grow in the order in which mail was sent, so the model's letter is found by counting.
        let place = self.letters.iter().position(|id| *id == due.id).expect("the model knows it");
        self.note("post", format!("{} of {:?}", due.id, self.model.mail[place].mail));
        let batch = vec![Post { id: due.id, how: Posting::Deliver }];
        let posted = self.kit.store.post(batch, (&Limits::default()).into()).await.expect("a delivery");
        let letter = self.model.mail.remove(place);
        self.letters.remove(place);
        let to = match &letter.mail {
            Mail::Signal { to: Target::Id(to), .. } | Mail::Cancel { to: Target::Id(to), .. } => *to,
            other => panic!("{other:?} is not drawn"),
        };
        let known = self.model.rows.contains_key(&to);
        let is_behind = self.model.mail[..place].iter().any(|earlier| {
            let is_same = |mail: &Mail| matches!(mail, Mail::Signal { to: Target::Id(other), .. } | Mail::Cancel { to: Target::Id(other), .. } if *other == to);
            earlier.sender == letter.sender && !earlier.undelivered && is_same(&earlier.mail)
        });
        let arrives = match &letter.mail {
            _ if letter.undelivered || !known => false,
            Mail::Signal { signal, .. } => {
                !matches!(self.model.hears(to, signal.dedup_key.as_deref()), Err(false))
            }
            _ => true,
        };
        let runs = self.model.rows[&letter.sender].head.status == Status::Executing;
        let expected = match (arrives, runs) {
            _ if is_behind && !letter.undelivered => Posted::PutOff,
            (true, _) => Posted::Delivered,
            (false, false) => Posted::Undelivered,
            (false, true) => Posted::PutOff,
        };
        assert_eq!(posted.value, [expected], "what becomes of mail {}", due.id);
        match (expected, &letter.mail) {
            (Posted::Delivered, Mail::Signal { .. }) => {
                let known: BTreeSet<_> = self.model.rows[&to].inbox.iter().map(|signal| signal.id).collect();
                let arrived = self.inbox(to).await.into_iter().find(|signal| !known.contains(&signal.id));
                if let Some(arrived) = arrived {
                    self.model.deliver(to, arrived);
                }
            }
            (Posted::Delivered, _) if !self.model.rows[&to].head.status.is_terminal() => {
                self.model.cancel(to, None);
            }
            (Posted::Undelivered, _) => {
                let what = match &letter.mail {
                    Mail::Signal { signal, .. } => json!({ "signal": signal.name, "to": to }),
                    _ => json!({ "cancel": to }),
                };
                self.model.undelivered(&letter, Json::from(what), "the target is unknown or has ended");
            }
            (Posted::PutOff, _) => {
                let undelivered = letter.undelivered || !is_behind;
                self.model.mail.insert(place, model::Letter { undelivered, ..letter });
                self.letters.insert(place, due.id);
            }
            _ => {}
        }
        Some(posted.effects)
    }

    async fn due(&mut self) -> Option<Effects> {
        let pause = self.draw.pause();
        self.note("due", format!("after {pause:?}"));
        self.kit.advance(pause);
        self.model.now = self.kit.now();
        let due = self.kit.store.due(1000).await.expect("a sweep");
        self.model.due();
        Some(due.effects)
    }

    async fn complete(&mut self) -> Option<Effects> {
        let id = self.any(|status| status == Status::AwaitingCompletion)?;
        let item = self.draw.pick(self.model.rows[&id].items.len())?;
        let to: InteractionId = self.model.rows[&id].items[item].id;
        let result = self.draw.answer();
        self.note("complete", format!("{to} of {id} with {result:?}"));
        let completion = Completion {
            namespace: "default".to_owned(),
            to: to.into(),
            result: result.clone(),
            assignee: None,
            by: None,
            proof: None,
        };
        let completed = self.kit.store.complete(vec![completion]).await.expect("a completion");
        let is_admitted = matches!(completed.value[0], Completed::Admitted { .. });
        assert_eq!(is_admitted, self.model.takes_answer(id, item), "{:?}", completed.value);
        if is_admitted {
            let how = result.as_ref().map_or_else(|error| Answered::Failed(error), |_| Answered::Completed);
            self.model.complete(id, item, how);
        }
        Some(completed.effects)
    }

    async fn cancel(&mut self) -> Option<Effects> {
        let id = self.any(|status| !status.is_terminal())?;
        let reason = self.draw.reason();
        self.note("cancel", format!("{id} because {reason:?}"));
        let request = CancelRequest { reason: reason.map(str::to_owned), expected_seq: None };
        let cancelled =
            self.kit.store.cancel("default".to_owned(), id.into(), request).await.expect("a cancel");
        match (cancelled.value, self.before[&id].status) {
            (Cancel::AlreadyEnded(told), status) if status.is_terminal() => assert_eq!(told, status),
            (Cancel::Requested, Status::Executing) => self.model.cancel(id, reason),
            (Cancel::Done { .. }, status) if !status.is_terminal() => self.model.cancel(id, reason),
            other => panic!("the store and the rules disagree about a cancel: {other:?}"),
        }
        Some(cancelled.effects)
    }

    async fn retry(&mut self) -> Option<Effects> {
        let id = self.any(Status::is_terminal)?;
        let at: Option<At> = self.draw.elsewhere();
        self.note("retry", format!("{id} at {at:?}"));
        match self.kit.store.retry("default".to_owned(), id.into(), at.clone(), None).await {
            Ok(written) => {
                self.model.retry(id, at.as_ref());
                Some(written.effects)
            }
            // It changes nothing by the rules either.
            Err(Error::WrongStatus { .. }) => {
                let before = self.model.rows[&id].head.clone();
                self.model.retry(id, at.as_ref());
                assert_eq!(before, self.model.rows[&id].head);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    async fn pause(&mut self) -> Option<Effects> {
        let id = self.any(|status| !status.is_terminal())?;
        let on = self.draw.under(3) == 0;
        self.note("pause", format!("{id}: {on}"));
        let brake = if on { Brake::On } else { Brake::Off };
        let paused = self.kit.store.pause("default".to_owned(), id.into(), brake, None).await;
        assert_eq!(paused.is_err(), self.before[&id].status.is_terminal(), "only what lives has a brake");
        self.model.pause(id, on);
        paused.ok().map(|written| written.effects)
    }

    async fn release(&mut self) -> Option<Effects> {
        let step = self.draw.pick(self.steps.len())?;
        let Claimed { id, seq, .. } = self.steps.remove(step);
        let tried = if self.draw.under(2) == 0 { Tried::Yes } else { Tried::No };
        self.note("release", format!("{id}, {tried:?}"));
        let released = self.kit.store.release(self.worker, vec![(id, seq)], tried).await.expect("a release");
        self.model.release(id, "w", tried);
        Some(released.effects)
    }

    async fn reap(&mut self) -> Option<Effects> {
        self.note("reap", String::new());
        self.steps.clear();
        self.kit.store.deregister(self.worker).await.expect("it ends");
        let reaped = self.kit.store.reap(1000, CRASHES_MAX).await.expect("a sweep");
        self.model.reap(self.worker, "w", CRASHES_MAX);
        self.worker = self.kit.worker("w").await;
        Some(reaped.effects)
    }

    /// An instance: mostly one that is in such a status.
    fn any(&mut self, is_likely: impl Fn(Status) -> bool) -> Option<InstanceId> {
        let likely = self.draw.under(5) > 0;
        let rows = self.model.rows.values().map(|row| &row.head);
        let ids: Vec<_> = rows.filter(|head| !likely || is_likely(head.status)).map(|head| head.id).collect();
        self.draw.pick(ids.len()).map(|place| ids[place])
    }

    async fn inbox(&self, id: InstanceId) -> Vec<InboxSignal> {
        let bounds = dormouse::store::Bounds::rows(1000);
        self.kit.store.inbox(id, None, bounds).await.expect("a read").items
    }

    /// The children that the model does not know yet, in their order.
    async fn new_children(&self, parent: InstanceId) -> Vec<InstanceId> {
        let mut children = self.kit.list(Filter { parent: Some(parent), ..Filter::default() }).await;
        children.retain(|child| !self.model.rows.contains_key(&child.id));
        children.sort_by_key(|child| child.parent_index);
        children.into_iter().map(|child| child.id).collect()
    }

    async fn unit(&self, id: InstanceId) -> (dormouse::UnitId, Vec<InteractionId>) {
        let unit = self.kit.store.unit(id).await.expect("a read").expect("it has a unit").id;
        let items = self.kit.store.items(unit, 0, 100).await.expect("a read");
        (unit, items.into_iter().map(|item| item.id).collect())
    }

    /// Effects are hints: none that somebody waits for may be missing.
    fn compare_effects(&self, effects: &Effects) {
        let heads = || self.model.rows.values().map(|row| &row.head);
        let before = |head: &Head| self.before.get(&head.id);
        let was_ended = |head: &Head| before(head).is_some_and(|head| head.status.is_terminal());
        let ended = heads().filter(|head| head.status.is_terminal() && !was_ended(head));
        let told: BTreeSet<_> = effects.ended.iter().copied().collect();
        assert_eq!(told, ended.map(|head| head.id).collect(), "who ended");
        let can_run = |head: &Head| head.status == Status::Runnable && head.is_open();
        if heads().any(|head| can_run(head) && !before(head).is_some_and(can_run)) {
            assert!(effects.queues.contains("default"), "a row became runnable: {effects:?}");
        }
        for head in heads() {
            let armed = head.wake_at.filter(|at| before(head).is_none_or(|head| head.wake_at != Some(*at)));
            if let Some(at) = armed {
                assert!(effects.wake_at.is_some_and(|told| told <= at), "{} is armed: {effects:?}", head.id);
            }
            if head.cancel_requested && before(head).is_none_or(|head| !head.cancel_requested) {
                assert!(effects.cancel.contains(&head.id), "{} is to be cancelled: {effects:?}", head.id);
            }
        }
    }

    async fn compare(&mut self) {
        let instances = self.kit.list(Filter::default()).await;
        assert_eq!(instances.len(), self.model.rows.len(), "each instance is in the store and in the model");
        for instance in instances {
            let row = &self.model.rows[&instance.id];
            assert_eq!(stored(&instance), decided(row), "instance {}", instance.id);
            let compared = self.compared.entry(instance.id).or_default();
            if *compared == row.history.len() {
                continue;
            }
            let history = self.kit.history(instance.id).await;
            let history: Vec<(EventKind, Option<Value>)> = history
                .into_iter()
                .map(|event| (event.kind, event.data.map(|data| data.decode("data").expect("JSON"))))
                .collect();
            assert_eq!(history, row.history, "the history of {}", instance.id);
            *compared = history.len();
            assert_eq!(self.inbox(instance.id).await, row.inbox, "the inbox of {}", instance.id);
        }
    }
}

/// Why it woke, when it wakes, for which names, whose it is, and when it ended.
type Waits = (Option<Wake>, Option<Timestamp>, Vec<String>, Option<WorkerId>, Option<Timestamp>);

/// What is compared of an instance.
#[derive(Debug, PartialEq)]
struct Seen {
    place: (Status, u32, String, Json, Option<Json>, Option<String>),
    counts: (u64, u32, u32, Option<u32>, u32),
    waits: Waits,
    brakes: (bool, bool, bool, Option<String>, Option<InstanceId>),
    parent: Option<(InstanceId, u32)>,
}

/// As the store has it.
fn stored(instance: &Instance) -> Seen {
    let i = instance.clone();
    let place = (i.status, i.version, i.step, i.state, i.output, i.last_error);
    let counts = (i.seq, i.attempt, i.inbox, i.barrier, i.round);
    let waits = (i.wake, i.wake_at, i.awaits, i.worker, i.ended_at);
    let brakes = (i.paused, i.lane_blocked, i.cancel_requested, i.cancel_reason, i.cancelled_with);
    Seen { place, counts, waits, brakes, parent: i.parent.zip(i.parent_round) }
}

/// As the rules have it.
fn decided(row: &model::Row) -> Seen {
    let h = row.head.clone();
    let place = (h.status, h.version, h.step, row.state.clone(), row.output.clone(), h.last_error);
    let counts = (h.seq, h.attempt, h.inbox, h.barrier, h.round);
    let waits = (h.wake, h.wake_at, h.awaits, h.worker, h.ended_at);
    let brakes = (h.paused, h.blocked, h.cancel_requested, h.cancel_reason, h.cancelled_with);
    Seen { place, counts, waits, brakes, parent: h.parent }
}
