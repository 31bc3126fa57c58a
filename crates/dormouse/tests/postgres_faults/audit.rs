//! The audit: lets everything end, and holds it against what was told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::jiff::Timestamp;
use dormouse::store::{Bounds, Events, Filter, InteractionFilter};
use dormouse::{
    Client, Delivered, Error, Event, EventKind, Instance, InstanceId, Interaction, InteractionId,
    InteractionStatus, Job, Machine, Status,
};

use super::SOON;
use super::database::Database;
use super::errands::{self, Errands, Place};
use super::shop::{Fact, ITEMS, Order, PAID, PAYMENTS, Picking, Receipt, Run, Tell};

/// Everything that was told.
#[derive(Default)]
pub struct Facts {
    pub inserted: BTreeMap<String, InstanceId>,
    signalled: BTreeMap<String, BTreeSet<String>>,
    runs: HashMap<InstanceId, Vec<Run>>,
    /// The idempotency keys that came with each request.
    asked: HashMap<InteractionId, BTreeSet<String>>,
    errands: Errands,
}

impl Facts {
    /// Facts, and who notes them.
    pub fn gather() -> (Arc<Mutex<Self>>, Tell) {
        let facts = Arc::new(Mutex::new(Self::default()));
        let noted = facts.clone();
        (facts, Arc::new(move |fact| noted.lock().expect("no panic").note(fact)))
    }

    /// Whether an instance had this run.
    pub fn ran(&self, id: InstanceId, number: u64) -> bool {
        self.runs.get(&id).is_some_and(|runs| runs.iter().any(|run| run.number == number))
    }

    /// The signals that were acknowledged; and the instances that were sent all they wait for.
    fn owed(&self) -> (BTreeMap<String, BTreeSet<String>>, Vec<InstanceId>) {
        let paid = self.signalled.iter().filter(|(_, dedups)| dedups.len() == PAYMENTS.len());
        let paid = paid.filter_map(|(key, _)| self.inserted.get(key).copied());
        (self.signalled.clone(), paid.chain(self.errands.complete()).collect())
    }

    pub fn note(&mut self, fact: Fact) {
        match fact {
            Fact::Inserted(key, id) => {
                let before = self.inserted.insert(key.clone(), id);
                assert!(before.is_none_or(|before| before == id), "{key} was inserted twice");
            }
            Fact::Signalled(key, dedup) => {
                self.signalled.entry(key).or_default().insert(dedup);
            }
            Fact::Ran(run) => self.runs.entry(run.id).or_default().push(run),
            Fact::Asked(id, key) => {
                self.asked.entry(id).or_default().insert(key);
            }
            Fact::Errand(told) => self.errands.note(told),
        }
    }
}

/// What the audit saw.
#[derive(Debug)]
pub struct Found {
    pub instances: usize,
    /// How often a claim was taken back, as it never is in a healthy system.
    pub reaped: usize,
    /// The first and the last event.
    pub times: (Timestamp, Timestamp),
}

/// Some engine must be running, which drains what is left.
pub async fn audit(database: &Database, facts: &Mutex<Facts>) -> Found {
    let client = &database.client().await;
    let (signalled, complete) = facts.lock().expect("no panic").owed();
    // Before anything is sent, which would also wake those whose wake-up was lost.
    ended_by_themselves(client, &complete).await;
    check_signals(client, &signalled).await;
    pay_all(client).await;
    errands::finish(client).await.expect("the store is healthy again");
    all_done(client).await;
    let rows = all(client).await;
    check_counts(client, &rows).await;
    let histories = histories(client, &rows).await;
    let ledger = ledger(database).await;
    let errands = booked_errands(database).await;
    let places = places(database).await;
    errands::nothing_is_left(client).await;
    let every = InteractionFilter { limit: 1_000_000, ..InteractionFilter::default() };
    let interactions = client.interactions(every).await.expect("a read").items;
    let facts = facts.lock().expect("no panic");
    check_interactions(&interactions, &facts.asked);
    facts.errands.check(&rows, &errands, &places);
    let ids: BTreeMap<InstanceId, &Instance> = rows.iter().map(|row| (row.id, row)).collect();
    for (key, id) in &facts.inserted {
        assert_eq!(ids.get(id).and_then(|row| row.key.as_ref()), Some(key), "{key} was acknowledged");
    }
    let keys: BTreeSet<_> = rows.iter().filter_map(|row| row.key.as_ref()).collect();
    assert_eq!(keys.len(), rows.iter().filter(|row| row.key.is_some()).count(), "one row for each key");
    let times = || histories.iter().flatten().map(|event| event.at);
    let times = (times().min().expect("there was load"), times().max().expect("there was load"));
    let mut found = Found { instances: rows.len(), reaped: 0, times };
    for (row, history) in rows.iter().zip(&histories) {
        check_history(row, history);
        found.reaped += history.iter().filter(|event| event.kind == EventKind::Reaped).count();
        if errands::is_one(row) {
            continue;
        }
        let none = Vec::new();
        check_runs(row, history, facts.runs.get(&row.id).unwrap_or(&none));
        if row.machine == <Order as Machine>::NAME {
            check_order(row, history, &rows, &ledger);
        } else {
            assert_eq!(row.machine, <Picking as Job>::NAME);
        }
    }
    found
}

/// Every acknowledged signal is still known: sent again, it is a duplicate, unless its order has ended, which it
/// does with all its payments alone. Asked before the audit sends any itself, which would hide a loss.
async fn check_signals(client: &Client, signalled: &BTreeMap<String, BTreeSet<String>>) {
    for (key, dedups) in signalled {
        for dedup in dedups {
            let again = client.signal(key.as_str(), PAID, dedup.clone()).dedup(dedup).await;
            let known = matches!(again, Ok(Delivered::Duplicate) | Err(Error::NoTarget(_)));
            assert!(known, "the payment {dedup} of {key} was acknowledged and is lost: {again:?}");
        }
    }
}

/// Counts that are kept are those of a count by hand, whatever was lost on the way.
async fn check_counts(client: &Client, rows: &[Instance]) {
    let mut by_hand: BTreeMap<_, u64> = BTreeMap::new();
    for row in rows {
        let place = (row.machine.clone(), row.version, row.step.clone(), row.status.as_str());
        *by_hand.entry(place).or_default() += 1;
    }
    let kept = client.stats().await.expect("the store is healthy again").instances.into_iter();
    let kept =
        kept.map(|row| ((row.machine, row.version, row.step, row.status.as_str()), row.count)).collect();
    assert_eq!(by_hand, kept);
}

/// Orders whose insert was durable but never acknowledged are owed nothing, but must end too.
async fn pay_all(client: &Client) {
    let orders = all(client).await.into_iter().filter(|row| row.machine == <Order as Machine>::NAME);
    for row in orders.filter(|row| !row.status.is_terminal()) {
        for dedup in PAYMENTS {
            match client.signal(row.id, PAID, dedup.to_owned()).dedup(dedup).await {
                Ok(_) | Err(Error::NoTarget(_)) => {}
                Err(error) => panic!("the store is healthy again: {error}"),
            }
        }
    }
}

/// Nobody sends them anything more.
async fn ended_by_themselves(client: &Client, ids: &[InstanceId]) {
    let soon = tokio::time::Instant::now() + SOON;
    for id in ids {
        let left = soon.saturating_duration_since(tokio::time::Instant::now());
        let ended = client.wait_end(*id, left).await.expect("it has all it waits for");
        assert_eq!(ended.status, Status::Done, "{id} ended so: {:?}", ended.last_error);
    }
}

async fn all_done(client: &Client) {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let rows = all(client).await;
        if let Some(row) = rows.iter().find(|row| row.status.is_terminal() && row.status != Status::Done) {
            panic!("{} ended so: {:?}; {}", row.id, row.last_error, story(client, row.id).await);
        }
        let live: Vec<_> = rows.iter().filter(|row| !row.status.is_terminal()).collect();
        if live.is_empty() && errands::mail_arrived(&rows) {
            return;
        }
        if tokio::time::Instant::now() > deadline {
            let mut why = Vec::new();
            for row in live.iter().take(5) {
                why.push(client.explain(row.id).await.expect("a read"));
            }
            panic!("{} are stuck, or mail is; {why:#?}", live.len());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What happened to an instance, and when.
async fn story(client: &Client, id: InstanceId) -> String {
    let history =
        client.store().history(id, Events::After(0), Bounds::rows(10_000)).await.expect("a history").items;
    let told = history
        .iter()
        .map(|event| format!("{} {} {} {}", event.seq, event.at, event.kind.as_str(), event.step));
    told.collect::<Vec<_>>().join("\n")
}

/// Every sale that was booked, with the runs that booked it.
async fn ledger(database: &Database) -> HashMap<InstanceId, Vec<u64>> {
    let booked = sqlx::query_as("select sale, run from ledger").fetch_all(&mut database.admin().await).await;
    let booked: Vec<(i64, i64)> = booked.expect("a read");
    let mut ledger: HashMap<_, Vec<_>> = HashMap::new();
    for (sale, run) in booked {
        ledger.entry(InstanceId(sale)).or_default().push(run as u64);
    }
    ledger
}

/// How often each errand was booked.
async fn booked_errands(database: &Database) -> BTreeMap<u64, usize> {
    let booked =
        sqlx::query_scalar("select number from errands").fetch_all(&mut database.admin().await).await;
    let booked: Vec<i64> = booked.expect("a read");
    let mut counts = BTreeMap::new();
    for number in booked {
        *counts.entry(number as u64).or_default() += 1;
    }
    counts
}

/// The places in lanes that steps occupied, and from when to when, in microseconds.
async fn places(database: &Database) -> Vec<Place> {
    let us = "select lane, (extract(epoch from entered) * 1000000)::bigint, \
        (extract(epoch from left_at) * 1000000)::bigint from places";
    sqlx::query_as(us).fetch_all(&mut database.admin().await).await.expect("a read")
}

async fn histories(client: &Client, rows: &[Instance]) -> Vec<Vec<Event>> {
    let mut histories = Vec::with_capacity(rows.len());
    for row in rows {
        histories.push(
            client
                .store()
                .history(row.id, Events::After(0), Bounds::rows(10_000))
                .await
                .expect("a history")
                .items,
        );
    }
    histories
}

/// Whatever was asked was sent at least once, always with one idempotency key, which is no other's; and answered.
fn check_interactions(interactions: &[Interaction], asked: &HashMap<InteractionId, BTreeSet<String>>) {
    for interaction in interactions {
        assert_eq!(interaction.status, InteractionStatus::Completed, "{interaction:?}");
        let one_key = BTreeSet::from([interaction.idempotency_key.clone()]);
        assert_eq!(asked.get(&interaction.id), Some(&one_key), "{interaction:?}");
    }
    let keys: BTreeSet<_> = asked.values().flatten().collect();
    assert_eq!(keys.len(), asked.len(), "no two requests have one key");
}

/// One terminal event, the last one; numbers without a gap; nothing held any more.
pub fn check_history(row: &Instance, history: &[Event]) {
    let numbers: Vec<u64> = history.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=row.seq).collect::<Vec<_>>(), "the history of {} has a gap", row.id);
    let ends = history.iter().filter(|event| event.kind == EventKind::Done).count();
    assert_eq!(ends, 1, "instance {} ended {ends} times", row.id);
    assert_eq!(history.last().map(|event| event.kind), Some(EventKind::Done));
    assert_eq!((row.worker, row.inbox, row.wake_at, row.lane_blocked), (None, 0, None, false));
}

/// No step ran on an outcome that was not committed, and no outcome was committed that no step returned.
fn check_runs(row: &Instance, history: &[Event], runs: &[Run]) {
    for run in runs {
        let stood_on = history.get(run.seq as usize - 1).map(|event| event.step.as_str());
        assert_eq!(stood_on, Some(run.step.as_str()), "{run:?} was told of a commit that is not there");
    }
    let is_outcome = |event: &&Event| {
        use EventKind::{ChildrenSpawned, Done, SignalWaiting, StepCompleted, StepRetried, UnitOpened};
        [StepCompleted, StepRetried, SignalWaiting, ChildrenSpawned, UnitOpened, Done].contains(&event.kind)
    };
    for event in history.iter().filter(is_outcome) {
        let returned = runs.iter().any(|run| run.seq == event.seq - 1);
        assert!(returned, "no step of {} returned its outcome {}", row.id, event.seq);
    }
}

/// Every payment counted once, every item picked once, one barrier, and what is stored is what the last run made, in
/// the order's own table too.
fn check_order(row: &Instance, history: &[Event], rows: &[Instance], ledger: &HashMap<InstanceId, Vec<u64>>) {
    let receipt: Receipt = row.output.as_ref().expect("an output").decode("output").expect("a receipt");
    assert_eq!(
        ledger.get(&row.id),
        Some(&vec![receipt.run]),
        "{} is booked by the run that ended it",
        row.id
    );
    assert_eq!(receipt.payments, PAYMENTS, "the payments of {}", row.id);
    let children = rows.iter().filter(|child| child.parent == Some(row.id));
    let mut made: Vec<u64> = children
        .map(|child| child.output.as_ref().expect("an output").decode("output").expect("a number"))
        .collect();
    let mut picked = receipt.picked.clone();
    made.sort_unstable();
    picked.sort_unstable();
    assert_eq!((made.len(), &made), (ITEMS, &picked), "the items of {}", row.id);
    for kind in [EventKind::ChildrenSpawned, EventKind::ChildrenJoined] {
        let times = history.iter().filter(|event| event.kind == kind).count();
        assert_eq!(times, 1, "{kind:?} of {}", row.id);
    }
}

pub async fn all(client: &Client) -> Vec<Instance> {
    client.list(Filter { limit: 1_000_000, ..Filter::default() }).await.expect("a read").instances
}
