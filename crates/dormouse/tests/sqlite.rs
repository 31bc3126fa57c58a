//! What is SQLite's own: whose file it is, who may open it, what an fsync is shared by.

mod backups;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dormouse::store::sqlite::SqliteStore;
use dormouse::store::{Filter, InteractionFilter, Queries};
use dormouse::{At, Client, Engine, Error, Json, NewInstance, NewSignal, Status};
use rusqlite::Connection;
use tempfile::TempDir;

fn m() -> NewInstance {
    NewInstance::named("m", 1, At { step: "start".into(), state: Json::null() }).even_if_unknown()
}

async fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path).await.expect("it opens"))
}

fn directory() -> TempDir {
    TempDir::new().expect("a directory")
}

#[tokio::test]
async fn a_file_of_another_program_is_refused_and_left_alone() {
    let dir = directory();
    let theirs = dir.path().join("theirs.db");
    let conn = Connection::open(&theirs).expect("it opens");
    conn.execute_batch("create table notes (text); insert into notes values ('keep me')").expect("a table");
    drop(conn);
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not a database, and long enough to be looked at as one".repeat(100))
        .expect("a file");
    for path in [theirs, text] {
        let before = std::fs::read(&path).expect("a file");
        let error = SqliteStore::open(&path).await.err().expect("it is refused");
        assert!(matches!(error, Error::NotDormouse { .. }), "{error}");
        assert!(error.to_string().contains("is not a dormouse database"), "{error}");
        assert_eq!(std::fs::read(&path).expect("a file"), before, "nothing was written");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let dir = directory();
    let path = dir.path().join("newer.db");
    drop(open(&path).await);
    let conn = Connection::open(&path).expect("it opens");
    conn.pragma_update(None, "user_version", 99).expect("a pragma");
    drop(conn);
    let error = SqliteStore::open(&path).await.err().expect("it is refused");
    assert!(matches!(error, Error::NewerSchema { found: 99, .. }), "{error}");
    let conn = Connection::open(&path).expect("it opens");
    let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a pragma");
    assert_eq!(version, 99);
}

#[tokio::test]
async fn a_program_that_has_a_file_open_writes_no_more_after_a_newer_one_has_upgraded_it() {
    let dir = directory();
    let path = dir.path().join("upgraded.db");
    let client = dormouse::Client::on(open(&path).await);
    client.start::<Patient>(Patience::Wait).key("before").await.expect("a start");
    let conn = Connection::open(&path).expect("it opens");
    conn.pragma_update(None, "user_version", 99).expect("a pragma");
    let error = client.start::<Patient>(Patience::Wait).key("after").await.expect_err("it is refused");
    assert!(matches!(error, Error::NewerSchema { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("upgraded.db has schema version 99"), "{error}");
    let rows: i64 = conn.query_row("select count(*) from instances", [], |row| row.get(0)).expect("a count");
    assert_eq!(rows, 1);
}

/// The schema that kept counts without versions.
const FOURTH: [&str; 4] = [
    include_str!("../src/store/sqlite/migrations/0001_init.sql"),
    include_str!("../src/store/sqlite/migrations/0002_access.sql"),
    include_str!("../src/store/sqlite/migrations/0003_counts.sql"),
    include_str!("../src/store/sqlite/migrations/0004_units.sql"),
];

const INSTANCES: &str = "
    insert into instances (
        namespace, machine, version, status, step, seq, queue, priority, runnable_at, worker, created_at, changed_at,
        state
    )
    select 'default', 'm', column1, column2, 'start', 1, 'default', 0, 0, column3, 0, 0, 'null'
    from (values (1, 'runnable', null), (1, 'runnable', null), (2, 'runnable', null), (2, 'failed', null),
        (1, 'executing', 1));
    insert into counts values
        ('default', 'default', 'm', 'start', 'runnable', 3), ('default', 'default', 'm', 'start', 'failed', 1),
        ('default', 'default', 'm', 'start', 'done', 0);
    insert into units (
        id, instance, round, shape, status, transport, on_failure, interactions, next_item, outputs_max, opened_at,
        deadline
    )
    values (1, 1, 1, 'one', 'open', 'api', 'fail', 1, 1, 1, 0, 7), (4, 4, 1, 'one', 'open', 'api', 'fail', 1, 1, 1, 0, null);
    insert into interactions (
        unit, item, instance, namespace, machine, step, transport, status, idempotency_key, opened_at, request
    )
    select id, 0, id, namespace, machine, step, 'api', 'pending', 'k', 0, 'null' from instances where id in (1, 4);
    pragma application_id = 0x646f726d;
    pragma user_version = 4;
";

#[tokio::test]
async fn what_an_older_file_holds_is_counted_and_asked_by_version() {
    let dir = directory();
    let path = dir.path().join("older.db");
    let conn = Connection::open(&path).expect("it opens");
    for script in FOURTH.into_iter().chain([INSTANCES]) {
        conn.execute_batch(script).expect("an older schema");
    }
    drop(conn);
    let store = open(&path).await;
    assert_eq!(store.about().await.expect("a read").schema_found, 4);
    let counts = async || {
        let counts = store.stats(None).await.expect("a read").instances;
        let mut counts: Vec<_> =
            counts.iter().map(|row| (row.version, row.status.as_str(), row.count)).collect();
        counts.sort_unstable();
        counts
    };
    let found = [(1, "executing", 1), (1, "runnable", 2), (2, "failed", 1), (2, "runnable", 1)];
    assert_eq!(counts().await, found);
    let client = Client::on(store.clone());
    let asked = client.interactions(InteractionFilter::default()).await.expect("a list").items;
    assert_eq!(asked.iter().map(|asked| asked.version).collect::<Vec<_>>(), [1, 2], "as their instances are");
    let deadlines: Vec<_> =
        asked.iter().map(|asked| asked.deadline.map(dormouse::jiff::Timestamp::as_microsecond)).collect();
    assert_eq!(deadlines, [Some(7), None], "as their units' are");
    assert!(client.declarations().await.expect("a read").is_empty(), "until a worker registers");
    client.start_many([m()]).await.expect("a start");
    client.retry(dormouse::InstanceId(4)).await.expect("a failed instance");
    assert_eq!(counts().await, [(1, "executing", 1), (1, "runnable", 3), (2, "runnable", 2)]);
}

const CHILDREN: &str = "
    insert into instances (
        id, namespace, machine, version, status, step, seq, queue, priority, runnable_at, parent, parent_round,
        created_at, changed_at, state
    )
    select column1, 'default', 'm', 1, 'done', 'start', 1, 'default', 0, 0, column2, column3, 0, 0, 'null'
    from (values (1, null, null), (2, 1, 1), (3, 1, 1), (5, 1, 2), (6, 1, 1), (7, 1, 2));
    pragma application_id = 0x646f726d;
    pragma user_version = 4;
";

#[tokio::test]
async fn the_children_in_an_older_file_have_their_places_in_the_order_they_came() {
    let dir = directory();
    let path = dir.path().join("older.db");
    let conn = Connection::open(&path).expect("it opens");
    for script in FOURTH.into_iter().chain([CHILDREN]) {
        conn.execute_batch(script).expect("an older schema");
    }
    drop(conn);
    let instances = Client::on(open(&path).await).list(Filter::default()).await.expect("a list").instances;
    let places: Vec<_> =
        instances.iter().rev().map(|row| (row.id.0, row.parent_round, row.parent_index)).collect();
    let (first, second) = (Some(1), Some(2));
    let expected = [
        (1, None, None),
        (2, first, Some(0)),
        (3, first, Some(1)),
        (5, second, Some(0)),
        (6, first, Some(2)),
        (7, second, Some(1)),
    ];
    assert_eq!(places, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_an_fsync() {
    let dir = directory();
    let store = open(&dir.path().join("shared.db")).await;
    let client = Client::on(store.clone());
    let ids: Vec<_> = client
        .start_many(vec![m(); 500])
        .await
        .expect("a start")
        .iter()
        .map(dormouse::Inserted::id)
        .collect();
    let before = store.fsyncs();
    let callers: Vec<_> = ids
        .into_iter()
        .map(|id| {
            let client = client.clone();
            tokio::spawn(async move { client.signal_raw(id, NewSignal::new("s", Json::null())).await })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic").expect("a live target");
    }
    let fsyncs = store.fsyncs() - before;
    assert!(fsyncs < 250, "500 callers at once took {fsyncs} fsyncs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_one_fsync_whatever_its_size() {
    let dir = directory();
    let store = open(&dir.path().join("batch.db")).await;
    let client = Client::on(store.clone());
    for size in [1, 10, 1000] {
        let before = store.fsyncs();
        client.start_many(vec![m(); size]).await.expect("a start");
        assert_eq!(store.fsyncs() - before, 1, "{size} instances");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_does_not_hold_up_those_in_its_group() {
    let dir = directory();
    let store = open(&dir.path().join("group.db")).await;
    let client = Client::on(store.clone());
    let callers: Vec<_> = (0..200)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                if n % 2 == 0 {
                    let refused = client.cancel("nobody").await;
                    assert!(matches!(refused, Err(Error::NotFound(_))));
                } else {
                    client.start_many([m()]).await.expect("a start");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    assert_eq!(client.stats().await.expect("a read").count(Status::Runnable), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_waits_for_another_process_that_holds_the_file() {
    let dir = directory();
    let path = dir.path().join("busy.db");
    let store = open(&path).await;
    let other = Connection::open(&path).expect("it opens");
    other.execute_batch("begin immediate").expect("the lock");
    let client = Client::on(store);
    let mut waiting = tokio::spawn(async move { client.start_many([m()]).await });
    // However long it takes: neither an answer nor a refusal before the file is free.
    let answer = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(answer.is_err(), "it did not wait: {answer:?}");
    let read = Connection::open(&path).expect("it opens");
    let written: i64 =
        read.query_row("select count(*) from instances", [], |row| row.get(0)).expect("a read");
    assert_eq!(written, 0);
    other.execute_batch("rollback").expect("the lock is free again");
    waiting.await.expect("no panic").expect("it is written once the file is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_go_on_while_a_write_is_under_way() {
    let dir = directory();
    let path = dir.path().join("readers.db");
    let client = Client::on(open(&path).await);
    let id = client.start_many([m()]).await.expect("a start")[0].id();
    let writing = Connection::open(&path).expect("it opens");
    writing.execute_batch("begin immediate; update instances set step = 'unseen'").expect("a write");
    assert_eq!(client.get(id).await.expect("a read").expect("it is there").step, "start");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_of_two_stores_on_one_file_share_the_work() {
    let dir = directory();
    let path = dir.path().join("two.db");
    let (here, there) = (open(&path).await, open(&path).await);
    let start = |store: Arc<SqliteStore>| {
        Engine::on(store).job(Count).poll(Duration::from_millis(20)).queue("default", 8).start()
    };
    let (first, second) = (start(here).await.expect("it starts"), start(there).await.expect("it starts"));
    let new = (0..200).map(NewInstance::job::<Count>);
    let ids = first.client().start_many(new).await.expect("a start");
    for (n, id) in ids.iter().enumerate() {
        let output = second.client().wait_job::<Count>(id.id(), Duration::from_secs(60)).await;
        assert_eq!(output.expect("an output"), n as u64);
        let history = first.client().history(id.id()).await.expect("a history");
        assert_eq!(history.len(), 2, "each ran once: {history:?}");
    }
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_process_starts_and_signals_moves_an_engine_without_its_poll() {
    const SOON: Duration = Duration::from_secs(60);
    let dir = directory();
    let path = dir.path().join("elsewhere.db");
    // Another store on the file is as far from this one as another process: only the file connects them.
    let (here, there) = (open(&path).await, open(&path).await);
    let never = Duration::from_secs(3600);
    let engine = Engine::on(here).machine(Patient).poll(never).start().await.expect("it starts");
    let elsewhere = Client::on(there);
    let id =
        elsewhere.start_many([NewInstance::of::<Patient>(Patience::Wait)]).await.expect("a start")[0].id();
    let parked = async {
        while elsewhere.get(id).await.expect("a read").expect("it is there").status != Status::AwaitingSignal
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, parked).await.expect("its start was noticed");
    elsewhere.signal_raw(id, NewSignal::new("go", Json::null())).await.expect("a live target");
    let ended = engine.client().wait_end(id, SOON).await.expect("its signal was noticed");
    assert_eq!(ended.status, Status::Done);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_starts_over_while_reads_overlap() {
    let dir = directory();
    let path = dir.path().join("log.db");
    let client = Client::on(open(&path).await);
    let state = Json::from(serde_json::json!("x".repeat(256 * 1024)));
    let large =
        || NewInstance::named("m", 1, At { step: "start".into(), state: state.clone() }).even_if_unknown();
    client.start_many((0..40).map(|_| large())).await.expect("a start");
    // Of the four that read, each starts before the one before it has ended. Each read is short: one that takes longer than
    // the writer waits keeps its part of the log.
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let (client, stop) = (client.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let filter = dormouse::store::Filter { limit: 20, ..Default::default() };
                    client.list(filter).await.expect("a read");
                }
            })
        })
        .collect();
    let mut longest = 0;
    for _ in 0..60 {
        client.start_many((0..10).map(|_| large())).await.expect("a start");
        let log = std::fs::metadata(path.with_extension("db-wal")).map_or(0, |log| log.len());
        longest = longest.max(log);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for reader in readers {
        reader.await.expect("no panic");
    }
    // 160 MB were written; 64 MB is when new reads wait for a moment.
    assert!(longest < 110 * 1024 * 1024, "the log grew to {longest} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_tail_of_the_log_takes_nothing_that_was_acknowledged() {
    let dir = directory();
    let path = dir.path().join("torn.db");
    let client = Client::on(open(&path).await);
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(client.start_many([m()]).await.expect("a start")[0].id());
    }
    // A copy as a crash would leave it: the log has a frame that was only half written.
    let copy = dir.path().join("copy.db");
    std::fs::copy(&path, &copy).expect("a copy");
    let log = |path: &Path| path.with_extension("db-wal");
    let mut wal = std::fs::read(log(&path)).expect("a log");
    let frame: Vec<u8> = wal[32..32 + 24 + 1000].to_vec();
    wal.extend(frame);
    std::fs::write(log(&copy), wal).expect("a log");
    let reopened = Client::on(open(&copy).await);
    for id in ids {
        assert!(reopened.get(id).await.expect("a read").is_some(), "{id} was acknowledged");
    }
    let conn = Connection::open(&copy).expect("it opens");
    let verdict: String = conn.query_row("pragma integrity_check", [], |row| row.get(0)).expect("a verdict");
    assert_eq!(verdict, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_closed_leaves_one_file_behind() {
    let dir = directory();
    let path = dir.path().join("closed.db");
    let store = open(&path).await;
    let id = Client::on(store.clone()).start_many([m()]).await.expect("a start")[0].id();
    store.get("default".to_owned(), id.into()).await.expect("a read");
    drop(store);
    let files: Vec<_> = std::fs::read_dir(dir.path())
        .expect("a directory")
        .map(|file| file.expect("a file").file_name().into_string().expect("a name"))
        .collect();
    assert_eq!(files, ["closed.db"]);
}

struct Patient;

#[derive(serde::Serialize, serde::Deserialize)]
enum Patience {
    Wait,
    End,
}

impl dormouse::Machine for Patient {
    const NAME: &'static str = "patient";
    type State = Patience;
    type Output = ();

    async fn step(&self, state: Patience, _cx: &dormouse::Context) -> dormouse::StepResult<Self> {
        Ok(match state {
            Patience::Wait => dormouse::Outcome::await_signal(["go"], Patience::End),
            Patience::End => dormouse::Outcome::done(()),
        })
    }
}

struct Count;

impl dormouse::Job for Count {
    const NAME: &'static str = "count";
    type Input = u64;
    type Output = u64;

    async fn run(&self, input: u64, _cx: &dormouse::Context) -> Result<u64, dormouse::BoxError> {
        Ok(input)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_made_under_load_goes_on() {
    let dir = directory();
    let (path, copy) = (dir.path().join("shop.db"), dir.path().join("copy.db"));
    let engine = backups::with_machine(Engine::on(open(&path).await)).start().await.expect("an engine");
    backups::copied_under_load(engine, async || {
        let conn = Connection::open(&path).expect("it opens");
        conn.execute("vacuum into ?1", [copy.to_str()]).expect("a copy");
    })
    .await;
    let engine = backups::with_machine(Engine::on(open(&copy).await)).start().await.expect("an engine");
    backups::goes_on(engine).await;
}
