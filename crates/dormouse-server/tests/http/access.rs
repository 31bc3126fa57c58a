//! Access: every route, with no key, with a key whose scope is too small, and with one whose scope is enough.

use axum::body::Body;
use axum::http::Method;
use dormouse::store::Scope;
use serde_json::{Value, json};

use crate::kit::*;

suite![
    every_route_asks_for_its_scope,
    a_key_that_is_wrong_in_any_way_opens_nothing,
    a_revoked_key_is_refused_within_seconds,
    a_foreign_host_is_refused_where_anyone_may_come_in,
    a_page_of_another_site_changes_nothing,
    a_made_key_opens_what_its_scope_allows,
    what_came_through_a_proxy_is_refused_where_nothing_asks_who_is_there,
    what_another_site_loads_is_refused_and_where_it_leads_is_not,
];

/// Every route, and the scope it needs. A route that is missing here fails the test.
const ROUTES: &[(&str, &str, Option<Scope>)] = &[
    ("post", "/v1/instances", Some(Scope::Operate)),
    ("post", "/v1/instances/batch", Some(Scope::Operate)),
    ("post", "/v1/instances/bulk", Some(Scope::Operate)),
    ("get", "/v1/instances", Some(Scope::Read)),
    ("get", "/v1/instances/{instance}", Some(Scope::Read)),
    ("get", "/v1/instances/{instance}/history", Some(Scope::Read)),
    ("get", "/v1/instances/{instance}/inbox", Some(Scope::Read)),
    ("get", "/v1/instances/{instance}/mail", Some(Scope::Read)),
    ("get", "/v1/instances/{instance}/children", Some(Scope::Read)),
    ("get", "/v1/instances/{instance}/result", Some(Scope::Read)),
    ("get", "/v1/instances/{instance}/settled", Some(Scope::Read)),
    ("get", "/v1/instances/{instance}/explain", Some(Scope::Read)),
    ("get", "/v1/instances/{instance}/what-if", Some(Scope::Read)),
    ("post", "/v1/instances/{instance}/signals", Some(Scope::Operate)),
    ("post", "/v1/signals/batch", Some(Scope::Operate)),
    ("post", "/v1/interactions/batch", Some(Scope::Operate)),
    ("post", "/v1/instances/{instance}/inbox/{signal}/drop", Some(Scope::Operate)),
    ("post", "/v1/instances/{instance}/inbox/{signal}/edit", Some(Scope::Operate)),
    ("post", "/v1/instances/{instance}/cancel", Some(Scope::Operate)),
    ("post", "/v1/instances/{instance}/retry", Some(Scope::Operate)),
    ("post", "/v1/instances/{instance}/pause", Some(Scope::Operate)),
    ("post", "/v1/instances/{instance}/resume", Some(Scope::Operate)),
    ("post", "/v1/instances/{instance}/tags", Some(Scope::Operate)),
    ("post", "/v1/instances/{instance}/edit", Some(Scope::Operate)),
    ("post", "/v1/instances/{instance}/fork", Some(Scope::Operate)),
    ("get", "/v1/waiting", Some(Scope::Read)),
    ("get", "/v1/interactions", Some(Scope::Read)),
    ("get", "/v1/interactions/{interaction}", Some(Scope::Read)),
    ("post", "/v1/interactions/{interaction}/claim", Some(Scope::Operate)),
    ("post", "/v1/interactions/{interaction}/complete", Some(Scope::Operate)),
    ("post", "/v1/interactions/{interaction}/fail", Some(Scope::Operate)),
    ("post", "/v1/resume/{token}", None),
    ("get", "/v1/machines", Some(Scope::Read)),
    ("get", "/v1/machines/{machine}/graph", Some(Scope::Read)),
    ("get", "/v1/queues", Some(Scope::Read)),
    ("post", "/v1/queues/{queue}/pause", Some(Scope::Operate)),
    ("post", "/v1/queues/{queue}/resume", Some(Scope::Operate)),
    ("get", "/v1/kept", Some(Scope::Read)),
    ("post", "/v1/kept/{kept}/drop", Some(Scope::Operate)),
    ("get", "/v1/limits", Some(Scope::Read)),
    ("post", "/v1/limits/{limit}", Some(Scope::Operate)),
    ("post", "/v1/limits/{limit}/remove", Some(Scope::Operate)),
    ("get", "/v1/transports", Some(Scope::Read)),
    ("post", "/v1/transports/{transport}", Some(Scope::Admin)),
    ("post", "/v1/transports/{transport}/close", Some(Scope::Admin)),
    ("get", "/v1/shares", Some(Scope::Read)),
    ("post", "/v1/shares/{share}/weigh", Some(Scope::Admin)),
    ("post", "/v1/schedules", Some(Scope::Operate)),
    ("get", "/v1/schedules", Some(Scope::Read)),
    ("get", "/v1/schedules/{schedule}", Some(Scope::Read)),
    ("get", "/v1/schedules/{schedule}/next", Some(Scope::Read)),
    ("get", "/v1/schedules/{schedule}/runs", Some(Scope::Read)),
    ("post", "/v1/schedules/{schedule}/change", Some(Scope::Operate)),
    ("post", "/v1/schedules/{schedule}/reset", Some(Scope::Operate)),
    ("post", "/v1/schedules/{schedule}/pause", Some(Scope::Operate)),
    ("post", "/v1/schedules/{schedule}/resume", Some(Scope::Operate)),
    ("post", "/v1/schedules/{schedule}/run", Some(Scope::Operate)),
    ("post", "/v1/schedules/{schedule}/backfill", Some(Scope::Operate)),
    ("post", "/v1/schedules/{schedule}/delete", Some(Scope::Operate)),
    ("get", "/v1/workers", Some(Scope::Read)),
    ("get", "/v1/stats", Some(Scope::Read)),
    ("get", "/v1/troubles", Some(Scope::Read)),
    ("get", "/v1/about", Some(Scope::Read)),
    ("get", "/v1/events", Some(Scope::Read)),
    ("post", "/v1/api-keys", Some(Scope::Admin)),
    ("get", "/v1/api-keys", Some(Scope::Admin)),
    ("post", "/v1/api-keys/{api_key}/revoke", Some(Scope::Admin)),
    ("get", "/v1/audit", Some(Scope::Admin)),
    ("post", "/v1/gc", Some(Scope::Admin)),
    ("get", "/metrics", Some(Scope::Read)),
    ("get", "/healthz", None),
    ("get", "/readyz", None),
    ("get", "/openapi.json", None),
];

async fn every_route_asks_for_its_scope(database: Database) {
    let mut site = database.with_keys().await;
    let served = served_routes(&site.get("/openapi.json").await.expect(200));
    let mut expected: Vec<_> = ROUTES
        .iter()
        .map(|(method, path, scope)| {
            (method.to_string(), path.to_string(), scope.map(|scope| scope.to_string()))
        })
        .collect();
    expected.sort();
    assert_eq!(served, expected, "a route and its scope must be named in ROUTES");
    let keys = [
        site.key("default", Scope::Read).await,
        site.key("default", Scope::Operate).await,
        site.key("default", Scope::Admin).await,
    ];
    for (method, path, needed) in ROUTES {
        let path = path
            .replace("{instance}", "999")
            .replace("{signal}", "1")
            .replace("{queue}", "q")
            .replace("{machine}", "shop")
            .replace("{api_key}", "none");
        let answer = answer_to(&site, method, &path).await;
        if path.ends_with("/{token}") {
            // It needs a token, and a key does not replace it.
            site.set_key(&keys[2]);
            assert_eq!((answer, answer_to(&site, method, &path).await), (403, 403), "{path}");
            site.clear_key();
            continue;
        }
        assert_eq!(answer == 401, needed.is_some(), "{method} {path} without a key: {answer}");
        for (key, scope) in keys.iter().zip(Scope::ALL) {
            site.set_key(key);
            let is_refused = matches!(answer_to(&site, method, &path).await, 401 | 403);
            let must_be = needed.is_some_and(|needed| scope < needed);
            assert_eq!(is_refused, must_be, "{method} {path} with {scope}");
        }
        site.clear_key();
    }
}

/// The status of the response, whose body may never end.
async fn answer_to(site: &Site, method: &str, path: &str) -> u16 {
    let request =
        site.request(method.to_uppercase().parse().expect("a method"), path).header("host", "localhost");
    let request = request.header("content-type", "application/json").body(Body::from("{}"));
    site.open(request.expect("a request")).await.status().as_u16()
}

/// The routes in the server's OpenAPI document, with the scope each needs.
fn served_routes(document: &Value) -> Vec<(String, String, Option<String>)> {
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let scope = operation["x-dormouse-scope"].as_str().map(str::to_owned);
            routes.push((method.clone(), path.clone(), scope));
        }
    }
    routes.sort();
    routes
}

async fn a_key_that_is_wrong_in_any_way_opens_nothing(database: Database) {
    let mut site = database.with_keys().await;
    let good = site.key("default", Scope::Admin).await;
    let other = site.key("default", Scope::Admin).await;
    let (id, _) = good.rsplit_once('_').expect("two parts");
    let (_, secret) = other.rsplit_once('_').expect("two parts");
    let mixed = format!("{id}_{secret}");
    for wrong in ["", "dmk_", "dmk_x_y", &good[1..], &format!("{good}x"), &mixed, &good.to_uppercase()] {
        site.set_key(wrong);
        let answer = site.get("/v1/stats").await;
        assert_eq!(answer.header("www-authenticate"), "Bearer", "{wrong}");
        let problem = answer.expect_problem(401, "unauthenticated");
        assert!(!problem.to_string().contains("secret"), "{problem}");
    }
    site.clear_key();
    let basic = site.request(Method::GET, "/v1/stats").header("authorization", format!("Basic {good}"));
    site.send(basic.body(Body::empty()).expect("a request")).await.expect_problem(401, "unauthenticated");
    site.set_key(&good);
    site.get("/v1/stats").await.expect(200);
}

async fn a_revoked_key_is_refused_within_seconds(database: Database) {
    let mut site = database.with_keys().await;
    let key = site.key("default", Scope::Read).await;
    site.set_key(&key);
    site.get("/v1/stats").await.expect(200);
    let id = key.trim_start_matches("dmk_").split('_').next().expect("an id").to_owned();
    site.client.server_store().expect("a store for servers").revoke_api_key(None, id).await.expect("a write");
    let revoked = tokio::time::Instant::now();
    while site.get("/v1/stats").await.status == 200 {
        assert!(revoked.elapsed() < std::time::Duration::from_secs(5), "it still opens the door");
        tokio::task::yield_now().await;
    }
    site.get("/v1/stats").await.expect_problem(401, "unauthenticated");
}

async fn a_foreign_host_is_refused_where_anyone_may_come_in(database: Database) {
    let site = database.open().await;
    for (host, status) in
        [("localhost", 200), ("127.0.0.1:99", 200), ("evil.example", 421), ("10.1.2.3", 421), ("", 421)]
    {
        for path in ["/v1/stats", "/healthz", "/openapi.json"] {
            let request = site.request(Method::GET, path).header("host", host).body(Body::empty());
            let answer = site.send(request.expect("a request")).await;
            assert_eq!(answer.status, status, "{path} as {host:?}: {}", answer.text);
        }
    }
}

async fn a_page_of_another_site_changes_nothing(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    let path = format!("/v1/instances/{id}/cancel");
    let own = format!("http://{}", site.address);
    let foreign = ["https://evil.example", "null", "http://localhost:3000"].map(|origin| (origin, 403));
    for (origin, status) in foreign.into_iter().chain([(own.as_str(), 200)]) {
        let request = site.request(Method::POST, &path).header("origin", origin).body(Body::empty());
        let answer = site.send(request.expect("a request")).await;
        assert_eq!(answer.status, status, "{origin}: {}", answer.text);
    }
    // What a page can send without a preflight request: a form, or plain text.
    for media in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let request = site.request(Method::POST, "/v1/instances").header("content-type", media);
        let request = request.body(Body::from(json!({ "machine": "shop" }).to_string())).expect("a request");
        site.send(request).await.expect_problem(415, "unsupported-media-type");
    }
}

async fn what_came_through_a_proxy_is_refused_where_nothing_asks_who_is_there(database: Database) {
    let mut site = database.open().await;
    let headers = [
        ("forwarded", "for=203.0.113.7"),
        ("via", "1.1 proxy"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-proto", "https"),
        ("X-Forwarded-Whatever", "x"),
        ("x-real-ip", "203.0.113.7"),
    ];
    let ask = async |site: &Site, path: &str, (name, value): (&str, &str)| {
        let request = site.request(Method::GET, path).header(name, value).body(Body::empty());
        site.send(request.expect("a request")).await
    };
    for header in headers {
        for path in ["/v1/api-keys", "/v1/stats", "/healthz"] {
            let refused = ask(&site, path, header).await.expect_problem(403, "proxied");
            assert!(refused["detail"].as_str().expect("text").contains("keys create"), "{refused}");
        }
        assert_eq!(ask(&site, "/", header).await.status, 403, "{header:?}");
        let token = site.request(Method::POST, "/v1/resume/k1.e30.e30").header(header.0, header.1);
        let token = token.body(Body::empty()).expect("a request");
        site.send(token).await.expect_problem(403, "proxied");
    }
    // A server that requires API keys accepts requests through a proxy.
    let keyed = Database::sqlite().with_keys().await;
    let key = keyed.key("default", Scope::Read).await;
    site = keyed;
    site.set_key(&key);
    for header in headers {
        assert_eq!(ask(&site, "/v1/stats", header).await.status, 200, "{header:?}");
    }
}

async fn what_another_site_loads_is_refused_and_where_it_leads_is_not(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    let cancel = format!("/v1/instances/{id}/cancel");
    for (method, path, site_word, mode, status) in [
        (Method::POST, cancel.as_str(), "cross-site", "no-cors", 403),
        (Method::POST, &cancel, "same-site", "navigate", 403),
        (Method::GET, "/v1/stats", "cross-site", "no-cors", 403),
        (Method::GET, "/v1/stats", "same-site", "cors", 403),
        (Method::GET, "/", "cross-site", "no-cors", 403),
        (Method::GET, "/", "cross-site", "navigate", 200),
        (Method::GET, "/v1/stats", "same-origin", "cors", 200),
        (Method::GET, "/v1/stats", "none", "navigate", 200),
        (Method::POST, &cancel, "same-origin", "cors", 200),
    ] {
        let request = site.request(method.clone(), path).header("sec-fetch-site", site_word);
        let request = request.header("sec-fetch-mode", mode).body(Body::empty()).expect("a request");
        let answer = site.send(request).await;
        assert_eq!(answer.status, status, "{method} {path} {site_word} {mode}: {}", answer.text);
    }
}

async fn a_made_key_opens_what_its_scope_allows(database: Database) {
    let mut site = database.with_keys().await;
    let admin = site.key("default", Scope::Admin).await;
    site.set_key(&admin);
    let body = json!({ "label": "a reader", "scope": "read", "expires_in": "1h" });
    let made = site.post("/v1/api-keys", body).await.expect(201);
    let secret = made["secret"].as_str().expect("a secret").to_owned();
    let listed = site.get("/v1/api-keys").await.expect(200);
    assert!(!listed.to_string().contains(&secret) && !listed.to_string().contains("hash"), "{listed}");
    site.set_key(&secret);
    assert_eq!(site.get("/v1/about").await.expect(200)["scope"], "read");
    let refused =
        site.post("/v1/instances", json!({ "machine": "shop" })).await.expect_problem(403, "forbidden");
    assert!(refused["detail"].as_str().expect("text").contains("scope operate"), "{refused}");
    site.set_key(&admin);
    let id = made["id"].as_str().expect("an id");
    let revoked = site.post(&format!("/v1/api-keys/{id}/revoke"), json!({})).await.expect(200);
    assert_eq!(revoked["is_live"], false);
}
