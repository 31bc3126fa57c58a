//! Access that ends during a request: a revoked key, an expired one, the first key of an open server.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::Method;
use dormouse::store::Scope;
use futures_util::StreamExt as _;
use serde_json::json;

use crate::browser::leads_to;
use crate::kit::*;

suite![
    an_open_server_closes_when_the_first_key_is_made,
    nobody_makes_a_key_where_nothing_asks_who_is_there,
    what_goes_on_ends_when_its_key_is_revoked,
    what_goes_on_ends_when_its_key_expires,
];

/// Open streams and long polls of the site's caller.
struct Inside {
    streams: Vec<BodyDataStream>,
    polls: Vec<tokio::task::JoinHandle<u16>>,
}

impl Inside {
    async fn of(site: &Site, instance: i64, streams: &[&str]) -> Self {
        let request = |path: &str| {
            let request = site.request(Method::GET, path).header("host", "localhost");
            request.body(Body::empty()).expect("a request")
        };
        let mut open = Vec::new();
        for path in streams {
            let response = site.open(request(path)).await;
            assert_eq!(response.status(), 200, "{path}");
            open.push(Body::new(response.into_body()).into_data_stream());
        }
        let polls = ["result", "settled"].map(|verb| {
            let request = request(&format!("/v1/instances/{instance}/{verb}?wait=60s"));
            let answer = site.opened(request);
            tokio::spawn(async move { answer.await.status().as_u16() })
        });
        Self { streams: open, polls: polls.into() }
    }

    /// Waits until all of them have ended, each of which would go on for a minute or forever.
    async fn end(self) {
        for mut stream in self.streams {
            let ends = async { while let Some(Ok(_)) = stream.next().await {} };
            tokio::time::timeout(SOON, ends).await.expect("the stream ends");
        }
        for poll in self.polls {
            let status = tokio::time::timeout(SOON, poll).await.expect("the poll ends").expect("no panic");
            assert_eq!(status, 401);
        }
    }
}

/// Starts an instance that no worker runs, so that long polls for it keep waiting.
async fn sleeper(site: &Site) -> i64 {
    let new = json!({ "machine": "nobody", "version": 1, "step": "s", "state": {}, "even_if_unknown": true });
    site.post("/v1/instances", new).await.expect(201)["id"].as_i64().expect("an id")
}

async fn an_open_server_closes_when_the_first_key_is_made(database: Database) {
    let mut site = database.open_until_first_key().await;
    assert_eq!(site.get("/v1/about").await.expect(200)["who"], "anyone on this host");
    let id = sleeper(&site).await;
    let inside = Inside::of(&site, id, &["/v1/events", "/live"]).await;
    let key = site.key("default", Scope::Admin).await;
    let made = tokio::time::Instant::now();
    while site.get("/v1/about").await.status == 200 {
        assert!(made.elapsed() < SOON, "it still lets anyone in");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    site.get("/v1/about").await.expect_problem(401, "unauthenticated");
    assert!(leads_to(&site.browser().get("/").await).starts_with("/login"));
    inside.end().await;
    site.signed_in(&key).await.page("/").await;
    site.set_key(&key);
    assert_eq!(site.get("/v1/about").await.expect(200)["scope"], "admin");
    // It does not open again when the last key is gone.
    site.revoke(&key).await;
    while site.get("/v1/about").await.status == 200 {
        assert!(made.elapsed() < SOON, "the key still holds");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    site.clear_key();
    site.get("/v1/about").await.expect_problem(401, "unauthenticated");
}

async fn nobody_makes_a_key_where_nothing_asks_who_is_there(database: Database) {
    let site = database.open().await;
    let body = json!({ "label": "mine for good", "scope": "admin" });
    let refused = site.post("/v1/api-keys", body).await.expect_problem(403, "forbidden");
    assert!(refused["detail"].as_str().expect("text").contains("keys create"), "{refused}");
    assert_eq!(site.get("/v1/api-keys").await.expect(200)["api_keys"], json!([]));
}

async fn what_goes_on_ends_when_its_key_is_revoked(database: Database) {
    let mut site = database.with_keys().await;
    let [operate, other] =
        [site.key("default", Scope::Operate).await, site.key("default", Scope::Read).await];
    site.set_key(&operate);
    let id = sleeper(&site).await;
    let inside = Inside::of(&site, id, &["/v1/events", "/v1/events?instance=1", "/v1/events?after=0"]).await;
    site.set_key(&other);
    let mut stays = Inside::of(&site, id, &["/v1/events"]).await;
    site.revoke(&operate).await;
    inside.end().await;
    // The other one still receives later changes.
    let last = site.key("default", Scope::Operate).await;
    site.set_key(&last);
    let id = sleeper(&site).await;
    let mut heard = String::new();
    while !heard.contains(&format!("\"instance\":{id}")) {
        let bytes = tokio::time::timeout(SOON, stays.streams[0].next()).await.expect("news in time");
        heard += std::str::from_utf8(&bytes.expect("it goes on").expect("bytes")).expect("text");
    }
}

async fn what_goes_on_ends_when_its_key_expires(database: Database) {
    let mut site = database.with_keys().await;
    let operate = site.key("default", Scope::Operate).await;
    site.set_key(&operate);
    let id = sleeper(&site).await;
    let short = site.key_for("default", Scope::Read, Some(Duration::from_secs(8))).await;
    site.set_key(&short);
    Inside::of(&site, id, &["/v1/events"]).await.end().await;
}
