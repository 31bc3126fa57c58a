//! Rows that somebody changed by hand in the database: they hide nothing else, and break no page.

use dormouse::store::Brake;
use dormouse::store::postgres::Connection as PostgresConnection;
use dormouse::store::postgres::sqlx::{self, Connection as _};
use dormouse::store::sqlite::Connection as SqliteConnection;
use serde_json::json;

use crate::kit::*;

suite![
    one_strange_row_breaks_no_page_and_hides_no_other,
    one_row_that_cannot_be_read_is_set_aside_alone_and_can_be_retried,
    an_inbox_that_is_full_takes_no_more_and_stops_nobody,
    an_inbox_that_got_too_large_before_is_set_aside_alone_and_can_be_mended,
];

async fn one_strange_row_breaks_no_page_and_hides_no_other(database: Database) {
    let site = database.open().await;
    let sound = site.order(1).await;
    let body = json!({ "machine": "elsewhere", "step": "Go", "even_if_unknown": true, "version": 7 });
    let strange = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(sound, "awaiting_signal").await;
    for word in ["version = -1", "version = 7, wake = 'nonsense'", "wake = null, seq = -5"] {
        write(&site, word, strange).await;
        for path in [
            "/v1/stats",
            "/v1/machines",
            "/v1/queues",
            "/v1/workers",
            "/v1/instances",
            "/v1/waiting?signal=paid",
            "/metrics",
            "/readyz",
            "/",
            "/instances",
            "/machines",
            "/queues",
        ] {
            let answer = site.get(path).await;
            assert_eq!(answer.status, 200, "{word}: {path}: {}", answer.text);
        }
        let listed = site.get("/v1/instances").await.expect(200);
        let ids: Vec<_> =
            listed["items"].as_array().expect("items").iter().map(|item| item["id"].as_i64()).collect();
        assert_eq!(ids, [Some(sound)], "{word}: the other is there");
        site.get(&format!("/v1/instances/{strange}")).await.expect_problem(500, "internal");
    }
    // Running instances continue, and repaired rows are visible again.
    site.post(&format!("/v1/instances/{sound}/signals"), json!({ "name": "paid", "payload": 1 }))
        .await
        .expect(200);
    site.until(sound, "done").await;
    write(&site, "seq = 1", strange).await;
    site.get(&format!("/v1/instances/{strange}")).await.expect(200);
}

async fn one_row_that_cannot_be_read_is_set_aside_alone_and_can_be_retried(database: Database) {
    let site = database.open().await;
    let (strange, sound) = (held(&site, 1).await, held(&site, 2).await);
    site.client
        .store()
        .pause_queue("default".to_owned(), "default".to_owned(), Brake::On)
        .await
        .expect("a brake");
    for id in [strange, sound] {
        site.post(&format!("/v1/instances/{id}/resume"), json!({})).await.expect(200);
    }
    sql(
        &site,
        &format!("update dormouse.instances set wake = 'nonsense' where id = {strange}"),
        &format!("update instances set wake = 'nonsense' where id = {strange}"),
    )
    .await;
    // Both are claimed by one statement.
    site.post("/v1/queues/default/resume", json!({})).await.expect(200);
    site.until(sound, "done").await;
    let failed = site.until(strange, "failed").await;
    assert!(failed["last_error"].as_str().expect("a reason").contains("set aside"), "{failed}");
    let told = site.get(&format!("/v1/instances/{strange}/explain")).await.expect(200);
    assert!(told.to_string().contains("nonsense"), "{told}");
    site.post(&format!("/v1/instances/{strange}/retry"), json!({})).await.expect(200);
    site.until(strange, "done").await;
}

async fn an_inbox_that_is_full_takes_no_more_and_stops_nobody(database: Database) {
    let site = database.open().await;
    let (full, other) = (site.order(1).await, site.order(2).await);
    let path = format!("/v1/instances/{full}/signals");
    site.post(&format!("/v1/instances/{full}/pause"), json!({})).await.expect(200);
    let note = json!({ "name": "note", "payload": "x".repeat(1_000_000) });
    for _ in 0..16 {
        site.post(&path, note.clone()).await.expect(200);
    }
    for _ in 0..2 {
        let problem = site.post(&path, note.clone()).await.expect_problem(409, "inbox-full");
        assert!(problem["detail"].as_str().expect("a sentence").contains("raise the limit"), "{problem}");
    }
    let addressed = |target: i64| {
        let mut addressed = note.clone();
        addressed["target"] = json!(target);
        addressed
    };
    let batch = json!({ "signals": [addressed(full), addressed(other)] });
    let told = site.post("/v1/signals/batch", batch).await.expect(200);
    let words: Vec<_> =
        told["results"].as_array().expect("results").iter().map(|told| &told["delivered"]).collect();
    assert_eq!(words, ["inbox_full", "accepted"], "each for itself");
    let start = json!({ "machine": "shop", "step": "Start", "state": { "order": 1 }, "key": "order:1",
        "signals": [note] });
    site.post("/v1/instances", start).await.expect_problem(409, "inbox-full");
    let instance = site.get(&format!("/v1/instances/{full}")).await.expect(200);
    assert_eq!(instance["inbox"], 16, "nothing of what was refused is stored: {instance}");
    // A small signal still fits, and the step gets all of them.
    let paid = json!({ "name": "paid", "payload": 7 });
    for id in [full, other] {
        site.post(&format!("/v1/instances/{id}/signals"), paid.clone()).await.expect(200);
    }
    site.until(other, "done").await;
    site.post(&format!("/v1/instances/{full}/resume"), json!({})).await.expect(200);
    site.until(full, "done").await;
}

async fn an_inbox_that_got_too_large_before_is_set_aside_alone_and_can_be_mended(database: Database) {
    let site = database.open().await;
    let (large, sound) = (held(&site, 1).await, held(&site, 2).await);
    sql(
        &site,
        // More than one value of the database could hold as nested JSON.
        &format!(
            "insert into dormouse.signals (instance, id, name, at, payload) \
             select {large}, nextval('dormouse.signal_ids'), 'note', now(), to_json(repeat('\\', 1000000)) \
             from generate_series(1, 300); \
             update dormouse.instances set inbox = inbox + 300, inbox_bytes = inbox_bytes + 300 * 2000002 \
             where id = {large}"
        ),
        &format!("update instances set inbox_bytes = inbox_bytes + 300 * 2000002 where id = {large}"),
    )
    .await;
    for id in [large, sound] {
        site.post(&format!("/v1/instances/{id}/resume"), json!({})).await.expect(200);
    }
    site.until(sound, "done").await;
    let failed = site.until(large, "failed").await;
    let told = failed["last_error"].as_str().expect("a reason");
    assert!(told.contains("set aside") && told.contains("600000601"), "{told}");
    // After an operator drops some of it, a retry works.
    sql(
        &site,
        &format!(
            "delete from dormouse.signals where instance = {large} and name = 'note'; \
             update dormouse.instances set inbox = inbox - 300, inbox_bytes = 1 where id = {large}"
        ),
        &format!("update instances set inbox_bytes = 1 where id = {large}"),
    )
    .await;
    site.post(&format!("/v1/instances/{large}/retry"), json!({})).await.expect(200);
    site.until(large, "done").await;
}

/// An order that is paid, runnable and paused.
async fn held(site: &Site, number: u64) -> i64 {
    let id = site.order(number).await;
    site.post(&format!("/v1/instances/{id}/pause"), json!({})).await.expect(200);
    site.post(&format!("/v1/instances/{id}/signals"), json!({ "name": "paid", "payload": 7 }))
        .await
        .expect(200);
    id
}

/// Corrupts an instance and its counts.
async fn write(site: &Site, set: &str, id: i64) {
    let counted = if set.starts_with("version") { "set version = -1" } else { "set machine = machine" };
    let postgres = format!(
        "alter table dormouse.instances drop constraint if exists instances_version; \
         update dormouse.instances set {set} where id = {id}; \
         update dormouse.counts {counted} where machine = 'elsewhere'"
    );
    let sqlite = format!(
        "update instances set {set} where id = {id}; update counted_places {counted} where machine = 'elsewhere'"
    );
    sql(site, &postgres, &sqlite).await;
}

/// Runs SQL, as somebody would with the database's own tool.
async fn sql(site: &Site, postgres: &str, sqlite: &str) {
    let url = site.database();
    if let Some(path) = url.strip_prefix("sqlite:") {
        let conn = SqliteConnection::open(path).expect("it opens");
        conn.busy_timeout(SOON).expect("a setting");
        conn.execute_batch(sqlite).expect("a write");
        return;
    }
    let mut conn = PostgresConnection::connect(url).await.expect("it connects");
    sqlx::raw_sql(sqlx::AssertSqlSafe(postgres.to_owned())).execute(&mut conn).await.expect("a write");
}
