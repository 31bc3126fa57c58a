//! Signing in with an API key, and out.

use axum::http::{HeaderValue, header};
use dormouse::DEFAULT_NAMESPACE;
use maud::html;

use super::Answered;
use super::fields::Fields;
use super::session::{choose_namespace, set_cookie};
use super::visit::{Visit, see_other};
use crate::access::Caller;
use crate::problem::{Cause, Problem};

pub(super) async fn form(visit: Visit) -> Answered {
    if !visit.app.door.asks_for_keys() || visit.session.is_some() {
        return visit.go("/");
    }
    let s = &visit.shell;
    visit.page("Sign in", &html! {
        section.card.narrow {
            h1 { "Sign in" }
            p.muted {
                "This server requires an API key. Paste yours: it opens a session of twelve hours, "
                "and is not stored in the browser."
            }
            form method="post" action=(s.at("/login")) {
                (s.token())
                @if let Some(next) = visit.query.get("next") { input type="hidden" name="next" value=(next); }
                label for="key" { "API key" }
                input #key name="key" type="password" autocomplete="current-password" spellcheck="false" placeholder="dmk_…" required autofocus;
                button.primary type="submit" { "Sign in" }
            }
            p.muted { "No key yet? The operator of the server creates one with " code { "keys create --label you --scope operate" } "." }
        }
    })
}

pub(super) async fn enter(visit: Visit) -> Answered {
    if !visit.app.door.asks_for_keys() {
        return visit.go("/");
    }
    let sent = visit.form.get("key").unwrap_or_default();
    let Some(key) = visit.app.door.key(sent, &*visit.app.store).await? else {
        let told = "the API key is unknown, has expired, or was revoked: go back and try another";
        let problem = Problem::new(Cause::Forbidden, told);
        visit.app.refused_stranger(&visit.head.extensions, "session.open", &problem).await;
        return Err(problem);
    };
    if let Some(old) = &visit.session {
        visit.app.web.sessions.end(old);
    }
    let secret = visit.app.web.sessions.open(&key)?;
    visit.app.record(&Caller::from(key), "session.open", None, "ok").await?;
    let root = &visit.shell.root;
    let next = visit.form.get("next").filter(|next| is_ours(next, root));
    let mut response = see_other(&next.map_or_else(|| visit.shell.home(), str::to_owned));
    let cookie = set_cookie(&visit.app, &visit.head.headers, root, Some(&secret));
    response.headers_mut().insert(header::SET_COOKIE, header_value(&cookie));
    Ok(response)
}

pub(super) async fn leave(visit: Visit) -> Answered {
    if let Some(session) = &visit.session {
        visit.app.web.sessions.end(session);
        visit.app.record(&visit.caller, "session.close", None, "ok").await?;
    }
    let mut response = see_other(&visit.shell.at("/login"));
    let cookie = set_cookie(&visit.app, &visit.head.headers, &visit.shell.root, None);
    response.headers_mut().insert(header::SET_COOKIE, header_value(&cookie));
    Ok(response)
}

/// Chooses a namespace on a server without API keys. An API key always works in its own.
pub(super) async fn choose(visit: Visit) -> Answered {
    let name = visit.form.get("namespace").unwrap_or(DEFAULT_NAMESPACE);
    let mut response = see_other(&visit.shell.home());
    if !visit.app.door.asks_for_keys() {
        visit.client.in_namespace(name)?;
        let cookie = choose_namespace(&visit.shell.root, name);
        response.headers_mut().insert(header::SET_COOKIE, header_value(&cookie));
    }
    Ok(response)
}

/// The sign-in page that leads back to this page.
pub(super) fn address(root: &str, page: &str) -> String {
    let next = Fields::default().with(&[("next", Some(page).filter(|page| is_ours(page, root)))]);
    format!("{root}/login{}", next.query())
}

/// Whether an address is one of this server's pages. Anything else would be an open redirect.
fn is_ours(address: &str, root: &str) -> bool {
    let is_path = address.starts_with('/') && !address.starts_with("//");
    is_path && address.starts_with(root) && address.chars().all(|c| c.is_ascii_graphic() && c != '\\')
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::try_from(text).expect("a cookie of hexadecimal digits under a path that was asked for")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_in_leads_to_pages_of_this_server_alone() {
        for ours in ["/", "/instances?status=failed", "/x/y"] {
            assert!(is_ours(ours, ""), "{ours}");
        }
        for theirs in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb", "evil"] {
            assert!(!is_ours(theirs, ""), "{theirs}");
        }
        assert!(is_ours("/shop/instances", "/shop") && !is_ours("/other", "/shop"));
    }
}
