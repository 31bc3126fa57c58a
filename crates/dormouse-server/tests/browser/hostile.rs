//! Names and payloads of people who wish us ill: shown as they are, and nothing more.

use serde_json::json;

use crate::driver::Browser;
use crate::kit::*;

suite![an_answer_of_the_api_that_is_shown_as_a_page_can_do_nothing];

/// What would run if it were ever taken for markup, and tell of it.
const SCRIPT: &str =
    "<script>document.title='ran';alert(1)</script><img src=x onerror=\"document.title='ran'\">";

async fn an_answer_of_the_api_that_is_shown_as_a_page_can_do_nothing(database: Database) {
    let site = database.open().await;
    let body = json!({ "machine": SCRIPT, "step": SCRIPT, "state": { SCRIPT: SCRIPT }, "key": SCRIPT });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].clone();
    let browser = Browser::open();
    for path in [format!("/v1/instances/{id}"), "/v1/instances".to_owned(), format!("/v1/{SCRIPT}")] {
        browser.go(&format!("http://{}{path}", site.address));
        assert_eq!(browser.question(), None, "{path}");
        assert_ne!(browser.js("return document.title"), "ran", "{path}");
        assert!(browser.text("body").contains("{"), "{path}");
    }
}
