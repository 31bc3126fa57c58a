//! Probes, metrics and the OpenAPI document.

use axum::body::Body;
use axum::http::Method;
use serde_json::Value;

use crate::kit::*;

suite![
    it_is_healthy_and_ready,
    metrics_tell_what_the_database_holds_in_the_text_format,
    the_openapi_document_is_whole,
    answers_are_compressed_if_asked_for,
    an_unknown_route_and_a_wrong_method_are_problems,
];

async fn it_is_healthy_and_ready(database: Database) {
    let site = database.open().await;
    assert_eq!(site.get("/healthz").await.expect(200)["status"], "ok");
    assert_eq!(site.get("/readyz").await.expect(200)["status"], "ready");
}

async fn metrics_tell_what_the_database_holds_in_the_text_format(database: Database) {
    let site = database.open().await;
    site.order(1).await;
    let metrics = site.get("/metrics").await;
    assert_eq!((metrics.status, metrics.header("content-type")), (200, "text/plain; version=0.0.4"));
    for line in [
        "dormouse_instances{machine=\"shop\",status=\"awaiting_signal\"} 1",
        "dormouse_awaiting{signals=\"paid\"} 1",
        "dormouse_workers 1",
    ] {
        assert!(metrics.text.lines().any(|told| told == line), "{line}\nis not in\n{}", metrics.text);
    }
    assert!(metrics.text.contains("dormouse_awaiting_oldest_seconds{signals=\"paid\"}"));
}

async fn the_openapi_document_is_whole(database: Database) {
    let site = database.open().await;
    let document = site.get("/openapi.json").await.expect(200);
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = std::collections::BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let id = operation["operationId"].as_str().expect("an id");
            assert!(ids.insert(id.to_owned()), "{id} is there twice");
            let is_described =
                operation["summary"].is_string() && operation["responses"]["default"].is_object();
            assert!(is_described, "{method} {path}: {operation}");
        }
    }
    let mut references = Vec::new();
    collect_references(&document, &mut references);
    assert!(references.len() > 20);
    for reference in references {
        let pointer = reference.strip_prefix('#').expect("a reference within the document");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

fn collect_references(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            into.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|value| collect_references(value, into));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_references(value, into)),
        _ => {}
    }
}

async fn answers_are_compressed_if_asked_for(database: Database) {
    let site = database.open().await;
    let request =
        site.request(Method::GET, "/openapi.json").header("accept-encoding", "gzip").body(Body::empty());
    let answer = site.send(request.expect("a request")).await;
    assert_eq!(answer.header("content-encoding"), "gzip");
    assert_eq!(site.get("/openapi.json").await.header("content-encoding"), "");
}

async fn an_unknown_route_and_a_wrong_method_are_problems(database: Database) {
    let site = database.open().await;
    site.get("/v2/instances").await.expect_problem(404, "no-route");
    let request = site.request(Method::DELETE, "/v1/instances").body(Body::empty()).expect("a request");
    site.send(request).await.expect_problem(405, "method-not-allowed");
}
