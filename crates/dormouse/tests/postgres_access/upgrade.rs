//! A database of an older schema is brought up to date with all that is in it.

use dormouse::store::postgres::PostgresStore;
use dormouse::store::{Filter, InteractionFilter, Queries, ServerStore};
use dormouse::{Client, Error, Status};

use crate::private::{connect, execute, number, server};

const HEAD: &str = include_str!("../../src/store/postgres/migrations/schema.sql");
const FIRST: &str = include_str!("../../src/store/postgres/migrations/0001_init.sql");

const INSTANCES: &str = "
    insert into dormouse.instances (
        id, namespace, machine, version, status, step, seq, queue, priority, runnable_at, worker, created_at,
        changed_at, state
    )
    select nextval('dormouse.instance_ids'), 'default', 'm', 1, status, 'start', 1, 'default', 0, now(), worker, now(),
        now(), 'null'
    from (values ('runnable', null), ('runnable', null), ('failed', null), ('executing', 1)) row (status, worker);
    insert into dormouse.history (instance, seq, kind, version, step, at, state)
    select id, 1, 'created', 1, 'start', now(), 'null' from dormouse.instances;
    create function dormouse.collect_ended(bigint, integer) returns integer language sql as 'select 0';
    update dormouse.schema set version = 1, functions = 'of another build';
";

/// What came before counts told versions.
const UNTIL_FOURTH: [&str; 3] = [
    include_str!("../../src/store/postgres/migrations/0002_access.sql"),
    include_str!("../../src/store/postgres/migrations/0003_counts.sql"),
    include_str!("../../src/store/postgres/migrations/0004_units.sql"),
];

const COUNTED: &str = "
    insert into dormouse.instances (
        id, namespace, machine, version, status, step, seq, queue, priority, runnable_at, worker, created_at,
        changed_at, state
    )
    select nextval('dormouse.instance_ids'), 'default', 'm', version, status, 'start', 1, 'default', 0, now(), worker,
        now(), now(), 'null'
    from (values (1, 'runnable', null), (1, 'runnable', null), (2, 'runnable', null), (2, 'failed', null),
        (1, 'executing', 1)) row (version, status, worker);
    update dormouse.instances set parent = 1, parent_round = 1 where id > 2;
    update dormouse.instances set parent_round = 2 where id = 4;
    insert into dormouse.counts values
        ('default', 'default', 'm', 'start', 'runnable', 5), ('default', 'default', 'm', 'start', 'runnable', -2),
        ('default', 'default', 'm', 'start', 'failed', 1);
    insert into dormouse.interactions (
        id, unit, item, instance, namespace, machine, step, transport, status, idempotency_key, opened_at, request
    )
    select id, id, 0, id, namespace, machine, step, 'api', 'pending', 'k', now(), 'null'
    from dormouse.instances where status = 'failed' or worker is not null order by id;
    insert into dormouse.machines values ('m', 1, '{start}', 'default', true);
    update dormouse.schema set version = 4, functions = 'of another build';
";

#[tokio::test]
async fn an_engine_runs_on_a_newer_schema_within_the_range_and_on_no_other() {
    let server = server(&[]);
    execute(&mut connect(&server.url("postgres")).await, "create database newer").await;
    let url = server.url("newer");
    let mut conn = connect(&url).await;
    let known = PostgresStore::migrate(&url).await.expect("a migration").to;
    // What a next version that only expands leaves behind: functions of its own with the same names.
    let next = format!(
        "update dormouse.schema set version = {}, functions = 'of the next', oldest = {known}",
        known + 1
    );
    execute(&mut conn, &next).await;
    let store = PostgresStore::connect(&url).await.expect("it opens");
    assert_eq!(store.about().await.expect("a read").schema, i64::from(known) + 1);
    let migrated = PostgresStore::migrate(&url).await.err();
    assert!(matches!(migrated, Some(Error::NewerSchema { .. })), "nothing is taken back: {migrated:?}");
    execute(&mut conn, &format!("update dormouse.schema set oldest = {}", known + 1)).await;
    let refused = PostgresStore::connect(&url).await.err();
    assert!(matches!(refused, Some(Error::NewerSchema { .. })), "{refused:?}");
    // Before the range was there, a schema was for its own version alone.
    execute(&mut conn, "alter table dormouse.schema drop column oldest").await;
    let refused = PostgresStore::connect(&url).await.err();
    assert!(matches!(refused, Some(Error::NewerSchema { .. })), "{refused:?}");
}

#[tokio::test]
async fn what_was_counted_and_asked_without_versions_is_told_by_version() {
    let server = server(&[]);
    execute(&mut connect(&server.url("postgres")).await, "create database counted").await;
    let url = server.url("counted");
    let mut conn = connect(&url).await;
    for script in [HEAD, FIRST].into_iter().chain(UNTIL_FOURTH).chain([COUNTED]) {
        execute(&mut conn, script).await;
    }
    let migrated = PostgresStore::migrate(&url).await.expect("a migration");
    assert!(migrated.from == 4 && migrated.to > 4, "{migrated:?}");
    let store = PostgresStore::connect(&url).await.expect("it opens");
    let counts = store.stats(None).await.expect("a read").instances;
    let mut counts: Vec<_> = counts.iter().map(|row| (row.version, row.status.as_str(), row.count)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [(1, "executing", 1), (1, "runnable", 2), (2, "failed", 1), (2, "runnable", 1)]);
    let client = Client::on(std::sync::Arc::new(store));
    let children = Filter { parent: Some(dormouse::InstanceId(1)), ..Filter::default() };
    let children = client.list(children).await.expect("a list").instances;
    let places: Vec<_> = children.iter().rev().map(|row| (row.id.0, row.parent_index)).collect();
    assert_eq!(places, [(3, Some(0)), (4, Some(0)), (5, Some(1))], "in the order they came, in each round");
    let asked = client.interactions(InteractionFilter::default()).await.expect("a list").items;
    assert_eq!(asked.iter().map(|asked| asked.version).collect::<Vec<_>>(), [2, 1], "as their instances are");
    assert!(client.declarations().await.expect("a read").is_empty(), "until a worker registers again");
}

#[tokio::test]
async fn what_an_older_schema_holds_is_counted_and_told_only_from_then_on() {
    let server = server(&[]);
    execute(&mut connect(&server.url("postgres")).await, "create database older").await;
    let url = server.url("older");
    let mut conn = connect(&url).await;
    for script in [HEAD, FIRST, INSTANCES] {
        execute(&mut conn, script).await;
    }
    let refused = PostgresStore::connect(&url).await.err();
    assert!(matches!(refused, Some(Error::OlderSchema { found: 1, .. })), "{refused:?}");
    let migrated = PostgresStore::migrate(&url).await.expect("a migration");
    assert!(migrated.from == 1 && migrated.to > 1, "{migrated:?}");

    let store = PostgresStore::connect(&url).await.expect("it opens");
    let counts = store.stats(None).await.expect("a read").instances;
    let mut counts: Vec<_> = counts.iter().map(|count| (count.status.as_str(), count.count)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [("executing", 1), ("failed", 1), ("runnable", 2)]);
    assert!(store.changes(None, Some(0), 10).await.expect("a read").changes.is_empty());
    let functions = "select count(*) from pg_proc where proname = 'collect_ended'";
    assert_eq!(number(&mut conn, functions).await, 1, "the one with other arguments is gone");

    let client = Client::on(std::sync::Arc::new(store));
    let failed = Filter { status: Some(Status::Failed), limit: 10, ..Filter::default() };
    let failed = client.list(failed).await.expect("a list").instances.remove(0).id;
    client.retry(failed).await.expect("a retry");
    let told = client
        .server_store()
        .expect("a store for servers")
        .changes(None, Some(0), 10)
        .await
        .expect("a read")
        .changes;
    assert_eq!(told.iter().map(|change| (change.instance, change.seq)).collect::<Vec<_>>(), [(failed, 2)]);
}

#[tokio::test]
async fn a_version_below_zero_that_got_in_before_is_mended() {
    let server = server(&[]);
    execute(&mut connect(&server.url("postgres")).await, "create database signs").await;
    let url = server.url("signs");
    let mut conn = connect(&url).await;
    for script in [HEAD, FIRST].into_iter().chain(UNTIL_FOURTH).chain([COUNTED]) {
        execute(&mut conn, script).await;
    }
    execute(&mut conn, "update dormouse.instances set version = -1 where id = 1").await;
    PostgresStore::migrate(&url).await.expect("a migration");
    let store = PostgresStore::connect(&url).await.expect("it opens");
    let counts = store.stats(None).await.expect("a read").instances;
    assert_eq!(counts.iter().map(|count| count.count).sum::<u64>(), 5, "{counts:?}");
    assert_eq!(number(&mut conn, "select count(*) from dormouse.instances where version = 0").await, 1);
}
