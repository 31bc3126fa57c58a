//! Finding an instance, seeing it over time, and acting on many.

use serde_json::json;

use crate::driver::ENTER;
use crate::kit::*;
use crate::{go, live, open};

suite![
    an_instance_is_reached_by_its_key_from_the_keyboard_alone,
    instances_are_found_by_a_field_of_their_state,
    a_slider_shows_the_state_at_any_moment,
    a_timeline_shows_runs_waits_and_children,
    an_instance_is_started_from_a_form,
    more_than_a_form_can_name_are_acted_on_in_batches,
    states_of_those_that_match_are_edited,
];

async fn an_instance_is_reached_by_its_key_from_the_keyboard_alone(database: Database) {
    let site = database.open().await;
    let id = site.order(3).await;
    let browser = open(&site, "/queues");
    browser.press('/');
    browser.until("return document.activeElement.id === 'go'");
    browser.type_here("order:3");
    browser.press(ENTER);
    browser.see("h1", "order:3");
    go(&browser, &site, &format!("/go?to={id}"));
    browser.see("h1", "order:3");
    go(&browser, &site, "/go?to=order:");
    browser.see(&format!("#instance-{id}"), "awaiting signal");
    // A slash in a field is a slash.
    go(&browser, &site, "/instances");
    browser.click("#filter-key");
    browser.press('/');
    assert_eq!(browser.js("return document.activeElement.id"), "filter-key");
}

async fn instances_are_found_by_a_field_of_their_state(database: Database) {
    let site = database.open().await;
    let (small, large) = (site.order(3).await, site.order(3_000).await);
    let browser = open(&site, "/instances");
    browser.fill("#filter-machine", "shop");
    browser.fill("#filter-where", "order > 1000");
    browser.click(".filters button[type=submit]");
    browser.until("return location.search.includes('where=order')");
    live(&browser);
    browser.see(&format!("#instance-{large}"), "awaiting signal");
    assert!(!browser.is_there(&format!("#instance-{small}")));
    assert!(!browser.is_there("#looked"), "an index led to it");
    browser.see(".commands", "");
    // Without a machine no index is known, and the page says so.
    go(&browser, &site, "/instances?where=order+%3E+1000");
    browser.see("#looked", "Not indexed: looked at all 2.");
    browser.click("a[aria-label='Leave out the condition order > 1000']");
    browser.see(&format!("#instance-{small}"), "awaiting signal");
    browser.click("#order");
    browser.until("return location.search.includes('order=oldest')");
    live(&browser);
    let first = browser.js("return document.querySelector('tr[data-instance]').dataset.instance");
    assert_eq!(first, small.to_string());
}

async fn a_slider_shows_the_state_at_any_moment(database: Database) {
    let site = database.open().await;
    let id = site.order(8).await;
    let signal = json!({ "name": "paid", "payload": 5 });
    site.post(&format!("/v1/instances/{id}/signals"), signal).await.expect(200);
    site.until(id, "done").await;
    let browser = open(&site, &format!("/instances/{id}"));
    browser.click("#timeline a[href$='/at']");
    browser.see("#then", "done");
    browser.js("const slider = document.querySelector('#moment'); slider.value = 1;
         slider.dispatchEvent(new Event('change', { bubbles: true }))");
    browser.see("h1", "At event 1 of");
    browser.see("#then", "created");
    browser.see("#then", "Start");
    browser.see("#difference", "It is the first one.");
}

async fn a_timeline_shows_runs_waits_and_children(database: Database) {
    let site = database.open().await;
    let body = json!({ "machine": "shop", "step": "Split", "state": { "order": 1 } });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    site.until(id, "done").await;
    let browser = open(&site, &format!("/instances/{id}/timeline"));
    let bars =
        |class: &str| browser.js(&format!("return document.querySelectorAll('.gantt .bar.{class}').length"));
    assert_eq!(bars("done"), 2, "its children");
    assert!(bars("ran").as_u64() >= Some(2), "its steps");
    let first = browser.js("return document.querySelector('.gantt .bar.ran text').textContent");
    assert_eq!(first, "Split", "what ran, and not what came next");
    browser.click(".gantt .bar.done a");
    browser.see("#status", "done");
}

async fn an_instance_is_started_from_a_form(database: Database) {
    let site = database.open().await;
    site.order(1).await;
    let browser = open(&site, "/start");
    browser.click("#start-machine option[value=shop]");
    browser.click("#choose-machine button");
    browser.see("#start", "shop v1");
    browser.fill("#start-state", r#"{ "order": 12 }"#);
    browser.fill("#start-key", "order:12");
    browser.click("#start button[type=submit]");
    browser.see("#notice", "It is started.");
    browser.see("h1", "order:12");
    browser.see("#status", "awaiting signal");
}

async fn more_than_a_form_can_name_are_acted_on_in_batches(database: Database) {
    let site = database.open().await;
    for _ in 0..2 {
        let one = json!({ "machine": "shop", "step": "Start", "state": { "order": 1 } });
        let body = json!({ "instances": vec![one; 600] });
        site.post("/v1/instances/batch", body).await.expect(200);
    }
    let browser = open(&site, "/instances?machine=shop");
    browser.click("#which option[value=all]");
    browser.click(".bulk button[value=pause]");
    browser.see("h1", "Pause more than");
    browser.click("#confirm button[type=submit]");
    browser.see("#notice", "Done for 1200.");
    let audit = site.get("/v1/audit?what=instance.bulk").await.expect(200);
    assert_eq!(audit["items"].as_array().expect("items").len(), 3);
}

async fn states_of_those_that_match_are_edited(database: Database) {
    let site = database.open().await;
    let ours = [site.order(1).await, site.order(2).await];
    let browser = open(&site, "/instances?machine=shop");
    browser.click("#which option[value=all]");
    browser.click(".bulk button[value=edit]");
    browser.see("h1", "Edit 2 instances?");
    browser.fill("#edit-set", r#"{"order": 77}"#);
    browser.click("#confirm button[type=submit]");
    browser.see("#notice", "Done for 2.");
    for id in ours {
        let instance = site.get(&format!("/v1/instances/{id}")).await.expect(200);
        assert_eq!(
            (&instance["state"]["order"], &instance["status"]),
            (&json!(77), &json!("awaiting_signal"))
        );
    }
    go(&browser, &site, &format!("/instances/{}", ours[0]));
    browser.click("#edit summary");
    browser.fill("#edit-state", r#"{"order": 78}"#);
    browser.click("#edit button[type=submit]");
    browser.see("#notice", "It has its new state.");
}
