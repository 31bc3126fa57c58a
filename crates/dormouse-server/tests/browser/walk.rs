//! What a person does on the dashboard: looks at waiting instances, signals, answers, cancels, forks.

use dormouse::store::Scope;
use serde_json::json;

use crate::driver::{ENTER, TAB};
use crate::kit::*;
use crate::{go, live, open};

suite![
    an_order_that_waits_is_signalled_from_its_page,
    a_page_moves_with_its_instance_and_is_not_loaded_anew,
    a_list_moves_with_its_instances,
    a_question_is_answered_in_the_inbox,
    those_that_match_a_filter_are_cancelled_together_after_their_number_was_told,
    another_instance_starts_from_an_event_with_another_state,
    an_order_is_signalled_by_keyboard_alone,
    who_has_a_key_signs_in_and_comes_to_the_page_they_asked_for,
    a_signal_that_cannot_be_read_is_repaired_on_the_page,
];

async fn an_order_that_waits_is_signalled_from_its_page(database: Database) {
    let site = database.open().await;
    let id = site.order(7).await;
    let browser = open(&site, "/");
    browser.see("main", "paid");
    browser.click("nav a[href='/instances']");
    browser.see(&format!("#instance-{id}"), "awaiting signal");
    browser.click(&format!("#instance-{id} a[href='/instances/{id}']"));
    browser.see("h1", "order:7");
    browser.see("#status", "awaiting signal");
    browser.click("#signal > summary");
    browser.fill(AMOUNT, "1250");
    browser.click("#signal-for-paid button[type=submit]");
    browser.see("#notice", "The signal is in its inbox.");
    browser.see("#status", "done");
    browser.see("#state", "order 7 shipped for 1250");
    assert_eq!(
        site.get("/v1/audit?what=instance.signal").await.expect(200)["items"][0]["target"],
        id.to_string()
    );
}

async fn a_page_moves_with_its_instance_and_is_not_loaded_anew(database: Database) {
    let site = database.open().await;
    let id = site.order(8).await;
    let browser = open(&site, &format!("/instances/{id}"));
    browser.see("#status", "awaiting signal");
    browser.js("window.stayed = true");
    let signal = json!({ "name": "paid", "payload": 99 });
    site.post(&format!("/v1/instances/{id}/signals"), signal).await.expect(200);
    browser.see("#status", "done");
    browser.see("#timeline", "done");
    browser.see("#announcer", "done");
    assert_eq!(browser.js("return window.stayed"), true);
}

async fn a_list_moves_with_its_instances(database: Database) {
    let site = database.open().await;
    let first = site.order(1).await;
    let browser = open(&site, "/instances");
    browser.js("window.stayed = true");
    // Selected rows stay selected while the list changes.
    browser.click(&format!("#instance-{first} input[name=id]"));
    let second = site.order(2).await;
    browser.see(&format!("#instance-{second}"), "awaiting signal");
    browser.see("#chosen-count", "1 chosen");
    assert_eq!(browser.js("return window.stayed"), true);
}

async fn a_question_is_answered_in_the_inbox(database: Database) {
    let site = database.open().await;
    let body = json!({ "machine": "review", "step": "Ask", "state": { "what": "May we?" } });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(id, "awaiting_completion").await;
    let browser = open(&site, "/");
    browser.click("nav a[href='/inbox']");
    browser.see("#questions", "May we?");
    browser.click("#questions th a");
    browser.click("#claim button[type=submit]");
    browser.see("#notice", "You have claimed it");
    browser.fill("#output", "true");
    browser.click("#complete button[type=submit]");
    browser.see("#notice", "Your answer was accepted.");
    browser.see("#question h1", "completed");
    let ended = site.until(id, "done").await;
    assert_eq!(ended["output"], true);
    browser.click(".facts a[href^='/instances/']");
    browser.see("#status", "done");
}

async fn those_that_match_a_filter_are_cancelled_together_after_their_number_was_told(database: Database) {
    let site = database.open().await;
    let mut ours = Vec::new();
    for number in 1..=3 {
        ours.push(site.order(number).await);
    }
    let other = json!({ "machine": "shop", "step": "Start", "state": { "order": 4 }, "key": "other:4" });
    let other = site.post("/v1/instances", other).await.expect(201)["id"].as_i64().expect("an id");
    site.until(other, "awaiting_signal").await;
    let browser = open(&site, "/instances");
    browser.fill("#filter-key", "order:");
    browser.click(".filters button[type=submit]");
    browser.until("return location.search.includes('key=order%3A')");
    live(&browser);
    for id in &ours {
        browser.see(&format!("#instance-{id}"), "awaiting signal");
    }
    assert!(!browser.is_there(&format!("#instance-{other}")));
    browser.click("#which option[value=all]");
    browser.click(".bulk button[value=cancel]");
    browser.see("h1", "Cancel 3 instances?");
    // Nothing has happened before the confirmation.
    assert_eq!(
        site.get(&format!("/v1/instances/{}", ours[0])).await.expect(200)["status"],
        "awaiting_signal"
    );
    browser.click("#confirm button[type=submit]");
    browser.see("#notice", "Done for 3.");
    for id in ours {
        browser.see(&format!("#instance-{id}"), "cancelled");
    }
    assert_eq!(site.get(&format!("/v1/instances/{other}")).await.expect(200)["status"], "awaiting_signal");
}

async fn another_instance_starts_from_an_event_with_another_state(database: Database) {
    let site = database.open().await;
    let id = site.order(5).await;
    let browser = open(&site, &format!("/instances/{id}"));
    browser.click("#event-1 summary");
    browser.click("#event-1 a[href*='fork?seq=1']");
    browser.see("h1", "Fork order:5 from event 1");
    browser.fill("#fork-state", r#"{ "order": 55 }"#);
    browser.fill("#fork-key", "order:55");
    browser.click("#fork button[type=submit]");
    browser.see("#notice", "This is the new instance.");
    browser.see("h1", "order:55");
    browser.see("#status", "awaiting signal");
    browser.see("#state", "55");
    let fork = site.get("/v1/instances/key:order:55").await.expect(200);
    assert_ne!(fork["id"], id);
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200)["state"]["order"], 5);
}

async fn an_order_is_signalled_by_keyboard_alone(database: Database) {
    let site = database.open().await;
    let id = site.order(9).await;
    let browser = open(&site, &format!("/instances/{id}"));
    let focused =
        |what: &str| browser.js(&format!("return document.activeElement.matches({what:?})")) == true;
    // The first stop is the link that skips the menu, which is visible only when focused.
    browser.press(TAB);
    assert!(focused(".skip"));
    browser.until("return document.activeElement.getBoundingClientRect().top >= 0");
    browser.press(ENTER);
    let tab_to = |what: &str| {
        for _ in 0..100 {
            browser.press(TAB);
            assert_eq!(
                browser.js(FOCUS_SHOWS),
                true,
                "before {what}: {}",
                browser.js("return document.activeElement.outerHTML")
            );
            if focused(what) {
                return;
            }
        }
        panic!("no way to {what} by keyboard");
    };
    tab_to("#signal > summary");
    browser.press(ENTER);
    tab_to(AMOUNT);
    browser.type_here("42");
    tab_to("#signal-for-paid button[type=submit]");
    browser.press(ENTER);
    browser.see("#notice", "The signal is in its inbox.");
    browser.see("#status", "done");
    browser.see("#state", "order 9 shipped for 42");
}

async fn who_has_a_key_signs_in_and_comes_to_the_page_they_asked_for(database: Database) {
    let mut site = database.with_keys().await;
    let (reads, operates) =
        (site.key("default", Scope::Read).await, site.key("default", Scope::Operate).await);
    site.set_key(&operates);
    let id = site.order(3).await;
    let browser = open(&site, &format!("/instances/{id}"));
    browser.see("h1", "Sign in");
    browser.fill("#key", "dmk_wrong");
    browser.click("main button[type=submit]");
    browser.see("main", "unknown");
    go(&browser, &site, &format!("/instances/{id}"));
    browser.fill("#key", &reads);
    browser.click("main button[type=submit]");
    browser.see("h1", "order:3");
    live(&browser);
    // A read-only visitor is not offered forms.
    assert!(!browser.is_there("#actions"));
    assert_eq!(
        browser.js("return document.cookie.includes('session')"),
        false,
        "a script can read the session"
    );
    browser.click("form[action='/logout'] button");
    browser.see("h1", "Sign in");
    go(&browser, &site, &format!("/instances/{id}"));
    browser.fill("#key", &operates);
    browser.click("main button[type=submit]");
    browser.click("#signal > summary");
    browser.fill(AMOUNT, "7");
    browser.click("#signal-for-paid button[type=submit]");
    browser.see("#state", "order 3 shipped for 7");
}

/// The payload that the machine says it takes for `paid`: a number.
const AMOUNT: &str = "#signal-for-paid input[type=number]";

/// Whether the focus is visible.
const FOCUS_SHOWS: &str = "const style = getComputedStyle(document.activeElement); \
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1";

async fn a_signal_that_cannot_be_read_is_repaired_on_the_page(database: Database) {
    let site = database.open().await;
    let id = site.order(21).await;
    // Bypasses the checks, as SQL or an older version would.
    let bad = dormouse::store::Delivery {
        namespace: "default".to_owned(),
        target: dormouse::InstanceId(id).into(),
        signal: dormouse::NewSignal::new("paid", dormouse::Json::from(json!("oops"))),
        inbox_max: dormouse::InboxMax::default(),
        kept_max: dormouse::KeptMax::default(),
    };
    let written = site.client.store().deliver(vec![bad]).await.expect("a delivery");
    site.client.store().poke(&written.effects);
    let browser = open(&site, &format!("/instances/{id}"));
    browser.see("#inbox", "cannot be read");
    browser.see("#why", "drop or edit it");
    let signal = browser.js("return document.querySelector('#inbox details').id.split('-')[1]");
    let signal = signal.as_str().expect("its id").to_owned();
    // Opened by hand: a page that has just moved may not have settled yet.
    browser.js(&format!("document.querySelector('#repair-{signal}').open = true"));
    for width in [1400, 390] {
        browser.resize(width, 1200);
        let wide =
            browser.js("return document.documentElement.scrollWidth <= document.documentElement.clientWidth");
        assert_eq!(wide, true, "nothing runs out of a page of {width} pixels");
    }
    browser.fill(&format!("#signal-payload-{signal}"), "1250");
    browser.click(&format!("#repair-{signal} form:first-of-type button"));
    browser.see("#notice", "The signal has a new payload.");
    browser.see("#status", "done");
}
