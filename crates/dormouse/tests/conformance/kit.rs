//! What the tests share: a fresh store, verbs in one line, and machines driven by a closure.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dormouse::store::sqlite::SqliteStore;
use dormouse::store::{
    Bounds, Change, Claim, Claimed, Commit, Delivery, Events, Filter, Namespaces, NewWorker, Receipt,
    ServerStore, Stats, Store, Turns,
};
use dormouse::{
    At, Client, Clock, Context, Delivered, DynMachine, Engine, EngineBuilder, Event, EventKind, Fault,
    InboxMax, Inserted, Instance, InstanceId, Json, NewInstance, NewSignal, Running, SignalId, Status,
    StepError, Target, Transition, VirtualClock, WorkerId,
};
use tempfile::TempDir;

/// How long anything that must happen may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// A fresh store of some kind, and its time.
pub struct Kit {
    pub store: Arc<dyn Store>,
    clock: VirtualClock,
    dir: Option<TempDir>,
    #[cfg(feature = "postgres")]
    database: Option<crate::postgres::Database>,
}

impl Kit {
    pub async fn sqlite_file() -> Self {
        let dir = TempDir::new().expect("a directory for the test");
        let clock = clock();
        let store = SqliteStore::open_with_clock(dir.path().join("test.db"), Arc::new(clock.clone())).await;
        Self::of(Arc::new(store.expect("a new database opens")), clock, Some(dir))
    }

    pub fn sqlite_memory() -> Self {
        let clock = clock();
        let store = SqliteStore::in_memory(Arc::new(clock.clone())).expect("a new database opens");
        Self::of(Arc::new(store), clock, None)
    }

    /// A database of its own, whose time stands still until the test moves it.
    #[cfg(feature = "postgres")]
    pub async fn postgres() -> Self {
        use dormouse::store::postgres::PostgresStore;
        let clock = clock();
        let database = crate::postgres::Database::new(clock.now()).await;
        let store = PostgresStore::connect(&database.store_url()).await.expect("a migrated database opens");
        let store = crate::faulty::Faulty::on(Arc::new(store)).sleep_by(clock.clone());
        Self { database: Some(database), ..Self::of(Arc::new(store), clock, None) }
    }

    /// Makes the database itself refuse every row that would stand at a step. Where it is in memory, nobody else can
    /// reach it, so the store is wrapped, and refuses in its place.
    pub async fn refuse_rows_at(&mut self, step: &'static str) {
        #[cfg(feature = "postgres")]
        if let Some(database) = &self.database {
            return database.refuse_rows_at(step).await;
        }
        let Some(dir) = &self.dir else {
            let refuses = move |batch: &[Commit]| {
                let bad = batch.iter().any(|commit| commit.transition.at().is_some_and(|at| at.step == step));
                bad.then(|| dormouse::Error::Storage("this row cannot be stored".into()))
            };
            self.store = Arc::new(crate::faulty::Faulty::on(self.store.clone()).refuse_commit(refuses));
            return;
        };
        let conn = rusqlite::Connection::open(dir.path().join("test.db")).expect("it opens");
        let trigger = format!(
            "create trigger refuses before update on instances when new.step = '{step}'
            begin select raise(abort, 'this row cannot be stored'); end"
        );
        conn.execute_batch(&trigger).expect("a trigger");
    }

    fn of(store: Arc<dyn Store>, clock: VirtualClock, dir: Option<TempDir>) -> Self {
        Self {
            store,
            clock,
            dir,
            #[cfg(feature = "postgres")]
            database: None,
        }
    }

    pub fn client(&self) -> Client {
        Client::on(self.store.clone())
    }

    /// An engine whose lease never runs out by moving time.
    pub fn engine(&self) -> EngineBuilder {
        Engine::on(self.store.clone()).lease(Duration::from_secs(u32::MAX.into()))
    }

    /// Starts an engine that runs one scripted machine, called `m`.
    pub async fn run<F>(&self, step: F) -> Engine
    where
        F: Fn(&At, &Context) -> Result<Transition, Fault> + Send + Sync + 'static,
    {
        self.engine().dyn_machine(Script::named("m", step)).start().await.expect("the engine starts")
    }

    /// The store's time.
    pub fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// The clock that says it.
    pub fn clock(&self) -> VirtualClock {
        self.clock.clone()
    }

    /// Moves the store's time on.
    pub fn advance(&self, duration: Duration) {
        self.set_time(self.clock.now() + duration);
    }

    /// Moves the store's time back.
    pub fn turn_back(&self, duration: Duration) {
        self.set_time(self.clock.now() - duration);
    }

    fn set_time(&self, now: jiff::Timestamp) {
        #[cfg(feature = "postgres")]
        if let Some(database) = &self.database {
            database.set_time(now);
        }
        self.clock.set(now);
    }

    // The store's verbs, in one line each.

    pub async fn worker(&self, name: &str) -> WorkerId {
        self.worker_with_lease(name, Duration::from_secs(u32::MAX.into())).await
    }

    pub async fn worker_with_lease(&self, name: &str, lease: Duration) -> WorkerId {
        let worker = NewWorker { lease, ..self.new_worker(name) };
        self.store.register(worker).await.expect("a worker registers")
    }

    /// One that runs `m` and declares nothing.
    pub fn new_worker(&self, name: &str) -> NewWorker {
        NewWorker {
            name: name.to_owned(),
            process: dormouse::Process::current(),
            namespaces: Namespaces::All,
            lease: Duration::from_secs(u32::MAX.into()),
            queues: vec!["default".to_owned()],
            machines: vec![("m".to_owned(), 1)],
            transports: vec![],
            declares: vec![],
        }
    }

    pub async fn insert(&self, new: NewInstance) -> InstanceId {
        match self.insert_many(vec![new]).await.pop() {
            Some(Inserted::New(id)) => id,
            other => panic!("expected a new instance, got {other:?}"),
        }
    }

    pub async fn insert_many(&self, new: Vec<NewInstance>) -> Vec<Inserted> {
        self.store.insert(new).await.expect("an insert").value
    }

    pub async fn claim(&self, worker: WorkerId, rows_max: usize) -> Vec<Claimed> {
        self.claim_from(worker, "default", &[("m", 1)], rows_max).await
    }

    pub async fn claim_from(
        &self,
        worker: WorkerId,
        queue: &str,
        machines: &[(&str, u32)],
        rows_max: usize,
    ) -> Vec<Claimed> {
        let machines = machines.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect();
        let (queue, after) = (queue.to_owned(), Turns::default());
        self.take(Claim {
            worker,
            queue,
            namespaces: Namespaces::All,
            machines,
            after,
            later_than: None,
            places: usize::MAX,
            rows_max,
        })
        .await
    }

    pub async fn take(&self, claim: Claim) -> Vec<Claimed> {
        let mut claimed = self.store.claim(claim).await.expect("a claim").value;
        for row in claimed.iter_mut().filter(|row| row.is_apart) {
            let reading = self.store.reading(row.id, usize::MAX).await.expect("what a step is handed");
            (row.inbox, row.children) = (reading.inbox, reading.children);
        }
        claimed
    }

    pub async fn claim_one(&self, worker: WorkerId) -> Claimed {
        let mut claimed = self.claim(worker, 1).await;
        claimed.pop().expect("a runnable row")
    }

    pub async fn commit(&self, worker: WorkerId, commit: Commit) -> Receipt {
        self.commit_many(worker, vec![commit]).await.pop().expect("a receipt")
    }

    pub async fn commit_many(&self, worker: WorkerId, commits: Vec<Commit>) -> Vec<Receipt> {
        self.store.commit(worker, commits.into()).await.expect("a commit").value
    }

    pub async fn deliver(&self, id: InstanceId, signal: NewSignal) -> Delivered {
        let delivery = Delivery {
            namespace: "default".to_owned(),
            target: Target::Id(id),
            signal,
            inbox_max: InboxMax::default(),
            kept_max: dormouse::KeptMax::default(),
        };
        self.store.deliver(vec![delivery]).await.expect("a delivery").value.pop().expect("an answer")
    }

    pub async fn due(&self) -> usize {
        self.store.due(1000).await.expect("a sweep").value.woken
    }

    pub async fn reap(&self) -> usize {
        self.store.reap(1000, u32::MAX).await.expect("a sweep").value
    }

    // Looking.

    /// An instance of whatever namespace: the newest that is no newer than itself.
    pub async fn get(&self, id: InstanceId) -> Instance {
        let filter = Filter { after: Some(InstanceId(id.0 + 1)), limit: 1, ..Filter::default() };
        let found = self.store.list(filter).await.expect("a read").instances.pop();
        found.filter(|instance| instance.id == id).expect("the instance is there")
    }

    pub async fn status(&self, id: InstanceId) -> Status {
        self.get(id).await.status
    }

    pub async fn history(&self, id: InstanceId) -> Vec<Event> {
        self.store.history(id, Events::After(0), Bounds::rows(10_000)).await.expect("a read").items
    }

    /// The kinds of an instance's events, in order; checks that their numbers have no gap.
    pub async fn story(&self, id: InstanceId) -> Vec<EventKind> {
        let history = self.history(id).await;
        for (index, event) in history.iter().enumerate() {
            assert_eq!(event.seq, index as u64 + 1, "the history of {id} has a gap: {history:?}");
        }
        assert_eq!(self.get(id).await.seq, history.len() as u64, "every transition is an event");
        history.into_iter().map(|event| event.kind).collect()
    }

    pub async fn list(&self, filter: Filter) -> Vec<Instance> {
        self.store.list(Filter { limit: 10_000, ..filter }).await.expect("a read").instances
    }

    pub async fn stats(&self) -> Stats {
        self.store.stats(None).await.expect("a read")
    }

    /// The kept counts are those of a count by hand.
    pub async fn check_counts(&self, what: &str) {
        let mut by_hand = BTreeMap::<_, u64>::new();
        for row in self.list(Filter::default()).await {
            let place = (row.namespace, row.machine, row.version, row.step, row.status);
            *by_hand.entry(place).or_default() += 1;
        }
        let kept = self.stats().await.instances.into_iter().map(|row| {
            let place = (row.namespace, row.machine, row.version, row.step, row.status);
            (place, row.count)
        });
        let mut kept: Vec<_> = kept.collect();
        kept.sort_unstable();
        assert_eq!(by_hand.into_iter().collect::<Vec<_>>(), kept, "after {what}");
    }

    /// The store with what a server needs beside.
    pub fn server(&self) -> Arc<dyn ServerStore> {
        self.store.clone().server().expect("every store here can be served")
    }

    /// Where the feed of changes ends.
    pub async fn feed_end(&self) -> i64 {
        self.server().changes(None, None, 0).await.expect("a read").next
    }

    /// What the feed tells after a position, once that is this much: where many write, nothing is told that a
    /// transaction under way, of whatever database of the server, could still come before.
    pub async fn feed(&self, after: i64, changes: usize) -> Vec<Change> {
        let deadline = tokio::time::Instant::now() + SOON;
        let (mut told, mut position) = (Vec::new(), after);
        loop {
            let read = self.server().changes(None, Some(position), 7).await.expect("a read");
            told.extend(read.changes);
            position = read.next;
            if !read.more {
                if told.len() >= changes || tokio::time::Instant::now() > deadline {
                    return told;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Waits until an instance of a running engine is in a status.
    pub async fn until(&self, id: InstanceId, status: Status) -> Instance {
        let deadline = tokio::time::Instant::now() + SOON;
        let mut changes = self.store.hub().changes();
        loop {
            changes.borrow_and_update();
            let instance = self.get(id).await;
            if instance.status == status {
                return instance;
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                let why = self.client().explain(id).await.expect("a read");
                panic!("expected {status}, but {why}: {:?}", self.history(id).await);
            }
        }
    }
}

fn clock() -> VirtualClock {
    VirtualClock::new("2030-01-01T00:00:00Z".parse().expect("a moment"))
}

/// An instance of `m` at step `start`.
pub fn m() -> NewInstance {
    m_at(at("start"))
}

/// An instance of `m` at a place, whether or not a worker has declared `m`.
pub fn m_at(at: At) -> NewInstance {
    NewInstance::named("m", 1, at).even_if_unknown()
}

/// A place with no state.
pub fn at(step: &'static str) -> At {
    At { step: step.into(), state: Json::null() }
}

/// A place with a state.
pub fn at_with(step: &'static str, state: serde_json::Value) -> At {
    At { step: step.into(), state: Json::from(state) }
}

pub fn signal(name: &str) -> NewSignal {
    NewSignal::new(name, Json::null())
}

// Outcomes, in one line each.

pub fn next(step: &'static str) -> Transition {
    Transition::Next { at: at(step), ahead: true }
}

pub fn done() -> Transition {
    Transition::Done { output: Json::null() }
}

pub fn fail(error: &str) -> Transition {
    Transition::Fail { error: error.to_owned() }
}

pub fn replay(step: &'static str, delay: Duration) -> Transition {
    Transition::Replay { at: at(step), delay, error: None }
}

pub fn sleep(step: &'static str, duration: Duration) -> Transition {
    Transition::Sleep { at: at(step), until: duration.into() }
}

pub fn wait_for(names: &[&str], step: &'static str) -> Transition {
    let names = names.iter().map(ToString::to_string).collect();
    Transition::Await { at: at(step), names, timeout: None }
}

pub fn wait_until(names: &[&str], step: &'static str, timeout: Duration) -> Transition {
    let names = names.iter().map(ToString::to_string).collect();
    Transition::Await { at: at(step), names, timeout: Some(timeout.into()) }
}

pub fn spawn(children: Vec<NewInstance>, step: &'static str) -> dormouse::Spawn {
    dormouse::Spawn {
        at: at(step),
        children,
        timeout: None,
        quorum: None,
        fail_fast: false,
        on_release: dormouse::Children::Keep,
        on_cancel: dormouse::Children::Cancel,
    }
}

/// The commit of a claimed row that was handed the signals it awaited.
pub fn commit(claimed: &Claimed, transition: Transition) -> Commit {
    Commit::new(claimed, received(claimed), transition)
}

/// The ids of the signals that a step sees as received.
pub fn received(claimed: &Claimed) -> Vec<SignalId> {
    claimed
        .inbox
        .iter()
        .filter(|signal| claimed.awaits.contains(&signal.name))
        .map(|signal| signal.id)
        .collect()
}

type StepFn = Box<dyn Fn(&At, &Context) -> Result<Transition, Fault> + Send + Sync>;

/// A machine over step names whose steps are a closure.
pub struct Script {
    name: &'static str,
    version: u32,
    step: StepFn,
}

impl Script {
    pub fn named<F>(name: &'static str, step: F) -> Arc<dyn DynMachine>
    where
        F: Fn(&At, &Context) -> Result<Transition, Fault> + Send + Sync + 'static,
    {
        Self::version(name, 1, step)
    }

    pub fn version<F>(name: &'static str, version: u32, step: F) -> Arc<dyn DynMachine>
    where
        F: Fn(&At, &Context) -> Result<Transition, Fault> + Send + Sync + 'static,
    {
        Arc::new(Self { name, version, step: Box::new(step) })
    }
}

impl DynMachine for Script {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn steps(&self) -> Vec<String> {
        Vec::new()
    }

    fn migrate(&self, _from_version: u32, at: At) -> Result<At, dormouse::BoxError> {
        Ok(at)
    }

    fn check(&self, _at: &At) -> Result<(), String> {
        Ok(())
    }

    fn step<'a>(&'a self, at: &'a At, cx: &'a Context) -> Running<'a> {
        Box::pin(async move { (self.step)(at, cx) })
    }

    fn handle<'a>(&'a self, error: StepError, _at: &'a At, _cx: &'a Context) -> Running<'a> {
        Box::pin(async move { Ok(Transition::Fail { error: error.to_string() }) })
    }
}
