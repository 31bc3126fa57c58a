//! Operators who give a reason and an expected seq; roots; tags: over HTTP and with the dashboard's forms.

use serde_json::{Value, json};

use crate::browser::leads_to;
use crate::kit::*;

suite![
    a_cancel_says_why,
    an_operator_acts_only_on_what_was_expected,
    children_tell_their_place_and_roots_are_listed_alone,
    instances_are_found_by_their_tags,
    tags_are_added_and_removed_and_that_is_audited,
    a_page_cancels_with_a_reason_only_what_it_showed,
    many_are_cancelled_with_one_reason,
    a_page_filters_by_tags_and_roots,
    a_page_adds_and_removes_tags,
];

async fn a_cancel_says_why(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let path = format!("/v1/instances/{id}");
    for (reason, cause, status) in [
        (json!(""), "invalid-name", 422),
        (json!("x".repeat(1025)), "invalid-name", 422),
        (json!("a\u{0}b"), "invalid-name", 422),
        (json!(7), "invalid-request", 400),
    ] {
        site.post(&format!("{path}/cancel"), json!({ "reason": reason })).await.expect_problem(status, cause);
    }
    assert_eq!(site.get(&path).await.expect(200)["cancel_reason"], Value::Null);
    site.post(&format!("{path}/cancel"), json!({ "reason": "the customer called" })).await.expect(200);
    let row = site.get(&path).await.expect(200);
    assert_eq!(
        (&row["cancel_reason"], &row["cancelled_with"]),
        (&json!("the customer called"), &Value::Null)
    );
    let result = site.get(&format!("{path}/result")).await.expect(200);
    assert_eq!((&result["status"], &result["error"]), (&json!("cancelled"), &json!("the customer called")));
    let history = site.get(&format!("{path}/history")).await.expect(200);
    let last = history["items"].as_array().and_then(|events| events.last()).expect("an event").clone();
    assert_eq!(
        (&last["kind"], &last["data"]),
        (&json!("cancelled"), &json!({ "reason": "the customer called" }))
    );
    let explained = site.get(&format!("{path}/explain")).await.expect(200);
    let explained = explained["explanation"].as_str().expect("a sentence");
    assert!(explained.ends_with("it was cancelled: the customer called"), "{explained}");
}

async fn an_operator_acts_only_on_what_was_expected(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let path = format!("/v1/instances/{id}");
    let before = site.get(&path).await.expect(200);
    let seq = before["seq"].as_u64().expect("a number");
    for verb in ["cancel", "retry", "pause", "resume"] {
        let answer = site.post(&format!("{path}/{verb}"), json!({ "expected_seq": seq + 5 })).await;
        let problem = answer.expect_problem(409, "stale-seq");
        assert_eq!((&problem["seq"], &problem["expected_seq"]), (&json!(seq), &json!(seq + 5)), "{verb}");
        site.post(&format!("{path}/{verb}"), json!({ "expected_seq": -1 }))
            .await
            .expect_problem(400, "invalid-request");
    }
    assert_eq!(site.get(&path).await.expect(200), before, "nothing was changed");
    for verb in ["pause", "resume", "cancel"] {
        site.post(&format!("{path}/{verb}"), json!({ "expected_seq": seq })).await.expect(200);
    }
    let elsewhere = json!({ "step": "Ship", "expected_seq": seq });
    site.post(&format!("{path}/retry"), elsewhere).await.expect_problem(409, "stale-seq");
    site.post(&format!("{path}/retry"), json!({ "expected_seq": seq + 1 })).await.expect(200);
    site.until(id, "awaiting_signal").await;
}

async fn children_tell_their_place_and_roots_are_listed_alone(database: Database) {
    let site = database.open().await;
    let body = json!({ "machine": "shop", "step": "Split", "state": { "order": 1 } });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(id, "done").await;
    let children = site.get(&format!("/v1/instances/{id}/children")).await.expect(200);
    let place =
        |child: &Value| [&child["parent"], &child["parent_round"], &child["parent_index"]].map(Value::clone);
    let places: Vec<_> = children["items"].as_array().expect("items").iter().map(place).collect();
    assert_eq!(places, [[json!(id), json!(1), json!(1)], [json!(id), json!(1), json!(0)]], "newest first");
    let ids = |page: Value| -> Vec<i64> {
        page["items"].as_array().expect("items").iter().filter_map(|one| one["id"].as_i64()).collect()
    };
    assert_eq!(ids(site.get("/v1/instances?roots=true").await.expect(200)), [id]);
    assert_eq!(ids(site.get("/v1/instances?roots=false").await.expect(200)).len(), 3);
    site.get("/v1/instances?roots=perhaps").await.expect_problem(400, "invalid-request");
    site.get("/v1/instances?roots=true&roots=true").await.expect_problem(400, "invalid-request");
}

/// Starts an order with tags.
async fn tagged(site: &Site, tags: Value) -> i64 {
    let body = json!({ "machine": "shop", "step": "Start", "state": { "order": 1 }, "tags": tags });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(id, "awaiting_signal").await;
    id
}

async fn instances_are_found_by_their_tags(database: Database) {
    let site = database.open().await;
    let a = tagged(&site, json!(["a"])).await;
    let both = tagged(&site, json!(["b & c", "a", "a"])).await;
    assert_eq!(site.get(&format!("/v1/instances/{both}")).await.expect(200)["tags"], json!(["a", "b & c"]));
    let found = async |query: &str| {
        let page = site.get(&format!("/v1/instances?{query}")).await.expect(200);
        page["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter_map(|one| one["id"].as_i64())
            .collect::<Vec<_>>()
    };
    assert_eq!(found("tag=a").await, [both, a]);
    assert_eq!(found("tag=b%20%26+c&tag=a&limit=5").await, [both]);
    assert_eq!(found("tag=a&status=awaiting_signal&tag=nobody").await, [0; 0]);
    for (tags, cause, status) in [
        (json!(["1", "2", "3", "4", "5", "6", "7", "8", "9"]), "invalid-name", 422),
        (json!([""]), "invalid-name", 422),
        (json!(["x".repeat(65)]), "invalid-name", 422),
        (json!("a"), "invalid-request", 400),
    ] {
        let body = json!({ "machine": "shop", "step": "Start", "state": { "order": 1 }, "tags": tags });
        site.post("/v1/instances", body).await.expect_problem(status, cause);
    }
}

async fn tags_are_added_and_removed_and_that_is_audited(database: Database) {
    let site = database.open().await;
    let id = tagged(&site, json!(["a", "b"])).await;
    let path = format!("/v1/instances/{id}/tags");
    let seq = site.get(&format!("/v1/instances/{id}")).await.expect(200)["seq"].clone();
    let now = site.post(&path, json!({ "add": ["c"], "remove": ["a"] })).await.expect(200);
    assert_eq!(now, json!({ "tags": ["b", "c"] }));
    site.post(&path, json!({ "add": ["x"], "remove": ["x"] })).await.expect_problem(422, "invalid-name");
    site.post(&path, json!({ "set": ["x"] })).await.expect_problem(400, "invalid-request");
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200)["seq"], seq, "no transition");
    let audit = site.get(&format!("/v1/audit?target={id}&what=instance.tag")).await.expect(200);
    let results: Vec<_> =
        audit["items"].as_array().expect("items").iter().map(|one| one["result"].clone()).collect();
    assert_eq!(results, ["invalid-request", "invalid-name", "ok"]);
    let fork = site.post(&format!("/v1/instances/{id}/fork"), json!({ "seq": 1 })).await.expect(201);
    let fork = site.get(&format!("/v1/instances/{}", fork["id"])).await.expect(200);
    assert_eq!(fork["tags"], json!(["b", "c"]));
}

async fn a_page_cancels_with_a_reason_only_what_it_showed(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let id = site.order(7).await;
    let here = format!("/instances/{id}");
    let seq = site.get(&format!("/v1{here}")).await.expect(200)["seq"].to_string();
    let page = browser.page(&here).await;
    let field = format!("type=\"checkbox\" name=\"expected_seq\" value=\"{seq}\" checked");
    assert!(page.contains(&field) && page.contains("name=\"reason\""), "{page}");
    let moved = [("reason", "too late"), ("expected_seq", "1")];
    let refused = browser.submit(&here, &format!("{here}/cancel"), &moved).await;
    assert_eq!(refused.status, 409);
    assert!(
        refused.text.contains("It has moved on") && refused.text.contains("is at seq"),
        "{}",
        refused.text
    );
    let fields = [("reason", "not <wanted>"), ("expected_seq", seq.as_str())];
    let answer = browser.submit(&here, &format!("{here}/cancel"), &fields).await;
    assert_eq!(leads_to(&answer), format!("{here}?notice=cancelled"));
    let page = browser.page(&here).await;
    assert!(page.contains("It was cancelled: not &lt;wanted&gt;."), "{page}");
    let now = (seq.parse::<u64>().expect("a number") + 1).to_string();
    assert!(page.contains(&format!("type=\"hidden\" name=\"expected_seq\" value=\"{now}\"")), "{page}");
    let stale = browser.submit(&here, &format!("{here}/retry"), &[("expected_seq", seq.as_str())]).await;
    assert_eq!(stale.status, 409);
    let answer = browser.submit(&here, &format!("{here}/retry"), &[("expected_seq", now.as_str())]).await;
    assert_eq!(leads_to(&answer), format!("{here}?notice=retried"));
}

async fn many_are_cancelled_with_one_reason(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let ids = [site.order(1).await, site.order(2).await];
    let confirm = "/instances/bulk?verb=cancel&which=all&machine=shop";
    assert!(browser.page(confirm).await.contains("name=\"reason\""));
    let counted = format!("{},{}", ids[0], ids[1]);
    let fields = [("verb", "cancel"), ("ids", counted.as_str()), ("reason", "closing time")];
    let answer = browser.submit(confirm, "/instances/bulk", &fields).await;
    assert_eq!(leads_to(&answer), "/instances?notice=bulk-2-0");
    for id in ids {
        assert_eq!(site.until(id, "cancelled").await["cancel_reason"], "closing time");
    }
    assert!(browser.page("/instances?status=cancelled").await.contains("closing time"));
}

async fn a_page_filters_by_tags_and_roots(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let body = json!({ "machine": "shop", "step": "Split", "state": { "order": 1 } });
    let root = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(root, "done").await;
    let (a, both) = (tagged(&site, json!(["a"])).await, tagged(&site, json!(["a", "b c"])).await);
    let shown = async |query: &str| {
        let page = browser.page(&format!("/instances{query}")).await;
        let rows = page.match_indices("<tr id=\"instance-").map(|(at, found)| {
            let rest = &page[at + found.len()..];
            rest[..rest.find('"').expect("an end")].parse::<i64>().expect("a number")
        });
        (rows.collect::<Vec<_>>(), page.clone())
    };
    assert_eq!(shown("?roots=true").await.0, [both, a, root]);
    assert_eq!(shown("").await.0.len(), 5);
    assert_eq!(shown("?tag=a").await.0, [both, a]);
    let (rows, page) = shown("?tag=a&tag=b+c&roots=true").await;
    assert_eq!(rows, [both]);
    for part in [
        // Each chip links to the list without it; the form for many instances keeps all tags.
        "href=\"/instances?roots=true&amp;tag=b+c\"",
        "href=\"/instances?roots=true&amp;tag=a\"",
        "<input type=\"hidden\" name=\"tag\" value=\"b c\">",
        "<input type=\"hidden\" name=\"roots\" value=\"true\">",
        "value=\"true\" checked",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let counted = browser.page("/instances/bulk?verb=cancel&which=all&tag=a&tag=b+c").await;
    assert!(counted.contains("data-count=\"1\""), "{counted}");
    let family = browser.page(&format!("/instances/{root}")).await;
    let child = family.split("id=\"child-").nth(1).and_then(|rest| rest.split('"').next()).expect("a child");
    let child = browser.page(&format!("/instances/{child}")).await;
    assert!(child.contains("Child 2 of <a"), "the newest child comes first: {child}");
}

async fn a_page_adds_and_removes_tags(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let id = tagged(&site, json!(["old"])).await;
    let here = format!("/instances/{id}");
    let page = browser.page(&here).await;
    assert!(page.contains("Remove the tag old") && page.contains("href=\"/instances?tag=old\""), "{page}");
    for fields in [[("add", "new & shiny")], [("remove", "old")]] {
        let answer = browser.submit(&here, &format!("{here}/tags"), &fields).await;
        assert_eq!(leads_to(&answer), format!("{here}?notice=tagged"));
    }
    assert_eq!(site.get(&format!("/v1{here}")).await.expect(200)["tags"], json!(["new & shiny"]));
    assert_eq!(browser.submit(&here, &format!("{here}/tags"), &[("add", &"x".repeat(65))]).await.status, 422);
}
