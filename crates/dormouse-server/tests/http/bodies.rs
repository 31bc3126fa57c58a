//! Bodies that try to exhaust a server: too many fields, or sent too slowly.

use std::time::Duration;

use axum::body::Body;
use axum::http::Method;
use dormouse::store::Scope;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::*;

suite![
    a_form_that_anyone_may_send_is_small,
    a_body_that_trickles_is_cut_on_every_route,
    a_body_that_comes_at_a_fair_rate_is_read,
];

async fn a_form_that_anyone_may_send_is_small(database: Database) {
    let site = database.with_keys().await;
    // An even longer body is not read to its end.
    let bomb = "a&".repeat(32 * 1024);
    let fields = "a=1&".repeat(16);
    let long = format!("key={}", "x".repeat(16 * 1024));
    for path in ["/login", "/logout"] {
        for body in [bomb.as_str(), &fields, &long] {
            let request = site.request(Method::POST, path);
            let request = request.header("content-type", "application/x-www-form-urlencoded");
            let answer = site.send(request.body(Body::from(body.to_owned())).expect("a request")).await;
            let told = &answer.text[..answer.text.len().min(300)];
            assert_eq!(answer.status, 413, "{path} with {} bytes: {told}", body.len());
        }
    }
    let key = site.key("default", Scope::Read).await;
    site.signed_in(&key).await.page("/").await;
}

/// Sends the head of a request, without its body.
async fn head(site: &Site, path: &str, more: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(site.address).await.expect("a connection");
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).await.expect("a head");
    stream
}

/// The response to a body that arrives byte by byte, and whether the connection is closed after it.
async fn trickled(site: &Site, path: &str, more: &str) -> String {
    let stream = head(site, path, more, 1_000_000).await;
    let (mut read, mut write) = stream.into_split();
    let trickle = tokio::spawn(async move {
        while write.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut answer = Vec::new();
    let all = tokio::time::timeout(SOON, read.read_to_end(&mut answer)).await;
    assert!(all.is_ok(), "{path}: the connection is not closed");
    trickle.abort();
    String::from_utf8_lossy(&answer).into_owned()
}

async fn a_body_that_trickles_is_cut_on_every_route(database: Database) {
    let mut site = database.in_a_hurry(Duration::from_secs(1)).await;
    let key = site.key("default", Scope::Admin).await;
    site.set_key(&key);
    let token = site.token_of(site.review("a menu").await.1).await;
    site.clear_key();
    let cookie = site.signed_in(&key).await.cookie.expect("a session");
    let authorization = format!("Authorization: Bearer {key}\r\nContent-Type: application/json\r\n");
    let document = site.get("/openapi.json").await.expect(200);
    let paths = document["paths"].as_object().expect("paths");
    let posts = paths.iter().filter(|(_, methods)| methods["post"].is_object());
    let mut sent: Vec<(String, String)> =
        posts.map(|(path, _)| (path.replace("{token}", &token), authorization.clone())).collect();
    assert!(sent.len() > 10);
    for path in ["/login", "/logout"] {
        sent.push((path.to_owned(), String::new()));
    }
    for path in ["/queues/default/pause", "/instances/bulk"] {
        sent.push((path.to_owned(), format!("Cookie: {cookie}\r\n")));
    }
    let answers = sent.iter().map(|(path, more)| trickled(&site, path, more));
    for ((path, _), answer) in sent.iter().zip(futures_util::future::join_all(answers).await) {
        assert!(answer.starts_with("HTTP/1.1 408 "), "{path}: {answer}");
    }
}

async fn a_body_that_comes_at_a_fair_rate_is_read(database: Database) {
    let mut site = database.in_a_hurry(Duration::from_secs(2)).await;
    let key = site.key("default", Scope::Operate).await;
    site.set_key(&key);
    let state = json!({ "order": 1, "note": "x".repeat(256 * 1024) });
    let new =
        json!({ "machine": "nobody", "version": 1, "step": "s", "state": state, "even_if_unknown": true });
    let body = new.to_string();
    let more =
        format!("Authorization: Bearer {key}\r\nContent-Type: application/json\r\nConnection: close\r\n");
    let mut stream = head(&site, "/v1/instances", &more, body.len()).await;
    let started = std::time::Instant::now();
    // Takes longer than the limit in all, but arrives faster than the rate that extends it.
    for part in body.as_bytes().chunks(24 * 1024) {
        stream.write_all(part).await.expect("it is read");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert!(started.elapsed() > Duration::from_secs(2), "it took longer than a body that says nothing may");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}
