//! The frame around every page, the page that shows an error, and the assets that a browser loads.

use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use dormouse::store::Scope;
use maud::{DOCTYPE, Markup, html};

use super::session::{SessionId, cookie};
use super::visit::{Visit, see_other};
use super::{Answered, login};
use crate::access::{Caller, hash, hex};
use crate::problem::{Cause, Problem};
use crate::route::Needs;
use crate::server::App;

/// What every page needs to know about the visit.
#[derive(Clone)]
pub(super) struct Shell {
    /// The path that the server is mounted under: empty, or without a trailing slash.
    pub(super) root: String,
    /// The token that every form carries.
    pub(super) csrf: String,
    theme: Option<&'static str>,
    /// The host by which the visitor reached the server, with its scheme if that is not plain HTTP.
    origin: String,
    /// The page that the visitor requested.
    here: String,
    /// The page's route in the table.
    place: String,
    is_read: bool,
    visitor: Option<Caller>,
    has_session: bool,
    /// Whether access needs no API key.
    is_open: bool,
}

impl Shell {
    pub(super) fn of(full: &str, request: &Request) -> Self {
        let place = request.uri().path();
        let root = full.strip_suffix(place).unwrap_or(full).trim_end_matches('/');
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let theme = cookie(request.headers(), "dormouse_theme");
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let is_secure = header("x-forwarded-proto") == Some("https");
        Self {
            origin: format!(
                "{}{}",
                if is_secure { "https://" } else { "" },
                header("host").unwrap_or("localhost")
            ),
            root: root.to_owned(),
            csrf: String::new(),
            theme: ["light", "dark"].into_iter().find(|known| theme == Some(known)),
            here: format!("{full}{query}"),
            place: place.to_owned(),
            is_read: request.method() == Method::GET,
            visitor: None,
            has_session: false,
            is_open: false,
        }
    }

    /// Records who the visitor is, to show it in the frame.
    pub(super) fn admit(&mut self, app: &App, caller: &Caller, session: Option<&SessionId>, needs: Needs) {
        self.csrf = app.web.sessions.csrf(session);
        self.has_session = session.is_some();
        self.is_open = !app.door.asks_for_keys();
        let is_known = session.is_some() || needs != Needs::Nothing || !app.door.asks_for_keys();
        self.visitor = is_known.then(|| caller.clone());
    }

    /// The address of a page.
    pub(super) fn at(&self, path: &str) -> String {
        if path == "/" { self.home() } else { format!("{}{path}", self.root) }
    }

    pub(super) fn home(&self) -> String {
        if self.root.is_empty() { "/".to_owned() } else { self.root.clone() }
    }

    /// The address of a page or route as others reach it, as far as this request tells.
    pub(super) fn absolute(&self, path: &str) -> String {
        format!("{}{}", self.origin, self.at(path))
    }

    /// The hidden input that proves that a form is one of ours.
    pub(super) fn token(&self) -> Markup {
        html! { input type="hidden" name="csrf" value=(self.csrf); }
    }

    /// Whether the visitor may change anything.
    pub(super) fn may_administer(&self) -> bool {
        self.visitor.as_ref().is_some_and(|visitor| visitor.scope >= Scope::Admin)
    }

    pub(super) fn may_operate(&self) -> bool {
        self.visitor.as_ref().is_some_and(|visitor| visitor.scope >= Scope::Operate)
    }
}

const PAGES: [(&str, &str, Scope); 14] = [
    ("/", "Overview", Scope::Read),
    ("/instances", "Instances", Scope::Read),
    ("/waiting", "Waiting", Scope::Read),
    ("/kept", "Kept signals", Scope::Read),
    ("/inbox", "Inbox", Scope::Read),
    ("/schedules", "Schedules", Scope::Read),
    ("/machines", "Machines", Scope::Read),
    ("/queues", "Queues", Scope::Read),
    ("/limits", "Limits", Scope::Read),
    ("/workers", "Workers", Scope::Read),
    ("/transports", "Transports", Scope::Read),
    ("/keys", "API keys", Scope::Admin),
    ("/retention", "Retention", Scope::Admin),
    ("/audit", "Audit", Scope::Admin),
];

/// A whole page.
pub(super) fn page(
    shell: &Shell,
    status: StatusCode,
    title: &str,
    notice: Option<&str>,
    body: &Markup,
) -> Response<Body> {
    let versioned = |asset: &str| format!("{}?v={}", shell.at(&format!("/assets/{asset}")), *VERSION);
    let markup = html! {
        (DOCTYPE)
        html lang="en" data-theme=[shell.theme] data-root=(shell.root) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · dormouse" }
                link rel="icon" type="image/svg+xml" href=(versioned("dormouse.svg"));
                link rel="stylesheet" href=(versioned("dormouse.css"));
                script src=(versioned("dormouse.js")) defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                (side(shell))
                main #main tabindex="-1" {
                    @if let Some(told) = notice.and_then(told_of) {
                        p.notice #notice role="status" { (told) }
                    }
                    (body)
                }
                p #announcer.unseen role="status" aria-live="polite" {}
            }
        }
    };
    let mut response = Response::new(Body::from(markup.into_string()));
    *response.status_mut() = status;
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

fn side(shell: &Shell) -> Markup {
    let is_here = |path: &str| {
        let place = shell.place.as_str();
        if path == "/" { place == "/" } else { place == path || place.starts_with(&format!("{path}/")) }
    };
    html! {
        header.side {
            a.brand href=(shell.home()) {
                svg viewBox="0 0 24 24" aria-hidden="true" { path d="M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z" {} }
                "dormouse"
            }
            @if let Some(visitor) = &shell.visitor {
                form.go method="get" action=(shell.at("/go")) role="search" aria-label="Go to an instance" {
                    input #go name="to" placeholder="Id or key ( / )" aria-label="Go to an instance, by id or key" autocomplete="off" spellcheck="false";
                }
                nav aria-label="Pages" {
                    ul {
                        @for (path, name, scope) in PAGES {
                            @if visitor.scope >= scope {
                                li { a href=(shell.at(path)) aria-current=[is_here(path).then_some("page")] { (name) } }
                            }
                        }
                    }
                }
            }
            div.who {
                p #live data-state="off" { span.dot aria-hidden="true" {} span.word { "not live" } }
                @if let Some(visitor) = &shell.visitor {
                    @if shell.is_open {
                        form method="post" action=(shell.at("/namespace")) {
                            (shell.token())
                            label for="namespace" { "Namespace" }
                            input #namespace name="namespace" value=(visitor.namespace) spellcheck="false";
                        }
                    } @else {
                        p { span.muted { "Namespace " } strong { (visitor.namespace) } }
                    }
                    p.muted title=(visitor.who) { (visitor.who) ", " (visitor.scope) }
                }
                button #theme type="button" hidden { "Light or dark" }
                @if shell.has_session {
                    form method="post" action=(shell.at("/logout")) { (shell.token()) button type="submit" { "Sign out" } }
                }
            }
        }
    }
}

/// The notice after a form. Its words come from here and not from the address, where anyone could write them.
fn told_of(notice: &str) -> Option<String> {
    let (word, count) = notice.split_once('-').unwrap_or((notice, ""));
    let counts: Vec<u64> = count.split('-').filter_map(|count| count.parse().ok()).collect();
    Some(match (word, &counts[..]) {
        ("cancelled", []) => "It is cancelled.".to_owned(),
        ("requested", []) => {
            "It will end when its running step ends, or after it has undone its work.".to_owned()
        }
        ("ended", []) => "It had ended before: nothing was changed.".to_owned(),
        ("signalled", []) => "The signal is in its inbox.".to_owned(),
        ("duplicate", []) => "This signal was delivered before: nothing was changed.".to_owned(),
        ("retried", []) => "It runs again.".to_owned(),
        ("dropped", []) => "The signal was removed from its inbox.".to_owned(),
        ("restated", []) => "It has its new state.".to_owned(),
        ("edited", []) => "The signal has a new payload.".to_owned(),
        ("paused", []) => "It is paused: no worker claims it until it is resumed.".to_owned(),
        ("resumed", []) => "It is resumed.".to_owned(),
        ("weighed", []) => "The share has its new weight, from the next turn on.".to_owned(),
        ("tagged", []) => "Its tags were changed.".to_owned(),
        ("started", []) => "It is started.".to_owned(),
        ("revoked", []) => "The key is revoked: it opens nothing any more.".to_owned(),
        ("forked", []) => "This is the new instance.".to_owned(),
        ("claimed", []) => "You have claimed it for fifteen minutes: nobody else can answer it.".to_owned(),
        ("released", []) => "You have released it.".to_owned(),
        ("answered", []) => "Your answer was accepted.".to_owned(),
        ("repeat", []) => "It was answered before: nothing was changed.".to_owned(),
        ("braked", []) => "The queue is paused: no worker claims from it until it is resumed.".to_owned(),
        ("limited", []) => "The limit is set, and holds from now on.".to_owned(),
        ("unblocked", []) => "The breaker is closed: its requests are sent at once.".to_owned(),
        ("dropped_kept", []) => "The kept signal is dropped.".to_owned(),
        ("unlimited", []) => "The limit is removed.".to_owned(),
        ("unbraked", []) => "The queue runs again.".to_owned(),
        ("collected", [count]) => format!("Removed {count}."),
        ("scheduled", []) => "The schedule is created.".to_owned(),
        ("changed", []) => "It counts from now on.".to_owned(),
        ("backfilled", []) => "Its occurrences of that range start.".to_owned(),
        ("ran", []) => "A run starts now, or when the schedule is resumed.".to_owned(),
        ("held", []) => "The schedule is paused: nothing starts until it is resumed.".to_owned(),
        ("deleted", []) => "The schedule is deleted. Its runs go on.".to_owned(),
        ("bulk", [done, refused]) => match refused {
            0 => format!("Done for {done}."),
            _ => format!("Done for {done}; skipped {refused} that had moved on in the meantime."),
        },
        _ => return None,
    })
}

/// The page of an error: what happened, and what to do.
pub(super) fn refusal(shell: &Shell, problem: &Problem) -> Response<Body> {
    if problem.cause == Cause::Unauthenticated && shell.is_read && shell.place != "/live" {
        return see_other(&login::address(&shell.root, &shell.here));
    }
    let (title, hint) = match problem.cause {
        Cause::Unauthenticated => ("Sign in first", "Your session may have ended."),
        Cause::Forbidden => {
            ("Not allowed", "Ask the operator of the server for an API key with a wider scope.")
        }
        Cause::NotFound | Cause::NoTarget | Cause::NoEvent | Cause::NoRoute => (
            "Not found",
            "It may have been removed after its end, belong to another namespace, or never have existed.",
        ),
        Cause::UntrustedOrigin => ("Form refused", "Nothing was changed."),
        Cause::UntrustedHost => {
            ("Unknown host", "Open the dashboard by an address that this server answers to.")
        }
        Cause::StaleSeq => (
            "It has moved on",
            "It has changed since your page was loaded. Go back, look at its current state, and decide again.",
        ),
        Cause::Unavailable | Cause::DiskFull | Cause::Internal => (
            "The database does not work",
            "Nothing is lost: committed changes stay, and running steps are retried. Try this page again in a moment.",
        ),
        _ => ("That did not work", "Nothing was changed. Go back: your input is still there."),
    };
    let status = problem.cause.status();
    let mut response = page(
        shell,
        status,
        title,
        None,
        &html! {
            section.card.narrow data-problem=(problem.cause.word()) {
                p.muted { (status.as_u16()) " · " (problem.cause.title()) }
                h1 { (title) }
                p { (sentence(&problem.detail)) }
                p.muted { (hint) }
                p { a href=(shell.home()) { "To the overview" } }
            }
        },
    );
    if problem.cause == Cause::Unavailable {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// As a sentence, with a capital and a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.trim_end_matches('.').chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

const STYLE: &str = include_str!("../../assets/dormouse.css");
const SCRIPT: &str = include_str!("../../assets/dormouse.js");
const ICON: &str = include_str!("../../assets/dormouse.svg");

/// A version that changes with the content of the assets, so that browsers may cache them for as long as they like.
static VERSION: LazyLock<String> = LazyLock::new(|| hex(&hash(&format!("{STYLE}{SCRIPT}{ICON}"))[..6]));

pub(super) async fn style(_: Visit) -> Answered {
    asset("text/css; charset=utf-8", STYLE)
}

pub(super) async fn script(_: Visit) -> Answered {
    asset("text/javascript; charset=utf-8", SCRIPT)
}

pub(super) async fn icon(_: Visit) -> Answered {
    asset("image/svg+xml", ICON)
}

fn asset(media: &'static str, text: &'static str) -> Answered {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    headers.insert(header::CACHE_CONTROL, kept);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_database_that_does_not_answer_is_told_in_words_that_help() {
        let request = Request::builder().uri("/instances").body(Body::empty()).expect("a request");
        let shell = Shell::of("/instances", &request);
        let busy = dormouse::Error::Busy("database is locked at /var/lib/shop.db".into());
        let response = refusal(&shell, &busy.into());
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (503, &HeaderValue::from(1))
        );
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a page");
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains("Nothing is lost") && text.contains("To the overview"), "{text}");
        assert!(!text.contains("locked") && !text.contains("/var/lib"), "it exposes internals: {text}");
    }

    #[test]
    fn a_notice_is_one_of_ours_or_none() {
        assert_eq!(
            told_of("paused").as_deref(),
            Some("It is paused: no worker claims it until it is resumed.")
        );
        assert_eq!(told_of("bulk-3-0").as_deref(), Some("Done for 3."));
        for other in ["", "bulk", "bulk-x-y", "paused-1", "Your account is locked, call 555"] {
            assert_eq!(told_of(other), None, "{other}");
        }
    }
}
