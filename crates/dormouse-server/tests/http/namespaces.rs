//! Tenants: everything in another namespace looks as if it did not exist.

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
    a_tenant_sees_the_machines_that_serve_it_or_that_it_has_instances_of,
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
        // The payload is wrong, but the error must not reveal which machine refuses it.
        ("POST", "/signals", json!({ "name": "paid", "payload": "text" })),
        ("POST", "/cancel", json!({})),
        // Nor may it reveal where the instance is.
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
    site.post("/v1/queues/special/pause", json!({ "even_if_unknown": true })).await.expect(200);
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

async fn a_tenant_sees_the_machines_that_serve_it_or_that_it_has_instances_of(database: Database) {
    let mut site = database.for_tenant("acme").await;
    let [acme, umbrella] = [site.key("acme", Scope::Admin).await, site.key("umbrella", Scope::Admin).await];
    site.set_key(&acme);
    site.order(1).await;
    let (seen, metrics) = (names(&site).await, site.get("/metrics").await.text);
    assert_eq!(seen, ["dormouse.schedule", "double", "review", "shop", "survey"]);
    assert!(
        metrics.lines().any(|line| !line.contains("status=") && line.contains("machine=\"shop\"")),
        "{metrics}"
    );
    site.get("/v1/machines/review/graph").await.expect_problem(404, "not-found");
    site.get("/v1/machines/shop/graph").await.expect(200);
    let misspelt = json!({ "machine": "shpo", "step": "Start", "state": { "order": 1 } });
    let told = site.post("/v1/instances", misspelt.clone()).await.expect_problem(422, "undeclared-machine");
    assert_eq!(told["nearest"], "shop");

    site.set_key(&umbrella);
    assert_eq!(names(&site).await, Vec::<String>::new());
    let unseen = site.get("/v1/machines/shop/graph").await.expect_problem(404, "not-found");
    let never = site.get("/v1/machines/never/graph?version=1").await.expect_problem(404, "not-found");
    assert_eq!(unseen, never);
    site.get("/v1/machines/shop/graph?version=1").await.expect_problem(404, "not-found");
    let told = [
        site.post("/v1/instances", misspelt.clone()).await.expect_problem(422, "undeclared-machine"),
        site.post("/v1/instances/batch", json!({ "instances": [misspelt] }))
            .await
            .expect_problem(422, "undeclared-machine"),
        site.post("/v1/instances", json!({ "machine": "shop", "step": "Nope", "state": {} }))
            .await
            .expect_problem(422, "invalid-state"),
        site.post("/v1/instances", json!({ "machine": "survey" }))
            .await
            .expect_problem(400, "invalid-request"),
    ];
    for told in told {
        let detail = told["detail"].as_str().expect("text").replace("machine shop", "");
        let inside = ["shop", "Ship", "Told"].iter().find(|inside| detail.contains(**inside));
        assert_eq!((inside, &told["nearest"]), (None, &Value::Null), "{told}");
    }
    let metrics = site.get("/metrics").await.text;
    assert!(metrics.contains("dormouse_http_seconds_count") && !metrics.contains("machine="), "{metrics}");
    let key = umbrella.clone();
    site.clear_key();
    let browser = site.signed_in(&key).await;
    assert!(browser.page("/machines").await.contains("No machine is known."));
    assert_eq!(browser.get("/machines/shop").await.status, 404);

    // A caller who knows its name may start it, and sees it from then on.
    site.set_key(&umbrella);
    let new = json!({ "machine": "shop", "step": "Start", "state": { "order": 1 } });
    site.post("/v1/instances", new).await.expect(201);
    assert_eq!(names(&site).await, ["shop"]);
    site.get("/v1/machines/shop/graph").await.expect(200);
}

/// The machines that the site's caller sees.
async fn names(site: &Site) -> Vec<String> {
    let seen = site.get("/v1/machines").await.expect(200);
    let machines = seen["machines"].as_array().expect("machines").iter();
    machines.map(|machine| machine["name"].as_str().expect("a name").to_owned()).collect()
}
