//! Limits on what one caller can make the server read, write and hold.

use axum::body::Body;
use axum::http::Method;
use dormouse::store::Scope;
use dormouse_server::AtOnce;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    a_history_is_answered_up_to_a_bound_in_bytes_and_goes_on_from_there,
    an_inbox_is_answered_up_to_a_bound_in_bytes_and_goes_on_from_there,
    machines_and_stats_name_a_bounded_number_of_places,
    a_long_state_is_shown_up_to_a_bound_and_its_history_page_by_page,
    one_key_and_one_namespace_take_a_part_of_the_long_polls,
    one_key_and_one_namespace_take_a_part_of_the_event_streams,
];

const MIB: usize = 1024 * 1024;

/// Starts an instance that no worker runs, with a state of about this many bytes.
async fn idle(site: &Site, state: Value) -> i64 {
    let body = json!({ "machine": "nobodys", "step": "Start", "state": state, "even_if_unknown": true });
    site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id")
}

/// Adds events that do not change the state: two for each time.
async fn cancel_and_retry(site: &Site, id: i64, times: usize) {
    for _ in 0..times {
        site.post(&format!("/v1/instances/{id}/cancel"), json!({})).await.expect(200);
        site.post(&format!("/v1/instances/{id}/retry"), json!({})).await.expect(200);
    }
}

/// All pages of a list: the size of each, and their items.
async fn pages(site: &Site, path: &str) -> (Vec<usize>, Vec<Value>) {
    let (mut lengths, mut items) = (Vec::new(), Vec::new());
    let mut next = Some(path.to_owned());
    while let Some(path_of_page) = next {
        let answer = site.get(&path_of_page).await;
        lengths.push(answer.text.len());
        let mut page = answer.expect(200);
        items.append(page["items"].as_array_mut().expect("items"));
        next = page["next"].as_str().map(|next| format!("{path}&cursor={next}"));
    }
    (lengths, items)
}

async fn a_history_is_answered_up_to_a_bound_in_bytes_and_goes_on_from_there(database: Database) {
    let site = database.open().await;
    let id = idle(&site, json!("x".repeat(MIB - 1000))).await;
    cancel_and_retry(&site, id, 5).await;
    let (lengths, events) = pages(&site, &format!("/v1/instances/{id}/history?limit=500")).await;
    assert!(lengths.iter().all(|length| *length < 6 * MIB), "{lengths:?}");
    assert_eq!((lengths.len(), events.len()), (3, 11));
    assert!(events.iter().zip(1..).all(|(event, seq)| event["seq"] == seq));
    assert!(events.iter().all(|event| event["state"].as_str().map(str::len) == Some(MIB - 1000)));
}

async fn an_inbox_is_answered_up_to_a_bound_in_bytes_and_goes_on_from_there(database: Database) {
    let site = database.open().await;
    let id = idle(&site, json!(null)).await;
    for n in 0..7 {
        let signal = json!({ "name": "hello", "payload": [n, "x".repeat(MIB - 1000)] });
        site.post(&format!("/v1/instances/{id}/signals"), signal).await.expect(200);
    }
    let (lengths, signals) = pages(&site, &format!("/v1/instances/{id}/inbox?limit=500")).await;
    assert!(lengths.iter().all(|length| *length < 6 * MIB), "{lengths:?}");
    assert_eq!((lengths.len(), signals.len()), (2, 7));
    assert!(signals.iter().zip(0..).all(|(signal, n)| signal["payload"][0] == n));
    let (lengths, _) = pages(&site, &format!("/v1/instances/{id}/inbox?limit=2")).await;
    assert_eq!(lengths.len(), 4);
}

async fn machines_and_stats_name_a_bounded_number_of_places(database: Database) {
    let site = database.open().await;
    for batch in 0..6 {
        let entry = |n: usize| {
            json!({ "machine": format!("m-{:05}", batch * 1000 + n), "step": "Start", "state": 1,
                "queue": format!("q-{:05}", batch * 1000 + n), "even_if_unknown": true })
        };
        let instances: Vec<Value> = (0..1000).map(entry).collect();
        site.post("/v1/instances/batch", json!({ "instances": instances })).await.expect(200);
    }
    let machines = site.get("/v1/machines").await.expect(200);
    let places = |machine: &Value| machine["places"].as_array().expect("places").len();
    let named: usize = machines["machines"].as_array().expect("machines").iter().map(places).sum();
    assert_eq!((named, &machines["more"]), (5000, &json!(true)));
    let first =
        machines["machines"].as_array().expect("machines").iter().find(|one| one["name"] == "m-00000");
    assert_eq!(first.expect("it is named")["in_flight"][0]["live"], json!(1));
    let stats = site.get("/v1/stats").await.expect(200);
    assert_eq!(stats["places"].as_array().expect("places").len(), 5000);
    assert_eq!((&stats["more"], &stats["statuses"]["runnable"]), (&json!(true), &json!(6000)));
    assert_eq!(
        stats["queues"].as_array().expect("queues").len(),
        1001,
        "those with work, and the one served"
    );
    let page = site.get("/machines").await;
    assert_eq!(page.text.matches("data-machine=").count(), 200);
    assert!(page.text.contains("There are more than are shown here"));
    let overview = site.get("/").await;
    assert!(overview.text.contains("<strong>6\u{202f}000</strong>"), "live instances are all counted");
    for path in ["/", "/machines", "/machines/m-00007", "/instances", "/queues"] {
        let page = site.get(path).await;
        assert!(page.status == 200 && page.text.len() < MIB, "{path}: {} bytes", page.text.len());
    }
    let other = site.request(Method::GET, "/v1/stats").header("dormouse-namespace", "other");
    let stats = site.send(other.body(Body::empty()).expect("a request")).await.expect(200);
    assert_eq!((stats["places"].as_array().map(Vec::len), &stats["more"]), (Some(0), &json!(false)));
}

async fn a_long_state_is_shown_up_to_a_bound_and_its_history_page_by_page(database: Database) {
    let site = database.open().await;
    let ones = vec!["1"; 500_000].join(",");
    let deep = format!("{}{ones}{}", "[".repeat(60), "]".repeat(60));
    let body = format!(r#"{{"machine":"nobodys","step":"Start","state":{deep},"even_if_unknown":true}}"#);
    let id = site.post_text("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    cancel_and_retry(&site, id, 3).await;
    let page = site.get(&format!("/instances/{id}")).await;
    assert_eq!(page.status, 200);
    assert!(page.text.len() < 100 * 1024, "{} bytes", page.text.len());
    assert_eq!(page.text.matches("data-event=").count(), 1, "one event is as long as a page may be");
    let (mut seen, mut before) = (Vec::new(), 8);
    while before > 1 {
        let page = site.get(&format!("/instances/{id}?before={before}")).await;
        let event = page.text.split("data-event=\"").nth(1).and_then(|rest| rest.split('"').next());
        before = event.and_then(|event| event.parse().ok()).expect("an event");
        seen.push(before);
    }
    assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1], "every event can be reached");
    let fork = site.get(&format!("/instances/{id}/fork?seq=1")).await;
    assert!(fork.status == 200 && fork.text.len() < 2 * MIB, "{} bytes", fork.text.len());
}

/// Opens a request and reads the head of its response; if it is refused, the problem.
async fn opened(site: &Site, key: &str, path: &str) -> Result<hyper::body::Incoming, Value> {
    let request = site.request(Method::GET, path).header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {key}"));
    let response = site.open(request.body(Body::empty()).expect("a request")).await;
    let (status, retry) = (response.status().as_u16(), response.headers().contains_key("retry-after"));
    if is_success(status) {
        return Ok(response.into_body());
    }
    let body = axum::body::to_bytes(Body::new(response.into_body()), MIB).await.expect("a whole body");
    assert!(retry, "it says when to come back");
    let problem: Value = serde_json::from_slice(&body).expect("a problem");
    assert_eq!(problem["status"], status);
    Err(problem)
}

const FEW: AtOnce = AtOnce { in_all: 6, per_namespace: 4, per_key: 3 };

/// Two keys of one namespace, and one of another.
async fn three_keys(site: &Site) -> [String; 3] {
    [
        site.key("one", Scope::Read).await,
        site.key("one", Scope::Read).await,
        site.key("two", Scope::Read).await,
    ]
}

async fn one_key_and_one_namespace_take_a_part_of_the_event_streams(database: Database) {
    let site = database.with_places(FEW).await;
    let [noisy, beside, other] = three_keys(&site).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(opened(&site, &noisy, "/v1/events").await.expect("a stream"));
    }
    let problem = opened(&site, &noisy, "/v1/events").await.expect_err("its share is used up");
    assert_eq!(problem["type"], "urn:dormouse:problem:too-many-at-once");
    assert_eq!(
        (&problem["status"], &problem["of"], &problem["limit"]),
        (&json!(429), &json!("key"), &json!(3))
    );
    held.push(opened(&site, &beside, "/v1/events").await.expect("a stream"));
    let problem = opened(&site, &beside, "/v1/events").await.expect_err("its namespace's share is used up");
    assert_eq!((&problem["of"], &problem["limit"]), (&json!("namespace"), &json!(4)));
    for _ in 0..2 {
        held.push(opened(&site, &other, "/v1/events").await.expect("another tenant's stream"));
    }
    let problem = opened(&site, &other, "/v1/events").await.expect_err("the server is full");
    assert_eq!(problem["type"], "urn:dormouse:problem:unavailable");
    // A stream that ends frees its place once the server has noticed.
    held.clear();
    let deadline = tokio::time::Instant::now() + SOON;
    while opened(&site, &noisy, "/v1/events").await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "no place came back");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn one_key_and_one_namespace_take_a_part_of_the_long_polls(database: Database) {
    let site = database.with_places(FEW).await;
    let [noisy, beside, other] = three_keys(&site).await;
    let mut paths = Vec::new();
    for namespace in ["one", "two"] {
        let client = site.client.in_namespace(namespace).expect("a good name");
        let id = client.start::<Shop>(Order::Start { order: 1 }).await.expect("a start");
        client.wait_settled(id, SOON).await.expect("it is parked");
        paths.push(format!("/v1/instances/{id}/result?wait=60s"));
    }
    let site = std::sync::Arc::new(site);
    let mut waits = tokio::task::JoinSet::new();
    let wait = |key: &String, path: &String| {
        let (site, key, path) = (site.clone(), key.clone(), path.clone());
        async move { opened(&site, &key, &path).await.err() }
    };
    // Of concurrent requests, the last one is refused; the others keep waiting.
    for _ in 0..4 {
        waits.spawn(wait(&noisy, &paths[0]));
    }
    let problem = waits.join_next().await.expect("one").expect("no panic").expect("a problem");
    assert_eq!(
        (&problem["status"], &problem["of"], &problem["limit"]),
        (&json!(429), &json!("key"), &json!(3))
    );
    for _ in 0..2 {
        waits.spawn(wait(&beside, &paths[0]));
    }
    let problem = waits.join_next().await.expect("one").expect("no panic").expect("a problem");
    assert_eq!(problem["of"], "namespace");
    for _ in 0..3 {
        waits.spawn(wait(&other, &paths[1]));
    }
    let problem = waits.join_next().await.expect("one").expect("no panic").expect("a problem");
    assert_eq!(problem["type"], "urn:dormouse:problem:unavailable");
    // A request that does not wait needs no place.
    let now = site.request(Method::GET, &paths[0].replace("?wait=60s", ""));
    let now = now.header("authorization", format!("Bearer {noisy}"));
    assert_eq!(site.send(now.body(Body::empty()).expect("a request")).await.status, 202);
    site.stopping.cancel();
    while let Some(ended) = waits.join_next().await {
        assert!(ended.is_ok());
    }
}
