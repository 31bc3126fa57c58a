//! A step that runs ahead rewrites its row in place, and no index hears of it.

use crate::private::{closed, connect, migrated, number, server};
use crate::verbs::{Verbs, ahead, m};

const ROWS: usize = 500;
/// Steps until rows that were inserted side by side have found the room that they need.
const FIRST: usize = 5;
const STEPS: usize = 40;

const INDEX_BYTES: &str = "select sum(pg_relation_size(indexrelid)) from pg_index
    where indrelid = 'dormouse.instances'::regclass";

#[tokio::test]
async fn a_step_that_runs_ahead_writes_to_no_index_of_the_instances() {
    let server = server(&[("autovacuum", "off")]);
    let url = migrated(&server, "hot").await;
    let mut conn = connect(&url).await;
    let verbs = Verbs::on(&url).await;
    let worker = verbs.worker("w").await;
    let new = (0..ROWS).map(|n| m().key(format!("k{n}")).lane(format!("l{n}")));
    verbs.insert(new.collect()).await;
    let rows = verbs.claim(worker, ROWS).await;
    for step in 0..FIRST {
        let commits = rows.iter().map(|row| ahead(row.id, row.seq + step as u64)).collect();
        verbs.commit(worker, commits).await;
    }
    verbs.store.close().await;
    let before = Counts::of(&mut conn).await;
    let index_bytes = number(&mut conn, INDEX_BYTES).await;
    let verbs = Verbs::on(&url).await;
    for step in FIRST..FIRST + STEPS {
        let commits = rows.iter().map(|row| ahead(row.id, row.seq + step as u64)).collect();
        verbs.commit(worker, commits).await;
    }
    verbs.store.close().await;
    let after = Counts::of(&mut conn).await;
    let (updates, in_place) = (after.updates - before.updates, after.in_place - before.in_place);
    assert_eq!(updates, (ROWS * STEPS) as i64);
    // A page that the server is writing out at that moment cannot be tidied, and an update finds no room on it.
    let elsewhere = updates - in_place;
    assert!(elsewhere <= updates / 1000, "{elsewhere} of {updates} updates went to the indexes");
    assert_eq!(number(&mut conn, INDEX_BYTES).await, index_bytes, "the indexes grew");
}

/// How often rows of the instances were updated, and how often in place.
struct Counts {
    updates: i64,
    in_place: i64,
}

impl Counts {
    async fn of(conn: &mut sqlx::PgConnection) -> Self {
        closed(conn).await;
        let column = |name| {
            format!("select {name} from pg_stat_user_tables where relid = 'dormouse.instances'::regclass")
        };
        let updates = number(conn, &column("n_tup_upd")).await;
        Self { updates, in_place: number(conn, &column("n_tup_hot_upd")).await }
    }
}
