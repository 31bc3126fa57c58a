//! What another hand wrote into the database: it hides nothing else, and breaks no page.

use dormouse::store::postgres::Connection as PostgresConnection;
use dormouse::store::postgres::sqlx::{self, Connection as _};
use dormouse::store::sqlite::Connection as SqliteConnection;
use serde_json::json;

use crate::kit::*;

suite![one_strange_row_breaks_no_page_and_hides_no_other];

async fn one_strange_row_breaks_no_page_and_hides_no_other(database: Database) {
    let site = database.open().await;
    let sound = site.order(1).await;
    let body = json!({ "machine": "elsewhere", "step": "Go", "even_if_unknown": true, "version": 7 });
    let strange = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(sound, "awaiting_signal").await;
    let mut site = site;
    for word in ["version = -1", "version = 7, wake = 'nonsense'", "wake = null, seq = -5"] {
        write(&mut site, word, strange).await;
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
    // What runs goes on, and what was mended is there again.
    site.post(&format!("/v1/instances/{sound}/signals"), json!({ "name": "paid", "payload": 1 }))
        .await
        .expect(200);
    site.until(sound, "done").await;
    write(&mut site, "seq = 1", strange).await;
    site.get(&format!("/v1/instances/{strange}")).await.expect(200);
}

/// As somebody would with the database's own tool.
async fn write(site: &mut Site, set: &str, id: i64) {
    let url = site.database();
    if let Some(path) = url.strip_prefix("sqlite:") {
        let conn = SqliteConnection::open(path).expect("it opens");
        conn.busy_timeout(SOON).expect("a setting");
        conn.execute_batch(&format!("update instances set {set} where id = {id}")).expect("a write");
        if set.starts_with("version") {
            conn.execute_batch("update counts set version = -1 where machine = 'elsewhere'")
                .expect("a write");
        }
        return;
    }
    let mut conn = PostgresConnection::connect(url).await.expect("it connects");
    let mut sql = format!(
        "alter table dormouse.instances drop constraint if exists instances_version; \
         update dormouse.instances set {set} where id = {id};"
    );
    if set.starts_with("version") {
        sql.push_str("update dormouse.counts set version = -1 where machine = 'elsewhere'");
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut conn).await.expect("a write");
}
