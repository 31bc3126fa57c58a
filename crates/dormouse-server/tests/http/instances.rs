//! Starting, signalling, reading and operating on instances.

use axum::http::Method;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    the_trace_of_a_request_is_that_of_what_it_starts_and_sends,
    an_order_is_started_paid_and_its_result_waited_for,
    a_taken_key_is_a_conflict_that_names_its_holder,
    a_start_with_a_signal_reaches_the_holder_of_its_key,
    a_job_needs_no_step_and_a_start_may_be_delayed,
    a_batch_tells_for_each_entry_what_became_of_it,
    an_instance_is_found_by_its_key,
    a_list_goes_on_where_its_page_ended,
    a_history_is_paged_and_tells_the_states,
    signals_wait_in_the_inbox_and_duplicates_are_told,
    a_batch_of_signals_tells_for_each_what_became_of_it,
    a_result_that_is_not_there_yet_is_explained,
    a_failed_instance_is_retried_from_its_step_or_another,
    a_cancelled_instance_takes_no_signal,
    a_paused_instance_keeps_its_status,
    a_fork_starts_from_an_event_with_an_edited_state,
    children_are_listed_with_their_parent,
    a_router_under_a_prefix_works_and_leaves_the_rest_alone,
    an_instance_is_waited_for_until_it_is_parked_or_has_ended,
    a_running_step_tells_its_progress_and_its_event_keeps_it,
    a_machine_that_nobody_declares_is_refused_with_the_nearest_name,
];

async fn an_order_is_started_paid_and_its_result_waited_for(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let sent =
        site.post(&format!("/v1/instances/{id}/signals"), json!({ "name": "paid", "payload": 1999 })).await;
    let sent = sent.expect(200);
    assert_eq!((&sent["delivered"], &sent["woke"]), (&json!("accepted"), &json!(true)));
    let result = site.get(&format!("/v1/instances/{id}/result?wait=30s")).await.expect(200);
    assert_eq!(result, json!({ "id": id, "status": "done", "output": "order 7 shipped for 1999" }));
    let late =
        site.post(&format!("/v1/instances/{id}/signals"), json!({ "name": "paid", "payload": 1 })).await;
    late.expect_problem(404, "no-target");
}

async fn a_taken_key_is_a_conflict_that_names_its_holder(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let again = json!({ "machine": "shop", "step": "Start", "state": { "order": 7 }, "key": "order:7" });
    let problem = site.post("/v1/instances", again).await.expect_problem(409, "key-taken");
    assert_eq!(problem["holder"], id);
}

async fn a_start_with_a_signal_reaches_the_holder_of_its_key(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let body = json!({
        "machine": "shop", "step": "Start", "state": { "order": 7 }, "key": "order:7",
        "signals": [{ "name": "paid", "payload": 5 }],
    });
    let started = site.post("/v1/instances", body).await.expect(200);
    assert_eq!((&started["id"], &started["created"]), (&json!(id), &json!(false)));
    assert_eq!(started["signals"][0]["delivered"], "accepted");
    site.until(id, "done").await;
}

async fn a_job_needs_no_step_and_a_start_may_be_delayed(database: Database) {
    let site = database.open().await;
    let answer = site.post("/v1/instances", json!({ "machine": "double", "state": 21 })).await;
    let location = answer.header("location").to_owned();
    let id = answer.expect(201)["id"].as_i64().expect("an id");
    assert_eq!(location, format!("/v1/instances/{id}"));
    assert_eq!(site.until(id, "done").await["output"], 42);
    let later = json!({ "machine": "double", "state": 1, "start_in": "1h", "priority": -3, "lane": "l" });
    let id = site.post("/v1/instances", later).await.expect(201)["id"].as_i64().expect("an id");
    let later = site.get(&format!("/v1/instances/{id}")).await.expect(200);
    assert_eq!(
        (&later["status"], &later["priority"], &later["lane"]),
        (&json!("scheduled"), &json!(-3), &json!("l"))
    );
}

async fn a_batch_tells_for_each_entry_what_became_of_it(database: Database) {
    let site = database.open().await;
    let entry =
        |key: &str| json!({ "machine": "shop", "step": "Start", "state": { "order": 1 }, "key": key });
    let body = json!({ "instances": [entry("a"), entry("b"), entry("a")] });
    let answer = site.post("/v1/instances/batch", body).await.expect(200);
    let created: Vec<_> =
        answer["results"].as_array().expect("results").iter().map(|r| r["created"].clone()).collect();
    assert_eq!(created, [json!(true), json!(true), json!(false)]);
    assert_eq!(answer["results"][0]["id"], answer["results"][2]["id"]);
}

async fn an_instance_is_found_by_its_key(database: Database) {
    let site = database.open().await;
    let key = "a/b c?d#e%f&g=h:\u{e9}";
    let body = json!({ "machine": "shop", "step": "Start", "state": { "order": 1 }, "key": key });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].clone();
    let encoded: String = format!("key:{key}").bytes().map(|byte| format!("%{byte:02x}")).collect();
    assert_eq!(site.get(&format!("/v1/instances/{encoded}")).await.expect(200)["id"], id);
    site.get("/v1/instances/key:unknown").await.expect_problem(404, "not-found");
}

async fn a_list_goes_on_where_its_page_ended(database: Database) {
    let site = database.open().await;
    for number in 1..=5 {
        site.order(number).await;
    }
    let (mut keys, mut path) = (Vec::new(), "/v1/instances?machine=shop&limit=2".to_owned());
    loop {
        let page = site.get(&path).await.expect(200);
        keys.extend(page["items"].as_array().expect("items").iter().map(|item| item["key"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/instances?machine=shop&limit=2&cursor={next}");
    }
    assert_eq!(keys, [5, 4, 3, 2, 1].map(|number| json!(format!("order:{number}"))));
    for (filter, count) in [
        ("status=awaiting_signal", 5),
        ("key=order:3", 1),
        ("awaiting=paid", 5),
        ("queue=other", 0),
        ("status=done", 0),
    ] {
        let page = site.get(&format!("/v1/instances?{filter}")).await.expect(200);
        assert_eq!(page["items"].as_array().expect("items").len(), count, "{filter}");
    }
}

async fn a_history_is_paged_and_tells_the_states(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    site.post(&format!("/v1/instances/{id}/signals"), json!({ "name": "paid", "payload": 1 }))
        .await
        .expect(200);
    site.until(id, "done").await;
    let first = site.get(&format!("/v1/instances/{id}/history?limit=2")).await.expect(200);
    let next = first["next"].as_str().expect("more");
    let second = site.get(&format!("/v1/instances/{id}/history?limit=2&cursor={next}")).await.expect(200);
    let events =
        first["items"].as_array().expect("items").iter().chain(second["items"].as_array().expect("items"));
    let kinds: Vec<_> = events.map(|event| event["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["created", "signal.waiting", "signal.received", "done"]);
    assert_eq!((&second["next"], &first["items"][1]["state"]), (&json!(null), &json!({ "order": 7 })));
    let after = site.get(&format!("/v1/instances/{id}/history?after=3")).await.expect(200);
    assert_eq!(after["items"].as_array().expect("items").len(), 1);
}

async fn signals_wait_in_the_inbox_and_duplicates_are_told(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let path = format!("/v1/instances/{id}/signals");
    let other = json!({ "name": "note", "payload": { "text": "hello" }, "dedup_key": "n1" });
    assert_eq!(site.post(&path, other.clone()).await.expect(200)["woke"], false);
    assert_eq!(site.post(&path, other).await.expect(200)["delivered"], "duplicate");
    site.post(&path, json!({ "name": "note" })).await.expect(200);
    let first = site.get(&format!("/v1/instances/{id}/inbox?limit=1")).await.expect(200);
    assert_eq!(first["items"][0]["payload"], json!({ "text": "hello" }));
    let next = first["next"].as_str().expect("more");
    let second = site.get(&format!("/v1/instances/{id}/inbox?limit=1&cursor={next}")).await.expect(200);
    assert_eq!((&second["items"][0]["payload"], &second["next"]), (&json!(null), &json!(null)));
}

async fn a_batch_of_signals_tells_for_each_what_became_of_it(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let signal = |target: serde_json::Value| json!({ "target": target, "name": "note", "dedup_key": "k" });
    let body =
        json!({ "signals": [signal(json!(id)), signal(json!("key:order:7")), signal(json!("12345"))] });
    let answer = site.post("/v1/signals/batch", body).await.expect(200);
    let told: Vec<_> =
        answer["results"].as_array().expect("results").iter().map(|r| r["delivered"].clone()).collect();
    assert_eq!(told, ["accepted", "duplicate", "no_target"]);
}

async fn a_result_that_is_not_there_yet_is_explained(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let result = site.get(&format!("/v1/instances/{id}/result?wait=10ms")).await.expect(202);
    assert_eq!(result["status"], "awaiting_signal");
    assert!(
        result["explanation"].as_str().expect("text").contains("parked on the signal \"paid\""),
        "{result}"
    );
    let explained = site.get(&format!("/v1/instances/{id}/explain")).await.expect(200);
    assert_eq!(explained["explanation"], result["explanation"]);
}

async fn a_failed_instance_is_retried_from_its_step_or_another(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let path = format!("/v1/instances/{id}/retry");
    let problem = site.post(&path, json!({})).await.expect_problem(409, "wrong-status");
    assert_eq!(problem["instance_status"], "awaiting_signal");
    site.post(&format!("/v1/instances/{id}/signals"), json!({ "name": "paid", "payload": 0 }))
        .await
        .expect(200);
    assert_eq!(site.until(id, "failed").await["last_error"], "a free lunch");
    let result = site.get(&format!("/v1/instances/{id}/result")).await.expect(200);
    assert_eq!((&result["status"], &result["error"]), (&json!("failed"), &json!("a free lunch")));
    site.post(&path, json!({ "step": "Ship", "state": { "order": 8 } })).await.expect(200);
    site.until(id, "failed").await;
    site.post(&path, json!({})).await.expect(200);
    site.until(id, "failed").await;
}

async fn a_cancelled_instance_takes_no_signal(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let path = format!("/v1/instances/{id}/cancel");
    assert_eq!(site.post(&path, json!({})).await.expect(200)["cancel"], "done");
    let again = site.post(&path, json!({})).await.expect(200);
    assert_eq!((&again["cancel"], &again["status"]), (&json!("already_ended"), &json!("cancelled")));
    let sent =
        site.post(&format!("/v1/instances/{id}/signals"), json!({ "name": "paid", "payload": 1 })).await;
    sent.expect_problem(404, "no-target");
    site.post(&format!("/v1/instances/{id}/pause"), json!({})).await.expect_problem(409, "wrong-status");
}

async fn a_paused_instance_keeps_its_status(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    site.post(&format!("/v1/instances/{id}/pause"), json!({})).await.expect(200);
    let paused = site.get(&format!("/v1/instances/{id}")).await.expect(200);
    assert_eq!((&paused["paused"], &paused["status"]), (&json!(true), &json!("awaiting_signal")));
    site.post(&format!("/v1/instances/{id}/resume"), json!({})).await.expect(200);
    site.post(&format!("/v1/instances/{id}/signals"), json!({ "name": "paid", "payload": 1 }))
        .await
        .expect(200);
    site.until(id, "done").await;
}

async fn a_fork_starts_from_an_event_with_an_edited_state(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let path = format!("/v1/instances/{id}/fork");
    let answer = site.post(&path, json!({ "seq": 2, "state": { "order": 70 }, "key": "order:70" })).await;
    let location = answer.header("location").to_owned();
    let fork = answer.expect(201)["id"].as_i64().expect("an id");
    assert_eq!(location, format!("/v1/instances/{fork}"));
    site.post("/v1/instances/key:order:70/signals", json!({ "name": "paid", "payload": 3 }))
        .await
        .expect(200);
    assert_eq!(site.until(fork, "done").await["output"], "order 70 shipped for 3");
    for seq in [0, 99] {
        site.post(&path, json!({ "seq": seq })).await.expect_problem(404, "no-event");
    }
    site.post(&path, json!({ "seq": 2, "key": "order:7" })).await.expect_problem(409, "key-taken");
}

async fn children_are_listed_with_their_parent(database: Database) {
    let site = database.open().await;
    let body = json!({ "machine": "shop", "step": "Split", "state": { "order": 1 } });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(id, "done").await;
    let first = site.get(&format!("/v1/instances/{id}/children?limit=1")).await.expect(200);
    assert_eq!((&first["items"][0]["parent"], &first["items"][0]["machine"]), (&json!(id), &json!("double")));
    let next = first["next"].as_str().expect("more");
    let second = site.get(&format!("/v1/instances/{id}/children?limit=1&cursor={next}")).await.expect(200);
    assert_eq!((second["items"].as_array().expect("items").len(), &second["next"]), (1, &json!(null)));
}

async fn a_router_under_a_prefix_works_and_leaves_the_rest_alone(database: Database) {
    let site = database.nested("/admin/dormouse").await;
    let body = json!({ "machine": "shop", "step": "Start", "state": { "order": 1 } });
    let answer = site.post("/v1/instances", body).await;
    let location = answer.header("location").to_owned();
    let id = answer.expect(201)["id"].as_i64().expect("an id");
    assert_eq!(location, format!("/admin/dormouse/v1/instances/{id}"));
    site.get(&format!("/v1/instances/{id}")).await.expect(200);
    site.get("/nothing").await.expect_problem(404, "no-route");
    assert_eq!(site.get("/../mine").await.status, 404);
}

async fn an_instance_is_waited_for_until_it_is_parked_or_has_ended(database: Database) {
    let site = database.open().await;
    let body = json!({ "machine": "shop", "step": "Start", "state": { "order": 7 } });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].clone();
    let settled = site.get(&format!("/v1/instances/{id}/settled?wait=30s")).await.expect(200);
    assert_eq!((&settled["status"], &settled["id"]), (&json!("awaiting_signal"), &id));
    let paid = json!({ "name": "paid", "payload": 1 });
    site.post(&format!("/v1/instances/{id}/signals"), paid).await.expect(200);
    let settled = site.get(&format!("/v1/instances/{id}/settled?wait=30s")).await.expect(200);
    assert_eq!((&settled["status"], &settled["output"]), (&json!("done"), &json!("order 7 shipped for 1")));
    site.get(&format!("/v1/instances/{id}/settled?wait=61s")).await.expect_problem(400, "invalid-request");
    site.get("/v1/instances/999/settled").await.expect_problem(404, "not-found");
}

async fn a_running_step_tells_its_progress_and_its_event_keeps_it(database: Database) {
    let site = database.open().await;
    let id =
        site.post("/v1/instances", json!({ "machine": "double", "state": SLOW })).await.expect(201)["id"]
            .clone();
    let mut changes = site.client.store().hub().changes();
    let running = loop {
        changes.borrow_and_update();
        let instance = site.get(&format!("/v1/instances/{id}/settled")).await.expect(202);
        if !instance["progress"].is_null() {
            break instance;
        }
        tokio::time::timeout(SOON, changes.changed()).await.expect("it reports").expect("a hub");
    };
    assert_eq!(
        (&running["progress"]["value"], &running["progress"]["step"]),
        (&json!({ "rows": 7 }), &json!("Run"))
    );
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200)["progress"], running["progress"]);
    let page = site.get(&format!("/instances/{id}")).await;
    assert!(
        page.status == 200 && page.text.contains("Progress") && page.text.contains("rows"),
        "{}",
        page.text
    );
    site.post(&format!("/v1/instances/{id}/cancel"), json!({})).await.expect(200);
    let ended = site.until(id.as_i64().expect("an id"), "cancelled").await;
    assert_eq!(ended["progress"], json!(null));

    let id = site.post("/v1/instances", json!({ "machine": "double", "state": 4 })).await.expect(201)["id"]
        .clone();
    site.until(id.as_i64().expect("an id"), "done").await;
    let events = site.get(&format!("/v1/instances/{id}/history")).await.expect(200)["items"].clone();
    assert_eq!(events[0]["run"], json!(null), "nothing ran to create it");
    assert!(events[1]["run"]["took_us"].is_u64() && events[1]["run"]["started_at"].is_string(), "{events}");
    let page = site.get(&format!("/instances/{id}")).await;
    assert!(page.text.contains("its step ran"), "{}", page.text);
}

async fn a_machine_that_nobody_declares_is_refused_with_the_nearest_name(database: Database) {
    let site = database.open().await;
    let start = |even_if_unknown: bool| json!({ "machine": "shpo", "step": "Start", "state": { "order": 7 }, "even_if_unknown": even_if_unknown });
    let refused = site.post("/v1/instances", start(false)).await.expect_problem(422, "undeclared-machine");
    assert_eq!(refused["nearest"], "shop");
    let batch = json!({ "instances": [{ "machine": "double", "state": 1 }, start(false)] });
    site.post("/v1/instances/batch", batch).await.expect_problem(422, "undeclared-machine");
    assert_eq!(site.get("/v1/instances").await.expect(200)["items"], json!([]), "nothing is stored");
    let id = site.post("/v1/instances", start(true)).await.expect(201)["id"].clone();
    let told = site.get(&format!("/v1/instances/{id}/explain")).await.expect(200);
    assert!(told["explanation"].as_str().expect("text").contains("no live worker runs machine"), "{told}");
}

async fn the_trace_of_a_request_is_that_of_what_it_starts_and_sends(database: Database) {
    let site = database.open().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let sent = async |path: &str, header: &str, body: Value| {
        let request = site.request(Method::POST, path).header("traceparent", header);
        let request = request.header("content-type", "application/json").body(body.to_string().into());
        let answer = site.send(request.expect("a request")).await;
        assert!(is_success(answer.status), "{}", answer.text);
        answer.json()
    };
    let order =
        |key: &str| json!({ "machine": "shop", "step": "Start", "state": { "order": 1 }, "key": key });
    let with = |mut body: Value| {
        body["trace"] = json!(other);
        body
    };
    for (header, body, expected) in [
        (trace, order("a"), json!(trace)),
        (trace, with(order("b")), json!(other)),
        ("00-bad", order("c"), Value::Null),
        ("", order("d"), Value::Null),
    ] {
        let id = sent("/v1/instances", header, body).await["id"].clone();
        let instance = site.get(&format!("/v1/instances/{id}")).await.expect(200);
        assert_eq!(instance["trace"], expected, "{header}");
    }
    let batch = json!({ "instances": [order("e"), with(order("f"))] });
    sent("/v1/instances/batch", trace, batch).await;
    for (key, expected) in [("e", trace), ("f", other)] {
        assert_eq!(site.get(&format!("/v1/instances/key:{key}")).await.expect(200)["trace"], expected);
    }
    sent("/v1/instances/key:a/signals", other, json!({ "name": "note" })).await;
    let inbox = site.get("/v1/instances/key:a/inbox").await.expect(200);
    assert_eq!(inbox["items"][0]["trace"], other, "{inbox}");
    let mut bad = order("g");
    bad["trace"] = json!("00-no");
    site.post("/v1/instances", bad).await.expect_problem(400, "invalid-request");
    site.get("/v1/instances/key:g").await.expect_problem(404, "not-found");
}
