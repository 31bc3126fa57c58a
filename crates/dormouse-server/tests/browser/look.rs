//! How the pages look and behave, independent of their content.

use serde_json::json;

use crate::driver::Browser;
use crate::kit::*;
use crate::{go, open};

suite![a_page_is_dark_where_the_system_or_its_reader_says_so, no_page_breaks_its_policy_or_its_script,];

async fn a_page_is_dark_where_the_system_or_its_reader_says_so(database: Database) {
    let site = database.open().await;
    let browser = open(&site, "/");
    browser.pretend("prefers-color-scheme", "light");
    assert!(!is_dark(&browser));
    browser.pretend("prefers-color-scheme", "dark");
    assert!(is_dark(&browser));
    go(&browser, &site, "/instances");
    assert!(is_dark(&browser));
    browser.see("#theme", "Light mode");
    browser.click("#theme");
    assert!(!is_dark(&browser));
    browser.see("#theme", "Dark mode");
    // The choice is remembered, and is in the page before its script is.
    go(&browser, &site, "/");
    assert!(!is_dark(&browser));
    assert_eq!(browser.find("html").attribute("data-theme").as_deref(), Some("light"));
}

fn is_dark(browser: &Browser) -> bool {
    let colour = browser.js("return getComputedStyle(document.body).backgroundColor");
    let colour = colour.as_str().expect("a colour").to_owned();
    let parts: Vec<u32> =
        colour.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    assert!(parts.len() >= 3, "{colour}");
    parts[..3].iter().sum::<u32>() < 3 * 128
}

async fn no_page_breaks_its_policy_or_its_script(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    let body = json!({ "machine": "review", "step": "Ask", "state": { "what": "May we?" } });
    let review = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(review, "awaiting_completion").await;
    let browser = open(&site, "/");
    let menu =
        browser.js("return [...document.querySelectorAll('nav a')].map(link => link.getAttribute('href'))");
    let menu: Vec<String> = serde_json::from_value(menu).expect("addresses");
    assert!(menu.len() >= 3, "{menu:?}");
    let more =
        [format!("/instances/{id}"), format!("/instances/{id}/fork?seq=1"), format!("/instances/{review}")];
    for path in menu.into_iter().chain(more) {
        go(&browser, &site, &path);
        assert!(!browser.text("h1").is_empty(), "{path}");
        // A page whose script ran has its button; one that was refused its style has no margins of ours.
        browser.until("return !document.querySelector('#theme').hidden");
        assert_eq!(browser.complaints(), [""; 0], "{path}");
    }
}
