//! Hostile names and payloads: pages show them as text, and nothing more.

use serde_json::json;

use crate::driver::Browser;
use crate::kit::*;
use crate::{go, open};

suite![
    an_answer_of_the_api_that_is_shown_as_a_page_can_do_nothing,
    what_looks_like_markup_is_shown_as_text_on_every_page,
];

/// Text that would run a script, and leave a trace, if a page treated it as markup.
const SCRIPT: &str =
    "\"'><script>document.title='ran';alert(1)</script><img src=x onerror=\"document.title='ran'\">";

async fn an_answer_of_the_api_that_is_shown_as_a_page_can_do_nothing(database: Database) {
    let site = database.open().await;
    let body = json!({ "machine": SCRIPT, "step": SCRIPT, "state": { SCRIPT: SCRIPT }, "key": SCRIPT, "even_if_unknown": true });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].clone();
    let browser = Browser::open();
    for path in [format!("/v1/instances/{id}"), "/v1/instances".to_owned(), format!("/v1/{SCRIPT}")] {
        browser.go(&format!("http://{}{path}", site.address));
        assert_inert(&browser, &path);
        assert!(browser.text("body").contains("{"), "{path}");
    }
}

async fn what_looks_like_markup_is_shown_as_text_on_every_page(database: Database) {
    let site = database.open().await;
    // One that nobody runs, one that waits, one that asks.
    let new = [
        json!({ "machine": SCRIPT, "step": SCRIPT, "state": { SCRIPT: SCRIPT }, "key": SCRIPT, "queue": SCRIPT, "lane": SCRIPT, "even_if_unknown": true }),
        json!({ "machine": "shop", "step": "Start", "state": { "order": 1 }, "key": format!("{SCRIPT}2") }),
        json!({ "machine": "review", "step": "Ask", "state": { "what": SCRIPT }, "key": format!("{SCRIPT}3") }),
    ];
    let mut ids = Vec::new();
    for body in new {
        ids.push(site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id"));
    }
    site.until(ids[1], "awaiting_signal").await;
    site.until(ids[2], "awaiting_completion").await;
    for id in &ids {
        let signal = json!({ "name": SCRIPT, "payload": { SCRIPT: SCRIPT }, "dedup_key": SCRIPT });
        site.post(&format!("/v1/instances/{id}/signals"), signal).await.expect(200);
    }
    let question = site.get("/v1/interactions").await.expect(200)["items"][0]["id"].clone();
    let in_path = "%22'%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    let mut pages: Vec<String> =
        ["/", "/instances", "/waiting", "/inbox", "/machines", "/queues", "/limits", "/workers", "/audit"]
            .map(str::to_owned)
            .into();
    pages.extend(ids.iter().map(|id| format!("/instances/{id}")));
    pages.extend(ids.iter().map(|id| format!("/instances/{id}/fork?seq=1")));
    pages.push(format!("/inbox/{question}"));
    pages.extend(["machine", "key", "queue", "awaiting"].map(|name| format!("/instances?{name}={in_path}")));
    pages.push(format!("/waiting?signal={in_path}"));
    pages.push(format!("/instances/bulk?which=all&verb=signal&name={in_path}"));
    let browser = open(&site, "/");
    for path in pages {
        go(&browser, &site, &path);
        assert_inert(&browser, &path);
        assert_eq!(browser.complaints(), [""; 0], "{path}");
    }
    browser.see("main", "<script>");
    // These pages return an error status, which the browser logs.
    for path in [format!("/instances/{in_path}"), format!("/machines/{in_path}"), format!("/{in_path}")] {
        go(&browser, &site, &path);
        assert_inert(&browser, &path);
    }
}

#[track_caller]
fn assert_inert(browser: &Browser, path: &str) {
    assert_eq!(browser.question(), None, "{path}");
    assert_ne!(browser.js("return document.title"), "ran", "{path}");
    assert_eq!(browser.js("return document.querySelectorAll('img, main script').length"), 0, "{path}");
}
