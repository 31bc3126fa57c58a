//! Shares: named at a start, weighed by admins, shown with the instance, over HTTP and with the dashboard's form.

use dormouse::store::Scope;
use serde_json::{Value, json};

use crate::browser::leads_to;
use crate::kit::*;

suite![
    a_share_is_named_at_the_start_and_shown,
    shares_are_weighed_listed_and_audited,
    names_and_weights_that_cannot_be_used_are_refused,
    only_an_admin_weighs_shares,
    a_page_shows_the_weights_and_changes_them,
];

async fn a_share_is_named_at_the_start_and_shown(database: Database) {
    let site = database.open().await;
    let named = json!({ "machine": "double", "state": 1, "start_in": "1h", "share": "tenant-7" });
    let id = site.post("/v1/instances", named).await.expect(201)["id"].clone();
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200)["share"], "tenant-7");
    let own = json!({ "machine": "double", "state": 1, "start_in": "1h" });
    let id = site.post("/v1/instances", own).await.expect(201)["id"].clone();
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200)["share"], Value::Null);
}

async fn shares_are_weighed_listed_and_audited(database: Database) {
    let site = database.open().await;
    assert_eq!(site.get("/v1/shares").await.expect(200), json!({ "shares": [] }));
    let weighed = json!({ "share": "tenant-7", "weight": 3 });
    assert_eq!(site.post("/v1/shares/tenant-7/weigh", json!({ "weight": 3 })).await.expect(200), weighed);
    assert_eq!(site.get("/v1/shares").await.expect(200), json!({ "shares": [weighed] }));
    site.post("/v1/shares/tenant-7/weigh", json!({ "weight": 1 })).await.expect(200);
    assert_eq!(site.get("/v1/shares").await.expect(200), json!({ "shares": [] }));
    let audit = site.get("/v1/audit?what=share.weigh").await.expect(200);
    assert_eq!(
        (audit["items"].as_array().map(Vec::len), &audit["items"][0]["target"]),
        (Some(2), &json!("tenant-7"))
    );
}

async fn names_and_weights_that_cannot_be_used_are_refused(database: Database) {
    let site = database.open().await;
    for weight in [json!(0), json!(1001)] {
        let body = json!({ "weight": weight });
        site.post("/v1/shares/a/weigh", body).await.expect_problem(422, "invalid-name");
    }
    for body in [json!({}), json!({ "weight": "3" }), json!({ "weight": -1 }), json!({ "weight": 2, "x": 1 })]
    {
        site.post("/v1/shares/a/weigh", body).await.expect_problem(400, "invalid-request");
    }
    site.post("/v1/shares/%07/weigh", json!({ "weight": 2 })).await.expect_problem(422, "invalid-name");
    let hostile = json!({ "machine": "double", "state": 1, "share": "a\u{1}b" });
    site.post("/v1/instances", hostile).await.expect_problem(422, "invalid-name");
    assert_eq!(site.get("/v1/shares").await.expect(200), json!({ "shares": [] }));
}

async fn only_an_admin_weighs_shares(database: Database) {
    let mut site = database.with_keys().await;
    for (scope, may) in [(Scope::Read, false), (Scope::Operate, false), (Scope::Admin, true)] {
        let key = site.key("default", scope).await;
        site.set_key(&key);
        let answer = site.post("/v1/shares/a/weigh", json!({ "weight": 2 })).await;
        assert_eq!(answer.status == 200, may, "{scope:?}: {}", answer.text);
    }
}

async fn a_page_shows_the_weights_and_changes_them(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let answer = browser.submit("/queues", "/shares", &[("share", "tenant-7"), ("weight", "4")]).await;
    assert_eq!(leads_to(&answer), "/queues?notice=weighed");
    let page = browser.page("/queues").await;
    assert!(page.contains(r#"data-share="tenant-7""#), "{page}");
}
