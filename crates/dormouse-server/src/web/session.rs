//! Visitors: sessions opened with an API key, and the proof that a form is one of ours.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use dormouse::store::ApiKey;

use super::fields::Fields;
use crate::access::{self, Caller, hash, hex, is_same};
use crate::problem::{Cause, Problem};
use crate::route::Needs;
use crate::server::App;

const COOKIE: &str = "dormouse_session";
const NAMESPACE_COOKIE: &str = "dormouse_namespace";
/// How long a session lasts, used or not.
pub(super) const LASTS: Duration = Duration::from_secs(12 * 3600);
/// The most sessions of one API key; a new one ends the oldest.
const OF_A_KEY_MAX: usize = 32;
/// The most sessions in all; a new one ends the oldest.
const MAX: usize = 4096;

/// A session's secret, hashed: the stored value cannot be used as a cookie.
pub(super) type SessionId = [u8; 32];

/// The sessions of this process. A session ends with the process, and with the API key that opened it.
pub(super) struct Sessions {
    /// The key that form tokens are made with.
    secret: [u8; 32],
    open: Mutex<HashMap<SessionId, Session>>,
}

#[derive(Clone)]
struct Session {
    key: String,
    key_hash: [u8; 32],
    since: Instant,
}

impl Sessions {
    pub(super) fn new() -> Self {
        let secret = access::random().expect("a system with random bytes");
        Self { secret, open: Mutex::default() }
    }

    /// Opens a session and returns its secret.
    pub(super) fn open(&self, key: &ApiKey) -> Result<String, Problem> {
        let secret = hex(&access::random()?);
        let session = Session { key: key.id.clone(), key_hash: key.hash, since: Instant::now() };
        let mut open = self.lock();
        open.retain(|_, session| session.since.elapsed() < LASTS);
        if open.values().filter(|session| session.key == key.id).count() >= OF_A_KEY_MAX {
            end_oldest(&mut open, |session| session.key == key.id);
        } else if open.len() >= MAX {
            end_oldest(&mut open, |_| true);
        }
        open.insert(hash(&secret), session);
        Ok(secret)
    }

    pub(super) fn end(&self, id: &SessionId) {
        self.lock().remove(id);
    }

    /// The token in every form of this session; without a session, the token in every public form.
    pub(super) fn csrf(&self, id: Option<&SessionId>) -> String {
        let of = id.map_or_else(|| "anyone".to_owned(), |id| hex(id));
        hex(&hash(&format!("{}:{of}", hex(&self.secret))))
    }

    fn find(&self, id: &SessionId) -> Option<Session> {
        self.lock().get(id).filter(|session| session.since.elapsed() < LASTS).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Session>> {
        self.open.lock().expect("no code panics while it holds this lock")
    }
}

fn end_oldest(open: &mut HashMap<SessionId, Session>, is_meant: impl Fn(&Session) -> bool) {
    let meant = open.iter().filter(|(_, session)| is_meant(session));
    if let Some(oldest) = meant.min_by_key(|(_, session)| session.since).map(|(id, _)| *id) {
        open.remove(&oldest);
    }
}

/// Who sent a request: the session of its cookie if the server requires API keys, otherwise anyone.
pub(super) async fn visitor(
    app: &App,
    headers: &HeaderMap,
    needs: Needs,
) -> Result<(Caller, Option<SessionId>), Problem> {
    let store = &*app.store;
    if !app.door.asks_for_keys() {
        let caller = app.door.caller(headers, store).await?;
        return Ok((Caller { namespace: chosen(app, headers).unwrap_or(caller.namespace), ..caller }, None));
    }
    match session_of(headers) {
        Some(id) => match caller_of(app, &id).await? {
            Some(caller) => Ok((caller, Some(id))),
            None if needs == Needs::Nothing => Ok((Caller::nobody(), None)),
            None => {
                let told = "your session has ended, or its API key was revoked: sign in again";
                Err(Problem::new(Cause::Unauthenticated, told))
            }
        },
        None if needs == Needs::Nothing => Ok((Caller::nobody(), None)),
        None => Err(Problem::new(Cause::Unauthenticated, "sign in with an API key to see this page")),
    }
}

/// The owner of a session, as long as it and its API key are valid.
pub(super) async fn caller_of(app: &App, id: &SessionId) -> Result<Option<Caller>, Problem> {
    let Some(Session { key, key_hash, .. }) = app.web.sessions.find(id) else { return Ok(None) };
    let key = app.door.key_of(&key, &key_hash, &*app.store).await?;
    Ok(key.map(Caller::from))
}

/// The chosen namespace, if visitors may choose one.
fn chosen(app: &App, headers: &HeaderMap) -> Option<String> {
    let text = cookie(headers, NAMESPACE_COOKIE)?;
    let name = Fields::parse(format!("name={text}").as_bytes()).text("name")?;
    app.client.in_namespace(&name).is_ok().then_some(name)
}

/// The header that stores the chosen namespace in the browser.
pub(super) fn choose_namespace(root: &str, name: &str) -> String {
    let path = if root.is_empty() { "/" } else { root };
    let name: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("{NAMESPACE_COOKIE}={name}; Path={path}; HttpOnly; SameSite=Strict")
}

fn session_of(headers: &HeaderMap) -> Option<SessionId> {
    cookie(headers, COOKIE).map(hash)
}

/// The value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let sent = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs =
        sent.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(cookie, _)| *cookie == name).map(|(_, value)| value)
}

/// The header that sets or removes a browser's session.
pub(super) fn set_cookie(app: &App, headers: &HeaderMap, root: &str, secret: Option<&str>) -> String {
    let forwarded = headers.get("x-forwarded-proto").and_then(|proto| proto.to_str().ok());
    // With several proxies, the browser spoke to the first.
    let first = forwarded.and_then(|protos| protos.split(',').next()).unwrap_or_default().trim();
    let is_https = app.web.is_behind_https || first.eq_ignore_ascii_case("https");
    let secure = if is_https { "; Secure" } else { "" };
    let path = if root.is_empty() { "/" } else { root };
    let (value, age) = secret.map_or(("", 0), |secret| (secret, LASTS.as_secs()));
    format!("{COOKIE}={value}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")
}

/// Whether a form came from another site. Browsers say so in headers that no page can set; the token protects browsers
/// that do not.
pub(super) fn is_forged(headers: &HeaderMap, sent: Option<&str>, csrf: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_foreign = match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => site != "same-origin" && site != "none",
        (None, Some(origin)) => {
            let host = text("host").unwrap_or_default();
            !origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(host))
        }
        (None, None) => false,
    };
    is_foreign || !is_same(&hash(sent.unwrap_or_default()), &hash(csrf))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("text")))
            .collect()
    }

    #[test]
    fn a_form_is_ours_by_its_token_and_by_where_it_came_from() {
        let host = ("host", "box:1");
        for (from, is_ours) in [
            (headers(&[host]), true),
            (headers(&[host, ("origin", "http://box:1")]), true),
            (headers(&[host, ("sec-fetch-site", "same-origin"), ("origin", "https://proxy")]), true),
            (headers(&[host, ("origin", "http://box:2")]), false),
            (headers(&[host, ("origin", "null")]), false),
            (headers(&[host, ("sec-fetch-site", "cross-site")]), false),
            (headers(&[host, ("sec-fetch-site", "same-site")]), false),
        ] {
            assert_eq!(!is_forged(&from, Some("token"), "token"), is_ours, "{from:?}");
            assert!(is_forged(&from, Some("other"), "token") && is_forged(&from, None, "token"));
        }
    }

    #[test]
    fn a_key_has_so_many_sessions_and_the_oldest_goes_first() {
        let sessions = Sessions::new();
        let key = |id: &str| ApiKey {
            id: id.to_owned(),
            hash: [0; 32],
            label: String::new(),
            namespace: String::new(),
            scope: dormouse::store::Scope::Read,
            created_at: dormouse::jiff::Timestamp::UNIX_EPOCH,
            expires_at: None,
            revoked_at: None,
            is_live: true,
        };
        let other = sessions.open(&key("other")).expect("a session");
        let first = sessions.open(&key("one")).expect("a session");
        for _ in 0..OF_A_KEY_MAX {
            sessions.open(&key("one")).expect("a session");
        }
        assert!(sessions.find(&hash(&first)).is_none() && sessions.find(&hash(&other)).is_some());
        assert_eq!(sessions.lock().len(), OF_A_KEY_MAX + 1);
        sessions.end(&hash(&other));
        assert!(sessions.find(&hash(&other)).is_none());
    }
}
