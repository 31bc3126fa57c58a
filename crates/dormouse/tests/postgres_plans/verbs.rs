//! The store's verbs, in one line each.

#![allow(unreachable_pub, dead_code, reason = "two test targets use it, each what it needs")]

use std::time::Duration;

use dormouse::rules::{Handed, Head};
use dormouse::store::postgres::PostgresStore;
use dormouse::store::{Claim, Claimed, Commit, Delivery, Hold, Namespaces, NewWorker, Receipt, Store, Turns};
use dormouse::{
    Ask, At, Delivered, Dispatch, Inserted, InstanceId, Json, NewInstance, NewSignal, OnFailure, Process,
    Shape, Status, Target, Transition, WorkerId,
};

/// Longer than any test.
pub const LONG: Duration = Duration::from_secs(3_600);

pub struct Verbs {
    pub store: PostgresStore,
}

impl Verbs {
    pub async fn on(url: &str) -> Self {
        Self { store: PostgresStore::connect(url).await.expect("a migrated database opens") }
    }

    pub async fn worker(&self, name: &str) -> WorkerId {
        let worker = NewWorker {
            name: name.to_owned(),
            process: Process::current(),
            lease: LONG,
            namespaces: Namespaces::All,
            queues: vec!["default".to_owned()],
            machines: vec![("m".to_owned(), 1)],
            transports: Vec::new(),
            declares: Vec::new(),
        };
        self.store.register(worker).await.expect("a worker registers")
    }

    pub async fn insert(&self, new: Vec<NewInstance>) -> Vec<Inserted> {
        self.store.insert(new).await.expect("an insert").value
    }

    pub async fn claim(&self, worker: WorkerId, rows_max: usize) -> Vec<Claimed> {
        let claim = Claim {
            worker,
            queue: "default".to_owned(),
            namespaces: Namespaces::All,
            machines: [("m".to_owned(), 1)].into(),
            after: Turns::default(),
            later_than: None,
            places: usize::MAX,
            rows_max,
        };
        let mut claimed = self.store.claim(claim).await.expect("a claim").value;
        for row in claimed.iter_mut().filter(|row| row.is_apart) {
            let reading = self.store.reading(row.id, usize::MAX).await.expect("what a step is handed");
            (row.inbox, row.children) = (reading.inbox, reading.children);
        }
        claimed
    }

    pub async fn commit(&self, worker: WorkerId, commits: Vec<Commit>) -> Vec<Receipt> {
        self.store.commit(worker, commits.into()).await.expect("a commit").value
    }

    /// Commits one outcome for each of these rows.
    pub async fn commit_all(&self, worker: WorkerId, rows: &[Claimed], outcome: &Transition) {
        let commits = rows.iter().map(|row| commit(row, outcome.clone())).collect();
        let receipts = self.commit(worker, commits).await;
        let all_went = receipts.iter().all(|receipt| matches!(receipt, Receipt::Released));
        assert!(all_went, "{outcome:?}: {receipts:?}");
    }

    pub async fn deliver(&self, targets: Vec<Target>, name: &str) -> Vec<Delivered> {
        let delivery = |target| Delivery {
            namespace: "default".to_owned(),
            target,
            signal: NewSignal::new(name, Json::null()),
            inbox_max: dormouse::InboxMax::default(),
            kept_max: dormouse::KeptMax::default(),
        };
        self.store.deliver(targets.into_iter().map(delivery).collect()).await.expect("a delivery").value
    }
}

/// An instance of `m`.
pub fn m() -> NewInstance {
    NewInstance::named("m", 1, at("start")).even_if_unknown()
}

pub fn at(step: &'static str) -> At {
    At { step: step.into(), state: Json::null() }
}

pub fn done() -> Transition {
    Transition::Done { output: Json::null() }
}

pub fn next() -> Transition {
    Transition::Next { at: at("next"), ahead: true }
}

pub fn wait_for(name: &str) -> Transition {
    Transition::Await { at: at("woken"), names: vec![name.to_owned()], timeout: None }
}

pub fn sleep(duration: Duration) -> Transition {
    Transition::Sleep { at: at("rested"), until: duration.into() }
}

pub fn spawn(children: Vec<NewInstance>) -> Transition {
    let on_cancel = dormouse::Children::Cancel;
    let spawn = dormouse::Spawn {
        at: at("joined"),
        children,
        timeout: None,
        quorum: None,
        fail_fast: false,
        on_release: dormouse::Children::Keep,
        on_cancel,
    };
    Transition::Spawn(spawn)
}

/// A request of one.
pub fn dispatch(transport: &str, timeout: Option<Duration>) -> Transition {
    let ask = Ask {
        request: Json::null(),
        idempotency_key: "k".to_owned(),
        correlation_id: None,
        for_assignee: None,
        for_group: None,
    };
    Transition::Dispatch(Dispatch {
        at: at("answered"),
        shape: Shape::One,
        asks: vec![ask],
        items: 1,
        transport: transport.to_owned(),
        timeout: timeout.map(Into::into),
        item_timeout: None,
        in_flight: None,
        on_failure: OnFailure::Fail,
        quorum: None,
        outputs_max: 10_000,
    })
}

/// A commit that lets go of the row, and consumes all that it was handed.
pub fn commit(row: &Claimed, transition: Transition) -> Commit {
    let received = row.inbox.iter().map(|signal| signal.id).collect();
    Commit::new(row, received, transition)
}

/// A commit of a row that runs on.
pub fn ahead(id: InstanceId, seq: u64) -> Commit {
    let mut head = Head::new(id, "", 1, "");
    (head.status, head.seq) = (Status::Executing, seq);
    let (received, transition, handed) = (Vec::new(), next(), Handed::default());
    let (lane, mail) = (None, Vec::new());
    Commit { head, version: 1, received, transition, hold: Hold::Keep, run: None, handed, lane, mail }
}
