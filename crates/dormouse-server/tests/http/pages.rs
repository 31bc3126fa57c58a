//! The pages of the dashboard: with content, empty, with hostile content, and under a prefix.

use serde_json::json;

use crate::browser::leads_to;
use crate::kit::*;

suite![
    every_page_says_in_words_that_it_is_empty,
    every_page_shows_what_there_is,
    hostile_names_and_payloads_are_inert_on_every_page,
    pages_under_a_prefix_link_to_each_other,
    what_is_not_there_is_told_on_a_page,
    lists_go_on_from_page_to_page,
    a_history_shows_what_each_transition_changed,
    pages_may_load_nothing_from_elsewhere,
    a_namespace_is_chosen_where_anyone_may_come_in,
    a_server_can_do_without_its_dashboard,
    the_overview_counts_what_happens_while_somebody_looks,
    the_overviews_minutes_are_whole_at_any_rate_and_after_a_restart,
    machines_and_queues_show_how_fast_they_are,
];

/// Pages that need no data.
const PAGES: [&str; 10] = [
    "/",
    "/instances",
    "/waiting",
    "/inbox",
    "/schedules",
    "/machines",
    "/queues",
    "/limits",
    "/workers",
    "/audit",
];

async fn every_page_says_in_words_that_it_is_empty(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    for (path, told) in [
        ("/", "No instance awaits a signal."),
        ("/", "Nothing has failed."),
        ("/instances", "There are no instances yet."),
        ("/instances?machine=none&status=failed", "No instance matches."),
        ("/waiting", "No instance awaits a signal."),
        ("/waiting?signal=none", "No instance awaits it now."),
        ("/inbox", "No questions."),
        ("/limits", "No limit is set."),
        ("/audit", "Nothing was changed yet."),
        ("/audit?who=nobody", "No entry matches."),
        ("/instances/bulk?verb=cancel", "No instance is selected."),
    ] {
        let page = browser.page(path).await;
        assert!(page.contains(told), "{path}: {page}");
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<main id=\"main\""), "{path}");
    }
}

async fn every_page_shows_what_there_is(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let id = site.order(7).await;
    let (review, asked) = site.review("a menu").await;
    let family =
        site.post("/v1/instances", json!({ "machine": "shop", "step": "Split", "state": { "order": 1 } }));
    let family = family.await.expect(201)["id"].as_i64().expect("an id");
    site.until(family, "done").await;
    for (path, parts) in [
        ("/".to_owned(), vec!["What waits for what", ">paid</a>", "questions for people", "transitions:"]),
        ("/instances".to_owned(), vec!["order:7", "awaiting signal", "data-status=\"awaiting_signal\""]),
        ("/instances?status=done".to_owned(), vec!["double"]),
        (
            format!("/instances/{id}"),
            vec!["parked on the signal", "signal.waiting", "&quot;order&quot;: 7", "Send signal"],
        ),
        (format!("/instances/{family}"), vec!["Children", "double", "children.joined", "Output", "[2, 4]"]),
        (format!("/instances/{review}"), vec!["Unit", " by api, opened ", "0 of 1 answered"]),
        (
            format!("/instances/{id}"),
            vec![
                "class=\"graph\"",
                "class=\"node act taken here\" data-step=\"Ship\"",
                "class=\"way taken\"",
                "What if…",
            ],
        ),
        (
            format!("/instances/{id}/what-if"),
            vec!["This runs no act and changes nothing", "a signal arrives"],
        ),
        (
            format!("/instances/{id}/what-if?happening=signal&signal=paid&payload=5"),
            vec!["It may go 2 ways", "is done", "fails: as declared"],
        ),
        (format!("/instances/{id}/fork?seq=1"), vec!["from event 1", "&quot;order&quot;: 7"]),
        ("/instances/key:order:7".to_owned(), vec!["order:7"]),
        ("/waiting".to_owned(), vec![">paid</a>"]),
        ("/waiting?signal=paid".to_owned(), vec!["order:7", "Signal all"]),
        ("/inbox".to_owned(), vec!["a menu"]),
        (format!("/inbox/{asked}"), vec!["a menu", "nobody has claimed it", "Cannot be answered"]),
        ("/machines".to_owned(), vec!["shop", "review", "v1"]),
        (
            "/machines/shop".to_owned(),
            vec![
                "Ship",
                "awaiting signal",
                "Signals it checks",
                "class=\"graph\"",
                "fill=\"#0b5cad\">1</text>",
            ],
        ),
        ("/queues".to_owned(), vec!["default", "running", "Pause queue default"]),
        ("/workers".to_owned(), vec!["live", "review"]),
        ("/audit".to_owned(), vec!["instance.start", "anyone on this host"]),
        ("/instances/bulk?verb=cancel&which=all&machine=shop".to_owned(), vec!["Cancel 1", "order:7"]),
    ] {
        let page = browser.page(&path).await;
        for part in parts {
            assert!(page.contains(part), "{path} lacks {part:?}: {page}");
        }
    }
}

async fn hostile_names_and_payloads_are_inert_on_every_page(database: Database) {
    const HOSTILE: &str = "\"'><img src=x onerror=alert(1)></pre></textarea><script>alert(1)</script>";
    let site = database.open().await;
    let browser = site.browser();
    let body = json!({ "machine": HOSTILE, "step": HOSTILE, "state": { HOSTILE: HOSTILE }, "key": HOSTILE, "queue": HOSTILE, "lane": HOSTILE, "even_if_unknown": true });
    let id = site.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
    let signal = json!({ "name": HOSTILE, "payload": HOSTILE, "dedup_key": HOSTILE });
    site.post(&format!("/v1/instances/{id}/signals"), signal).await.expect(200);
    let queue: String =
        form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect::<String>().replace('+', "%20");
    site.post(&format!("/v1/queues/{queue}/pause"), json!({})).await.expect(200);
    let (_, asked) = site.review(HOSTILE).await;
    let (failed, failing) = site.review(HOSTILE).await;
    let claim = json!({ "assignee": HOSTILE, "seconds": 600 });
    site.post(&format!("/v1/interactions/{asked}/claim"), claim).await.expect(200);
    site.post(&format!("/v1/interactions/{failing}/fail"), json!({ "reason": HOSTILE })).await.expect(200);
    site.until(failed, "failed").await;
    let mut paths: Vec<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    paths.extend([
        format!("/instances/{id}"),
        format!("/instances/{failed}"),
        format!("/instances/{id}/fork?seq=1"),
        format!("/inbox/{asked}"),
        format!("/inbox/{failing}"),
        format!("/machines/{queue}"),
        format!("/instances?machine={queue}&key={queue}&queue={queue}&awaiting={queue}&notice={queue}"),
        format!("/waiting?signal={queue}"),
        format!("/audit?who={queue}&what={queue}&target={queue}"),
        format!("/instances/bulk?verb=signal&which=all&queue={queue}&name={queue}&payload={queue}"),
        format!("/instances?status={queue}"),
        format!("/{queue}"),
        format!("/machines/{queue}x"),
    ]);
    let mut shown = 0;
    for path in paths {
        let page = browser.get(&path).await.text;
        for live in ["<img", "<script>", "</pre></textarea>", "onerror=alert(1)></"] {
            assert!(!page.contains(live), "{path} holds {live}: {page}");
        }
        shown += usize::from(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
    }
    assert!(shown >= 14, "what is inert is shown all the same: on {shown} pages");
}

async fn pages_under_a_prefix_link_to_each_other(database: Database) {
    let site = database.nested("/tools/dormouse").await;
    let browser = site.browser();
    let id = site.order(7).await;
    assert!(browser.page("").await.contains("Overview"));
    for path in ["", "/instances", "/machines/shop", &format!("/instances/{id}"), "/no/such/page"] {
        let page = browser.get(path).await.text;
        for link in page
            .split("href=\"")
            .skip(1)
            .chain(page.split("action=\"").skip(1))
            .chain(page.split("src=\"").skip(1))
        {
            let link = link.split('"').next().expect("an address");
            assert!(link.starts_with("/tools/dormouse") || link == "#main", "{path} links to {link}");
        }
    }
    let here = format!("/instances/{id}");
    let answer = browser.submit(&here, &format!("{here}/pause"), &[]).await;
    assert_eq!(leads_to(&answer), format!("/tools/dormouse{here}?notice=paused"));
    assert_eq!(browser.get("/assets/dormouse.css").await.status, 200);
    assert_eq!(
        browser.get("/assets/dormouse.js").await.header("content-type"),
        "text/javascript; charset=utf-8"
    );
}

async fn what_is_not_there_is_told_on_a_page(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    for (path, status) in [
        ("/instances/999", 404),
        ("/instances/key:none", 404),
        ("/instances/nonsense", 400),
        ("/instances/999/fork", 404),
        ("/inbox/999", 404),
        ("/inbox/x", 404),
        ("/machines/none", 404),
        ("/no-such-page", 404),
        ("/instances?cursor=x", 400),
        ("/instances?status=asleep", 400),
        ("/instances?parent=x", 400),
        ("/instances/bulk?verb=explode", 400),
        ("/instances/%FF", 400),
    ] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        assert!(answer.text.contains("To the overview"), "{path}: {}", answer.text);
        assert!(answer.header("content-security-policy").contains("script-src 'self'"), "{path}");
    }
    let id = site.order(1).await;
    assert_eq!(browser.get(&format!("/instances/{id}/fork?seq=99")).await.status, 404);
    // A program that does not ask for HTML gets a problem document.
    site.get("/no-such-page").await.expect_problem(404, "no-route");
}

async fn lists_go_on_from_page_to_page(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let entries: Vec<_> = (0..60)
        .map(|n| json!({ "machine": "idle", "step": "s", "key": format!("k:{n}"), "even_if_unknown": true }))
        .collect();
    site.post("/v1/instances/batch", json!({ "instances": entries })).await.expect(200);
    let first = browser.page("/instances?machine=idle").await;
    assert_eq!(first.matches("data-instance=").count(), 50);
    let (before, _) = first.split_once("\">Next page").expect("a next page");
    let next = before.rsplit("href=\"").next().expect("its address").replace("&amp;", "&");
    let second = browser.page(&next).await;
    assert_eq!(second.matches("data-instance=").count(), 10);
    assert!(second.contains("First page") && !second.contains("Next page"));
    assert!(second.contains("k:0<") && !first.contains("k:0<"));
}

async fn a_history_shows_what_each_transition_changed(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let id = site.order(7).await;
    let retry = json!({ "step": "Start", "state": { "order": 8 } });
    site.post(&format!("/v1/instances/{id}/cancel"), json!({})).await.expect(200);
    site.post(&format!("/v1/instances/{id}/retry"), retry).await.expect(200);
    site.until(id, "awaiting_signal").await;
    let page = browser.page(&format!("/instances/{id}")).await;
    assert!(page.contains("<code class=\"path\">order</code> <del>7</del> <ins>8</ins>"), "{page}");
    assert!(page.contains("data-kind=\"cancelled\"") && page.contains("data-kind=\"retried\""), "{page}");
}

async fn pages_may_load_nothing_from_elsewhere(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    let id = site.order(7).await;
    for path in
        PAGES.iter().map(|page| (*page).to_owned()).chain([format!("/instances/{id}"), "/none".to_owned()])
    {
        let answer = browser.get(&path).await;
        assert_eq!(
            answer.header("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
            "{path}"
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "same-origin", "{path}");
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        for outside in [" style=\"", "http://", "https://", " onclick", "javascript:"] {
            assert!(!answer.text.contains(outside), "{path} holds {outside:?}");
        }
    }
}

async fn a_namespace_is_chosen_where_anyone_may_come_in(database: Database) {
    let site = database.open().await;
    site.order(7).await;
    let mut browser = site.browser();
    let answer = browser.submit("/", "/namespace", &[("namespace", "acme ltd")]).await;
    assert_eq!(leads_to(&answer), "/");
    browser.cookie = answer.header("set-cookie").split(';').next().map(str::to_owned);
    let page = browser.page("/instances").await;
    assert!(page.contains("value=\"acme ltd\"") && page.contains("There are no instances yet."), "{page}");
    assert_eq!(browser.submit("/", "/namespace", &[("namespace", &"x".repeat(300))]).await.status, 422);
    // A manipulated cookie does no harm.
    browser.cookie = Some(format!("dormouse_namespace={}", "x".repeat(300)));
    assert!(browser.page("/instances").await.contains("order:7"));
}

async fn a_server_can_do_without_its_dashboard(database: Database) {
    let site = database.open().await;
    let router =
        dormouse_server::Server::new(site.client.clone(), dormouse_server::Access::open_on_loopback())
            .expect("a store for servers")
            .without_dashboard()
            .router();
    for (path, status) in [("/", 404), ("/instances", 404), ("/assets/dormouse.js", 404), ("/v1/stats", 200)]
    {
        let request =
            axum::http::Request::get(path).header("host", "localhost").header("accept", "text/html");
        let request = request.body(axum::body::Body::empty()).expect("a request");
        let Ok(response) = tower::ServiceExt::oneshot(router.clone(), request).await;
        assert_eq!(response.status(), status, "{path}");
        assert_ne!(response.headers()["content-type"], "text/html; charset=utf-8", "{path}");
    }
}

async fn the_overview_counts_what_happens_while_somebody_looks(database: Database) {
    let site = database.open().await;
    let browser = site.browser();
    assert!(browser.page("/").await.contains("aria-label=\"started: 0 in the last 5 minutes"));
    for number in 1..=3 {
        site.order(number).await;
    }
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let page = browser.page("/").await;
        if page.contains("aria-label=\"started: 3 in the last 5 minutes")
            && page.contains("aria-label=\"transitions: 6 in")
        {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{page}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn the_overviews_minutes_are_whole_at_any_rate_and_after_a_restart(database: Database) {
    let site = database.open().await;
    let one = json!({ "machine": "idle", "step": "Start", "even_if_unknown": true, "queue": "nobody" });
    for _ in 0..5 {
        let batch = json!({ "instances": vec![one.clone(); 1_000] });
        assert!(is_success(site.post("/v1/instances/batch", batch).await.status));
    }
    // A server that was just started has seen none of it.
    let restarted = site.without_code().await;
    let browser = restarted.browser();
    let mut page = browser.page("/").await;
    while page.contains("Still counting") {
        page = browser.page("/").await;
    }
    assert!(page.contains("started: 5000 in the last 5 minutes"), "{page}");
}

async fn machines_and_queues_show_how_fast_they_are(database: Database) {
    let site = database.open().await;
    for number in 1..=3 {
        site.order(number).await;
    }
    // A server that was just started has seen none of it.
    let restarted = site.without_code().await;
    let browser = restarted.browser();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    let mut page = browser.page("/machines/shop").await;
    while !page.contains("3, half within ") {
        assert!(tokio::time::Instant::now() < deadline, "{page}");
        page = browser.page("/machines/shop").await;
    }
    let row = |page: &str, from: &str| {
        let row = page.split_once(from).expect("a row").1;
        row.split_once("</tr>").expect("its end").0.to_owned()
    };
    let machine = row(&browser.page("/machines").await, "data-machine=\"shop\"");
    let queue = row(&browser.page("/queues").await, "data-queue=\"default\"");
    for row in [machine, queue] {
        assert!(row.contains("ms</td>") || row.contains("µs</td>") || row.contains(" s</td>"), "{row}");
    }
}
