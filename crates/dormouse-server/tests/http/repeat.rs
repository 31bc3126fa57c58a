//! `Idempotency-Key`: a request that is sent again is not executed again.

use axum::body::Body;
use axum::http::Method;
use dormouse::store::Scope;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    a_repeated_start_gives_the_first_answer_and_starts_nothing,
    a_refusal_is_repeated_too,
    the_same_key_for_another_request_is_refused,
    the_same_key_of_another_namespace_is_another_key,
    ten_at_once_start_one,
    a_key_that_cannot_be_used_is_refused,
    an_answer_with_a_secret_is_never_kept,
];

async fn post(site: &Site, key: &str, path: &str, body: &Value) -> Answer {
    let request = site.request(Method::POST, path).header("content-type", "application/json");
    let request = request.header("idempotency-key", key).body(Body::from(body.to_string()));
    site.send(request.expect("a request")).await
}

fn start() -> Value {
    json!({ "machine": "shop", "step": "Start", "state": { "order": 1 } })
}

async fn instances(site: &Site) -> usize {
    site.get("/v1/instances").await.expect(200)["items"].as_array().expect("items").len()
}

async fn a_repeated_start_gives_the_first_answer_and_starts_nothing(database: Database) {
    let site = database.open().await;
    let first = post(&site, "k", "/v1/instances", &start()).await;
    let second = post(&site, "k", "/v1/instances", &start()).await;
    assert_eq!((first.status, &first.text), (second.status, &second.text));
    assert_eq!((first.header("idempotency-replayed"), second.header("idempotency-replayed")), ("", "true"));
    assert_eq!(instances(&site).await, 1);
    assert!(is_success(post(&site, "l", "/v1/instances", &start()).await.status));
    assert_eq!(instances(&site).await, 2);
}

async fn a_refusal_is_repeated_too(database: Database) {
    let site = database.open().await;
    let path = "/v1/instances/7/signals";
    let body = json!({ "name": "paid", "payload": 1 });
    post(&site, "k", path, &body).await.expect_problem(404, "no-target");
    let again = post(&site, "k", path, &body).await;
    assert_eq!(again.header("idempotency-replayed"), "true");
    again.expect_problem(404, "no-target");
}

async fn the_same_key_for_another_request_is_refused(database: Database) {
    let site = database.open().await;
    post(&site, "k", "/v1/instances", &start()).await.expect(201);
    let other = json!({ "machine": "shop", "step": "Start", "state": { "order": 2 } });
    post(&site, "k", "/v1/instances", &other).await.expect_problem(422, "idempotency-key-reused");
    post(&site, "k", "/v1/gc", &json!({ "ended_for": "1s" }))
        .await
        .expect_problem(422, "idempotency-key-reused");
    assert_eq!(instances(&site).await, 1);
}

async fn the_same_key_of_another_namespace_is_another_key(database: Database) {
    let mut site = database.with_keys().await;
    for namespace in ["acme", "umbrella"] {
        let key = site.key(namespace, Scope::Operate).await;
        site.set_key(&key);
        let answer = post(&site, "k", "/v1/instances", &start()).await;
        assert_eq!(answer.header("idempotency-replayed"), "");
        answer.expect(201);
    }
}

async fn ten_at_once_start_one(database: Database) {
    let site = std::sync::Arc::new(database.open().await);
    let mut sent = Vec::new();
    for _ in 0..10 {
        let site = site.clone();
        sent.push(tokio::spawn(async move { post(&site, "k", "/v1/instances", &start()).await.status }));
    }
    for answer in sent {
        let status = answer.await.expect("an answer");
        assert!(matches!(status, 201 | 409), "done, or being done: {status}");
    }
    assert_eq!(instances(&site).await, 1);
}

async fn a_key_that_cannot_be_used_is_refused(database: Database) {
    let site = database.open().await;
    for key in ["", &"k".repeat(256)] {
        post(&site, key, "/v1/instances", &start()).await.expect_problem(400, "invalid-request");
    }
    assert_eq!(instances(&site).await, 0);
}

async fn an_answer_with_a_secret_is_never_kept(database: Database) {
    let site = database.open().await;
    let body = json!({ "label": "me", "scope": "read" });
    post(&site, "k", "/v1/api-keys", &body).await.expect_problem(400, "invalid-request");
    assert_eq!(site.get("/v1/api-keys").await.expect(200)["api_keys"], json!([]));
}
