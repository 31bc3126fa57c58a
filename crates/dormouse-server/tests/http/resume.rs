//! Answers by resume token, from callers who have nothing else.

use axum::body::Body;
use axum::http::Method;
use dormouse::jiff::Timestamp;
use dormouse::store::Scope;
use dormouse::{Interaction, InteractionId, Tokens};
use serde_json::json;

use crate::kit::*;
use crate::log::{listen, logged};

suite![
    a_token_answers_without_a_key_and_a_replay_gets_the_first_answer,
    a_token_may_say_why_there_is_no_output,
    a_token_that_is_altered_or_made_by_others_is_refused_and_told_no_more,
    a_token_that_has_expired_or_whose_unit_is_closed_is_refused_with_the_reason,
    a_token_works_in_its_own_namespace_whatever_the_caller_says,
    a_token_reads_its_holders_own_answer_alone_and_while_it_is_good,
    an_answer_by_token_is_held_against_what_the_machine_takes,
    a_server_without_tokens_takes_none,
    a_token_is_in_no_log_and_its_use_is_in_the_audit_log,
];

async fn a_token_answers_without_a_key_and_a_replay_gets_the_first_answer(database: Database) {
    let mut site = database.with_keys().await;
    let key = site.key("default", Scope::Operate).await;
    site.set_key(&key);
    let (id, open) = site.review("a menu").await;
    let path = resume(&site.token_of(open).await);
    site.clear_key();
    let first = site.post(&path, json!({ "output": true })).await.expect(200);
    assert_eq!(first, json!({ "completed": "admitted", "woke": true }));
    for replay in [json!({ "output": true }), json!({ "output": false }), json!({ "error": "no" })] {
        let again = site.post(&path, replay).await.expect(200);
        assert_eq!(again, json!({ "completed": "repeat", "woke": false, "output": true }));
    }
    // A token already makes its answer idempotent.
    let keyed = site.request(Method::POST, &path).header("idempotency-key", "again");
    let keyed = keyed.header("content-type", "application/json").body(Body::from(r#"{"output":false}"#));
    assert_eq!(site.send(keyed.expect("a request")).await.expect(200)["completed"], "repeat");
    site.set_key(&key);
    assert_eq!(site.outcome(id).await["output"], true);
}

async fn a_token_may_say_why_there_is_no_output(database: Database) {
    let site = database.open().await;
    let (id, open) = site.review("a menu").await;
    let path = resume(&site.token_of(open).await);
    for unclear in [json!({}), json!({ "output": 1, "error": "both" }), json!({ "outptu": 1 })] {
        site.post(&path, unclear).await.expect_problem(400, "invalid-request");
    }
    site.post(&path, json!({ "error": "it is in Greek" })).await.expect(200);
    let ended = site.outcome(id).await;
    assert_eq!(ended["status"], "failed");
    assert!(ended["error"].as_str().expect("a reason").contains("it is in Greek"), "{ended}");
}

async fn a_token_that_is_altered_or_made_by_others_is_refused_and_told_no_more(database: Database) {
    let site = database.open().await;
    let (_, open) = site.review("a menu").await;
    let token = site.token_of(open).await;
    let asked = site.asked(open).await;
    let later = Timestamp::now() + SOON;
    let foreign = Tokens::new("k1", b"another secret, of thirty-two bytes or so").expect("a key");
    let unknown = Tokens::new("k9", b"another secret, of thirty-two bytes or so").expect("a key");
    let mut wrong = vec![
        "nonsense".to_owned(),
        "k1.e30.e30".to_owned(),
        foreign.issue(&asked, later),
        unknown.issue(&asked, later),
        // Signed by us, but for a send that never happened, and for another instance.
        tokens().issue(&Interaction { sends: 7, ..asked.clone() }, later),
        tokens().issue(&Interaction { instance: dormouse::InstanceId(4711), ..asked }, later),
    ];
    for place in (0..token.len()).step_by(3).chain([token.len() - 1]) {
        let mut altered = token.clone().into_bytes();
        altered[place] ^= 1;
        wrong.extend(String::from_utf8(altered).ok().filter(|text| text.bytes().all(is_plain)));
    }
    assert!(wrong.len() > 20);
    let mut told = Vec::new();
    for token in wrong {
        let refused = site.post(&resume(&token), json!({ "output": true })).await;
        told.push(refused.expect_problem(403, "token-refused"));
    }
    told.dedup();
    assert_eq!(
        (told.len(), &told[0]["reason"]),
        (1, &json!("forged")),
        "one answer to all of them: {told:?}"
    );
    assert_eq!(site.get(&format!("/v1/interactions/{open}")).await.expect(200)["status"], "pending");
    site.post(&resume(&token), json!({ "output": true })).await.expect(200);
}

async fn a_token_that_has_expired_or_whose_unit_is_closed_is_refused_with_the_reason(database: Database) {
    let site = database.open().await;
    let (id, open) = site.review("a menu").await;
    let good = site.token_of(open).await;
    let old = tokens().issue(&site.asked(open).await, Timestamp::now() - SOON);
    let expired = site.post(&resume(&old), json!({ "output": true })).await;
    assert_eq!(expired.expect_problem(403, "token-refused")["reason"], "expired");
    site.post(&format!("/v1/instances/{id}/cancel"), json!({})).await.expect(200);
    let cancelled = site.post(&resume(&good), json!({ "output": true })).await;
    assert_eq!(cancelled.expect_problem(409, "completion-refused")["reason"], "cancelled");

    let (_, ann) = site.survey().await;
    let bob = site.token_of(ann + 1).await;
    let stars = json!({ "output": { "stars": 4 } });
    site.post(&resume(&site.token_of(ann).await), stars.clone()).await.expect(200);
    let late = site.post(&resume(&bob), stars).await;
    assert_eq!(late.expect_problem(409, "completion-refused")["reason"], "late");
}

async fn a_token_reads_its_holders_own_answer_alone_and_while_it_is_good(database: Database) {
    let site = database.open().await;
    let confidential = json!("CONFIDENTIAL");
    let (_, open) = site.review("a menu").await;
    let (unused, asked) = (site.token_of(open).await, site.asked(open).await);
    let old = tokens().issue(&asked, Timestamp::now() - SOON);
    let answer = json!({ "error": "CONFIDENTIAL", "assignee": "operator" });
    let path = format!("/v1/interactions/{open}/fail");
    site.post(&path, json!({ "reason": answer["error"], "assignee": "operator" })).await.expect(200);
    let told = site.post(&resume(&unused), json!({ "output": true })).await;
    let told = told.expect_problem(409, "completion-refused");
    assert_eq!(told["reason"], "answered");
    let expired = site.post(&resume(&old), json!({ "output": true })).await;
    let expired = expired.expect_problem(403, "token-refused");
    assert_eq!(expired["reason"], "expired");

    let (_, open) = site.review("a wine list").await;
    let (used, asked) = (site.token_of(open).await, site.asked(open).await);
    let old = tokens().issue(&asked, Timestamp::now() - SOON);
    site.post(&resume(&used), json!({ "error": confidential })).await.expect(200);
    let again = site.post(&resume(&used), json!({ "output": true })).await.expect(200);
    assert_eq!((&again["completed"], &again["error"]), (&json!("repeat"), &confidential));
    let over = site.post(&resume(&old), json!({ "output": true })).await;
    let over = over.expect_problem(403, "token-refused");
    for told in [told, expired, over] {
        assert!(!told.to_string().contains("CONFIDENTIAL"), "{told}");
    }
}

async fn a_token_works_in_its_own_namespace_whatever_the_caller_says(database: Database) {
    let site = database.open().await;
    let (_, open) = site.review("a menu").await;
    // A token that names another tenant finds nothing there.
    let asked = Interaction { namespace: "other".to_owned(), ..site.asked(open).await };
    let stray = tokens().issue(&asked, Timestamp::now() + SOON);
    site.post(&resume(&stray), json!({ "output": true })).await.expect_problem(404, "not-found");
    let token = site.token_of(open).await;
    let elsewhere = site.request(Method::POST, &resume(&token)).header("dormouse-namespace", "other");
    let elsewhere =
        elsewhere.header("content-type", "application/json").body(Body::from(r#"{"output":true}"#));
    assert_eq!(site.send(elsewhere.expect("a request")).await.expect(200)["completed"], "admitted");
}

async fn an_answer_by_token_is_held_against_what_the_machine_takes(database: Database) {
    let site = database.open().await;
    let (id, ann) = site.survey().await;
    let path = resume(&site.token_of(ann).await);
    let refused = site.post(&path, json!({ "output": { "stars": 9 } })).await;
    assert_eq!(refused.expect_problem(422, "output-refused")["reason"], "schema");
    site.post(&path, json!({ "output": { "stars": 5 } })).await.expect(200);
    assert_eq!(site.outcome(id).await["output"], json!("ann gives 5"));
}

async fn a_server_without_tokens_takes_none(database: Database) {
    let site = database.nested("/dormouse").await;
    site.post(&resume("k1.e30.e30"), json!({ "output": true })).await.expect_problem(404, "not-found");
}

async fn a_token_is_in_no_log_and_its_use_is_in_the_audit_log(database: Database) {
    listen();
    let site = database.open().await;
    let (_, open) = site.review("a menu").await;
    let token = site.token_of(open).await;
    site.post(&resume(&token), json!({})).await.expect_problem(400, "invalid-request");
    site.post(&resume(&token), json!({ "output": true })).await.expect(200);
    let mut altered = token.clone();
    altered.push('A');
    site.post(&resume(&altered), json!({ "output": true })).await.expect_problem(403, "token-refused");
    let audit = site.get("/v1/audit?what=interaction.resume").await.expect(200);
    let entries = audit["items"].as_array().expect("entries");
    assert_eq!(entries.len(), 2, "what is not ours is nobody's, and fills no log: {audit}");
    for (entry, result) in entries.iter().zip(["ok", "invalid-request"]) {
        assert_eq!((&entry["who"], &entry["result"]), (&json!("resume token"), &json!(result)));
        assert_eq!(entry["target"], json!(open.to_string()));
    }
    let claims = token.split('.').nth(1).expect("its claims");
    assert!(!audit.to_string().contains(claims), "{audit}");
    let logged = logged();
    assert!(logged.contains("/v1/resume/{token}"), "the route is told");
    assert!(!logged.contains(claims), "and the token is not");
}

fn resume(token: &str) -> String {
    format!("/v1/resume/{token}")
}

/// Characters that a path may contain without encoding.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

impl Site {
    async fn asked(&self, id: i64) -> Interaction {
        self.client.interaction(InteractionId(id)).await.expect("a read").expect("it is there")
    }
}
