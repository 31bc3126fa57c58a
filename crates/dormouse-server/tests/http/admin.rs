//! API keys, the audit log, collection.

use dormouse::store::Scope;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::kit::*;

suite![
    every_change_is_in_the_audit_log_with_who_and_how_it_ended,
    the_audit_log_is_paged_and_filtered,
    a_caller_that_hangs_up_is_in_the_audit_log_too,
    what_ended_is_collected,
    an_api_key_needs_a_label_and_a_scope,
];

async fn every_change_is_in_the_audit_log_with_who_and_how_it_ended(database: Database) {
    let mut site = database.with_keys().await;
    let admin = site.key("default", Scope::Admin).await;
    site.set_key(&admin);
    let id = site.order(1).await;
    site.post(&format!("/v1/instances/{id}/signals"), json!({ "name": "paid", "payload": "x" })).await;
    site.post("/v1/instances/key:order:1/cancel", json!({})).await.expect(200);
    site.post("/v1/instances/key:order:9/cancel", json!({})).await;
    site.get("/v1/stats").await.expect(200);
    let audit = site.get("/v1/audit").await.expect(200);
    let told: Vec<_> = audit["items"].as_array().expect("items").iter().map(short).collect();
    let expected = [
        ("instance.cancel", "key:order:9".to_owned(), "not-found"),
        ("instance.cancel", "key:order:1".to_owned(), "ok"),
        ("instance.signal", id.to_string(), "payload-refused paid"),
        ("instance.start", id.to_string(), "ok"),
    ];
    let expected: Vec<_> =
        expected.map(|(what, target, result)| (what.to_owned(), target, result.to_owned())).into();
    assert_eq!(told, expected);
    let who = audit["items"][0]["who"].as_str().expect("who");
    assert!(who.starts_with("admin of default (dmk_") && !who.contains("secret"), "{who}");
}

fn short(entry: &Value) -> (String, String, String) {
    let text = |member: &str| entry[member].as_str().unwrap_or_default().to_owned();
    (text("what"), text("target"), text("result"))
}

async fn the_audit_log_is_paged_and_filtered(database: Database) {
    let site = database.open().await;
    for queue in ["a", "b", "a"] {
        site.post(&format!("/v1/queues/{queue}/pause"), json!({ "even_if_unknown": true })).await.expect(200);
    }
    let page = site.get("/v1/audit?limit=2").await.expect(200);
    let next = page["next"].as_str().expect("more");
    let rest = site.get(&format!("/v1/audit?limit=2&cursor={next}")).await.expect(200);
    assert_eq!((rest["items"].as_array().expect("items").len(), &rest["next"]), (1, &json!(null)));
    for (filter, count) in [("target=a", 2), ("what=queue.pause", 3), ("what=other", 0), ("who=nobody", 0)] {
        let page = site.get(&format!("/v1/audit?{filter}")).await.expect(200);
        assert_eq!(page["items"].as_array().expect("items").len(), count, "{filter}");
    }
}

async fn a_caller_that_hangs_up_is_in_the_audit_log_too(database: Database) {
    let site = database.open().await;
    let body = json!({ "machine": "shop", "step": "Start", "state": { "order": 1 } }).to_string();
    let request = format!(
        "POST /v1/instances HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let count = async |path: &str| site.get(path).await.expect(200)["items"].as_array().expect("items").len();
    let deadline = tokio::time::Instant::now() + SOON;
    for number in 1..=10 {
        let mut stream = tokio::net::TcpStream::connect(site.address).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("a request");
        // Hang up as soon as the change is committed, perhaps before the response.
        while count("/v1/instances").await < number {
            assert!(tokio::time::Instant::now() < deadline, "instance {number} is not there");
        }
    }
    while count("/v1/audit").await < 10 {
        assert!(tokio::time::Instant::now() < deadline, "a change is not in the audit log");
    }
}

async fn what_ended_is_collected(database: Database) {
    let site = database.open().await;
    for number in 1..=3 {
        site.order(number).await;
        site.post(&format!("/v1/instances/key:order:{number}/cancel"), json!({})).await.expect(200);
    }
    site.order(4).await;
    assert_eq!(site.post("/v1/gc", json!({ "ended_for": "1h" })).await.expect(200)["instances"], 0);
    let gone = site.post("/v1/gc", json!({ "ended_for": "0s" })).await.expect(200);
    assert_eq!(gone, json!({ "instances": 3, "more": false }));
    assert_eq!(site.get("/v1/instances").await.expect(200)["items"].as_array().expect("items").len(), 1);
    site.post("/v1/gc", json!({})).await.expect_problem(400, "invalid-request");
    site.post("/v1/gc", json!({ "ended_for": "a while" })).await.expect_problem(400, "invalid-request");
}

async fn an_api_key_needs_a_label_and_a_scope(database: Database) {
    let mut site = database.with_keys().await;
    let admin = site.key("default", Scope::Admin).await;
    site.set_key(&admin);
    for (body, status, cause) in [
        (json!({ "label": "", "scope": "read" }), 422, "invalid-name"),
        (json!({ "label": "a\nb", "scope": "read" }), 422, "invalid-name"),
        (json!({ "label": "a", "scope": "root" }), 400, "invalid-request"),
        (json!({ "label": "a" }), 400, "invalid-request"),
        (json!({ "label": "a", "scope": "read", "expires_in": "soon" }), 400, "invalid-request"),
        (json!({ "label": "a", "scope": "read", "namespace": "other" }), 400, "invalid-request"),
    ] {
        site.post("/v1/api-keys", body).await.expect_problem(status, cause);
    }
    site.post("/v1/api-keys/none/revoke", json!({})).await.expect_problem(404, "not-found");
}
