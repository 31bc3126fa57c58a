//! Schedules over HTTP and on the dashboard.

use dormouse::store::Scope;
use serde_json::{Value, json};

use crate::browser::leads_to;
use crate::kit::*;

suite![
    a_schedule_is_created_changed_run_and_deleted,
    a_schedule_that_cannot_be_is_refused_and_nothing_is_stored,
    another_namespaces_schedule_is_not_there,
    what_is_done_to_a_schedule_is_audited,
    a_page_shows_and_operates_schedules,
];

/// Once a day, in the far future of the test.
fn daily() -> Value {
    json!({
        "name": "daily", "cron": "0 3 * * *", "zone": "Europe/Berlin", "machine": "shop", "step": "Start",
        "state": { "order": 7 }, "overlap": "allow", "tags": ["nightly"],
    })
}

async fn a_schedule_is_created_changed_run_and_deleted(database: Database) {
    let site = database.open().await;
    let created = site.post("/v1/schedules", daily()).await;
    assert!(created.header("location").ends_with("/v1/schedules/daily"), "{created:?}");
    let created = created.expect(201);
    assert_eq!((&created["overlap"], &created["catch_up"]), (&json!("allow"), &json!("last")));
    site.post("/v1/schedules", daily()).await.expect_problem(409, "key-taken");
    site.until(created["id"].as_i64().expect("an id"), "awaiting_signal").await;
    let listed = site.get("/v1/schedules").await.expect(200);
    assert_eq!(listed["items"][0]["name"], "daily");
    let next = site.get("/v1/schedules/daily/next?count=3").await.expect(200);
    assert_eq!(next["next"].as_array().expect("moments").len(), 3);
    site.get("/v1/schedules/daily/next?count=0").await.expect_problem(400, "invalid-request");
    site.post("/v1/schedules/daily/run", json!({})).await.expect(200);
    let run = loop {
        let runs = site.get("/v1/schedules/daily/runs").await.expect(200);
        if let Some(run) = runs["items"].as_array().and_then(|runs| runs.first()) {
            break run.clone();
        }
    };
    assert_eq!((&run["machine"], &run["tags"]), (&json!("shop"), &json!(["nightly"])));
    let range = json!({ "from": "2020-01-01T00:00:00Z", "to": "2020-01-04T00:00:00Z" });
    let filled = site.post("/v1/schedules/daily/backfill", range).await.expect(200);
    assert_eq!(filled["occurrences"], 3);
    site.post("/v1/schedules/daily/change", json!({ "cron": "0 4 * * *", "overlap": "wait" }))
        .await
        .expect(200);
    loop {
        let changed = site.get("/v1/schedules/daily").await.expect(200);
        if changed["cron"] == "0 4 * * *" {
            assert_eq!((&changed["overlap"], &changed["zone"]), (&json!("wait"), &json!("Europe/Berlin")));
            break;
        }
    }
    site.post("/v1/schedules/daily/reset", json!({})).await.expect_problem(422, "invalid-schedule");
    site.post("/v1/schedules/daily/pause", json!({})).await.expect(200);
    assert_eq!(site.get("/v1/schedules/daily").await.expect(200)["paused"], true);
    site.post("/v1/schedules/daily/resume", json!({})).await.expect(200);
    site.post("/v1/schedules/daily/delete", json!({})).await.expect(200);
    assert_eq!(site.get("/v1/schedules/daily").await.expect(200)["status"], "cancelled");
    assert_eq!(site.get("/v1/schedules").await.expect(200)["items"], json!([]));
    site.post("/v1/schedules/daily/run", json!({})).await.expect_problem(404, "not-found");
}

async fn a_schedule_that_cannot_be_is_refused_and_nothing_is_stored(database: Database) {
    let site = database.open().await;
    for (change, status, cause) in [
        (json!({ "cron": "61 * * * *" }), 422, "invalid-schedule"),
        (json!({ "cron": "0 0 30 2 *" }), 422, "invalid-schedule"),
        (json!({ "zone": "Mars/Olympus" }), 422, "invalid-schedule"),
        (json!({ "until": "2020-01-01T00:00:00Z" }), 422, "invalid-schedule"),
        (json!({ "from": "2050-01-01T00:00:00Z", "until": "2049-01-01T00:00:00Z" }), 422, "invalid-schedule"),
        (json!({ "cron": null, "every": "1s", "catch_up": "100d" }), 422, "invalid-schedule"),
        (json!({ "catch_up": "sometimes" }), 400, "invalid-request"),
        (json!({ "every": "5m" }), 400, "invalid-request"),
        (json!({ "cron": null }), 400, "invalid-request"),
        (json!({ "overlap": "maybe" }), 400, "invalid-request"),
        (json!({ "runs_max": -1 }), 400, "invalid-request"),
        (json!({ "stated": 1 }), 400, "invalid-request"),
        (json!({ "name": null }), 400, "invalid-request"),
        (json!({ "name": "a\nb" }), 422, "invalid-name"),
        (json!({ "name": "x".repeat(201) }), 422, "invalid-name"),
        (json!({ "machine": "shap" }), 422, "undeclared-machine"),
        (json!({ "state": { "order": "seven" } }), 422, "invalid-state"),
        (json!({ "step": "Nowhere" }), 422, "invalid-state"),
        (json!({ "tags": ["x".repeat(65)] }), 422, "invalid-name"),
    ] {
        let mut body = daily();
        for (name, value) in change.as_object().expect("an object") {
            body[name] = value.clone();
        }
        site.post("/v1/schedules", body).await.expect_problem(status, cause);
    }
    assert_eq!(site.get("/v1/instances").await.expect(200)["items"], json!([]), "nothing was stored");
    site.post("/v1/schedules", daily()).await.expect(201);
    let range = json!({ "from": "2020-01-04T00:00:00Z", "to": "2020-01-01T00:00:00Z" });
    site.post("/v1/schedules/daily/backfill", range).await.expect_problem(422, "invalid-schedule");
    let refused = site.post("/v1/schedules/daily/change", json!({ "name": "other" })).await;
    refused.expect_problem(400, "invalid-request");
    let refused = site.post("/v1/schedules/daily/change", json!({ "cron": "x" })).await;
    refused.expect_problem(422, "invalid-schedule");
}

async fn another_namespaces_schedule_is_not_there(database: Database) {
    let mut site = database.with_keys().await;
    let [acme, umbrella] = [site.key("acme", Scope::Admin).await, site.key("umbrella", Scope::Admin).await];
    site.set_key(&acme);
    site.post("/v1/schedules", daily()).await.expect(201);
    site.set_key(&umbrella);
    assert_eq!(site.get("/v1/schedules").await.expect(200)["items"], json!([]));
    for name in ["daily", "never"] {
        site.get(&format!("/v1/schedules/{name}")).await.expect_problem(404, "not-found");
        for verb in ["run", "pause", "resume", "delete", "reset", "change"] {
            let path = format!("/v1/schedules/{name}/{verb}");
            site.post(&path, json!({})).await.expect_problem(404, "not-found");
        }
    }
    site.post("/v1/schedules", daily()).await.expect(201);
    let reader = site.key("acme", Scope::Read).await;
    site.set_key(&reader);
    site.get("/v1/schedules/daily").await.expect(200);
    site.post("/v1/schedules/daily/delete", json!({})).await.expect_problem(403, "forbidden");
}

async fn what_is_done_to_a_schedule_is_audited(database: Database) {
    let site = database.open().await;
    site.post("/v1/schedules", daily()).await.expect(201);
    site.post("/v1/schedules/daily/pause", json!({})).await.expect(200);
    let audit = site.get("/v1/audit").await.expect(200);
    let entry = |entry: &Value| (entry["what"].clone(), entry["target"].clone());
    let entries: Vec<_> = audit["items"].as_array().expect("items").iter().map(entry).collect();
    assert_eq!(entries[0], (json!("schedule.pause"), json!("daily")));
    assert_eq!(entries[1], (json!("schedule.create"), json!("daily")));
}

async fn a_page_shows_and_operates_schedules(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    assert!(browser.page("/schedules").await.contains("There are no schedules."));
    let fields = [
        ("name", "daily"),
        ("cron", "0 3 * * *"),
        ("zone", "UTC"),
        ("overlap", "skip"),
        ("machine", "shop"),
        ("step", "Start"),
        ("state", r#"{"order":7}"#),
    ];
    let created = browser.submit("/schedules", "/schedules", &fields).await;
    assert_eq!(leads_to(&created), "/schedules/daily?notice=scheduled");
    let page = browser.page("/schedules").await;
    assert!(page.contains("0 3 * * *") && page.contains("/schedules/daily"), "{page}");
    let page = browser.page("/schedules/daily?notice=scheduled").await;
    for part in ["The schedule is created.", "Run now", "Nothing was missed.", "Nothing was started yet."] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let sent = browser.submit("/schedules/daily", "/schedules/daily/run", &[]).await;
    assert_eq!(leads_to(&sent), "/schedules/daily?notice=ran");
    let sent = browser.submit("/schedules/daily", "/schedules/daily/pause", &[]).await;
    assert_eq!(leads_to(&sent), "/schedules/daily?notice=held");
    assert!(browser.page("/schedules").await.contains("paused"));
    let sent = browser.submit("/schedules/daily", "/schedules/daily/resume", &[]).await;
    assert_eq!(leads_to(&sent), "/schedules/daily?notice=resumed");
    let change = [("cron", "0 3 * * *"), ("every", "2h"), ("zone", "UTC"), ("overlap", "wait")];
    let sent = browser.submit("/schedules/daily", "/schedules/daily/change", &change).await;
    assert_eq!(leads_to(&sent), "/schedules/daily?notice=changed");
    while !browser.page("/schedules/daily").await.contains("every 2 h") {
        tokio::task::yield_now().await;
    }
    let sent = browser.submit("/schedules/daily", "/schedules/daily/delete", &[]).await;
    assert_eq!(leads_to(&sent), "/schedules?notice=deleted");
    let none = browser.get("/schedules/none").await;
    assert!(none.status == 404 && none.text.contains("Not found"), "{none:?}");
}
