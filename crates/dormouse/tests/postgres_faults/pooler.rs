//! Faults of the server behind PgBouncer, which answers in its place when it is gone.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::Filter;
use dormouse::{Client, Engine, Error, NewSignal, Status};
use private_postgres::Pooler;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::database::Database;
use super::{Rig, SOON};

/// Calls at a time: more than one, so that they share statements.
const CALLS: u64 = 24;

fn pooler(database: &Database, test: &str) -> Pooler {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pooler-{test}-{}", std::process::id()));
    Pooler::start(&database.server, &dir, &[("default_pool_size", "40")]).unwrap_or_else(|e| panic!("{e}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_crashes_behind_a_pooler_lose_double_and_stick_nothing() {
    let database = Database::start("pooled-crash").await;
    let pooler = pooler(&database, "crash");
    let mut rig = Rig::start(database, &pooler.url("postgres")).await;
    for _ in 0..10 {
        rig.load.moved(fastrand::usize(1..60)).await;
        rig.database.crash();
    }
    rig.settle().await;
}

/// Commits wait for a standby that never comes: they are on disk, and unanswered.
async fn stall_commits(database: &Database) {
    database.set("synchronous_standby_names", Some("nobody")).await;
}

/// Waits until so many commits are stalled, and lets the server crash. Afterwards it waits for no standby.
async fn crash_in_commit(database: &mut Database, commits: i64) {
    let mut admin = database.admin().await;
    let stalled = async {
        loop {
            let sql = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
            let count: i64 = sqlx::query_scalar(sql).fetch_one(&mut admin).await.expect("a read");
            if count >= commits {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, stalled).await.expect("commits wait for the standby");
    // Takes effect with the next start: those that wait go on waiting.
    super::database::execute(&mut admin, "alter system reset synchronous_standby_names").await;
    drop(admin);
    database.crash();
}

/// Waits for a signal; its state tells it from every other.
struct Ticket;

#[derive(Serialize, Deserialize)]
enum Ticketing {
    Start { number: u64 },
}

impl Machine for Ticket {
    const NAME: &'static str = "ticket";
    type State = Ticketing;
    type Output = ();

    async fn step(&self, Ticketing::Start { number }: Ticketing, _: &Context) -> StepResult<Self> {
        Ok(Outcome::await_signal(Signal::<u64>::named("never"), Ticketing::Start { number }))
    }
}

/// Neither a key nor a dedup key makes a second one harmless, so the library must not make it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_answer_the_pooler_lost_is_not_made_twice() {
    let mut database = Database::start("pooled-lost").await;
    let pooler = pooler(&database, "lost");
    let client = Client::open(&format!("{}?connections=8", pooler.url("postgres"))).await.expect("it opens");
    let there = (0..CALLS).map(|_| NewInstance::of::<Ticket>(Ticketing::Start { number: 0 }));
    let there: Vec<_> =
        client.start_many(there).await.expect("starts").iter().map(dormouse::Inserted::id).collect();
    stall_commits(&database).await;
    let mut calls = JoinSet::new();
    let signaller = client.clone();
    for number in 1..=CALLS {
        let client = client.clone();
        calls.spawn(async move {
            let new = NewInstance::of::<Ticket>(Ticketing::Start { number });
            client.start_many([new]).await.map(drop)
        });
        let (client, to) = (signaller.clone(), there[number as usize - 1]);
        calls.spawn(async move {
            let payload = dormouse::Json::encode("payload", &number).expect("a number");
            client.signal_raw(to, NewSignal::new("n", payload)).await.map(drop)
        });
    }
    // The first of each goes alone; the others have gathered meanwhile, and share a statement.
    crash_in_commit(&mut database, 4).await;
    while let Some(told) = calls.join_next().await {
        match told.expect("no call panics") {
            Ok(()) | Err(Error::Busy(_)) => {}
            Err(error) => panic!("it may have happened, and this says that it did not: {error:?}"),
        }
    }
    let client = database.client().await;
    let rows = client.list(Filter { limit: 1_000, ..Filter::default() }).await.expect("a read").instances;
    let (targets, started): (Vec<_>, Vec<_>) = rows.iter().partition(|row| there.contains(&row.id));
    let numbers: BTreeSet<_> = started.iter().map(|row| row.state.as_str()).collect();
    assert!(numbers.len() > 1, "some had happened: {numbers:?}");
    assert_eq!(numbers.len(), started.len(), "an instance was started twice");
    let inboxes: Vec<_> = targets.iter().map(|row| row.inbox).collect();
    assert!(inboxes.iter().sum::<u32>() > 1, "some had happened: {inboxes:?}");
    assert!(inboxes.iter().all(|inbox| *inbox <= 1), "a signal was delivered twice: {inboxes:?}");
}

/// Writes the ledger with its commit, when it may; and fails for good if anything does.
struct Booking {
    gate: Arc<Semaphore>,
    begun: Arc<Semaphore>,
}

impl Machine for Booking {
    const NAME: &'static str = "booking";
    type State = Ticketing;
    type Output = ();

    async fn step(&self, Ticketing::Start { number }: Ticketing, cx: &Context) -> StepResult<Self> {
        let mut own = cx.transaction().await?;
        let sold = sqlx::query("insert into ledger (sale, run) values ($1, 0)").bind(number as i64);
        sold.execute(&mut *own).await?;
        self.begun.add_permits(1);
        self.gate.acquire().await?.forget();
        Ok(Outcome::done(()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_whose_commit_the_pooler_lost_is_no_failure_and_its_writes_are_there_once() {
    let mut database = Database::start("pooled-own").await;
    let pooler = pooler(&database, "own");
    let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let booking = Booking { gate: gate.clone(), begun: begun.clone() };
    let engine = Engine::open(&pooler.url("postgres")).await.expect("it opens");
    let engine = engine.machine(booking).poll(Duration::from_millis(100)).start().await.expect("it starts");
    let id = engine.client().start::<Booking>(Ticketing::Start { number: 7 }).await.expect("a start");
    begun.acquire().await.expect("it is open").forget();
    stall_commits(&database).await;
    // If its outcome is asked for and turns out not to be there, it runs again.
    gate.add_permits(10);
    crash_in_commit(&mut database, 1).await;
    let ended = database.client().await.wait_end(id, SOON).await.expect("it ends");
    assert_eq!(ended.status, Status::Done, "{:?}", ended.last_error);
    let sql = "select count(*) from ledger where sale = 7";
    let booked: i64 = sqlx::query_scalar(sql).fetch_one(&mut database.admin().await).await.expect("a read");
    assert_eq!(booked, 1);
    engine.shutdown().await;
}
