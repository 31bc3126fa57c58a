//! How many statements a verb sends, and how often it writes a row, however large the batch.

use std::future::Future;
use std::time::Duration;

use dormouse::store::{Queries, Receipt, Store};
use dormouse::{Inserted, Target};
use private_postgres::Server;

use crate::private::{closed, connect, execute, migrated, number, server};
use crate::verbs::{Verbs, ahead, commit, done, m, sleep, spawn, wait_for};

const ROWS: usize = 500;
const CHILDREN: usize = 1_000;

#[tokio::test]
async fn a_batch_of_any_size_is_one_statement_and_a_group_of_commits_at_most_five() {
    let server = server(&[("log_statement", "all")]);
    let verbs = Verbs::on(&migrated(&server, "statements").await).await;
    let worker = verbs.worker("w").await;
    let new = (0..ROWS).map(|n| m().key(format!("k{n}")).lane(format!("l{}", n % 100))).collect();
    let inserted = sends(&server, 1, "insert", verbs.insert(new)).await;
    let plain = sends(&server, 1, "insert", verbs.insert(vec![m(); ROWS])).await;
    let rows = sends(&server, 1, "claim", verbs.claim(worker, ROWS)).await;
    assert_eq!(rows.len(), ROWS);
    let targets = inserted.iter().chain(&plain).map(|new| Target::Id(new.id())).collect();
    sends(&server, 1, "deliver", verbs.deliver(targets, "hello")).await;
    let targets = (0..ROWS).map(|n| Target::Key(format!("k{n}"))).collect();
    sends(&server, 1, "deliver", verbs.deliver(targets, "hello")).await;

    // Those that run ahead, some of which have got a signal meanwhile, and every kind of outcome.
    let outcomes = rows.iter().enumerate().map(|(n, row)| match n % 5 {
        0 => commit(row, done()),
        1 => commit(row, wait_for("never")),
        2 => commit(row, sleep(Duration::from_millis(1))),
        3 => commit(row, spawn(vec![m(); 2])),
        _ => ahead(row.id, row.seq),
    });
    // One statement for each way to commit, and one more for what has moved and is decided again.
    let receipts = sends(&server, 5, "commit", verbs.commit(worker, outcomes.collect())).await;
    let told = receipts.iter().all(|receipt| matches!(receipt, Receipt::Held { .. } | Receipt::Released));
    assert!(told, "{receipts:?}");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let due = sends(&server, 1, "due", verbs.store.due(ROWS)).await.expect("a sweep");
    assert_eq!(due.value.woken, ROWS / 5);
}

#[tokio::test]
async fn children_that_end_together_are_taken_off_their_barrier_by_one_update_of_the_parent() {
    let server = server(&[]);
    let url = migrated(&server, "barrier").await;
    let mut conn = connect(&url).await;
    let updates = "select n_tup_upd from pg_stat_user_tables where relid = 'dormouse.instances'::regclass";
    let verbs = Verbs::on(&url).await;
    let worker = verbs.worker("w").await;
    let Inserted::New(parent) = verbs.insert(vec![m()]).await.remove(0) else { panic!("it is new") };
    let rows = verbs.claim(worker, 1).await;
    verbs.commit_all(worker, &rows, &spawn(vec![m(); CHILDREN + 1])).await;
    let mut children = verbs.claim(worker, CHILDREN + 1).await;
    verbs.store.close().await;
    closed(&mut conn).await;
    let before = number(&mut conn, updates).await;

    let verbs = Verbs::on(&url).await;
    let last = children.split_off(CHILDREN);
    verbs.commit_all(worker, &children, &done()).await;
    let instance = verbs.store.get("default".to_owned(), Target::Id(parent)).await.expect("a read");
    assert_eq!(instance.expect("it is there").barrier, Some(1));
    verbs.store.close().await;
    closed(&mut conn).await;
    assert_eq!(number(&mut conn, updates).await - before, CHILDREN as i64 + 1);

    let verbs = Verbs::on(&url).await;
    verbs.commit_all(worker, &last, &done()).await;
    assert_eq!(verbs.claim(worker, 10).await[0].children.len(), CHILDREN + 1);
}

/// Checks how many statements a call sends, each a call of this function.
async fn sends<T>(server: &Server, at_most: usize, verb: &str, call: impl Future<Output = T>) -> T {
    let before = server.log_bytes();
    let value = call.await;
    let log = server.log_since(before);
    let sent: Vec<_> = log
        .lines()
        .filter(|line| line.contains("LOG:  execute") || line.contains("LOG:  statement"))
        // The connection that hears pokes is opened beside the first calls, and each is set up first.
        .filter(|line| !line.contains("LISTEN") && !line.contains("set default_transaction_isolation"))
        .collect();
    let shown = sent.join("\n");
    assert!((1..=at_most).contains(&sent.len()), "{verb} sent {} statements:\n{shown}", sent.len());
    assert!(sent.iter().all(|line| line.contains(&format!("dormouse.{verb}"))), "{shown}");
    value
}

#[tokio::test]
async fn the_counts_of_a_namespace_are_read_without_those_of_the_others() {
    const OTHERS: i64 = 50_000;
    let server = server(&[("autovacuum", "off")]);
    let url = migrated(&server, "counts").await;
    let mut conn = connect(&url).await;
    let others = format!(
        "insert into dormouse.counts (namespace, queue, machine, version, step, status, count)
         select 'other-' || n % 100, 'default', 'm-' || n, 1, 'start', 'runnable', 1 from generate_series(1, {OTHERS}) n"
    );
    execute(&mut conn, others).await;
    let read = "select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables
        where relid = 'dormouse.counts'::regclass";
    let verbs = Verbs::on(&url).await;
    verbs.insert(vec![m(); 3]).await;
    verbs.store.close().await;
    closed(&mut conn).await;
    let before = number(&mut conn, read).await;
    let verbs = Verbs::on(&url).await;
    let stats = verbs.store.stats(Some("default".to_owned())).await.expect("counts");
    assert_eq!(stats.instances.iter().map(|place| place.count).sum::<u64>(), 3);
    verbs.store.close().await;
    closed(&mut conn).await;
    let looked_at = number(&mut conn, read).await - before;
    assert!((1..=10).contains(&looked_at), "{looked_at} rows were looked at");
}

#[tokio::test]
async fn the_bare_statements_of_the_benchmark_are_those_of_the_store() {
    let server = server(&[]);
    let database =
        dormouse::store::postgres::Bench::create(&server.url("postgres")).await.expect("a database");
    assert!(database.raw_steps_per_s(512).await.expect("they run") > 0.0);
}
