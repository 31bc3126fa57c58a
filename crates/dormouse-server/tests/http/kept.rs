//! Kept signals: sent before their instance starts, listed, counted, dropped; over HTTP and with the dashboard.

use serde_json::{Value, json};

use crate::browser::leads_to;
use crate::kit::*;

suite![
    a_signal_is_kept_until_its_instance_starts,
    kept_signals_are_listed_by_key_and_page,
    a_batch_may_keep_some,
    what_cannot_be_kept_is_refused,
    a_kept_signal_is_dropped_and_audited,
    a_page_shows_kept_signals_and_drops_them,
    the_metrics_count_kept_signals,
];

async fn keep(site: &Site, key: &str, payload: u64) -> Value {
    let body = json!({ "name": "paid", "payload": payload, "keep_for": "1h" });
    site.post(&format!("/v1/instances/key:{key}/signals"), body).await.expect(200)
}

async fn a_signal_is_kept_until_its_instance_starts(database: Database) {
    let site = database.open().await;
    let plain = json!({ "name": "paid" });
    site.post("/v1/instances/key:k/signals", plain).await.expect_problem(404, "no-target");
    let kept = keep(&site, "k", 7).await;
    assert_eq!((&kept["delivered"], &kept["woke"]), (&json!("kept"), &json!(false)));
    assert!(kept["until"].is_string() && kept["id"].is_i64(), "{kept}");
    let told = site.get("/v1/instances/key:k/explain").await.expect(200);
    assert!(told.to_string().contains("1 signal is kept for it"), "{told}");
    let start = json!({ "machine": "double", "state": 1, "start_in": "1h", "key": "k" });
    site.post("/v1/instances", start).await.expect(201);
    let inbox = site.get("/v1/instances/key:k/inbox").await.expect(200);
    assert_eq!(inbox["items"][0]["payload"], 7);
    assert_eq!(site.get("/v1/kept").await.expect(200)["signals"], 0);
}

async fn kept_signals_are_listed_by_key_and_page(database: Database) {
    let site = database.open().await;
    for (key, payload) in [("a", 1), ("b", 2), ("a", 3)] {
        keep(&site, key, payload).await;
    }
    let all = site.get("/v1/kept").await.expect(200);
    assert_eq!((&all["signals"], &all["bytes"], &all["next"]), (&json!(3), &json!(3), &Value::Null));
    let told = |page: &Value| {
        let items = page["items"].as_array().expect("a list");
        items.iter().map(|kept| (kept["key"].clone(), kept["payload"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(told(&all), [(json!("a"), json!(1)), (json!("b"), json!(2)), (json!("a"), json!(3))]);
    let of_a = site.get("/v1/kept?key=a").await.expect(200);
    assert_eq!(told(&of_a), [(json!("a"), json!(1)), (json!("a"), json!(3))]);
    let first = site.get("/v1/kept?limit=2").await.expect(200);
    let next = first["next"].as_str().expect("a cursor");
    let rest = site.get(&format!("/v1/kept?limit=2&cursor={next}")).await.expect(200);
    assert_eq!((told(&rest), &rest["next"]), (vec![(json!("a"), json!(3))], &Value::Null));
    site.get("/v1/kept?cursor=x").await.expect_problem(400, "invalid-cursor");
    site.get("/v1/kept?limit=0").await.expect_problem(400, "invalid-request");
}

async fn a_batch_may_keep_some(database: Database) {
    let site = database.open().await;
    let signals = json!([
        { "target": "key:k", "name": "paid", "keep_for": "90s" },
        { "target": "key:k", "name": "paid" },
    ]);
    let answer = site.post("/v1/signals/batch", json!({ "signals": signals })).await.expect(200);
    let words = answer["results"].as_array().expect("results").iter().map(|one| one["delivered"].clone());
    assert_eq!(words.collect::<Vec<_>>(), ["kept", "no_target"]);
}

async fn what_cannot_be_kept_is_refused(database: Database) {
    let site = database.open().await;
    let with = |keep_for: &str| json!({ "name": "paid", "keep_for": keep_for });
    for keep_for in ["0s", "367d"] {
        site.post("/v1/instances/key:k/signals", with(keep_for)).await.expect_problem(422, "not-kept");
    }
    for keep_for in ["", "soon", "-1h", "1"] {
        site.post("/v1/instances/key:k/signals", with(keep_for)).await.expect_problem(400, "invalid-request");
    }
    site.post("/v1/instances/7/signals", with("1h")).await.expect_problem(422, "not-kept");
    let start = json!({ "machine": "double", "state": 1, "key": "k", "signals": [with("1h")] });
    site.post("/v1/instances", start).await.expect_problem(422, "not-kept");
    assert_eq!(site.get("/v1/kept").await.expect(200)["items"], json!([]), "nothing was stored");
}

async fn a_kept_signal_is_dropped_and_audited(database: Database) {
    let site = database.open().await;
    let id = keep(&site, "k", 7).await["id"].clone();
    let dropped = site.post(&format!("/v1/kept/{id}/drop"), json!({})).await.expect(200);
    assert_eq!(dropped, json!({ "id": id }));
    site.post(&format!("/v1/kept/{id}/drop"), json!({})).await.expect_problem(404, "no-signal");
    site.post("/v1/kept/x/drop", json!({})).await.expect_problem(400, "invalid-request");
    let audit = site.get("/v1/audit?what=kept.drop").await.expect(200);
    assert_eq!(audit["items"].as_array().map(Vec::len), Some(3), "{audit}");
}

async fn a_page_shows_kept_signals_and_drops_them(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    assert!(browser.page("/kept").await.contains("No signal is kept."));
    let id = keep(&site, "order:42", 7).await["id"].clone();
    let page = browser.page("/kept").await;
    assert!(page.contains("order:42") && page.contains(&format!(r#"data-kept="{id}""#)), "{page}");
    let answer = browser.submit("/kept", &format!("/kept/{id}/drop"), &[]).await;
    assert_eq!(leads_to(&answer), "/kept?notice=dropped_kept");
    assert!(browser.page("/kept").await.contains("No signal is kept."));
}

async fn the_metrics_count_kept_signals(database: Database) {
    let site = database.open().await;
    keep(&site, "k", 7).await;
    let metrics = site.get("/metrics").await.text;
    assert!(metrics.contains("dormouse_kept_signals 1\n"), "{metrics}");
    assert!(metrics.contains("dormouse_kept_bytes 1\n"), "{metrics}");
}
