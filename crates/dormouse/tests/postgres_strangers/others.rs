//! Strangers that meet in other ways: under load, by a slot, at another isolation level, in a claim, at the wrap of a
//! sequence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::postgres::PostgresStore;
use dormouse::store::{LimitStore, Namespaces, Receipt, ServerStore, Store, Tried, UnitStore};
use dormouse::{Client, Engine, Error, Limit, NewSignal, Target, Transition};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tokio::task::JoinSet;

use crate::database::Database;
use crate::verbs::{LONG, Verbs, commit, dispatch, done, m, sleep, spawn};

const SOON: Duration = Duration::from_secs(2);
/// Only a failure takes that long.
const AFTER: Duration = Duration::from_secs(30);

pub(crate) async fn new_database() -> Database {
    let database = Database::new("2030-01-01T00:00:00Z".parse().expect("a moment")).await;
    database.let_time_pass().await;
    database
}

pub(crate) async fn connect(database: &Database) -> PgConnection {
    PgConnection::connect(&database.url).await.expect("it connects")
}

pub(crate) async fn execute(conn: &mut PgConnection, sql: impl Into<String>) {
    let sql = sql.into();
    sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(conn).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

async fn number(conn: &mut PgConnection, sql: &'static str) -> i64 {
    let row = sqlx::raw_sql(sql).fetch_one(conn).await;
    row.and_then(|row| row.try_get(0)).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// Waits until so many sessions wait for a lock.
pub(crate) async fn until_waiting(conn: &mut PgConnection, sessions: i64) {
    let sql = "select count(distinct pid) from pg_locks where not granted
        and (database is null or database = (select oid from pg_database where datname = current_database()))";
    let waiting = async {
        while number(conn, sql).await < sessions {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(AFTER, waiting).await.expect("somebody waits for a lock");
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_fire_while_others_insert_into_lanes_without_a_pause() {
    let database = new_database().await;
    let verbs = Arc::new(Verbs::on(&database.url).await);
    let worker = verbs.worker("w").await;
    let sleepers = (0..250).map(|n| if n < 200 { m().lane(format!("s{n}")) } else { m() });
    verbs.insert(sleepers.collect()).await;
    let rows = verbs.claim(worker, 250).await;
    verbs.commit_all(worker, &rows, &sleep(Duration::from_millis(1))).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for seed in 0..8 {
        let (verbs, stop) = (verbs.clone(), stop.clone());
        load.spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            while !stop.load(Relaxed) {
                verbs.insert((0..64).map(|_| m().lane(format!("l{}", random.u32(..)))).collect()).await;
            }
        });
    }
    let mut woken = 0;
    let all = async {
        while woken < 250 {
            woken += verbs.store.due(512).await.expect("a sweep").value.woken;
        }
    };
    tokio::time::timeout(AFTER, all).await.expect("every timer fires under load");
    stop.store(true, Relaxed);
    load.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_not_held_by_another_of_its_slot() {
    let database = new_database().await;
    let verbs = Verbs::on(&database.url).await;
    let mut conn = connect(&database).await;
    let sql = "select lane from (select 'l' || n as lane from generate_series(1, 100000) n) lanes
        where dormouse.lane_number('default', lane) & 511 = dormouse.lane_number('default', 'held') & 511 limit 1";
    let other: String = sqlx::raw_sql(sql).fetch_one(&mut conn).await.expect("there is one").get(0);
    execute(&mut conn, "begin; select dormouse.start('m', step => 'start', version => 1, even_if_unknown => true, lane => 'held')")
        .await;
    let insert = verbs.insert(vec![m().lane(&other)]);
    tokio::time::timeout(SOON, insert).await.expect("another lane is another's");
    execute(&mut conn, "rollback").await;
}

/// Claims until so many rows were had, settling what is left of changed limits in between, as workers do.
async fn claim_in_time(verbs: &Verbs, worker: dormouse::WorkerId, rows: usize) -> Vec<Option<String>> {
    let claiming = async {
        let mut lanes = Vec::new();
        while lanes.len() < rows {
            verbs.store.settle_limits().await.expect("a sweep");
            lanes.extend(verbs.claim(worker, 10).await.into_iter().map(|row| row.lane));
        }
        lanes
    };
    tokio::time::timeout(AFTER, claiming).await.expect("they can run")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_changed_while_somebody_holds_one_of_its_lanes() {
    let database = new_database().await;
    let verbs = Verbs::on(&database.url).await;
    let worker = verbs.worker("w").await;
    let client = Client::on(Arc::new(PostgresStore::connect(&database.url).await.expect("it opens")));
    verbs.insert(["partner/held", "partner/free"].map(|lane| vec![m().lane(lane); 3]).concat()).await;
    assert_eq!(verbs.claim(worker, 10).await.len(), 2);
    let mut conn = connect(&database).await;
    let start = "select dormouse.start('m', step => 'start', version => 1, even_if_unknown => true, lane => 'partner/held')";
    execute(&mut conn, format!("begin; {start}")).await;
    let set = client.set_limit("partner", Limit::width(3));
    tokio::time::timeout(SOON, set).await.expect("it waits for nobody").expect("a limit");
    let free = claim_in_time(&verbs, worker, 2).await;
    assert!(free.iter().all(|lane| lane.as_deref() == Some("partner/free")), "{free:?}");
    execute(&mut conn, "commit").await;
    let held = claim_in_time(&verbs, worker, 2).await;
    assert!(held.iter().all(|lane| lane.as_deref() == Some("partner/held")), "{held:?}");
    assert!(verbs.claim(worker, 10).await.is_empty(), "the fourth waits");
}

/// It has settled its lane by the limit as it was, and nobody who walks the lanes can see it.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_reaches_what_was_inserted_and_not_committed_when_it_was_changed() {
    let database = new_database().await;
    let verbs = Verbs::on(&database.url).await;
    let worker = verbs.worker("w").await;
    let client = Client::on(Arc::new(PostgresStore::connect(&database.url).await.expect("it opens")));
    let mut conn = connect(&database).await;
    let mut tx = conn.begin().await.expect("a transaction");
    client.start_many_in(&mut tx, vec![m().lane("partner/new"); 3]).await.expect("starts");
    let set = client.set_limit("partner", Limit::width(3));
    tokio::time::timeout(SOON, set).await.expect("it waits for nobody").expect("a limit");
    tx.commit().await.expect("a commit");
    assert_eq!(claim_in_time(&verbs, worker, 3).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_lanes_a_transaction_touches_it_holds_a_bounded_number_of_locks() {
    let database = new_database().await;
    let client = Client::on(Arc::new(PostgresStore::connect(&database.url).await.expect("it opens")));
    let mut conn = connect(&database).await;
    let mut tx = conn.begin().await.expect("a transaction");
    for round in 0..4 {
        let lanes = (0..500 * round + 10).map(|n| m().lane(format!("{round}:{n}")));
        client.start_many_in(&mut tx, lanes).await.expect("starts");
    }
    let sql = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";
    let locks = number(&mut tx, sql).await;
    assert!(locks <= 512 + 32, "{locks}");
    tx.rollback().await.expect("it rolls back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_transaction_at_another_isolation_level_is_refused_where_lanes_matter() {
    let database = new_database().await;
    let client = Client::on(Arc::new(PostgresStore::connect(&database.url).await.expect("it opens")));
    let mut conn = connect(&database).await;
    for level in ["repeatable read", "serializable"] {
        let begin = AssertSqlSafe(format!("begin isolation level {level}"));
        let mut tx = conn.begin_with(begin).await.expect("a transaction");
        client.start_many_in(&mut tx, [m()]).await.expect("without a lane nothing depends on the level");
        let refused =
            client.start_many_in(&mut tx, [m().lane("l")]).await.expect_err("it is refused").to_string();
        assert!(refused.contains("cannot touch instances in lanes"), "{refused}");
        tx.rollback().await.expect("it rolls back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_handed_on_whatever_isolation_level_the_database_defaults_to() {
    let database = new_database().await;
    let mut conn = connect(&database).await;
    let sql = "do $$ begin execute format('alter database %I set default_transaction_isolation = %L',
        current_database(), 'repeatable read'); end $$";
    execute(&mut conn, sql).await;
    let verbs = Arc::new(Verbs::on(&database.url).await);
    let worker = verbs.worker("w").await;
    let first = verbs.insert(vec![m().lane("l")]).await.remove(0).id();
    // Somebody ends the holder of the lane, and another comes before that is committed.
    let end = format!("begin isolation level read committed; select dormouse.cancel({})", first.0);
    execute(&mut conn, end).await;
    let inserting = tokio::spawn({
        let verbs = verbs.clone();
        async move { verbs.insert(vec![m().lane("l")]).await.remove(0).id() }
    });
    until_waiting(&mut connect(&database).await, 1).await;
    execute(&mut conn, "commit").await;
    let second = inserting.await.expect("an insert");
    let claimed: Vec<_> = verbs.claim(worker, 10).await.iter().map(|row| row.id).collect();
    assert_eq!(claimed, [second], "the lane is free, and its next in line knows");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_loses_its_key_to_a_start_is_told_so() {
    let database = new_database().await;
    let verbs = Arc::new(Verbs::on(&database.url).await);
    let worker = verbs.worker("w").await;
    let failed = verbs.insert(vec![m().key("k")]).await.remove(0).id();
    let rows = verbs.claim(worker, 1).await;
    verbs.commit_all(worker, &rows, &Transition::Fail { error: "no".to_owned() }).await;
    let mut conn = connect(&database).await;
    execute(&mut conn, "begin; select dormouse.start('m', step => 'start', version => 1, even_if_unknown => true, key => 'k')").await;
    let retrying = tokio::spawn({
        let verbs = verbs.clone();
        async move { verbs.store.retry("default".to_owned(), Target::Id(failed), None, None).await }
    });
    until_waiting(&mut connect(&database).await, 1).await;
    execute(&mut conn, "commit").await;
    let refused = retrying.await.expect("a retry").expect_err("the key is taken");
    assert!(matches!(refused, Error::KeyTaken { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_cannot_be_given_back_while_somebody_holds_its_row_is_told_and_stays_claimed() {
    let database = new_database().await;
    let verbs = Arc::new(Verbs::on(&database.url).await);
    let worker = verbs.worker("w").await;
    verbs.insert(vec![m(), m()]).await;
    let claims: Vec<_> = verbs.claim(worker, 2).await.iter().map(|row| (row.id, row.seq)).collect();
    let mut conn = connect(&database).await;
    let held = claims[0].0;
    execute(&mut conn, format!("begin; select dormouse.signal({held}, 'go')")).await;
    let give_back = || verbs.store.release(worker, claims.clone(), Tried::No);
    let busy =
        tokio::time::timeout(SOON, give_back()).await.expect("it waits for nobody").expect("a write").value;
    assert_eq!(busy, [held]);
    execute(&mut conn, "commit").await;
    assert_eq!(give_back().await.expect("a write").value, []);
    let again: Vec<_> = verbs.claim(worker, 2).await.iter().map(|row| (row.id, row.attempt)).collect();
    assert_eq!(again, [(claims[0].0, 0), (claims[1].0, 0)], "both are there, as if never claimed");
}

/// A child in one lane with a parent in the other, and the other way round: each needs both lanes to end.
#[tokio::test(flavor = "multi_thread")]
async fn two_steps_with_own_transactions_in_crossed_lanes_do_not_hold_each_other_up() {
    let database = new_database().await;
    let verbs = Arc::new(Verbs::on(&database.url).await);
    let worker = verbs.worker("w").await;
    for round in 0..20 {
        verbs.insert(vec![m().lane("a").key("a"), m().lane("b").key("b")]).await;
        let parents = verbs.claim(worker, 10).await;
        let spawning = parents.iter().map(|parent| {
            let other = if parent.key.as_deref() == Some("a") { "b" } else { "a" };
            commit(parent, spawn(vec![m().lane(other)]))
        });
        verbs.commit(worker, spawning.collect()).await;
        let children = verbs.claim(worker, 10).await;
        assert_eq!(children.len(), 2, "round {round}: {children:?}");
        let mut ends = JoinSet::new();
        for child in children {
            let (verbs, rider) = (verbs.clone(), verbs.store.begin().await.expect("a transaction"));
            ends.spawn(async move { verbs.store.commit_with(worker, commit(&child, done()), rider).await });
        }
        let all = tokio::time::timeout(SOON, ends.join_all()).await.expect("neither waits for the other");
        for end in all {
            let receipt = end.expect("a commit").value;
            assert!(matches!(receipt, Receipt::Released), "{receipt:?}");
        }
        let parents = verbs.claim(worker, 10).await;
        assert_eq!(parents.len(), 2);
        verbs.commit_all(worker, &parents, &done()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_row_that_somebody_holds_is_asked_for_again_in_a_moment_and_not_at_once() {
    let database = new_database().await;
    let verbs = Verbs::on(&database.url).await;
    let worker = verbs.worker("w").await;
    verbs.insert(vec![m()]).await;
    let rows = verbs.claim(worker, 1).await;
    verbs.commit_all(worker, &rows, &dispatch("bank", None)).await;
    let mut conn = connect(&database).await;
    execute(&mut conn, "begin; select from dormouse.interactions for update").await;
    let taken = verbs.store.outbox("bank".to_owned(), Namespaces::All, 10, LONG).await.expect("an outbox");
    let (next, now) = (taken.next.expect("there is one"), taken.now.expect("a time"));
    assert!(taken.taken.is_empty() && next > now, "{next} {now}");
    execute(&mut conn, "rollback").await;
    let taken = verbs.store.outbox("bank".to_owned(), Namespaces::All, 10, LONG).await.expect("an outbox");
    assert_eq!(taken.taken.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_stand_in_order_in_the_feed_when_their_numbers_start_again() {
    let database = new_database().await;
    let verbs = Verbs::on(&database.url).await;
    let start = verbs.store.changes(None, None, 0).await.expect("a read").next;
    execute(&mut connect(&database).await, "select setval('dormouse.event_ids', 1048570)").await;
    let inserted: Vec<_> = verbs.insert(vec![m(); 20]).await.iter().map(dormouse::Inserted::id).collect();
    let told = async {
        loop {
            let read = verbs.store.changes(None, Some(start), 100).await.expect("a read");
            if read.changes.len() == 20 {
                return read.changes.into_iter().map(|change| change.instance).collect::<Vec<_>>();
            }
        }
    };
    let told = tokio::time::timeout(AFTER, told).await.expect("the feed goes on");
    assert_eq!(told, inserted);
}

/// Ends at once.
struct Quick;

#[derive(Serialize, Deserialize)]
enum Only {
    Start,
}

impl Machine for Quick {
    const NAME: &'static str = "quick";
    type State = Only;
    type Output = ();

    async fn step(&self, Only::Start: Only, _: &Context) -> StepResult<Self> {
        Ok(Outcome::done(()))
    }
}

/// A claim passes over what somebody's signal has locked; whoever signalled says that it can be claimed now.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_a_signal_hid_from_a_claim_does_not_wait_for_the_next_poll() {
    let database = new_database().await;
    let store = Arc::new(PostgresStore::connect(&database.url).await.expect("it opens"));
    let engine = Engine::on(store.clone()).machine(Quick).poll(LONG).start().await.expect("it starts");
    let client = engine.client();
    let mut conn = connect(&database).await;
    for in_callers_transaction in [true, false] {
        client.pause_queue("default").await.expect("it is paused");
        let hidden = client.start::<Quick>(Only::Start).await.expect("a start");
        // Whoever signals has the row locked, and the engine looks: another row of the queue is taken and ends.
        let mut tx = conn.begin().await.expect("a transaction");
        let signal = NewSignal::new("other", dormouse::Json::null());
        if in_callers_transaction {
            client.signal_in(&mut tx, hidden, signal).await.expect("a signal");
        } else {
            let lock = format!("select from dormouse.instances where id = {} for no key update", hidden.0);
            execute(&mut tx, lock).await;
        }
        client.resume_queue("default").await.expect("it goes on");
        let other = client.start::<Quick>(Only::Start).await.expect("a start");
        client.wait::<Quick>(other, AFTER).await.expect("it is done");
        let signalled = async {
            if !in_callers_transaction {
                client
                    .signal_raw(hidden, NewSignal::new("other", dormouse::Json::null()))
                    .await
                    .expect("a signal");
            }
        };
        let commit = async {
            if !in_callers_transaction {
                until_waiting(&mut connect(&database).await, 1).await;
            }
            tx.commit().await.expect("it commits");
        };
        tokio::join!(signalled, commit);
        client.wait::<Quick>(hidden, AFTER).await.expect("it is claimed without a poll");
    }
    engine.shutdown().await;
}
