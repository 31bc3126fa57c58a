//! The stream of changes.

use axum::body::Body;
use axum::http::Method;
use dormouse::store::Scope;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    a_watcher_hears_of_every_transition_in_order,
    a_watcher_that_comes_back_misses_nothing,
    a_watcher_hears_of_its_namespace_alone_and_of_what_it_asked_for,
    a_position_from_the_future_starts_over,
    a_stream_ends_when_the_server_stops,
    a_watcher_hears_what_a_running_step_reports,
];

/// A stream of events that is read one by one.
struct Watch {
    body: axum::body::BodyDataStream,
    pending: String,
}

#[derive(Debug)]
struct Heard {
    id: String,
    event: String,
    data: Value,
}

impl Watch {
    async fn open(site: &Site, query: &str, last_event_id: Option<&str>) -> Self {
        let mut request = site.request(Method::GET, &format!("/v1/events{query}"));
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let request =
            request.header("host", "localhost").header("accept-encoding", "gzip").body(Body::empty());
        let response = site.open(request.expect("a request")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut watch =
            Self { body: Body::new(response.into_body()).into_data_stream(), pending: String::new() };
        // After the first message, the stream misses nothing.
        assert!(watch.block().await.expect("a greeting").contains("watching"));
        watch
    }

    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Heard> {
        loop {
            let block = self.block().await?;
            let field =
                |name: &str| block.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()));
            if let Some(data) = field("data:") {
                let data = serde_json::from_str(&data).expect("JSON");
                return Some(Heard {
                    id: field("id:").unwrap_or_default(),
                    event: field("event:").expect("a kind"),
                    data,
                });
            }
        }
    }

    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.pending.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.pending = rest;
                return Some(block);
            }
            let bytes = tokio::time::timeout(SOON, self.body.next()).await.expect("something in time")?;
            self.pending += std::str::from_utf8(&bytes.ok()?).expect("text");
        }
    }

    async fn kinds(&mut self, count: usize) -> Vec<String> {
        let mut kinds = Vec::new();
        while kinds.len() < count {
            let heard = self.next().await.expect("an event");
            assert_eq!(heard.event, "change");
            kinds.push(heard.data["kind"].as_str().expect("a kind").to_owned());
        }
        kinds
    }
}

async fn pay(site: &Site, id: i64) {
    site.post(&format!("/v1/instances/{id}/signals"), json!({ "name": "paid", "payload": 1 }))
        .await
        .expect(200);
}

async fn a_watcher_hears_of_every_transition_in_order(database: Database) {
    let site = database.open().await;
    let mut watch = Watch::open(&site, "", None).await;
    let id = site.order(7).await;
    pay(&site, id).await;
    assert_eq!(watch.kinds(3).await, ["created", "signal.waiting", "signal.received"]);
    let last = watch.next().await.expect("an event");
    let told = |member: &str| last.data[member].clone();
    assert_eq!((told("instance"), told("status"), told("seq")), (json!(id), json!("done"), json!(4)));
    assert_eq!(
        (told("machine"), told("queue"), told("step")),
        (json!("shop"), json!("default"), json!("Ship"))
    );
}

async fn a_watcher_that_comes_back_misses_nothing(database: Database) {
    let site = database.open().await;
    let mut watch = Watch::open(&site, "", None).await;
    let id = site.order(7).await;
    let first = watch.next().await.expect("an event");
    drop(watch);
    pay(&site, id).await;
    site.until(id, "done").await;
    let mut watch = Watch::open(&site, "", Some(&first.id)).await;
    assert_eq!(watch.kinds(3).await, ["signal.waiting", "signal.received", "done"]);
    let mut by_query = Watch::open(&site, &format!("?after={}", first.id), None).await;
    assert_eq!(by_query.kinds(3).await, ["signal.waiting", "signal.received", "done"]);
    site.order(8).await;
    assert_eq!(watch.kinds(2).await, ["created", "signal.waiting"], "and goes on with what is new");
}

async fn a_watcher_hears_of_its_namespace_alone_and_of_what_it_asked_for(database: Database) {
    let mut site = database.with_keys().await;
    let [acme, umbrella] =
        [site.key("acme", Scope::Operate).await, site.key("umbrella", Scope::Operate).await];
    site.set_key(&acme);
    let mut watch = Watch::open(&site, "", None).await;
    let mut jobs = Watch::open(&site, "?machine=double", None).await;
    site.set_key(&umbrella);
    site.order(1).await;
    site.set_key(&acme);
    let ours = site.order(2).await;
    let id = site.post("/v1/instances", json!({ "machine": "double", "state": 1 })).await.expect(201)["id"]
        .clone();
    assert_eq!(watch.next().await.expect("an event").data["instance"], ours);
    assert_eq!(jobs.next().await.expect("an event").data["instance"], id);
}

async fn a_position_from_the_future_starts_over(database: Database) {
    let site = database.open().await;
    let mut before = Watch::open(&site, "", None).await;
    site.order(1).await;
    let mut last = String::new();
    for _ in 0..2 {
        last = before.next().await.expect("an event").id;
    }
    let mut watch = Watch::open(&site, "", Some(&i64::MAX.to_string())).await;
    let heard = watch.next().await.expect("an event");
    let [last, start] = [&last, &heard.id].map(|id| id.parse::<i64>().expect("a number"));
    assert_eq!(heard.event, "reset");
    assert!(start >= last, "{start} is before {last}, which was there already");
    site.order(2).await;
    assert_eq!(watch.kinds(1).await, ["created"]);
    let request = site.request(Method::GET, "/v1/events").header("last-event-id", "x").body(Body::empty());
    site.send(request.expect("a request")).await.expect_problem(400, "invalid-request");
}

async fn a_stream_ends_when_the_server_stops(database: Database) {
    let site = database.open().await;
    let mut watch = Watch::open(&site, "", None).await;
    let id = site.order(1).await;
    watch.kinds(2).await;
    site.stopping.cancel();
    assert!(watch.next().await.is_none());
    let result = site.get(&format!("/v1/instances/{id}/result?wait=60s")).await;
    result.expect(202);
    site.get("/readyz").await.expect_problem(503, "unavailable");
    site.get("/healthz").await.expect(200);
}

async fn a_watcher_hears_what_a_running_step_reports(database: Database) {
    let site = database.open().await;
    let mut watch = Watch::open(&site, "?machine=double", None).await;
    let mut other = Watch::open(&site, "?machine=shop", None).await;
    let id =
        site.post("/v1/instances", json!({ "machine": "double", "state": SLOW })).await.expect(201)["id"]
            .clone();
    let progress = loop {
        let heard = watch.next().await.expect("the stream goes on");
        if heard.event == "progress" {
            break heard;
        }
    };
    assert_eq!(progress.id, "", "a report has no position: whoever comes back asks for the instance");
    assert_eq!((&progress.data["instance"], &progress.data["value"]), (&id, &json!({ "rows": 7 })));
    site.order(9).await;
    assert_eq!(other.next().await.expect("the order").event, "change", "who watches others does not hear it");
}
