//! Refusals are in the audit log, and nobody can fill it with them.

use axum::body::Body;
use axum::http::Method;
use dormouse::jiff::Timestamp;
use dormouse::store::Scope;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    what_is_refused_before_it_is_done_is_recorded_once_for_all_of_a_minute,
    a_used_or_old_token_leaves_no_entry_at_each_try,
    a_change_that_is_refused_again_and_again_is_one_entry_for_each_target,
];

/// How often each is tried.
const TRIES: usize = 30;

/// The entries of the audit log with this result, as an admin sees them.
async fn entries(site: &Site, what: &str, result: &str) -> Vec<Value> {
    let page = site.get("/v1/audit?limit=500").await.expect(200);
    let items = page["items"].as_array().expect("items").clone();
    items.into_iter().filter(|entry| entry["what"] == what && entry["result"] == result).collect()
}

async fn what_is_refused_before_it_is_done_is_recorded_once_for_all_of_a_minute(database: Database) {
    let mut site = database.with_keys().await;
    let [read, operate, admin] = [
        site.key("default", Scope::Read).await,
        site.key("default", Scope::Operate).await,
        site.key("default", Scope::Admin).await,
    ];
    site.set_key(&operate);
    let id = site.order(1).await;
    let cancel = format!("/v1/instances/{id}/cancel");
    for _ in 0..TRIES {
        site.set_key(&read);
        site.post(&cancel, json!({})).await.expect_problem(403, "forbidden");
        site.get("/v1/audit").await.expect_problem(403, "forbidden");
        site.set_key(&operate);
        let text = site.request(Method::POST, &cancel).header("content-type", "text/plain");
        let text = text.body(Body::from("{}")).expect("a request");
        site.send(text).await.expect_problem(415, "unsupported-media-type");
        site.clear_key();
        site.get("/v1/stats").await.expect_problem(401, "unauthenticated");
        site.post("/v1/resume/k1.e30.e30", json!({ "output": 1 })).await.expect_problem(403, "token-refused");
        let wrong = site.browser().submit("/login", "/login", &[("key", "dmk_not_this")]).await;
        assert_eq!(wrong.status, 403);
    }
    site.set_key(&admin);
    for (what, result, who, target) in [
        ("instance.cancel", "forbidden", "read of default", Some(id)),
        ("/v1/audit", "forbidden", "read of default", None),
        ("instance.cancel", "unsupported-media-type", "operate of default", Some(id)),
        ("request", "unauthenticated", "nobody", None),
        ("request", "token-refused", "nobody", None),
        ("session.open", "forbidden", "nobody", None),
    ] {
        let found = entries(&site, what, result).await;
        // On a slow machine this may take more than one minute.
        assert!((1..=3).contains(&found.len()), "{what} {result}: {found:?}");
        assert!(found[0]["who"].as_str().expect("who").starts_with(who), "{found:?}");
        assert_eq!(found[0]["target"], json!(target.map(|id| id.to_string())), "{found:?}");
    }
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200)["status"], "awaiting_signal");
}

async fn a_used_or_old_token_leaves_no_entry_at_each_try(database: Database) {
    let site = database.open().await;
    let (_, open) = site.review("a menu").await;
    let asked = site.client.interaction(dormouse::InteractionId(open)).await.expect("a read");
    let asked = asked.expect("it is there");
    let used = format!("/v1/resume/{}", site.token_of(open).await);
    let old = format!("/v1/resume/{}", tokens().issue(&asked, Timestamp::now() - SOON));
    site.post(&used, json!({ "output": true })).await.expect(200);
    for _ in 0..TRIES {
        site.post(&used, json!({ "output": true })).await.expect(200);
        site.post(&old, json!({ "output": true })).await.expect_problem(403, "token-refused");
    }
    assert_eq!(entries(&site, "interaction.resume", "ok").await.len(), 1);
    let refused = entries(&site, "interaction.resume", "token-refused").await;
    assert!((1..=3).contains(&refused.len()), "{refused:?}");
    assert_eq!(
        (&refused[0]["who"], &refused[0]["target"]),
        (&json!("resume token"), &json!(open.to_string()))
    );
}

async fn a_change_that_is_refused_again_and_again_is_one_entry_for_each_target(database: Database) {
    let site = database.open().await;
    let missing = [998, 999];
    for _ in 0..TRIES {
        for id in missing {
            site.post(&format!("/v1/instances/{id}/cancel"), json!({}))
                .await
                .expect_problem(404, "not-found");
        }
    }
    let found = entries(&site, "instance.cancel", "not-found").await;
    for id in missing {
        let of_one = found.iter().filter(|entry| entry["target"] == json!(id.to_string())).count();
        assert!((1..=3).contains(&of_one), "{found:?}");
    }
}
