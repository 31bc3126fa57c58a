//! Bad input: malformed, of the wrong type, unknown, huge, deep, hostile.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    no_route_that_takes_a_body_takes_a_bad_one,
    no_list_takes_a_bad_query,
    a_huge_body_is_refused_whether_it_says_so_or_not,
    a_deep_body_is_refused,
    a_state_over_the_limit_is_refused,
    an_instance_that_cannot_be_named_is_refused,
    hostile_names_and_payloads_come_back_as_they_went,
    names_that_cannot_be_used_are_refused_in_words,
    a_payload_that_the_machine_refuses_is_not_stored,
    numbers_keep_their_digits,
    a_number_that_no_store_can_count_to_is_refused,
    the_character_that_no_database_takes_is_refused_or_unknown,
];

/// Every route that takes a body, with an instance that is there.
async fn bodies(site: &Site) -> Vec<String> {
    let id = site.order(1).await;
    let token = site.token_of(site.review("a menu").await.1).await;
    let document = site.get("/openapi.json").await.expect(200);
    let paths = document["paths"].as_object().expect("paths");
    let posts = paths.iter().filter(|(_, methods)| methods["post"].is_object()).map(|(path, _)| path);
    posts
        .map(|path| {
            let path =
                path.replace("{instance}", &id.to_string()).replace("{queue}", "q").replace("{signal}", "1");
            path.replace("{api_key}", "k").replace("{token}", &token)
        })
        .collect()
}

async fn a_number_that_no_store_can_count_to_is_refused(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    for version in [1_u64 << 31, u64::from(u32::MAX)] {
        let new = json!({ "machine": "shop", "version": version, "step": "Start", "state": { "order": 2 },
            "even_if_unknown": true });
        site.post("/v1/instances", new.clone()).await.expect_problem(422, "invalid-state");
        let batch = json!({ "instances": [new] });
        site.post("/v1/instances/batch", batch).await.expect_problem(422, "invalid-state");
        let graph = format!("/v1/machines/shop/graph?version={version}");
        site.get(&graph).await.expect_problem(404, "not-found");
    }
    for seq in [1_u64 << 63, u64::MAX] {
        let fork = format!("/v1/instances/{id}/fork");
        site.post(&fork, json!({ "seq": seq })).await.expect_problem(422, "out-of-range");
        for verb in ["cancel", "retry", "pause", "resume"] {
            let path = format!("/v1/instances/{id}/{verb}");
            site.post(&path, json!({ "expected_seq": seq })).await.expect_problem(422, "out-of-range");
        }
        let history = site.get(&format!("/v1/instances/{id}/history?after={seq}")).await.expect(200);
        assert_eq!(history["items"], json!([]));
    }
    let largest = i64::MAX;
    let path = format!("/v1/instances/{id}/fork");
    site.post(&path, json!({ "seq": largest })).await.expect_problem(404, "no-event");
}

async fn no_route_that_takes_a_body_takes_a_bad_one(database: Database) {
    let site = database.open().await;
    for path in bodies(&site).await {
        for body in [
            "{",
            "nonsense",
            "[]",
            "\"text\"",
            "7",
            "null",
            "{\"unknown_field\":1}",
            "{}x",
            "{\"a\":1,}",
            "\u{0}",
        ] {
            site.post_text(&path, body).await.expect_problem(400, "invalid-request");
        }
        site.post_text(&path, vec![0xff, 0xfe, b'{', b'}']).await.expect_problem(400, "invalid-request");
        let encoded = site.request(Method::POST, &path).header("content-encoding", "gzip");
        let encoded =
            encoded.header("content-type", "application/json").body(Body::from("{}")).expect("a request");
        site.send(encoded).await.expect_problem(415, "unsupported-media-type");
    }
    for (path, body, told) in [
        ("/v1/instances", json!({ "machine": 7 }), "machine"),
        ("/v1/instances", json!({ "machine": "shop", "version": -1 }), "version"),
        (
            "/v1/instances",
            json!({ "machine": "shop", "step": "Start", "signals": [{ "name": 1 }] }),
            "at `signals[0]`: at `name`",
        ),
        ("/v1/instances", json!({ "machine": "shop", "step": "Start", "start_at": "soon" }), "start_at"),
        ("/v1/instances", json!({ "machine": "shop", "step": "Start", "start_in": "1x" }), "span of time"),
        ("/v1/instances", json!({ "machine": "review" }), "Ask, Answered"),
        ("/v1/instances/batch", json!({ "instances": [{ "machine": "double" }, {}] }), "instances[1]"),
        ("/v1/signals/batch", json!({ "signals": [{ "target": "x", "name": "n" }] }), "names no instance"),
        ("/v1/signals/batch", json!({ "signals": [[1, "n"]] }), "not an object"),
        (
            "/v1/interactions/batch",
            json!({ "answers": [{ "interaction": "x", "output": 1 }] }),
            "names no interaction",
        ),
        ("/v1/interactions/batch", json!({ "answers": [{ "interaction": 1 }] }), "entry 0: give an `output`"),
        ("/v1/instances/1/fork", json!({ "seq": -1 }), "seq"),
    ] {
        let problem = site.post(path, body.clone()).await.expect_problem(400, "invalid-request");
        assert!(problem["detail"].as_str().expect("text").contains(told), "{body}: {problem}");
    }
    let unknown_step = json!({ "machine": "shop", "step": "Nowhere" });
    site.post("/v1/instances", unknown_step).await.expect_problem(422, "invalid-state");
    // The first step of a machine that declares its graph may be omitted; its state may not.
    let misshapen = json!({ "machine": "shop", "state": { "order": "one" } });
    let problem = site.post("/v1/instances", misshapen).await.expect_problem(422, "invalid-state");
    assert!(problem["detail"].as_str().expect("text").contains("Start.order"), "{problem}");
    site.post("/v1/instances", json!({ "machine": "shop", "state": { "order": 1 } })).await.expect(201);
}

async fn no_list_takes_a_bad_query(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    for query in [
        "limit=0",
        "limit=501",
        "limit=x",
        "limit=-1",
        "status=asleep",
        "unknown=1",
        "parent=x",
        "created_from=x",
    ] {
        site.get(&format!("/v1/instances?{query}")).await.expect_problem(400, "invalid-request");
    }
    let history = format!("/v1/instances/{id}/history");
    let foreign = "0300000000000000010a";
    for path in
        ["/v1/instances", &history, &format!("/v1/instances/{id}/inbox"), "/v1/audit", "/v1/waiting?signal=x"]
    {
        let joint = if path.contains('?') { '&' } else { '?' };
        for cursor in ["x", "-1", "%00", "' or 1=1", foreign, &"9".repeat(2000)] {
            let cursor = cursor.replace(' ', "%20").replace('\'', "%27");
            let answer = site.get(&format!("{path}{joint}cursor={cursor}")).await;
            answer.expect_problem(400, "invalid-cursor");
        }
    }
    for wait in ["61s", "x", "-1s", ""] {
        site.get(&format!("/v1/instances/{id}/result?wait={wait}"))
            .await
            .expect_problem(400, "invalid-request");
    }
    site.get(&format!("{history}?after=-1")).await.expect_problem(400, "invalid-request");
    assert_eq!(site.get(&format!("{history}?after={}", u64::MAX)).await.expect(200)["items"], json!([]));
}

async fn a_huge_body_is_refused_whether_it_says_so_or_not(database: Database) {
    let site = database.open().await;
    let huge = json!({ "machine": "double", "state": "x".repeat(5 * 1024 * 1024) }).to_string();
    site.post_text("/v1/instances", huge.clone()).await.expect_problem(413, "too-large");
    let chunks = huge
        .into_bytes()
        .chunks(64 * 1024)
        .map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec()))
        .collect::<Vec<_>>();
    let streamed = Body::from_stream(futures_util::stream::iter(chunks));
    site.post_text("/v1/instances", streamed).await.expect_problem(413, "too-large");
    let many = json!({ "instances": vec![json!({ "machine": "double", "state": 1 }); 1001] });
    site.post("/v1/instances/batch", many).await.expect_problem(413, "too-large");
    assert_eq!(site.get("/v1/instances").await.expect(200)["items"], json!([]));
}

async fn a_deep_body_is_refused(database: Database) {
    let site = database.open().await;
    for depth in [65, 1_000, 100_000] {
        let state = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let body = format!(r#"{{"machine":"double","state":{state}}}"#);
        site.post_text("/v1/instances", body).await.expect_problem(400, "too-deep");
    }
    let state = format!("{}{}", "[".repeat(60), "]".repeat(60));
    let body = format!(r#"{{"machine":"elsewhere","step":"Start","even_if_unknown":true,"state":{state}}}"#);
    site.post_text("/v1/instances", body).await.expect(201);
}

async fn a_state_over_the_limit_is_refused(database: Database) {
    let site = database.open().await;
    let large = json!({ "machine": "double", "state": "x".repeat(1024 * 1024) });
    let problem = site.post("/v1/instances", large).await.expect_problem(413, "too-large");
    assert!(problem["detail"].as_str().expect("text").contains("keep a reference"), "{problem}");
}

async fn an_instance_that_cannot_be_named_is_refused(database: Database) {
    let site = database.open().await;
    for name in ["x", "1.5", "99999999999999999999", "1%00", "-", "key", "%ff", "key:%c3%28"] {
        site.get(&format!("/v1/instances/{name}")).await.expect_problem(400, "invalid-request");
        site.post(&format!("/v1/instances/{name}/cancel"), json!({}))
            .await
            .expect_problem(400, "invalid-request");
    }
    for name in ["0", "-1", "9223372036854775807", "key:", "key:nobody"] {
        site.get(&format!("/v1/instances/{name}")).await.expect_problem(404, "not-found");
    }
}

async fn hostile_names_and_payloads_come_back_as_they_went(database: Database) {
    let site = database.open().await;
    let hostile =
        "'; drop table instances; -- <script>alert(1)</script> \u{202e}\u{1f4a3} ${jndi:x} {{7*7}} %s%n";
    let body = json!({ "machine": "shop", "step": "Start", "state": { "order": 1, "note": hostile }, "key": hostile, "lane": hostile });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(id, "awaiting_signal").await;
    let signal = json!({ "name": hostile, "payload": { hostile: hostile }, "dedup_key": hostile });
    site.post(&format!("/v1/instances/{id}/signals"), signal).await.expect(200);
    let instance = site.get(&format!("/v1/instances/{id}")).await.expect(200);
    assert_eq!((&instance["key"], &instance["lane"]), (&json!(hostile), &json!(hostile)));
    let inbox = site.get(&format!("/v1/instances/{id}/inbox")).await.expect(200);
    assert_eq!(inbox["items"][0]["payload"][hostile], hostile);
    let answer = site.get("/metrics").await;
    assert!(is_success(answer.status) && answer.text.lines().all(|line| !line.starts_with("'; drop")));
}

async fn names_that_cannot_be_used_are_refused_in_words(database: Database) {
    let site = database.open().await;
    let with = |member: &str, value: Value| {
        let mut body = json!({ "machine": "double", "state": 1 });
        body[member] = value;
        body
    };
    let long = "k".repeat(256);
    for (member, value) in [
        ("key", json!("")),
        ("key", json!(long)),
        ("key", json!("a\u{0}b")),
        ("queue", json!("")),
        ("lane", json!("\n")),
        ("machine", json!("")),
        ("signals", json!([{ "name": "" }])),
    ] {
        let answer = site.post("/v1/instances", with(member, value)).await;
        // An unknown machine has no steps, so `step` is required first.
        if member == "machine" {
            answer.expect_problem(400, "invalid-request")
        } else {
            answer.expect_problem(422, "invalid-name")
        };
    }
    assert_eq!(site.get("/v1/instances").await.expect(200)["items"], json!([]));
}

async fn a_payload_that_the_machine_refuses_is_not_stored(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    let path = format!("/v1/instances/{id}/signals");
    let problem = site.post(&path, json!({ "name": "paid", "payload": "much" })).await;
    let problem = problem.expect_problem(422, "payload-refused");
    assert!(problem["detail"].as_str().expect("text").contains("expected u64"), "{problem}");
    assert_eq!(site.get(&format!("/v1/instances/{id}/inbox")).await.expect(200)["items"], json!([]));
}

async fn numbers_keep_their_digits(database: Database) {
    let site = database.open().await;
    let body = r#"{"machine":"other","step":"s","even_if_unknown":true,"state":{"n":123456789012345678901234567890,"f":1.10}}"#;
    let id = site.post_text("/v1/instances", body).await.expect(201)["id"].clone();
    let text = site.get(&format!("/v1/instances/{id}")).await.text;
    assert!(text.contains(r#""state":{"n":123456789012345678901234567890,"f":1.10}"#), "{text}");
}

async fn the_character_that_no_database_takes_is_refused_or_unknown(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    let start = json!({ "machine": "elsewhere", "step": "Go", "version": 1, "state": { "a": "\u{0}" } });
    site.post("/v1/instances", start).await.expect_problem(422, "holds-nul");
    let payload = json!({ "name": "note", "payload": ["\u{0}"] });
    site.post(&format!("/v1/instances/{id}/signals"), payload).await.expect_problem(422, "holds-nul");
    for path in ["/v1/instances/key:%00", "/v1/instances/key:%00/history"] {
        site.get(path).await.expect_problem(404, "not-found");
    }
    for path in ["/v1/instances/key:%00/cancel", "/v1/api-keys/%00/revoke"] {
        site.post(path, json!({})).await.expect_problem(404, "not-found");
    }
    for query in ["machine=%00", "queue=%00", "key_prefix=%00", "awaiting=%00"] {
        let answer = site.get(&format!("/v1/instances?{query}")).await;
        assert!(answer.status < 500, "{query}: {answer:?}");
    }
    for query in ["who=%00", "what=%00", "target=%00"] {
        let answer = site.get(&format!("/v1/audit?{query}")).await;
        assert!(answer.status < 500, "{query}: {answer:?}");
    }
    assert!(site.get("/v1/waiting?signal=%00").await.status < 500);
    assert!(site.post("/v1/queues/%00/pause", json!({})).await.status < 500);
    let audit = site.get("/v1/audit?what=instance.cancel").await.expect(200);
    assert_eq!(audit["items"][0]["result"], "not-found", "what was tried is told: {audit}");
}
