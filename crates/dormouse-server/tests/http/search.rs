//! Finding instances, and acting on all that are found.

use dormouse::store::Scope;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    instances_are_found_by_fields_of_their_state_and_by_errors,
    a_search_says_how_far_it_looked,
    what_is_no_search_is_refused_with_a_reason,
    all_that_match_are_acted_on_a_page_at_a_time,
    a_dry_run_counts_and_names_and_changes_nothing,
    a_bulk_action_needs_a_filter_and_what_belongs_to_its_verb,
    a_bulk_action_is_for_operators_and_stays_in_its_namespace,
    many_are_retried_with_another_state,
    states_of_many_are_edited_and_they_stay_where_they_are,
];

fn ids(page: &Value) -> Vec<i64> {
    page["items"].as_array().expect("items").iter().map(|item| item["id"].as_i64().expect("an id")).collect()
}

/// Orders that failed, by their numbers.
async fn failed(site: &Site, numbers: std::ops::Range<u64>) -> Vec<i64> {
    let mut failed = Vec::new();
    for number in numbers {
        let id = site.order(number).await;
        let signal = json!({ "name": "paid", "payload": 0 });
        site.post(&format!("/v1/instances/{id}/signals"), signal).await.expect(200);
        site.until(id, "failed").await;
        failed.push(id);
    }
    failed
}

async fn instances_are_found_by_fields_of_their_state_and_by_errors(database: Database) {
    let site = database.open().await;
    let failed = failed(&site, 1..3).await;
    let waits = site.order(30).await;
    for (query, found) in [
        ("where=order+%3E+1&machine=shop", vec![waits, failed[1]]),
        ("where=order+%3E+1&where=order+%3C+30&machine=shop", vec![failed[1]]),
        ("where=order%3D30", vec![waits]),
        ("error=LUNCH", vec![failed[1], failed[0]]),
        ("error=lunch&order=oldest", vec![failed[0], failed[1]]),
        ("status=failed&status=awaiting_signal", vec![waits, failed[1], failed[0]]),
        ("status=failed,done&where=order%3D2", vec![failed[1]]),
        ("step=Ship&version=1&status=awaiting_signal", vec![waits]),
        ("version=2", vec![]),
        ("ended_from=2000-01-01T00:00:00Z&machine=shop", vec![failed[1], failed[0]]),
        ("changed_before=2000-01-01T00:00:00Z", vec![]),
    ] {
        let page = site.get(&format!("/v1/instances?{query}")).await.expect(200);
        assert_eq!(ids(&page), found, "{query}");
    }
}

async fn a_search_says_how_far_it_looked(database: Database) {
    let site = database.open().await;
    for number in 1..=3 {
        site.order(number).await;
    }
    let page = site.get("/v1/instances?machine=shop&where=order%3D2").await.expect(200);
    assert_eq!(page["looked"], json!({ "rows": 1, "indexed": true }), "{page}");
    let page = site.get("/v1/instances?where=order%3D2").await.expect(200);
    assert_eq!(page["looked"], json!({ "rows": 3, "indexed": false }), "{page}");
    assert!(site.get("/v1/instances?machine=shop").await.expect(200).get("looked").is_none());
}

async fn what_is_no_search_is_refused_with_a_reason(database: Database) {
    let site = database.open().await;
    for (query, told) in [
        ("where=order", "write it like `total > 1000`"),
        ("where=a+b%3D1", "a field is letters"),
        ("status=foo", "foo"),
        ("order=sideways", "sideways"),
    ] {
        let problem =
            site.get(&format!("/v1/instances?{query}")).await.expect_problem(400, "invalid-request");
        assert!(problem["detail"].as_str().expect("text").contains(told), "{problem}");
    }
    let many = "where=a%3D1&".repeat(9);
    site.get(&format!("/v1/instances?{many}")).await.expect_problem(400, "invalid-request");
}

async fn all_that_match_are_acted_on_a_page_at_a_time(database: Database) {
    let site = database.open().await;
    let failed = failed(&site, 1..6).await;
    let (mut done, mut pages, mut cursor) = (0, 0, String::new());
    loop {
        let path = format!("/v1/instances/bulk?status=failed&machine=shop&limit=2{cursor}");
        let answer = site.post(&path, json!({ "verb": "retry" })).await.expect(200);
        done += answer["done"].as_u64().expect("a number");
        pages += 1;
        match answer["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!((done, pages), (5, 3));
    // Each fails again for the same reason: they have run.
    for id in &failed {
        site.until(*id, "failed").await;
        let history = site.get(&format!("/v1/instances/{id}/history")).await.expect(200);
        assert!(history.to_string().contains("\"retried\""), "{history}");
    }
    let audit = site.get("/v1/audit?what=instance.retry").await.expect(200);
    assert_eq!(audit["items"].as_array().expect("items").len(), 5);
    assert_eq!(
        site.get("/v1/audit?what=instance.bulk").await.expect(200)["items"].as_array().expect("items").len(),
        3
    );
}

async fn a_dry_run_counts_and_names_and_changes_nothing(database: Database) {
    let site = database.open().await;
    let failed = failed(&site, 1..3).await;
    site.order(7).await;
    let body = json!({ "verb": "retry", "dry_run": true });
    let answer = site.post("/v1/instances/bulk?machine=shop&where=order+%3E+0", body).await.expect(200);
    assert_eq!(
        (&answer["matched"], &answer["done"]),
        (&json!(2), &json!(0)),
        "only what can be retried: {answer}"
    );
    assert_eq!(answer["examples"][0]["id"], failed[1]);
    assert_eq!(site.get(&format!("/v1/instances/{}", failed[0])).await.expect(200)["status"], "failed");
}

async fn a_bulk_action_needs_a_filter_and_what_belongs_to_its_verb(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    for (query, body) in [
        ("", json!({ "verb": "cancel" })),
        ("limit=5", json!({ "verb": "cancel" })),
        ("machine=shop", json!({ "verb": "signal" })),
        ("machine=shop", json!({ "verb": "pause", "reason": "x" })),
        ("machine=shop", json!({ "verb": "cancel", "step": "Start" })),
        ("machine=shop", json!({ "verb": "cancel", "signal": { "name": "x" } })),
    ] {
        let answer = site.post(&format!("/v1/instances/bulk?{query}"), body.clone()).await;
        answer.expect_problem(400, "invalid-request");
        assert_eq!(
            site.get(&format!("/v1/instances/{id}")).await.expect(200)["status"],
            "awaiting_signal",
            "{body}"
        );
    }
    let paid = json!({ "verb": "signal", "signal": { "name": "paid", "payload": 5 } });
    let answer = site.post("/v1/instances/bulk?awaiting=paid", paid).await.expect(200);
    assert_eq!(answer["done"], 1);
    site.until(id, "done").await;
    let answer = site.post("/v1/instances/bulk?machine=shop", json!({ "verb": "fork" })).await.expect(200);
    assert_eq!(answer["done"], 1, "{answer}");
}

async fn a_bulk_action_is_for_operators_and_stays_in_its_namespace(database: Database) {
    let mut site = database.with_keys().await;
    let (ours, theirs) = (site.key("a", Scope::Admin).await, site.key("b", Scope::Operate).await);
    let reader = site.key("a", Scope::Read).await;
    site.set_key(&ours);
    let id = site.order(1).await;
    let cancel = json!({ "verb": "cancel" });
    site.set_key(&reader);
    site.post("/v1/instances/bulk?machine=shop", cancel.clone()).await.expect_problem(403, "forbidden");
    site.set_key(&theirs);
    assert_eq!(site.post("/v1/instances/bulk?machine=shop", cancel).await.expect(200)["matched"], 0);
    site.set_key(&ours);
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200)["status"], "awaiting_signal");
}

async fn many_are_retried_with_another_state(database: Database) {
    let site = database.open().await;
    let failed = failed(&site, 1..3).await;
    let body = json!({ "verb": "retry", "step": "Start", "set": { "order": 77 } });
    let answer = site.post("/v1/instances/bulk?status=failed&machine=shop", body).await.expect(200);
    assert_eq!(answer["done"], 2, "{answer}");
    for id in failed {
        let instance = site.get(&format!("/v1/instances/{id}")).await.expect(200);
        assert_eq!(instance["state"]["order"], 77, "{instance}");
    }
    let found = site.get("/v1/instances?machine=shop&where=order%3D77").await.expect(200);
    assert_eq!(ids(&found).len(), 2);
}

async fn states_of_many_are_edited_and_they_stay_where_they_are(database: Database) {
    let site = database.open().await;
    let (one, other) = (site.order(1).await, site.order(2).await);
    let failed = failed(&site, 3..4).await;
    let path = "/v1/instances/bulk?machine=shop&where=order+%3C+10";
    let body = json!({ "verb": "edit", "set": { "order": 88 } });
    let dry =
        site.post(path, json!({ "verb": "edit", "set": { "order": 88 }, "dry_run": true })).await.expect(200);
    assert_eq!((&dry["matched"], &dry["done"]), (&json!(3), &json!(0)), "{dry}");
    let answer = site.post(path, body).await.expect(200);
    assert_eq!((&answer["done"], &answer["refused"]), (&json!(3), &json!(0)), "{answer}");
    for (id, status) in [(one, "awaiting_signal"), (other, "awaiting_signal"), (failed[0], "failed")] {
        let instance = site.get(&format!("/v1/instances/{id}")).await.expect(200);
        assert_eq!((&instance["state"]["order"], &instance["status"]), (&json!(88), &json!(status)));
        let audit = site.get(&format!("/v1/audit?what=instance.edit&target={id}")).await.expect(200);
        assert_eq!(audit["items"].as_array().map(Vec::len), Some(1), "{audit}");
    }
    for (set, step) in [(json!({}), Value::Null), (json!({ "order": 1 }), json!("Start"))] {
        let body = json!({ "verb": "edit", "set": set, "step": step });
        site.post(path, body).await.expect_problem(400, "invalid-request");
    }
    let typo = json!({ "verb": "edit", "set": { "ordr": 1 } });
    let refused = site.post("/v1/instances/bulk?machine=shop&where=order%3D88", typo).await.expect(200);
    assert_eq!((&refused["done"], &refused["refused"]), (&json!(0), &json!(3)), "{refused}");
}
