//! Forms of the dashboard: each does what it says, and the audit log records who sent it.

use serde_json::json;

use crate::browser::{Browser, leads_to};
use crate::kit::*;

suite![
    a_signal_from_a_page_wakes_its_instance_once,
    an_instance_is_paused_resumed_cancelled_and_retried,
    a_state_is_edited_where_it_stands,
    a_fork_starts_from_an_event_with_another_state,
    many_are_counted_first_and_then_acted_on,
    who_waits_for_a_signal_is_signalled_together,
    a_question_is_claimed_and_answered,
    a_question_that_cannot_be_answered_is_failed,
    a_queue_is_paused_and_resumed,
    a_limit_is_set_and_removed,
    what_cannot_be_done_is_told_on_a_page_and_in_the_audit_log,
    an_open_page_hears_of_changes,
];

/// The newest entry of the audit log: the change, its target and its result.
async fn newest(site: &Site) -> (String, String, String) {
    let entry = site.get("/v1/audit?limit=1").await.expect(200)["items"][0].clone();
    assert_eq!(entry["who"], "anyone on this host");
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    (text("what"), text("target"), text("result"))
}

#[track_caller]
fn entry(what: &str, target: i64, result: &str) -> (String, String, String) {
    (what.to_owned(), target.to_string(), result.to_owned())
}

/// Sends a form of an instance's page, and expects this notice.
async fn act(browser: &Browser<'_>, id: i64, verb: &str, fields: &[(&str, &str)], notice: &str) {
    let here = format!("/instances/{id}");
    let answer = browser.submit(&here, &format!("{here}/{verb}"), fields).await;
    assert_eq!(leads_to(&answer), format!("{here}?notice={notice}"));
    let told = browser.page(leads_to(&answer)).await;
    assert!(told.contains("id=\"notice\" role=\"status\""), "{told}");
}

async fn a_signal_from_a_page_wakes_its_instance_once(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let id = site.order(7).await;
    let page = browser.page(&format!("/instances/{id}")).await;
    for part in ["name=\"name\" value=\"paid\"", "name=\"payload.is\" type=\"number\"", "Send paid</button>"]
    {
        assert!(page.contains(part), "a form for what it waits for: {page}");
    }
    site.post(&format!("/v1/instances/{id}/pause"), json!({})).await.expect(200);
    let signal = [("name", "paid"), ("typed", "yes"), ("payload.is", "5"), ("dedup_key", "page-1")];
    act(&browser, id, "signal", &signal, "signalled").await;
    assert_eq!(newest(&site).await, entry("instance.signal", id, "ok"));
    act(&browser, id, "signal", &signal, "duplicate").await;
    act(&browser, id, "resume", &[], "resumed").await;
    assert_eq!(site.until(id, "done").await["output"], "order 7 shipped for 5");
}

async fn an_instance_is_paused_resumed_cancelled_and_retried(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let id = site.order(7).await;
    for (verb, notice, what) in [
        ("pause", "paused", "instance.pause"),
        ("resume", "resumed", "instance.resume"),
        ("cancel", "cancelled", "instance.cancel"),
        ("cancel", "ended", "instance.cancel"),
        ("retry", "retried", "instance.retry"),
    ] {
        // The forms of an ended instance are fewer, but their token is the same.
        act(&browser, id, verb, &[], notice).await;
        assert_eq!(newest(&site).await, entry(what, id, "ok"), "{verb}");
    }
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200)["paused"], false);
    site.until(id, "awaiting_signal").await;
}

async fn a_fork_starts_from_an_event_with_another_state(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let id = site.order(7).await;
    let form = format!("/instances/{id}/fork?seq=1");
    let large = r#"{ "order": 12345678901234567890 }"#;
    let fields =
        [("seq", "1"), ("step", "Start"), ("state", large), ("key", "order:8"), ("queue", "default")];
    let answer = browser.submit(&form, &format!("/instances/{id}/fork"), &fields).await;
    let to = leads_to(&answer).to_owned();
    let new: i64 =
        to.trim_start_matches("/instances/").trim_end_matches("?notice=forked").parse().expect("a number");
    let forked = site.until(new, "awaiting_signal").await;
    assert_eq!(
        (&forked["key"], &forked["state"]["order"]),
        (&json!("order:8"), &json!(12345678901234567890_u64))
    );
    assert_eq!(newest(&site).await, entry("instance.fork", id, "ok"));
}

async fn many_are_counted_first_and_then_acted_on(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let mut ids = Vec::new();
    for number in 1..=3 {
        ids.push(site.order(number).await);
    }
    let list = browser.page("/instances?machine=shop").await;
    assert_eq!(list.matches("type=\"checkbox\" name=\"id\"").count(), 3, "{list}");
    let counted =
        browser.page("/instances/bulk?verb=cancel&which=all&machine=shop&status=awaiting_signal").await;
    assert!(counted.contains("data-count=\"3\"") && counted.contains("Cancel 3</button>"), "{counted}");
    let (_, rest) = counted.split_once("name=\"ids\" value=\"").expect("those that were counted");
    let counted: String = rest.split('"').next().expect("ids").to_owned();
    let late = site.order(4).await;
    let fields = [("verb", "cancel"), ("ids", counted.as_str()), ("machine", "shop")];
    let answer = browser.submit("/instances/bulk?verb=pause&which=all", "/instances/bulk", &fields).await;
    assert_eq!(leads_to(&answer), "/instances?machine=shop&notice=bulk-3-0");
    assert!(browser.page(leads_to(&answer)).await.contains("Done for 3."));
    for id in &ids {
        site.until(*id, "cancelled").await;
        let entry = site.get(&format!("/v1/audit?target={id}&what=instance.cancel")).await.expect(200);
        assert_eq!(entry["items"].as_array().map(Vec::len), Some(1), "{entry}");
    }
    let spared = site.get(&format!("/v1/instances/{late}")).await.expect(200);
    assert_eq!(spared["status"], "awaiting_signal", "only those that were counted");
    // Ended instances cannot be cancelled, so they are not counted; selected live ones are.
    let chosen = format!("/instances/bulk?verb=retry&which=chosen&id={}&id={}&id={late}", ids[0], ids[1]);
    assert!(browser.page(&chosen).await.contains("data-count=\"2\""));
    let many = (0..1001).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    for ids in ["", "x", &many] {
        let fields = [("verb", "cancel"), ("ids", ids)];
        let refused =
            browser.submit("/instances/bulk?verb=cancel&which=all", "/instances/bulk", &fields).await;
        assert_eq!(refused.status, 400, "{ids}");
    }
}

async fn who_waits_for_a_signal_is_signalled_together(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let ids = [site.order(1).await, site.order(2).await];
    let counted = browser.page("/instances/bulk?verb=signal&which=all&awaiting=paid&payload=5").await;
    assert!(counted.contains("data-count=\"2\"") && counted.contains("value=\"paid\""), "{counted}");
    let joined = ids.map(|id| id.to_string()).join(",");
    let fields = [("verb", "signal"), ("ids", joined.as_str()), ("name", "paid"), ("payload", "5")];
    let answer = browser
        .submit("/instances/bulk?verb=signal&which=all&awaiting=paid", "/instances/bulk", &fields)
        .await;
    assert_eq!(leads_to(&answer), "/instances?notice=bulk-2-0");
    for id in ids {
        site.until(id, "done").await;
    }
}

async fn a_question_is_claimed_and_answered(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let (id, asked) = site.review("a menu").await;
    let here = format!("/inbox/{asked}");
    let answer = browser.submit(&here, &format!("{here}/claim"), &[("seconds", "900")]).await;
    assert_eq!(leads_to(&answer), format!("{here}?notice=claimed"));
    assert_eq!(newest(&site).await, entry("interaction.claim", asked, "ok"));
    let claimed = browser.page(&here).await;
    assert!(claimed.contains("You have claimed it.") && claimed.contains("Release it"), "{claimed}");
    let answer = browser.submit(&here, &format!("{here}/complete"), &[("output", "true")]).await;
    assert_eq!(leads_to(&answer), format!("{here}?notice=answered"));
    assert_eq!(newest(&site).await, entry("interaction.complete", asked, "ok"));
    assert_eq!(site.until(id, "done").await["output"], true);
    assert!(browser.page("/inbox").await.contains("No questions."));
    // While somebody else has claimed it, there is no form to send.
    let (_, other) = site.review("a bill").await;
    let claim = json!({ "assignee": "ada", "seconds": 600 });
    site.post(&format!("/v1/interactions/{other}/claim"), claim).await.expect(200);
    let page = browser.page(&format!("/inbox/{other}")).await;
    assert!(page.contains("ada has claimed it") && !page.contains("id=\"complete\""), "{page}");
}

async fn a_question_that_cannot_be_answered_is_failed(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let (id, asked) = site.review("a menu").await;
    let here = format!("/inbox/{asked}");
    let answer = browser.submit(&here, &format!("{here}/fail"), &[("reason", "the cook is ill")]).await;
    assert_eq!(leads_to(&answer), format!("{here}?notice=answered"));
    let failed = site.until(id, "failed").await;
    assert!(failed["last_error"].as_str().is_some_and(|error| error.contains("the cook is ill")), "{failed}");
    assert_eq!(newest(&site).await, entry("interaction.fail", asked, "ok"));
}

async fn a_limit_is_set_and_removed(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let fields = [("name", "partner/acme"), ("width", "3")];
    let answer = browser.submit("/limits", "/limits", &fields).await;
    assert_eq!(leads_to(&answer), "/limits?notice=limited");
    assert_eq!(newest(&site).await, ("limit.set".to_owned(), "partner/acme".to_owned(), "ok".to_owned()));
    let page = browser.page("/limits").await;
    assert!(page.contains("Remove limit partner/acme") && page.contains(">3</td>"), "{page}");
    let answer = browser.submit("/limits", "/limits/remove", &[("name", "partner/acme")]).await;
    assert_eq!(leads_to(&answer), "/limits?notice=unlimited");
    assert_eq!(newest(&site).await.0, "limit.remove");
    assert!(browser.page("/limits").await.contains("No limit is set."));
    let fields = [("name", "stripe"), ("width", ""), ("rate", "25"), ("period", "1m"), ("burst", "5")];
    let answer = browser.submit("/limits", "/limits", &fields).await;
    assert_eq!(leads_to(&answer), "/limits?notice=limited");
    assert!(browser.page("/limits").await.contains("25 in 1m, burst 5"));
    browser.submit("/limits", "/limits/remove", &[("name", "stripe")]).await;
    for (rate, period, burst) in
        [("0", "1s", "1"), ("-3", "1s", "1"), ("5", "0s", "1"), ("5", "soon", "1"), ("5", "1s", "0")]
    {
        let fields = [("name", "l"), ("rate", rate), ("period", period), ("burst", burst)];
        let refused = browser.submit("/limits", "/limits", &fields).await;
        assert!(refused.status >= 400 && refused.status < 500, "{fields:?}: {}", refused.status);
    }
    for width in ["0", "many", "-1", ""] {
        let refused = browser.submit("/limits", "/limits", &[("name", "l"), ("width", width)]).await;
        assert!(refused.status >= 400 && refused.status < 500, "{width:?}: {}", refused.status);
    }
    assert!(browser.page("/limits").await.contains("No limit is set."), "nothing was stored");
}

async fn a_queue_is_paused_and_resumed(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    for (verb, notice, shown) in
        [("pause", "braked", "Resume queue default"), ("resume", "unbraked", "Pause queue default")]
    {
        let answer = browser.submit("/queues", &format!("/queues/default/{verb}"), &[]).await;
        assert_eq!(leads_to(&answer), format!("/queues?notice={notice}"));
        assert!(browser.page("/queues").await.contains(shown));
        let (what, target, result) = newest(&site).await;
        assert_eq!((what, target, result), (format!("queue.{verb}"), "default".to_owned(), "ok".to_owned()));
    }
}

async fn what_cannot_be_done_is_told_on_a_page_and_in_the_audit_log(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let id = site.order(7).await;
    let here = format!("/instances/{id}");
    let refused = |verb: &'static str, fields: &'static [(&str, &str)]| {
        let (browser, here) = (&browser, here.clone());
        async move { browser.submit(&here, &format!("{here}/{verb}"), fields).await }
    };
    let malformed = refused("signal", &[("name", "paid"), ("payload", "five")]).await;
    assert_eq!(malformed.status, 400);
    assert!(malformed.text.contains("text goes in quotes"), "{}", malformed.text);
    let wrong = refused("signal", &[("name", "paid"), ("payload", "\"five\"")]).await;
    assert_eq!(
        (wrong.status, newest(&site).await),
        (422, entry("instance.signal", id, "payload-refused paid"))
    );
    let early = refused("retry", &[]).await;
    assert_eq!((early.status, newest(&site).await), (409, entry("instance.retry", id, "wrong-status")));
    let nameless = refused("signal", &[("payload", "1")]).await;
    assert_eq!(nameless.status, 400);
    let unknown = browser.submit(&here, "/instances/999/cancel", &[]).await;
    assert_eq!((unknown.status, newest(&site).await), (404, entry("instance.cancel", 999, "not-found")));
}

async fn an_open_page_hears_of_changes(database: Database) {
    let site = database.open().await;
    let request = site.request(axum::http::Method::GET, "/live").header("host", site.address.to_string());
    let response = site.open(request.body(axum::body::Body::empty()).expect("a request")).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = axum::body::Body::new(response.into_body()).into_data_stream();
    let id = site.order(7).await;
    let heard = async {
        let mut text = String::new();
        while !text.contains(&format!("\"instance\":{id}")) {
            let bytes = futures_util::StreamExt::next(&mut body).await.expect("more").expect("bytes");
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
    };
    tokio::time::timeout(SOON, heard).await.expect("the page hears of it");
}

async fn a_state_is_edited_where_it_stands(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let id = site.order(7).await;
    let path = format!("/v1/instances/{id}");
    assert!(browser.page(&format!("/instances/{id}")).await.contains("Edit the state"));
    act(&browser, id, "edit", &[("state", r#"{"order":8}"#)], "restated").await;
    assert_eq!(newest(&site).await, entry("instance.edit", id, "ok"));
    let edited = site.get(&path).await.expect(200);
    assert_eq!((&edited["state"]["order"], &edited["status"]), (&json!(8), &json!("awaiting_signal")));
    let seq = edited["seq"].as_u64().expect("a seq");
    let edit = format!("{path}/edit");
    site.post(&edit, json!({ "set": { "order": 9 }, "expected_seq": seq - 1 }))
        .await
        .expect_problem(409, "stale-seq");
    site.post(&edit, json!({ "set": { "order": "x" } })).await.expect_problem(422, "invalid-state");
    site.post(&edit, json!({ "state": {}, "set": { "order": 1 } }))
        .await
        .expect_problem(400, "invalid-request");
    site.post(&edit, json!({ "set": { "order": 9 } })).await.expect(200);
    let kinds = site.get(&format!("{path}/history")).await.expect(200);
    let kinds: Vec<_> =
        kinds["items"].as_array().expect("events").iter().map(|event| event["kind"].clone()).collect();
    assert_eq!(kinds[kinds.len() - 2..], [json!("state.edited"), json!("state.edited")]);
    site.post(&format!("{path}/signals"), json!({ "name": "paid", "payload": 5 })).await.expect(200);
    let done = site.until(id, "done").await;
    assert_eq!(done["output"], "order 9 shipped for 5");
    site.post(&edit, json!({ "state": { "order": 1 } })).await.expect_problem(409, "wrong-status");
}
