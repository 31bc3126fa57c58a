//! Tenants: what is in another namespace answers as if it did not exist.

use axum::body::Body;
use axum::http::Method;
use dormouse::store::Scope;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    another_namespaces_instance_answers_exactly_as_one_that_never_was,
    lists_counts_and_logs_show_one_namespace_alone,
    a_key_names_its_namespace_and_a_header_changes_nothing,
    without_keys_a_header_chooses_the_namespace,
];

async fn another_namespaces_instance_answers_exactly_as_one_that_never_was(database: Database) {
    let mut site = database.with_keys().await;
    let [acme, umbrella] = [site.key("acme", Scope::Admin).await, site.key("umbrella", Scope::Admin).await];
    site.set_key(&acme);
    let theirs = site.order(1).await;
    let before = site.get(&format!("/v1/instances/{theirs}")).await.expect(200);
    site.set_key(&umbrella);
    let never = i64::MAX;
    let verbs: &[(&str, &str, Value)] = &[
        ("GET", "", json!(null)),
        ("GET", "/history", json!(null)),
        ("GET", "/inbox", json!(null)),
        ("GET", "/children", json!(null)),
        ("GET", "/result?wait=10ms", json!(null)),
        ("GET", "/explain", json!(null)),
        ("POST", "/signals", json!({ "name": "paid", "payload": 1 })),
        // The payload is wrong, but whose machine would say so is nobody's business.
        ("POST", "/signals", json!({ "name": "paid", "payload": "text" })),
        ("POST", "/cancel", json!({})),
        // Where it is, is nobody's business either.
        ("POST", "/cancel", json!({ "reason": "x", "expected_seq": 7 })),
        ("POST", "/tags", json!({ "add": ["x"] })),
        ("POST", "/retry", json!({})),
        ("POST", "/retry", json!({ "step": "Ship" })),
        ("POST", "/pause", json!({})),
        ("POST", "/resume", json!({})),
        ("POST", "/fork", json!({ "seq": 1 })),
    ];
    for (method, path, body) in verbs {
        let mut answers = Vec::new();
        for id in [theirs, never] {
            let path = format!("/v1/instances/{id}{path}");
            let answer = match *method {
                "GET" => site.get(&path).await,
                _ => site.post(&path, body.clone()).await,
            };
            answers.push((answer.status, answer.text.replace(&id.to_string(), "ID")));
        }
        assert_eq!(answers[0].0, 404, "{method} {path}: {answers:?}");
        assert_eq!(answers[0], answers[1], "{method} {path}");
    }
    let by_key = site.get("/v1/instances/key:order:1").await;
    by_key.expect_problem(404, "not-found");
    let both = [theirs, never].map(|id| json!({ "target": id, "name": "paid", "payload": 1 }));
    let many = json!({ "signals": both });
    let many = site.post("/v1/signals/batch", many).await.expect(200);
    assert_eq!(many["results"][0], many["results"][1]);
    assert_eq!(many["results"][0]["delivered"], "no_target");
    site.set_key(&acme);
    assert_eq!(
        site.get(&format!("/v1/instances/{theirs}")).await.expect(200),
        before,
        "nothing of it was touched"
    );
}

async fn lists_counts_and_logs_show_one_namespace_alone(database: Database) {
    let mut site = database.with_keys().await;
    let [acme, umbrella] = [site.key("acme", Scope::Admin).await, site.key("umbrella", Scope::Admin).await];
    site.set_key(&acme);
    let theirs = site.order(1).await;
    site.post("/v1/queues/special/pause", json!({})).await.expect(200);
    site.set_key(&umbrella);
    assert_eq!(site.get("/v1/instances").await.expect(200)["items"], json!([]));
    assert_eq!(site.get(&format!("/v1/instances?parent={theirs}")).await.expect(200)["items"], json!([]));
    assert_eq!(site.get("/v1/waiting").await.expect(200)["awaiting"], json!([]));
    assert_eq!(site.get("/v1/waiting?signal=paid").await.expect(200)["items"], json!([]));
    let stats = site.get("/v1/stats").await.expect(200);
    assert_eq!((&stats["places"], &stats["statuses"]["awaiting_signal"]), (&json!([]), &json!(0)));
    assert!(!site.get("/v1/queues").await.text.contains("special"));
    assert!(!site.get("/metrics").await.text.contains("dormouse_instances{"));
    assert_eq!(site.get("/v1/audit").await.expect(200)["items"], json!([]));
    let keys = site.get("/v1/api-keys").await.expect(200);
    assert_eq!(keys["api_keys"].as_array().expect("keys").len(), 1);
    let id = acme.trim_start_matches("dmk_").split('_').next().expect("an id");
    site.post(&format!("/v1/api-keys/{id}/revoke"), json!({})).await.expect_problem(404, "not-found");
    assert_eq!(site.post("/v1/gc", json!({ "ended_for": "0s" })).await.expect(200)["instances"], 0);
    // The same key and queue are free here.
    site.order(1).await;
    site.set_key(&acme);
    let audit = site.get("/v1/audit").await.expect(200);
    let told: Vec<_> =
        audit["items"].as_array().expect("items").iter().map(|entry| entry["what"].clone()).collect();
    assert_eq!(told, ["queue.pause", "instance.start"]);
}

async fn a_key_names_its_namespace_and_a_header_changes_nothing(database: Database) {
    let mut site = database.with_keys().await;
    let acme = site.key("acme", Scope::Read).await;
    site.set_key(&acme);
    let request = site.request(Method::GET, "/v1/about").header("dormouse-namespace", "umbrella");
    let about = site.send(request.body(Body::empty()).expect("a request")).await.expect(200);
    assert_eq!(about["namespace"], "acme");
}

async fn without_keys_a_header_chooses_the_namespace(database: Database) {
    let site = database.open().await;
    site.order(1).await;
    for (namespace, count) in [("default", 1), ("acme", 0)] {
        let request = site.request(Method::GET, "/v1/instances").header("dormouse-namespace", namespace);
        let page = site.send(request.body(Body::empty()).expect("a request")).await.expect(200);
        assert_eq!(page["items"].as_array().expect("items").len(), count, "{namespace}");
    }
    let request = site.request(Method::GET, "/v1/instances").header("dormouse-namespace", "");
    let answer = site.send(request.body(Body::empty()).expect("a request")).await;
    answer.expect_problem(422, "invalid-name");
}
