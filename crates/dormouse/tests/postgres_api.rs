//! What only PostgreSQL has: starting and signalling in a caller's own transaction, from SQL, and a step that writes
//! its own tables in the transaction that commits its outcome.

#[path = "conformance/postgres.rs"]
mod database;
#[path = "postgres_api/pokes.rs"]
mod pokes;
#[path = "postgres_api/sql.rs"]
mod sql;
#[path = "postgres_api/views.rs"]
mod views;

use std::sync::Arc;
use std::time::Duration;

use database::Database;
use dormouse::prelude::*;
use dormouse::store::postgres::PostgresStore;
use dormouse::store::{Queries, ServerStore, Store};
use dormouse::{Client, Engine, Error, Inserted, Json, NewSignal, Status};
use sqlx::{Connection, PgConnection, Row};
use tokio::sync::Semaphore;

const SOON: Duration = Duration::from_secs(30);
const PAID: Signal<u64> = Signal::named("paid");

/// Waits to be paid, then books it: in its own table, with its own commit.
struct Till;

#[derive(Serialize, Deserialize)]
enum Sale {
    Open { order: u64 },
    Book { order: u64 },
    Closed { order: u64 },
}

impl Machine for Till {
    const NAME: &'static str = "till";
    type State = Sale;
    type Output = u64;

    async fn step(&self, state: Sale, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Sale::Open { order } => Outcome::await_signal(PAID, Sale::Book { order }),
            Sale::Book { order } => {
                let amount = *cx.received(PAID)?.first().expect("it was paid");
                let mut tx = cx.transaction().await?;
                let insert = sqlx::query("insert into ledger (sale, amount) values ($1, $2)");
                insert.bind(order as i64).bind(amount as i64).execute(&mut *tx).await?;
                match amount {
                    // The booking is undone with the step.
                    13 => return Err("an unlucky number".into()),
                    // The step goes on after a statement that failed.
                    14 => {
                        let broken = sqlx::query("select 1 / 0").execute(&mut *tx).await;
                        assert!(broken.is_err());
                        Outcome::next(Sale::Closed { order })
                    }
                    // A second booking is taken back in the step itself.
                    15 => {
                        let mut within = tx.begin().await?;
                        let insert = sqlx::query("insert into ledger (sale, amount) values (0, 0)");
                        insert.execute(&mut *within).await?;
                        within.rollback().await?;
                        Outcome::next(Sale::Closed { order })
                    }
                    _ => Outcome::next(Sale::Closed { order }),
                }
            }
            Sale::Closed { order } => Outcome::done(order),
        })
    }
}

struct World {
    database: Database,
    store: Arc<PostgresStore>,
}

impl World {
    async fn new() -> Self {
        let database = Database::new("2030-01-01T00:00:00Z".parse().expect("a moment")).await;
        let store = Arc::new(PostgresStore::connect(&database.url).await.expect("it opens"));
        let world = Self { database, store };
        world.execute("create table ledger (sale bigint not null, amount bigint not null)").await;
        world
    }

    async fn engine(&self) -> Engine {
        Engine::on(self.store.clone()).machine(Till).start().await.expect("it starts")
    }

    fn client(&self) -> Client {
        Client::on(self.store.clone())
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.database.url).await.expect("it connects")
    }

    async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.connect().await).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    async fn one<T>(&self, sql: &'static str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let row = sqlx::raw_sql(sql).fetch_one(&mut self.connect().await).await;
        row.unwrap_or_else(|e| panic!("{sql}: {e}")).get(0)
    }

    async fn fails(&self, sql: &'static str) -> (String, String) {
        let failed = sqlx::raw_sql(sql).fetch_one(&mut self.connect().await).await;
        let error = failed.err().unwrap_or_else(|| panic!("{sql} should fail"));
        let error = error.as_database_error().expect("the database says no");
        (error.code().expect("a code").into_owned(), error.message().to_owned())
    }
}

fn sale(order: u64) -> NewInstance {
    NewInstance::of::<Till>(Sale::Open { order }).key(format!("order:{order}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_started_and_signalled_in_a_transaction_happens_if_it_commits() {
    let world = World::new().await;
    let engine = world.engine().await;
    let client = engine.client();
    let mut conn = world.connect().await;
    let mut tx = conn.begin().await.expect("a transaction");
    let id = client.start_in(&mut tx, sale(1)).await.expect("a start");
    let paid = NewSignal::of(PAID, &100).expect("a payload").dedup("evt-1");
    client
        .signal_in(&mut tx, "order:1", paid)
        .await
        .expect("a signal to what is only there in this transaction");
    assert_eq!(client.get(id).await.expect("a read"), None, "nobody sees it before");
    tx.commit().await.expect("it commits");
    assert_eq!(client.wait::<Till>(id, SOON).await.expect("it is done"), 1, "its worker was poked");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_started_and_signalled_in_a_transaction_does_not_happen_if_it_rolls_back() {
    let world = World::new().await;
    let client = world.client();
    let there = client.start_many([sale(1)]).await.expect("a start")[0].id();
    let mut conn = world.connect().await;
    let mut tx = conn.begin().await.expect("a transaction");
    let started = client.start_many_in(&mut tx, [sale(1), sale(2)]).await.expect("starts");
    assert!(matches!(started[0], Inserted::Taken { holder, .. } if holder == there));
    let Inserted::New(id) = started[1] else { panic!("a new one: {started:?}") };
    client.signal_in(&mut tx, there, NewSignal::of(PAID, &1).expect("a payload")).await.expect("a signal");
    tx.rollback().await.expect("it rolls back");
    assert_eq!(client.get(id).await.expect("a read"), None);
    assert!(client.inbox(there).await.expect("a read").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_leaves_the_callers_transaction_usable() {
    let world = World::new().await;
    let client = world.client();
    client.start_many([sale(1)]).await.expect("a start");
    let mut conn = world.connect().await;
    let mut tx = conn.begin().await.expect("a transaction");
    assert!(matches!(client.start_in(&mut tx, sale(1)).await, Err(Error::KeyTaken { .. })));
    let signal = NewSignal::new("paid", Json::null());
    assert!(matches!(client.signal_in(&mut tx, "nobody", signal).await, Err(Error::NoTarget(_))));
    client.start_in(&mut tx, sale(2)).await.expect("it goes on");
    tx.commit().await.expect("it commits");
    assert!(client.get("order:2").await.expect("a read").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_signals_and_stays_open_holds_up_nobody_else() {
    let world = World::new().await;
    let engine = world.engine().await;
    let client = engine.client();
    let mut held = Vec::new();
    // Its step runs, and cannot be committed while the signal is on its way.
    let mut conn = world.connect().await;
    let mut tx = conn.begin().await.expect("a transaction");
    let id = client.start_many([sale(0)]).await.expect("a start")[0].id();
    client.signal_in(&mut tx, id, NewSignal::new("other", Json::null())).await.expect("a signal");
    for order in 1..=20 {
        held.push(client.start_many([sale(order)]).await.expect("a start")[0].id());
        client.signal(held[order as usize - 1], PAID, 100).await.expect("a signal");
    }
    for id in held {
        client.wait::<Till>(id, SOON).await.expect("it is done");
    }
    tx.commit().await.expect("it commits");
    client.signal(id, PAID, 7).await.expect("a signal");
    client.wait::<Till>(id, SOON).await.expect("it is done, too");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ahead_step_or_an_end_that_cannot_be_committed_yet_holds_up_nobody_else() {
    let world = World::new().await;
    let (runs, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let walk = Walk { runs: runs.clone(), gate: gate.clone() };
    let engine = Engine::on(world.store.clone()).machine(walk).start().await.expect("it starts");
    let client = engine.client();
    // One is to go on in place, the other to end; both while a transaction that signals them stays open.
    let held = [Stride::Wait { then: 1 }, Stride::Wait { then: 0 }];
    let mut conn = world.connect().await;
    let mut tx = conn.begin().await.expect("a transaction");
    let mut ids = Vec::new();
    for stride in held {
        let id = client.start::<Walk>(stride).await.expect("a start");
        runs.acquire().await.expect("it is open").forget();
        client.signal_in(&mut tx, id, NewSignal::new("other", Json::null())).await.expect("a signal");
        ids.push(id);
    }
    gate.add_permits(2);
    for _ in 0..20 {
        let id = client.start::<Walk>(Stride::Go { steps: 5 }).await.expect("a start");
        client.wait::<Walk>(id, SOON).await.expect("it is done");
    }
    tx.commit().await.expect("it commits");
    for id in ids {
        client.wait::<Walk>(id, SOON).await.expect("it is done, too");
    }
    engine.shutdown().await;
}

/// Walks some steps in place; the first may wait for a gate.
struct Walk {
    runs: Arc<Semaphore>,
    gate: Arc<Semaphore>,
}

#[derive(Serialize, Deserialize)]
enum Stride {
    Wait { then: u32 },
    Go { steps: u32 },
}

impl Machine for Walk {
    const NAME: &'static str = "walk";
    type State = Stride;
    type Output = ();

    async fn step(&self, state: Stride, _: &Context) -> StepResult<Self> {
        let steps = match state {
            Stride::Wait { then } => {
                self.runs.add_permits(1);
                self.gate.acquire().await?.forget();
                then
            }
            Stride::Go { steps } => steps,
        };
        Ok(match steps {
            0 => Outcome::done(()),
            steps => Outcome::next(Stride::Go { steps: steps - 1 }),
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_alone_can_start_signal_and_cancel() {
    let world = World::new().await;
    let engine = world.engine().await;
    let client = engine.client();
    let id: i64 = world.one(r#"select dormouse.start('till', '{"order":42}', key => 'order:42')"#).await;
    let accepted: String =
        world.one("select dormouse.signal('order:42', 'paid', '100', dedup_key => 'evt-7')").await;
    assert_eq!(accepted, "accepted");
    assert_eq!(client.wait::<Till>(dormouse::InstanceId(id), SOON).await.expect("it is done"), 42);
    let id: i64 =
        world.one(r#"select dormouse.start('till', '{"order":43}', start_at => '2031-01-01')"#).await;
    let instance = client.get(dormouse::InstanceId(id)).await.expect("a read").expect("an instance");
    assert_eq!((instance.status, instance.step.as_str()), (Status::Scheduled, "Open"));
    world.one::<String>("select dormouse.cancel(2)").await;
    assert_eq!(client.get(instance.id).await.expect("a read").expect("it").status, Status::Cancelled);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sql_does_wrong_is_told_with_a_proper_sqlstate() {
    let world = World::new().await;
    let unknown = world.fails("select dormouse.start('till', '{}')").await;
    assert_eq!(unknown, ("42704".to_owned(), "no worker has registered a machine 'till'".to_owned()));
    let engine = world.engine().await;
    let world = &world;
    let code = |sql| async move { world.fails(sql).await.0 };
    world.execute(r#"select dormouse.start('till', '{"order":1}', key => 'k')"#).await;
    assert_eq!(code(r#"select dormouse.start('till', '{"order":1}', key => 'k')"#).await, "23505");
    assert_eq!(code("select dormouse.start('till', '{}', step => 'Nowhere')").await, "22023");
    assert_eq!(code("select dormouse.start('till', '{}', key => '')").await, "22023");
    assert_eq!(code(r#"select dormouse.start('till', '{"a":"\u0000"}')"#).await, "22P05");
    assert_eq!(code("select dormouse.start('till', 'no json')").await, "22P02");
    assert_eq!(code("select dormouse.start('till', to_json(repeat('x', 1100000)))").await, "54000");
    assert_eq!(code("select dormouse.signal('nobody', 'paid')").await, "P0002");
    assert_eq!(code("select dormouse.cancel('nobody')").await, "P0002");
    // A backslash before `u0000` makes it six characters and no character.
    world.execute(r#"select dormouse.start('till', '{"order":1,"a":"\\u0000"}')"#).await;
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_step_writes_is_committed_with_its_outcome() {
    let world = World::new().await;
    let engine = world.engine().await;
    let client = engine.client();
    let id = client.start::<Till>(Sale::Open { order: 5 }).await.expect("a start");
    client.signal(id, PAID, 100).await.expect("a signal");
    assert_eq!(client.wait::<Till>(id, SOON).await.expect("it is done"), 5);
    assert_eq!(world.one::<i64>("select count(*) from ledger where sale = 5 and amount = 100").await, 1);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_within_a_steps_own_is_a_savepoint() {
    let world = World::new().await;
    let engine = world.engine().await;
    let client = engine.client();
    // Again and again, on a connection that has been used.
    for order in 1..=3 {
        let id = client.start::<Till>(Sale::Open { order }).await.expect("a start");
        client.signal(id, PAID, 15).await.expect("a signal");
        assert_eq!(client.wait::<Till>(id, SOON).await.expect("it is done"), order);
    }
    assert_eq!(world.one::<i64>("select count(*) from ledger where sale = 0").await, 0);
    assert_eq!(world.one::<i64>("select count(*) from ledger where amount = 15").await, 3);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_step_that_fails_wrote_is_undone() {
    let world = World::new().await;
    let engine = world.engine().await;
    let client = engine.client();
    for (amount, why) in [(13, "an unlucky number"), (14, "an earlier statement of the step failed")] {
        let id = client.start::<Till>(Sale::Open { order: amount }).await.expect("a start");
        client.signal(id, PAID, amount).await.expect("a signal");
        let ended = client.wait_end(id, SOON).await.expect("it ends");
        assert_eq!(ended.status, Status::Failed);
        assert!(ended.last_error.as_deref().is_some_and(|error| error.contains(why)), "{ended:?}");
    }
    assert_eq!(world.one::<i64>("select count(*) from ledger").await, 0);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cancelled_step_wrote_is_undone() {
    let world = World::new().await;
    let engine = world.engine().await;
    let client = engine.client();
    let id = client.start::<Till>(Sale::Open { order: 9 }).await.expect("a start");
    // Holds the ledger, so that the step waits in the middle of its own writes.
    let mut conn = world.connect().await;
    let mut lock = conn.begin().await.expect("a transaction");
    sqlx::raw_sql("lock table ledger").execute(&mut *lock).await.expect("a lock");
    client.signal(id, PAID, 100).await.expect("a signal");
    let executing = async {
        while client.get(id).await.expect("a read").expect("it").status != Status::Executing {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, executing).await.expect("its step runs");
    client.cancel(id).await.expect("a live instance");
    lock.rollback().await.expect("the lock is let go");
    assert_eq!(client.wait_end(id, SOON).await.expect("it ends").status, Status::Cancelled);
    assert_eq!(world.one::<i64>("select count(*) from ledger").await, 0);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_for_the_commit_is_refused_with_what_to_do_instead() {
    #[derive(Serialize, Deserialize)]
    enum Only {
        Start,
    }
    struct Wrong;
    impl Machine for Wrong {
        const NAME: &'static str = "wrong";
        type State = Only;
        type Output = ();
        async fn step(&self, Only::Start: Only, cx: &Context) -> StepResult<Self> {
            cx.in_commit(|_| Ok(()))?;
            Ok(Outcome::done(()))
        }
    }
    let world = World::new().await;
    let engine = Engine::on(world.store.clone()).machine(Wrong).start().await.expect("it starts");
    let id = engine.client().start::<Wrong>(Only::Start).await.expect("a start");
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert!(ended.last_error.is_some_and(|error| error.contains("cx.transaction")));
    engine.shutdown().await;
}

/// What is under way when the feed is read has its place before what was written after it, and is not passed.
#[tokio::test(flavor = "multi_thread")]
async fn the_feed_waits_for_a_transaction_that_is_under_way() {
    let world = World::new().await;
    let client = world.client();
    let start = world.store.changes(None, None, 0).await.expect("a read").next;
    let mut conn = world.connect().await;
    let mut tx = conn.begin().await.expect("a transaction");
    let early = client.start_in(&mut tx, sale(1)).await.expect("a start");
    let between = world.store.changes(None, None, 0).await.expect("a read").next;
    let late = client.start_many([sale(2)]).await.expect("a start")[0].id();
    let told = world.store.changes(None, Some(start), 10).await.expect("a read");
    assert_eq!((told.changes.len(), told.next), (0, start), "{told:?}");
    tx.commit().await.expect("a commit");
    for position in [start, between] {
        let mut told = Vec::new();
        while told.len() < 2 {
            let read = world.store.changes(None, Some(position), 10).await.expect("a read");
            told = read.changes.into_iter().map(|change| change.instance).collect();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(told, [early, late]);
    }
}

/// What was moved is added up now and then, and the sums stay as they are.
#[tokio::test(flavor = "multi_thread")]
async fn counts_are_folded_when_they_take_room() {
    let world = World::new().await;
    world.client().start_many([sale(1), sale(2)]).await.expect("a start");
    world
        .execute(
            "insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
            select 'default', 'default', 'till', version, step, 'runnable', by
            from generate_series(1, 10000) n,
                (values (1, 'Open', 1), (1, 'Open', -1), (2, 'Open', 1), (1, 'Book', 1)) moved (version, step, by)",
        )
        .await;
    let counts = async || {
        let stats = world.store.stats(None).await.expect("a read").instances;
        let mut counts: Vec<_> =
            stats.into_iter().map(|count| (count.version, count.step, count.count)).collect();
        counts.sort_unstable();
        counts
    };
    let expected =
        [(1, "Book".to_owned(), 10_000), (1, "Open".to_owned(), 2), (2, "Open".to_owned(), 10_000)];
    assert_eq!(counts().await, expected);
    let rows = "select count(*) from dormouse.counts";
    assert_eq!(world.one::<i64>(rows).await, 40_001);
    world.store.reap(10, 10).await.expect("a sweep");
    assert_eq!(counts().await, expected);
    assert_eq!(world.one::<i64>(rows).await, 3);
    world.store.reap(10, 10).await.expect("a sweep");
    assert_eq!(counts().await, expected, "and there is nothing to fold in what is folded");
}

/// A step that leaves a task behind which holds its transaction.
struct Careless;

#[derive(Serialize, Deserialize)]
enum Lapse {
    Start,
}

impl Machine for Careless {
    const NAME: &'static str = "careless";
    type State = Lapse;
    type Output = ();

    async fn step(&self, Lapse::Start: Lapse, cx: &Context) -> StepResult<Self> {
        let (cx, held) = (cx.clone(), Arc::new(Semaphore::new(0)));
        let holds = held.clone();
        tokio::spawn(async move {
            let _transaction = cx.transaction().await;
            holds.add_permits(1);
            std::future::pending::<()>().await;
        });
        let _ = held.acquire().await;
        Ok(Outcome::done(()))
    }
}

/// A step that runs until it is told to end.
struct Innocent(Arc<Semaphore>);

impl Job for Innocent {
    const NAME: &'static str = "innocent";
    type Input = ();
    type Output = ();

    async fn run(&self, (): (), _cx: &Context) -> Result<(), BoxError> {
        let _ = self.0.acquire().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_outlives_its_step_and_holds_its_transaction_fails_that_step_alone() {
    let world = World::new().await;
    let may_end = Arc::new(Semaphore::new(0));
    let builder = Engine::on(world.store.clone()).machine(Careless).job(Innocent(may_end.clone()));
    let engine = builder.start().await.expect("it starts");
    let client = engine.client();
    let innocent = client.start_job::<Innocent>(()).await.expect("a start");
    let careless = client.start::<Careless>(Lapse::Start).await.expect("a start");
    let failed = client.wait_end(careless, SOON).await.expect("it ends");
    let reason = failed.last_error.expect("a reason");
    assert!(failed.status == Status::Failed && reason.contains("still holds `cx.transaction()`"), "{reason}");
    may_end.add_permits(1);
    let ended = client.wait_end(innocent, SOON).await.expect("it ends");
    assert_eq!((ended.status, ended.attempt), (Status::Done, 0), "the worker went on");
    engine.shutdown().await;
}
