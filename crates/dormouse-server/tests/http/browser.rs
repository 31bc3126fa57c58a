//! A simulated visitor of the dashboard: cookies, forms and redirects.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use axum::body::Body;
use axum::http::Method;

use crate::kit::{Answer, Site};

/// Somebody who looks at pages and sends forms.
pub struct Browser<'a> {
    pub site: &'a Site,
    pub cookie: Option<String>,
}

impl Site {
    /// A visitor who has not signed in.
    pub fn browser(&self) -> Browser<'_> {
        Browser { site: self, cookie: None }
    }

    /// A visitor who has signed in with a key.
    pub async fn signed_in(&self, key: &str) -> Browser<'_> {
        let mut browser = self.browser();
        let answer = browser.submit("/login", "/login", &[("key", key)]).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        browser.keep(&answer);
        browser
    }
}

impl Browser<'_> {
    /// Keeps the cookie that an answer sets.
    pub fn keep(&mut self, answer: &Answer) {
        let set = answer.header("set-cookie").split(';').next().expect("a cookie");
        assert!(set.starts_with("dormouse_session="), "{set}");
        self.cookie = Some(set.to_owned());
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.request(Method::GET, path, &[], String::new()).await
    }

    /// A page that must be there.
    pub async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8", "{path}");
        check_ids(path, &answer.text);
        answer.text
    }

    /// Sends a form that is on a page.
    pub async fn submit(&self, on: &str, action: &str, fields: &[(&str, &str)]) -> Answer {
        let token = self.token(on).await;
        let fields: Vec<_> = fields.iter().copied().chain([("csrf", token.as_str())]).collect();
        self.post(action, &fields, &[]).await
    }

    /// Sends fields as a form, without loading its page first.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Answer {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        self.request(Method::POST, path, headers, body).await
    }

    /// The token in the forms of a page.
    pub async fn token(&self, on: &str) -> String {
        let text = self.get(on).await.text;
        let (_, rest) =
            text.split_once(r#"name="csrf" value=""#).unwrap_or_else(|| panic!("no form on {on}: {text}"));
        rest.split('"').next().expect("a token").to_owned()
    }

    async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)], body: String) -> Answer {
        let mut request = self.site.request(method.clone(), path).header("accept", "text/html");
        if method == Method::POST {
            request = request.header("content-type", "application/x-www-form-urlencoded");
        }
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.site.send(request.body(Body::from(body)).expect("a request")).await
    }
}

/// The redirect of an accepted form.
#[track_caller]
pub fn leads_to(answer: &Answer) -> &str {
    assert_eq!(answer.status, 303, "{}", answer.text);
    answer.header("location")
}

/// Checks that ids on a page are unique, and that every label has its input.
fn check_ids(path: &str, page: &str) {
    let values = |attribute: &str| -> Vec<String> {
        let before = format!(" {attribute}=\"");
        page.split(&before).skip(1).map(|rest| rest.split('"').next().expect("it ends").to_owned()).collect()
    };
    let mut ids = values("id");
    ids.sort();
    let twice = ids.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None, "{path} has an id twice");
    let stray = values("for").into_iter().find(|of| ids.binary_search(of).is_err());
    assert_eq!(stray, None, "{path} has a label of nothing");
}
