//! The overview: where instances are, what they wait for and since when, which workers run.

use dormouse::store::Scope;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    stats_count_by_place_and_tell_what_is_awaited,
    who_waits_for_a_signal_is_listed,
    machines_tell_their_steps_and_who_runs_them,
    a_queue_is_paused_and_resumed,
    a_limit_is_set_listed_and_removed,
    a_limit_that_makes_no_sense_is_refused,
    a_transport_is_limited_listed_and_closed,
    no_tenant_changes_a_transport_that_all_share,
    limits_of_a_transport_that_make_no_sense_are_refused,
    workers_are_listed_while_they_live,
    about_tells_who_you_are,
];

async fn stats_count_by_place_and_tell_what_is_awaited(database: Database) {
    let site = database.open().await;
    for number in 1..=3 {
        site.order(number).await;
    }
    site.post("/v1/instances/key:order:3/cancel", json!({})).await.expect(200);
    let stats = site.get("/v1/stats").await.expect(200);
    assert_eq!(
        (&stats["statuses"]["awaiting_signal"], &stats["statuses"]["cancelled"]),
        (&json!(2), &json!(1))
    );
    let expected =
        json!({ "machine": "shop", "version": 1, "step": "Ship", "status": "awaiting_signal", "count": 2 });
    assert!(stats["places"].as_array().expect("places").contains(&expected), "{stats}");
    let awaited = &stats["awaiting"][0];
    assert_eq!(
        (&awaited["names"], &awaited["count"], &awaited["is_capped"]),
        (&json!(["paid"]), &json!(2), &json!(false))
    );
    assert_eq!(stats["workers"], 1);
}

async fn who_waits_for_a_signal_is_listed(database: Database) {
    let site = database.open().await;
    let first = site.order(1).await;
    site.order(2).await;
    let page = site.get("/v1/waiting?signal=paid&limit=1").await.expect(200);
    assert_eq!(page["items"][0]["id"], first, "oldest first");
    let next = page["next"].as_str().expect("more");
    let page = site.get(&format!("/v1/waiting?signal=paid&limit=1&cursor={next}")).await.expect(200);
    assert_eq!((page["items"].as_array().expect("items").len(), &page["next"]), (1, &json!(null)));
    assert_eq!(site.get("/v1/waiting?signal=other").await.expect(200)["items"], json!([]));
    site.get("/v1/waiting?limit=3").await.expect_problem(400, "invalid-request");
}

async fn machines_tell_their_steps_and_who_runs_them(database: Database) {
    let site = database.open().await;
    site.order(1).await;
    let machines = site.get("/v1/machines").await.expect(200);
    let shop = machines["machines"]
        .as_array()
        .expect("machines")
        .iter()
        .find(|m| m["name"] == "shop")
        .expect("shop");
    assert_eq!(shop["steps"], json!(["Start", "Ship", "Split", "Join"]));
    assert_eq!(
        (&shop["accepts"], &shop["versions"], &shop["workers"]),
        (&json!(["paid"]), &json!([1]), &json!(1))
    );
    assert_eq!(
        shop["places"],
        json!([{ "version": 1, "step": "Ship", "status": "awaiting_signal", "count": 1 }])
    );
}

async fn a_queue_is_paused_and_resumed(database: Database) {
    let site = database.open().await;
    assert_eq!(site.post("/v1/queues/default/pause", json!({})).await.expect(200)["paused"], true);
    let body = json!({ "machine": "double", "state": 1 });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    let queue = site.get("/v1/queues").await.expect(200)["queues"][0].clone();
    assert_eq!(
        (&queue["name"], &queue["runnable"], &queue["paused"]),
        (&json!("default"), &json!(1), &json!(true))
    );
    assert!(queue["oldest_runnable_at"].is_string() && queue["workers"] == 1, "{queue}");
    site.post("/v1/queues/default/resume", json!({})).await.expect(200);
    site.until(id, "done").await;
    site.post(&format!("/v1/queues/{}/pause", "q".repeat(300)), json!({}))
        .await
        .expect_problem(422, "invalid-name");
}

async fn a_limit_is_set_listed_and_removed(database: Database) {
    let site = database.open().await;
    let set = site.post("/v1/limits/partner%2Facme", json!({ "width": 3 })).await.expect(200);
    assert_eq!(set, json!({ "limit": "partner/acme", "width": 3 }));
    site.post("/v1/limits/other", json!({ "width": 2 })).await.expect(200);
    let listed = site.get("/v1/limits").await.expect(200);
    let limits = listed["limits"].as_array().expect("limits");
    let told: Vec<_> = limits.iter().map(|limit| (&limit["name"], &limit["width"], &limit["held"])).collect();
    assert_eq!(
        told,
        [(&json!("other"), &json!(2), &json!(0)), (&json!("partner/acme"), &json!(3), &json!(0))]
    );
    let page = site.get("/v1/limits?limit=1").await.expect(200);
    assert_eq!((page["limits"].as_array().map(Vec::len), &page["next"]), (Some(1), &json!("other")));
    let rest = site.get("/v1/limits?after=other").await.expect(200);
    assert_eq!((&rest["limits"][0]["name"], &rest["next"]), (&json!("partner/acme"), &Value::Null));
    let text = site.get("/metrics").await.text;
    assert!(text.contains("dormouse_limit_width{limit=\"partner/acme\"} 3"), "{text}");
    for removed in [true, false] {
        let told = site.post("/v1/limits/other/remove", json!({})).await.expect(200);
        assert_eq!(told, json!({ "limit": "other", "removed": removed }));
    }
    assert_eq!(site.get("/v1/limits").await.expect(200)["limits"].as_array().map(Vec::len), Some(1));
}

async fn a_transport_is_limited_listed_and_closed(database: Database) {
    let site = database.open().await;
    let body = json!({ "rate": { "count": 10, "period": "2s", "burst": 4 }, "in_flight": 20, "breaker": { "failures": 8 } });
    let set = site.post("/v1/transports/stripe%2Feu", body).await.expect(200);
    let limits = json!({
        "rate": { "count": 10, "period_ms": 2000, "burst": 4 },
        "in_flight": 20,
        "breaker": { "failures": 8, "open_for_ms": 5000, "open_cap_ms": 60000 },
    });
    assert_eq!(
        (&set["name"], &set["limits"], &set["declared"]),
        (&json!("stripe/eu"), &limits, &Value::Null)
    );
    site.post("/v1/transports/post", json!({ "in_flight": 1 })).await.expect(200);
    let set = site
        .post("/v1/transports/stripe%2Feu", json!({ "rate": null, "reset": ["breaker"] }))
        .await
        .expect(200);
    assert_eq!(set["limits"], json!({ "rate": null, "in_flight": 20, "breaker": null }));
    assert_eq!(set["changed"], json!(["in_flight", "rate"]));
    let listed = site.get("/v1/transports?limit=1").await.expect(200);
    assert_eq!((&listed["transports"][0]["name"], &listed["next"]), (&json!("post"), &json!("post")));
    assert_eq!(listed["transports"][0]["breaker"]["status"], "closed");
    let told = site.post("/v1/transports/post/close", json!({})).await.expect(200);
    assert_eq!(told, json!({ "transport": "post", "closed": false }));
    let text = site.get("/metrics").await.text;
    for told in ["# HELP dormouse_transport_open ", "dormouse_transport_open{transport=\"post\"} 0"] {
        assert!(text.contains(told), "{text}");
    }
    let page = site.get("/transports").await.text;
    assert!(page.contains("data-sends=\"stripe/eu\"") && page.contains("0 of 20"), "{page}");
}

async fn no_tenant_changes_a_transport_that_all_share(database: Database) {
    let mut site = database.with_keys().await;
    let (tenant, house) = (site.key("acme", Scope::Admin).await, site.key("default", Scope::Admin).await);
    site.set_key(&tenant);
    site.post("/v1/transports/t", json!({ "in_flight": 1 })).await.expect_problem(403, "forbidden");
    site.post("/v1/transports/t/close", json!({})).await.expect_problem(403, "forbidden");
    site.set_key(&house);
    site.post("/v1/transports/t", json!({ "in_flight": 1 })).await.expect(200);
    let audit = site.get("/v1/audit").await.expect(200);
    assert_eq!(audit["items"][0]["what"], "transport.set", "{audit}");
}

async fn limits_of_a_transport_that_make_no_sense_are_refused(database: Database) {
    let site = database.open().await;
    for body in [
        json!({ "rate": { "count": 0 } }),
        json!({ "rate": { "count": 1, "burst": 0 } }),
        json!({ "rate": { "count": 1, "period": "0s" } }),
        json!({ "in_flight": 0 }),
        json!({ "breaker": { "failures": 0 } }),
        json!({ "breaker": { "failures": 1, "open_for": "2m", "open_cap": "1m" } }),
    ] {
        site.post("/v1/transports/t", body).await.expect_problem(422, "invalid-limit");
    }
    for body in [
        json!({}),
        json!({ "in_flight": -1 }),
        json!({ "rate": 5 }),
        json!({ "rate": { "count": 1, "period": "soon" } }),
        json!({ "in_flight": 1, "reset": ["in_flight"] }),
        json!({ "reset": ["width"] }),
    ] {
        site.post("/v1/transports/t", body).await.expect_problem(400, "invalid-request");
    }
    for name in ["%00", "a%0Ab", &"l".repeat(256)] {
        let path = format!("/v1/transports/{name}");
        site.post(&path, json!({ "in_flight": 1 })).await.expect_problem(422, "invalid-name");
        site.post(&format!("{path}/close"), json!({})).await.expect_problem(422, "invalid-name");
    }
    site.post("/v1/transports/api", json!({ "in_flight": 1 })).await.expect_problem(422, "invalid-limit");
    assert_eq!(site.get("/v1/transports").await.expect(200)["transports"], json!([]), "nothing was stored");
}

async fn a_limit_that_makes_no_sense_is_refused(database: Database) {
    let site = database.open().await;
    for width in [0, 10_001] {
        site.post("/v1/limits/l", json!({ "width": width })).await.expect_problem(422, "invalid-limit");
    }
    for body in [json!({}), json!({ "width": -1 }), json!({ "width": "3" }), json!({ "width": 1.5 })] {
        site.post("/v1/limits/l", body).await.expect_problem(400, "invalid-request");
    }
    for name in ["%00", "a%0Ab", &"l".repeat(256)] {
        let path = format!("/v1/limits/{name}");
        site.post(&path, json!({ "width": 1 })).await.expect_problem(422, "invalid-name");
        site.post(&format!("{path}/remove"), json!({})).await.expect_problem(422, "invalid-name");
    }
    assert_eq!(site.get("/v1/limits").await.expect(200)["limits"], json!([]), "nothing was stored");
}

async fn workers_are_listed_while_they_live(database: Database) {
    let site = database.open().await;
    let workers = site.get("/v1/workers").await.expect(200);
    let worker = &workers["workers"][0];
    assert_eq!((&worker["is_live"], &worker["queues"]), (&json!(true), &json!(["default"])));
    assert_eq!(worker["pid"], std::process::id());
}

async fn about_tells_who_you_are(database: Database) {
    let site = database.open().await;
    let about = site.get("/v1/about").await.expect(200);
    assert_eq!((&about["namespace"], &about["scope"]), (&json!("default"), &json!("admin")));
    // A file is created when it is opened; a PostgreSQL database was migrated before.
    let found = if about["store"] == "sqlite" { json!(0) } else { about["schema"].clone() };
    assert_eq!(about["schema_found"], found);
    assert!(about["schema"].as_i64().expect("a version") > 0);
}
