//! Who may see which pages and send which forms on a server that requires API keys.

use dormouse::store::Scope;
use futures_util::StreamExt as _;
use serde_json::json;

use crate::browser::{Browser, leads_to};
use crate::kit::*;

suite![
    every_page_asks_for_its_scope,
    a_form_without_its_token_or_from_elsewhere_changes_nothing,
    a_key_is_exchanged_for_a_session_and_the_session_is_ended,
    a_wrong_key_opens_no_session,
    signing_in_again_ends_the_session_before,
    a_session_ends_within_seconds_of_its_key,
    a_session_sees_its_namespace_alone,
    who_may_only_look_is_offered_nothing_to_send,
    what_is_done_in_a_session_is_in_the_audit_log_by_its_key,
    a_foreign_host_sees_no_page,
];

/// Every page and form, and the scope it needs: `None` is for anyone.
const PAGES: &[(&str, &str, Option<Scope>)] = &[
    ("get", "/", Some(Scope::Read)),
    ("get", "/instances", Some(Scope::Read)),
    ("get", "/instances/bulk?verb=cancel", Some(Scope::Operate)),
    ("post", "/instances/bulk", Some(Scope::Operate)),
    ("get", "/instances/{id}", Some(Scope::Read)),
    ("get", "/instances/{id}/what-if", Some(Scope::Read)),
    ("get", "/instances/{id}/fork", Some(Scope::Operate)),
    ("post", "/instances/{id}/fork", Some(Scope::Operate)),
    ("post", "/instances/{id}/signal", Some(Scope::Operate)),
    ("post", "/instances/{id}/cancel", Some(Scope::Operate)),
    ("post", "/instances/{id}/retry", Some(Scope::Operate)),
    ("post", "/instances/{id}/pause", Some(Scope::Operate)),
    ("post", "/instances/{id}/resume", Some(Scope::Operate)),
    ("get", "/instances/{id}/at", Some(Scope::Read)),
    ("get", "/instances/{id}/timeline", Some(Scope::Read)),
    ("get", "/start", Some(Scope::Operate)),
    ("post", "/start", Some(Scope::Operate)),
    ("get", "/transports", Some(Scope::Read)),
    ("get", "/keys", Some(Scope::Admin)),
    ("post", "/keys", Some(Scope::Admin)),
    ("post", "/keys/1/revoke", Some(Scope::Admin)),
    ("get", "/retention", Some(Scope::Admin)),
    ("post", "/retention", Some(Scope::Admin)),
    ("get", "/waiting", Some(Scope::Read)),
    ("get", "/inbox", Some(Scope::Read)),
    ("get", "/inbox/1", Some(Scope::Read)),
    ("post", "/inbox/1/claim", Some(Scope::Operate)),
    ("post", "/inbox/1/complete", Some(Scope::Operate)),
    ("post", "/inbox/1/fail", Some(Scope::Operate)),
    ("get", "/machines", Some(Scope::Read)),
    ("get", "/machines/shop", Some(Scope::Read)),
    ("get", "/queues", Some(Scope::Read)),
    ("post", "/queues/default/pause", Some(Scope::Operate)),
    ("post", "/queues/default/resume", Some(Scope::Operate)),
    ("post", "/shares", Some(Scope::Admin)),
    ("get", "/workers", Some(Scope::Read)),
    ("get", "/audit", Some(Scope::Admin)),
    ("post", "/namespace", Some(Scope::Operate)),
    ("get", "/login", None),
    ("get", "/assets/dormouse.css", None),
    ("get", "/assets/dormouse.js", None),
    ("get", "/assets/dormouse.svg", None),
];

async fn every_page_asks_for_its_scope(database: Database) {
    let mut site = database.with_keys().await;
    let keys = [
        site.key("default", Scope::Read).await,
        site.key("default", Scope::Operate).await,
        site.key("default", Scope::Admin).await,
    ];
    site.set_key(&keys[1]);
    let id = site.order(7).await.to_string();
    site.clear_key();
    for (method, path, needed) in PAGES {
        let path = path.replace("{id}", &id);
        let stranger = site.browser();
        let answer = send(&stranger, method, &path).await;
        match (needed, *method) {
            (None, _) => assert_eq!(answer.status, 200, "{path}: {}", answer.text),
            (Some(_), "get") => assert!(leads_to(&answer).starts_with("/login?next="), "{path}"),
            _ => assert_eq!(answer.status, 401, "{path}: {}", answer.text),
        }
        for (key, scope) in keys.iter().zip(Scope::ALL) {
            let browser = site.signed_in(key).await;
            let answer = send(&browser, method, &path).await;
            let is_refused = answer.status == 403;
            assert_eq!(
                is_refused,
                needed.is_some_and(|needed| scope < needed),
                "{method} {path} as {scope}: {}",
                answer.text
            );
            assert!(answer.status < 500, "{method} {path} as {scope}: {}", answer.text);
        }
    }
}

/// A page, or a small form of the visitor's own.
async fn send(browser: &Browser<'_>, method: &str, path: &str) -> Answer {
    match method {
        "get" => browser.get(path).await,
        _ if browser.cookie.is_none() => browser.post(path, &[("csrf", "none")], &[]).await,
        _ => browser.submit("/queues", path, &[]).await,
    }
}

async fn a_form_without_its_token_or_from_elsewhere_changes_nothing(database: Database) {
    let mut site = database.with_keys().await;
    let [key, other] = [site.key("default", Scope::Admin).await, site.key("default", Scope::Admin).await];
    site.set_key(&key);
    let id = site.order(7).await;
    let before = site.get("/v1/audit").await.expect(200);
    site.clear_key();
    let (browser, other) = (site.signed_in(&key).await, site.signed_in(&other).await);
    let here = format!("/instances/{id}");
    let (token, others) = (browser.token(&here).await, other.token(&here).await);
    assert_ne!(token, others, "every session has a token of its own");
    let path = format!("{here}/cancel");
    let cut = &token[1..];
    for (fields, headers) in [
        (vec![], vec![]),
        (vec![("csrf", "")], vec![]),
        (vec![("csrf", cut)], vec![]),
        (vec![("csrf", others.as_str())], vec![]),
        (vec![("csrf", token.as_str())], vec![("origin", "https://evil.example")]),
        (vec![("csrf", token.as_str())], vec![("origin", "null")]),
        (vec![("csrf", token.as_str())], vec![("sec-fetch-site", "cross-site")]),
        (vec![("csrf", token.as_str())], vec![("sec-fetch-site", "same-site")]),
    ] {
        let answer = browser.post(&path, &fields, &headers).await;
        assert_eq!(answer.status, 403, "{fields:?} {headers:?}");
        assert!(answer.text.contains("data-problem=\"untrusted-origin\""), "{}", answer.text);
    }
    site.set_key(&key);
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200)["status"], "awaiting_signal");
    let after = site.get("/v1/audit?what=instance.cancel").await.expect(200);
    assert_eq!(after["items"], json!([]), "{before}");
    site.clear_key();
    let headers = [("sec-fetch-site", "same-origin")];
    assert_eq!(browser_post(&site, &key, &path, &headers).await, 303);
}

async fn browser_post(site: &Site, key: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    let browser = site.signed_in(key).await;
    let token = browser.token("/queues").await;
    browser.post(path, &[("csrf", &token)], headers).await.status
}

async fn a_key_is_exchanged_for_a_session_and_the_session_is_ended(database: Database) {
    let mut site = database.with_keys().await;
    let key = site.key("default", Scope::Admin).await;
    let mut browser = site.browser();
    assert_eq!(
        leads_to(&browser.get("/instances?status=failed").await),
        "/login?next=%2Finstances%3Fstatus%3Dfailed"
    );
    let fields = [("key", key.as_str()), ("next", "/instances?status=failed")];
    let answer = browser.submit("/login", "/login", &fields).await;
    assert_eq!(leads_to(&answer), "/instances?status=failed");
    let cookie = answer.header("set-cookie").to_owned();
    assert!(
        cookie.ends_with("; HttpOnly; SameSite=Strict") && cookie.contains("; Path=/; Max-Age=43200"),
        "{cookie}"
    );
    assert!(!cookie.contains(&key), "{cookie}");
    browser.keep(&answer);
    assert!(browser.page("/").await.contains("admin of default"));
    assert_eq!(leads_to(&browser.get("/login").await), "/");
    // No redirect leads to another site.
    let fields = [("key", key.as_str()), ("next", "https://evil.example/")];
    assert_eq!(leads_to(&site.browser().submit("/login", "/login", &fields).await), "/");
    let token = site.browser().token("/login").await;
    let fields = [("key", key.as_str()), ("csrf", token.as_str())];
    let secure = site.browser().post("/login", &fields, &[("x-forwarded-proto", "https")]).await;
    assert!(secure.header("set-cookie").ends_with("; Secure"), "{}", secure.header("set-cookie"));
    for (protos, is_secure) in [("https, http", true), ("HTTPS,http", true), ("http, https", false)] {
        let answer = site.browser().post("/login", &fields, &[("x-forwarded-proto", protos)]).await;
        assert_eq!(answer.header("set-cookie").ends_with("; Secure"), is_secure, "{protos}");
    }
    let left = browser.submit("/queues", "/logout", &[]).await;
    assert_eq!(leads_to(&left), "/login");
    assert!(left.header("set-cookie").starts_with("dormouse_session=; Path=/; Max-Age=0"));
    assert_eq!(browser.get("/").await.status, 303, "the cookie that was kept opens nothing");
    site.set_key(&key);
    let entries = site.get("/v1/audit").await.expect(200);
    assert_eq!(entries["items"][0]["what"], "session.close", "{entries}");
    assert!(
        entries["items"][6]["what"] == "session.open" && entries["items"][6]["result"] == "ok",
        "{entries}"
    );
}

async fn signing_in_again_ends_the_session_before(database: Database) {
    let site = database.with_keys().await;
    let [key, other] = [site.key("default", Scope::Read).await, site.key("acme", Scope::Read).await];
    let mut browser = site.signed_in(&key).await;
    let elsewhere = site.signed_in(&key).await;
    let before = browser.cookie.clone();
    let again = browser.submit("/queues", "/login", &[("key", other.as_str())]).await;
    browser.keep(&again);
    assert!(browser.page("/").await.contains("read of acme"));
    browser.cookie = before;
    assert_eq!(browser.get("/").await.status, 303, "the session before is over");
    elsewhere.page("/").await;
}

async fn a_wrong_key_opens_no_session(database: Database) {
    let site = database.with_keys().await;
    let key = site.key("default", Scope::Admin).await;
    let wrong = format!("{key}x");
    for sent in ["", "nonsense", "dmk_x_y", &wrong] {
        let answer = site.browser().submit("/login", "/login", &[("key", sent)]).await;
        assert_eq!(answer.status, 403, "{sent}: {}", answer.text);
        assert_eq!(answer.header("set-cookie"), "");
    }
    let mut forger = site.browser();
    forger.cookie = Some(format!("dormouse_session={}", "0".repeat(64)));
    assert_eq!(forger.get("/").await.status, 303);
    assert_eq!((forger.get("/live").await.status, site.browser().get("/live").await.status), (401, 401));
    // A session is for pages only: the API requires the key itself.
    let browser = site.signed_in(&key).await;
    assert_eq!(browser.get("/v1/stats").await.status, 401);
}

async fn a_session_ends_within_seconds_of_its_key(database: Database) {
    let site = database.with_keys().await;
    let key = site.key("default", Scope::Read).await;
    let browser = site.signed_in(&key).await;
    browser.page("/").await;
    let cookie = browser.cookie.clone().expect("a session");
    let request = site.request(axum::http::Method::GET, "/live").header("cookie", cookie);
    let request = request.header("host", "localhost").body(axum::body::Body::empty()).expect("a request");
    let stream = site.open(request).await;
    assert_eq!(stream.status(), 200);
    let mut stream = axum::body::Body::new(stream.into_body()).into_data_stream();
    let id = key.trim_start_matches("dmk_").split('_').next().expect("an id").to_owned();
    site.client.server_store().expect("a store for servers").revoke_api_key(None, id).await.expect("a write");
    let revoked = tokio::time::Instant::now();
    while browser.get("/").await.status == 200 {
        assert!(revoked.elapsed() < std::time::Duration::from_secs(5), "it still opens the door");
        tokio::task::yield_now().await;
    }
    let ends = async { while let Some(Ok(_)) = stream.next().await {} };
    tokio::time::timeout(SOON, ends).await.expect("the stream ends with its session");
}

async fn a_session_sees_its_namespace_alone(database: Database) {
    let mut site = database.with_keys().await;
    let [acme, umbrella] = [site.key("acme", Scope::Admin).await, site.key("umbrella", Scope::Admin).await];
    site.set_key(&acme);
    let id = site.order(7).await;
    let (_, asked) = site.review("a secret menu").await;
    site.clear_key();
    let (ours, theirs) = (site.signed_in(&acme).await, site.signed_in(&umbrella).await);
    for path in ["/", "/instances", "/waiting", "/waiting?signal=paid", "/inbox", "/machines/shop", "/audit"]
    {
        let page = theirs.page(path).await;
        for inside in ["order:7", "secret menu", "acme", "data-instance="] {
            assert!(!page.contains(inside), "{path} tells of {inside}: {page}");
        }
    }
    let here = format!("/instances/{id}");
    let question = format!("/inbox/{asked}");
    let fork = format!("{here}/fork?seq=1");
    for path in [&here, &question, &fork] {
        assert_eq!((ours.get(path).await.status, theirs.get(path).await.status), (200, 404), "{path}");
    }
    for verb in ["cancel", "pause", "retry"] {
        assert_eq!(theirs.submit("/queues", &format!("{here}/{verb}"), &[]).await.status, 404, "{verb}");
    }
    let fields = [("verb", "cancel"), ("ids", &id.to_string())];
    assert_eq!(theirs.submit("/queues", "/instances/bulk", &fields).await.status, 404);
    site.set_key(&acme);
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200)["status"], "awaiting_signal");
}

async fn who_may_only_look_is_offered_nothing_to_send(database: Database) {
    let mut site = database.with_keys().await;
    let [read, operate] = [site.key("default", Scope::Read).await, site.key("default", Scope::Operate).await];
    site.set_key(&operate);
    let id = site.order(7).await;
    let (_, asked) = site.review("a menu").await;
    site.clear_key();
    let (reader, operator) = (site.signed_in(&read).await, site.signed_in(&operate).await);
    let pages = [
        "/instances".to_owned(),
        format!("/instances/{id}"),
        format!("/inbox/{asked}"),
        "/queues".to_owned(),
        "/waiting?signal=paid".to_owned(),
    ];
    for path in pages {
        let forms =
            |page: &str| page.matches("method=\"post\"").count() + page.matches("/instances/bulk").count();
        // The only form left is the one to sign out.
        assert_eq!(forms(&reader.page(&path).await), 1, "{path}");
        assert!(forms(&operator.page(&path).await) > 1, "{path}");
        assert!(!operator.page(&path).await.contains("href=\"/audit\""), "{path}");
    }
}

async fn what_is_done_in_a_session_is_in_the_audit_log_by_its_key(database: Database) {
    let mut site = database.with_keys().await;
    let [operate, admin] =
        [site.key("default", Scope::Operate).await, site.key("default", Scope::Admin).await];
    site.set_key(&operate);
    let id = site.order(7).await;
    let operator = site.signed_in(&operate).await;
    let here = format!("/instances/{id}");
    operator.submit(&here, &format!("{here}/pause"), &[]).await;
    let admin = site.signed_in(&admin).await;
    let page = admin.page("/audit?what=instance.pause").await;
    let key_id = operate.rsplit_once('_').expect("two parts").0;
    assert!(page.contains(&format!("operate of default ({key_id})")), "{page}");
    assert!(page.contains(&format!("href=\"/instances/{id}\"")), "{page}");
}

async fn a_foreign_host_sees_no_page(database: Database) {
    let site = database.open().await;
    for path in ["/", "/instances", "/login", "/live"] {
        let request = site.request(axum::http::Method::GET, path).header("host", "evil.example");
        let answer = site.send(request.body(axum::body::Body::empty()).expect("a request")).await;
        assert_eq!(answer.status, 421, "{path}: {}", answer.text);
    }
    let id = site.order(7).await;
    let browser = site.browser();
    let here = format!("/instances/{id}");
    let token = browser.token(&here).await;
    let foreign = [("origin", "http://localhost:3000")];
    assert_eq!(browser.post(&format!("{here}/cancel"), &[("csrf", &token)], &foreign).await.status, 403);
}
