//! Signals that are kept, and starts of their instances, in transactions that callers leave open: none is lost, none is
//! delivered twice, and nobody else waits.

use std::sync::Arc;
use std::time::Duration;

use dormouse::store::postgres::PostgresStore;
use dormouse::{Client, Delivered, Json, NewSignal, Target};
use sqlx::{Connection, Row};

use crate::database::Database;
use crate::others::{connect, execute, new_database, until_waiting};
use crate::verbs::{Verbs, m};

const SOON: Duration = Duration::from_secs(2);
const START: &str =
    "select dormouse.start('m', step => 'start', version => 1, even_if_unknown => true, key => 'k')";
const KEEP: &str =
    "select dormouse.signal('k', 'paid', '1', dedup_key => 'a', keep_for => interval '1 hour')";

fn paid() -> NewSignal {
    let payload = Json::parse("payload", "2").expect("JSON");
    NewSignal::new("paid", payload).keep_for(Duration::from_secs(3600))
}

async fn client(database: &Database) -> Client {
    Client::on(Arc::new(PostgresStore::connect(&database.url).await.expect("it opens")))
}

/// How many signals the instance with the key has, and how many are kept.
async fn waiting(client: &Client) -> (usize, u64) {
    let inbox = match client.get("k").await.expect("a read") {
        Some(_) => client.inbox("k").await.expect("a read").len(),
        None => 0,
    };
    (inbox, client.count_kept().await.expect("a read").signals)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_waits_for_a_start_that_is_under_way() {
    for (end, expected) in [("commit", (1, 0)), ("rollback", (0, 1))] {
        let database = new_database().await;
        let client = client(&database).await;
        let mut conn = connect(&database).await;
        execute(&mut conn, format!("begin; {START}")).await;
        let sending = tokio::spawn({
            let client = client.clone();
            async move { client.signal_raw("k", paid()).await }
        });
        until_waiting(&mut connect(&database).await, 1).await;
        execute(&mut conn, end).await;
        let sent = sending.await.expect("no panic").expect("it is stored");
        assert_eq!(matches!(sent, Delivered::Kept { .. }), expected.1 == 1, "{end}: {sent:?}");
        assert_eq!(waiting(&client).await, expected, "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_waits_for_a_signal_that_is_being_kept() {
    for (end, expected) in [("commit", (1, 0)), ("rollback", (0, 0))] {
        let database = new_database().await;
        let client = client(&database).await;
        let mut conn = connect(&database).await;
        execute(&mut conn, format!("begin; {KEEP}")).await;
        let starting = tokio::spawn({
            let client = client.clone();
            async move { client.store().insert(vec![m().key("k")]).await }
        });
        until_waiting(&mut connect(&database).await, 1).await;
        execute(&mut conn, end).await;
        starting.await.expect("no panic").expect("it starts");
        assert_eq!(waiting(&client).await, expected, "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_of_a_scoped_key_and_a_signal_wait_for_each_other() {
    let database = new_database().await;
    let client = client(&database).await;
    let mut conn = connect(&database).await;
    let mut tx = conn.begin().await.expect("a transaction");
    let scope = dormouse::KeyScope::In(vec![dormouse::Status::Done]);
    let new = m().key("k").key_scope(scope).even_if_unknown();
    client.start_in(&mut tx, new).await.expect("it starts");
    let sending = tokio::spawn({
        let client = client.clone();
        async move { client.signal_raw("k", paid()).await }
    });
    until_waiting(&mut connect(&database).await, 1).await;
    tx.commit().await.expect("a commit");
    let sent = sending.await.expect("no panic").expect("it is stored");
    assert!(matches!(sent, Delivered::Accepted { .. }), "{sent:?}");
    assert_eq!(waiting(&client).await, (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_waits_for_a_signal_that_is_being_kept() {
    let database = new_database().await;
    let client = client(&database).await;
    let id = client.store().insert(vec![m().key("k")]).await.expect("a start").value[0].id();
    client.cancel(id).await.expect("a cancel");
    let mut conn = connect(&database).await;
    execute(&mut conn, format!("begin; {KEEP}")).await;
    let retrying = tokio::spawn({
        let client = client.clone();
        async move { client.retry(id).await }
    });
    until_waiting(&mut connect(&database).await, 1).await;
    execute(&mut conn, "commit").await;
    retrying.await.expect("no panic").expect("it runs again");
    assert_eq!(waiting(&client).await, (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_transaction_keeps_and_starts_in_either_order() {
    for statements in [[KEEP, START], [START, KEEP]] {
        let database = new_database().await;
        let client = client(&database).await;
        execute(&mut connect(&database).await, format!("begin; {}; commit", statements.join("; "))).await;
        assert_eq!(waiting(&client).await, (1, 0), "{statements:?}");
    }
    let database = new_database().await;
    let client = client(&database).await;
    let mut conn = connect(&database).await;
    let mut tx = conn.begin().await.expect("a transaction");
    let kept = client.signal_in(&mut tx, "k", paid()).await.expect("it is kept");
    assert!(matches!(kept, Delivered::Kept { .. }), "{kept:?}");
    client.start_in(&mut tx, m().key("k").even_if_unknown()).await.expect("it starts");
    tx.commit().await.expect("a commit");
    assert_eq!(waiting(&client).await, (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_at_another_isolation_level_misses_nothing_that_was_kept() {
    for level in ["repeatable read", "serializable"] {
        let database = new_database().await;
        let client = client(&database).await;
        let mut conn = connect(&database).await;
        execute(&mut conn, format!("begin isolation level {level}; select count(*) from dormouse.kept"))
            .await;
        execute(&mut connect(&database).await, KEEP).await;
        let refused = sqlx::raw_sql(START).execute(&mut conn).await.expect_err("it cannot see the signal");
        let code =
            refused.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        assert_eq!(code.as_deref(), Some("40001"), "{level}: {refused}");
        execute(&mut conn, format!("rollback; begin isolation level {level}; {START}; commit")).await;
        assert_eq!(waiting(&client).await, (1, 0), "{level}");
        execute(&mut conn, format!("begin isolation level {level}; {}; commit", START.replace("'k'", "'l'")))
            .await;
        let left = sqlx::raw_sql("select count(*) from dormouse.kept_keys").fetch_one(&mut conn).await;
        assert_eq!(left.and_then(|row| row.try_get::<i64, _>(0)).expect("a count"), 0, "{level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_stranger_who_keeps_a_signal() {
    let database = new_database().await;
    let client = client(&database).await;
    let verbs = Arc::new(Verbs::on(&database.url).await);
    let worker = verbs.worker("w").await;
    let brief = NewSignal { keep_for: Some(Duration::from_millis(1)), ..paid() };
    client.signal_raw("k", brief.clone()).await.expect("it is kept");
    client.signal_raw("brief", brief).await.expect("it is kept");
    tokio::time::sleep(Duration::from_millis(2)).await;
    let mut conn = connect(&database).await;
    execute(&mut conn, format!("begin; {KEEP}")).await;
    let strangers = async {
        client.signal_raw("other", paid()).await.expect("it is kept");
        let started = client.store().insert(vec![m().key("other"), m()]).await.expect("starts");
        assert_eq!(started.value.len(), 2);
        assert_eq!(verbs.claim(worker, 10).await.len(), 2);
        // What it holds is left for the next time; the rest expires.
        assert_eq!(client.store().due(100).await.expect("a sweep").value.expired, 1);
        let kept = client.kept_signals(dormouse::store::KeptFilter::default()).await.expect("a read").items;
        assert_eq!(kept.iter().map(|kept| &*kept.key).collect::<Vec<_>>(), ["k"]);
        let delivered = client.signal_many([(Target::from("other"), paid())]).await.expect("answers");
        assert!(matches!(delivered[0], Delivered::Accepted { .. }));
    };
    tokio::time::timeout(SOON, strangers).await.expect("nobody waits");
    execute(&mut conn, "commit").await;
    assert_eq!(client.store().due(100).await.expect("a sweep").value.expired, 1);
    assert_eq!(client.count_kept().await.expect("a read").signals, 1);
}
