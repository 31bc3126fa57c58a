//! Pages with long names, long errors, many signals, and on a screen as narrow as a telephone's.

use serde_json::{Value, json};

use crate::driver::Browser;
use crate::kit::*;
use crate::{go, open};

suite![
    a_long_error_leaves_the_rest_of_its_page_in_sight,
    a_long_key_hides_no_column_of_the_list,
    every_page_fits_a_narrow_screen,
    an_inbox_tells_how_many_signals_it_has_and_shows_all_of_them,
    an_error_stands_under_what_an_instance_ended_with,
    a_completed_step_is_named_before_the_next_one,
];

/// Starts an order with a key.
async fn order(site: &Site, key: &str) -> i64 {
    let body = json!({ "machine": "shop", "step": "Start", "state": { "order": 1 }, "key": key });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(id, "awaiting_signal").await;
    id
}

/// Starts an order that fails with an error of two hundred lines.
async fn failed(site: &Site, key: &str) -> i64 {
    let id = order(site, key).await;
    let signal = json!({ "name": "paid", "payload": UNLUCKY });
    site.post(&format!("/v1/instances/{id}/signals"), signal).await.expect(200);
    site.until(id, "failed").await;
    id
}

/// How many pixels the page, and each table in it, is wider than the room for it.
fn too_wide(browser: &Browser) -> Value {
    browser.js("const wide = (node) => Math.max(0, node.scrollWidth - node.clientWidth - 1);
         return [document.documentElement, ...document.querySelectorAll('.scroll')].map(wide)
             .concat([...document.querySelectorAll('nav a')].map(
                 (link) => Math.max(0, link.getBoundingClientRect().right - innerWidth)))
             .reduce((most, one) => Math.max(most, one), 0)")
}

async fn a_long_error_leaves_the_rest_of_its_page_in_sight(database: Database) {
    let site = database.open().await;
    let id = failed(&site, "order:1").await;
    let browser = open(&site, &format!("/instances/{id}"));
    browser.see("#why", "a line of a stack trace");
    let top = browser.js("return document.querySelector('#actions').getBoundingClientRect().top");
    assert!(top.as_f64().expect("a number") < 500.0, "the buttons are {top} pixels down");
    // It is whole further down, with its lines.
    browser.click("#why a[href='#last-error']");
    let lines =
        browser.js("return document.querySelector('#last-error + pre').textContent.split('\\n').length");
    assert!(lines.as_u64().expect("a number") > 50, "{lines}");
}

async fn a_long_key_hides_no_column_of_the_list(database: Database) {
    let site = database.open().await;
    let key = "k".repeat(250);
    let id = order(&site, &key).await;
    let browser = open(&site, "/instances");
    browser.see(&format!("#instance-{id}"), "awaiting signal");
    assert_eq!(too_wide(&browser), 0);
    // It is whole for those who point at it, and on its page.
    let title = browser.find(&format!("#instance-{id} th a")).attribute("title");
    assert_eq!(title.as_deref(), Some(&*key));
    go(&browser, &site, &format!("/instances/{id}"));
    browser.see("h1", &key);
    assert_eq!(too_wide(&browser), 0);
}

async fn every_page_fits_a_narrow_screen(database: Database) {
    let site = database.open().await;
    let long = order(&site, &"k".repeat(250)).await;
    let failed = failed(&site, "order:2").await;
    let browser = open(&site, "/");
    browser.resize(390, 844);
    let menu =
        browser.js("return [...document.querySelectorAll('nav a')].map(link => link.getAttribute('href'))");
    let menu: Vec<String> = serde_json::from_value(menu).expect("addresses");
    let more = [long, failed].map(|id| format!("/instances/{id}"));
    let views = ["timeline", "at"].map(|view| format!("/instances/{failed}/{view}"));
    for path in menu.into_iter().chain(more).chain(views) {
        go(&browser, &site, &path);
        assert_eq!(too_wide(&browser), 0, "{path}");
        let top = browser.js("return document.querySelector('h1').getBoundingClientRect().top");
        assert!(top.as_f64().expect("a number") < 844.0 / 4.0, "{path} begins {top} pixels down");
    }
    go(&browser, &site, "/instances");
    // Every cell is there, with the name of its column.
    let shown = browser.text(&format!("#instance-{failed}"));
    assert!(shown.contains("failed") && shown.contains("a line of a stack trace"), "{shown}");
    let label = browser
        .js("return getComputedStyle(document.querySelector('td[data-label=Status]'), '::before').content");
    assert_eq!(label, "\"Status\"");
}

async fn an_inbox_tells_how_many_signals_it_has_and_shows_all_of_them(database: Database) {
    let site = database.open().await;
    let id = order(&site, "order:3").await;
    let signals: Vec<_> =
        (0..45).map(|number| json!({ "target": id, "name": "note", "payload": number })).collect();
    site.post("/v1/signals/batch", json!({ "signals": signals })).await.expect(200);
    let browser = open(&site, &format!("/instances/{id}"));
    browser.see("#inbox", "20 of 45 are shown");
    browser.see("#inbox-count", "45");
    let shown = || browser.js("return document.querySelectorAll('#inbox details[id^=signal-]').length");
    assert_eq!(shown(), 20);
    browser.click("#inbox a[rel=next]");
    browser.see("#inbox", "First signals");
    browser.click("#inbox a[rel=next]");
    browser.see("#inbox", "5 of 45 are shown");
    assert_eq!(shown(), 5);
}

async fn an_error_stands_under_what_an_instance_ended_with(database: Database) {
    let site = database.open().await;
    let id = failed(&site, "order:4").await;
    let waits = order(&site, "order:5").await;
    let browser = open(&site, "/instances");
    browser.see(&format!("#instance-{id} td[data-label='Ended with']"), "a line of a stack trace");
    assert_eq!(browser.text(&format!("#instance-{id} td[data-label='Waits for']")), "");
    browser.see(&format!("#instance-{waits} td[data-label='Waits for']"), "paid");
}

async fn a_completed_step_is_named_before_the_next_one(database: Database) {
    let site = database.open().await;
    let id = site.order(6).await;
    let signal = json!({ "name": "paid", "payload": 5 });
    site.post(&format!("/v1/instances/{id}/signals"), signal).await.expect(200);
    site.until(id, "done").await;
    let browser = open(&site, &format!("/instances/{id}"));
    browser.see("#event-2 .steps", "Start → Ship");
    let events = site.get(&format!("/v1/instances/{id}/history?after=1&limit=1")).await.expect(200);
    assert_eq!(events["items"][0]["from_step"], "Start", "{events}");
    assert_eq!(events["items"][0]["step"], "Ship");
}
