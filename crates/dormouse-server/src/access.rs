//! Access: holders of API keys, or anyone on this host if there are no keys.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, Method, header};
use dormouse::store::{ApiKey, NewApiKey, Scope, ServerStore};
use dormouse::{DEFAULT_NAMESPACE, When};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

use crate::problem::{Cause, Problem};

/// The header that names the namespace of a request without an API key.
pub(crate) const NAMESPACE_HEADER: &str = "dormouse-namespace";
/// The prefix of every API key, so that people and secret scanners recognize one.
const KEY_PREFIX: &str = "dmk_";
/// How long a key is cached. A revoked key is refused after that time. A server that is open until the first key checks
/// for one as often.
pub(crate) const BELIEVED_FOR: Duration = Duration::from_secs(2);
const BELIEVED_MAX: usize = 4096;

/// Who may use a [`Server`](crate::Server)'s routes.
#[derive(Clone, Debug)]
pub struct Access(Way);

#[derive(Clone, Debug)]
enum Way {
    Loopback { hosts: Vec<String>, until_first_key: bool },
    Keys,
    Trusted { who: String },
}

impl Access {
    /// Admits holders of an API key, in the key's namespace and within its scope.
    pub fn keys() -> Self {
        Self(Way::Keys)
    }

    /// Admits anyone, for everything except creating API keys. Use it only for a server that listens on the loopback
    /// interface. Requests must name `localhost` or a loopback address as their host, which protects against DNS
    /// rebinding by other sites, and must not come through a proxy.
    ///
    /// The server stays open when API keys are created; see [`Access::open_until_first_key`] for one that does not.
    pub fn open_on_loopback() -> Self {
        Self(Way::Loopback { hosts: Vec::new(), until_first_key: false })
    }

    /// Like [`Access::open_on_loopback`] until any process creates the first API key, then like [`Access::keys`]. The
    /// server notices the key within two seconds, and does not open again while it runs.
    pub fn open_until_first_key() -> Self {
        Self(Way::Loopback { hosts: Vec::new(), until_first_key: true })
    }

    /// Also accepts requests that name this host. Has no effect if API keys are required.
    #[must_use]
    pub fn allow_host(mut self, host: impl AsRef<str>) -> Self {
        if let Way::Loopback { hosts, .. } = &mut self.0 {
            hosts.push(host.as_ref().to_ascii_lowercase());
        }
        self
    }

    /// Admits every caller of the router in this process, under this name.
    pub(crate) fn trusted(who: impl Into<String>) -> Self {
        Self(Way::Trusted { who: who.into() })
    }
}

/// Who sent a request, and what they may do.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) who: String,
    pub(crate) namespace: String,
    pub(crate) scope: Scope,
    pub(crate) pass: Pass,
}

/// Why a caller was admitted, to be checked again during long requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Needs no further check: a public route, a resume token, this process itself.
    Free,
    /// The server was open to anyone.
    Open,
    /// An API key, by its public part and the hash of its secret.
    Key { id: String, hash: [u8; 32] },
}

impl Caller {
    /// The caller of a public route.
    pub(crate) fn nobody() -> Self {
        Self::free("nobody".to_owned(), DEFAULT_NAMESPACE.to_owned())
    }

    /// The holder of a resume token of this namespace.
    pub(crate) fn token_holder(namespace: String) -> Self {
        Self::free("resume token".to_owned(), namespace)
    }

    fn free(who: String, namespace: String) -> Self {
        Self { who, namespace, scope: Scope::Read, pass: Pass::Free }
    }
}

impl From<ApiKey> for Caller {
    fn from(key: ApiKey) -> Self {
        let who = format!("{} ({KEY_PREFIX}{})", key.label, key.id);
        let pass = Pass::Key { id: key.id, hash: key.hash };
        Self { who, namespace: key.namespace, scope: key.scope, pass }
    }
}

/// Identifies callers and checks their access.
pub(crate) struct Door {
    access: Access,
    believed: Mutex<HashMap<String, (Instant, ApiKey)>>,
    /// Whether the first API key has closed a server that was open.
    is_closed: AtomicBool,
    /// When the store was last checked for one.
    looked: Mutex<Option<Instant>>,
}

impl Door {
    pub(crate) fn new(access: Access) -> Self {
        Self {
            access,
            believed: Mutex::default(),
            is_closed: AtomicBool::new(false),
            looked: Mutex::default(),
        }
    }

    /// Requires API keys from now on if the server is open until the first key, and there is one.
    pub(crate) async fn look_for_keys(&self, store: &dyn ServerStore) -> Result<(), Problem> {
        let Way::Loopback { until_first_key: true, .. } = &self.access.0 else { return Ok(()) };
        let is_known = || self.looked().is_some_and(|looked| looked.elapsed() < BELIEVED_FOR);
        if self.is_closed.load(Ordering::Acquire) || is_known() {
            return Ok(());
        }
        // Take the time before the query: a key created during the query may not be in its result.
        let asked = Instant::now();
        let is_keyed = !store.api_keys(None).await?.is_empty();
        if is_keyed && !self.is_closed.swap(true, Ordering::AcqRel) {
            tracing::info!("the first API key exists: every request needs a key from now on");
        }
        *self.looked() = Some(asked);
        Ok(())
    }

    /// Whether a caller who was admitted would still be admitted now.
    pub(crate) async fn is_good(&self, pass: &Pass, store: &dyn ServerStore) -> Result<bool, Problem> {
        match pass {
            Pass::Free => Ok(true),
            Pass::Open => {
                self.look_for_keys(store).await?;
                Ok(!self.asks_for_keys())
            }
            Pass::Key { id, hash } => Ok(self.key_of(id, hash, store).await?.is_some()),
        }
    }

    /// Resolves when a caller's API key is revoked or expires, or when a server that was open requires API keys.
    pub(crate) async fn shut(&self, pass: &Pass, store: &dyn ServerStore) {
        if *pass == Pass::Free {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(BELIEVED_FOR).await;
            match self.is_good(pass, store).await {
                Ok(true) => {}
                Ok(false) => return,
                // A store that does not answer has not revoked the key.
                Err(problem) => {
                    tracing::debug!(?problem, "could not check whether an API key is still valid");
                }
            }
        }
    }

    /// On a server without API keys, refuses requests from pages of other sites and requests through a proxy. Probes
    /// need no further check.
    pub(crate) fn check_host(&self, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        let Way::Loopback { hosts, .. } = &self.access.0 else { return Ok(()) };
        if self.asks_for_keys() {
            return Ok(());
        }
        if let Some(header) = headers.keys().find(|name| is_of_a_proxy(name.as_str())) {
            let told = format!(
                "the request came through a proxy (it has the header `{header}`), but this server does not \
                 require API keys: create one with `keys create`"
            );
            return Err(Problem::new(Cause::Proxied, told));
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !is_local(host, hosts) {
            let told = format!("this server answers to localhost and loopback addresses, not to {host:?}");
            return Err(Problem::new(Cause::UntrustedHost, told));
        }
        let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
        // Another port of this host is another site, and may serve anything.
        let is_ours =
            |origin: &str| origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(host));
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let is_foreign = text("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
        if !method.is_safe() && (is_foreign || origin.is_some_and(|origin| !is_ours(origin))) {
            let told = "a page of another site may not change anything here";
            return Err(Problem::new(Cause::UntrustedOrigin, told));
        }
        // Another site may link here, but may not load anything from here.
        if is_foreign && text("sec-fetch-mode") != Some("navigate") {
            let told = "a page of another site may link here, but may not load anything from here";
            return Err(Problem::new(Cause::UntrustedOrigin, told));
        }
        Ok(())
    }

    pub(crate) async fn caller(
        &self,
        headers: &HeaderMap,
        store: &dyn ServerStore,
    ) -> Result<Caller, Problem> {
        let (who, pass) = match &self.access.0 {
            _ if self.asks_for_keys() => return self.key_holder(headers, store).await,
            Way::Keys | Way::Loopback { .. } => ("anyone on this host", Pass::Open),
            Way::Trusted { who } => (who.as_str(), Pass::Free),
        };
        let namespace = match headers.get(NAMESPACE_HEADER) {
            None => DEFAULT_NAMESPACE,
            Some(name) => name.to_str().map_err(|_| {
                Problem::invalid(format!(
                    "the header {NAMESPACE_HEADER} may contain only visible ASCII characters"
                ))
            })?,
        };
        Ok(Caller { who: who.to_owned(), namespace: namespace.to_owned(), scope: Scope::Admin, pass })
    }

    async fn key_holder(&self, headers: &HeaderMap, store: &dyn ServerStore) -> Result<Caller, Problem> {
        let refuse = |told: &str| Problem::new(Cause::Unauthenticated, told);
        let Some(sent) = headers.get(header::AUTHORIZATION) else {
            return Err(refuse("send an API key: `Authorization: Bearer dmk_...`"));
        };
        let sent = sent.to_str().ok().and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        let unknown = || refuse("the API key is unknown, has expired, or was revoked");
        let sent = sent.ok_or_else(unknown)?;
        self.key(sent, store).await?.map(Caller::from).ok_or_else(unknown)
    }

    /// Whether callers need an API key, or a session that was opened with one.
    pub(crate) fn asks_for_keys(&self) -> bool {
        matches!(self.access.0, Way::Keys) || self.is_closed.load(Ordering::Acquire)
    }

    /// Looks up an API key; `None` if it is not valid now.
    pub(crate) async fn key(&self, sent: &str, store: &dyn ServerStore) -> Result<Option<ApiKey>, Problem> {
        let Some((id, hash)) = split(sent) else { return Ok(None) };
        self.key_of(id, &hash, store).await
    }

    /// The API key with this public part, if its secret has this hash and it is valid now.
    pub(crate) async fn key_of(
        &self,
        id: &str,
        hash: &[u8; 32],
        store: &dyn ServerStore,
    ) -> Result<Option<ApiKey>, Problem> {
        let found = self.look_up(id, store).await?;
        Ok(found.filter(|key| is_same(&key.hash, hash) && key.is_live))
    }

    async fn look_up(&self, id: &str, store: &dyn ServerStore) -> Result<Option<ApiKey>, Problem> {
        let believed = |since: &Instant| since.elapsed() < BELIEVED_FOR;
        if let Some((since, key)) = self.lock().get(id)
            && believed(since)
        {
            return Ok(Some(key.clone()));
        }
        let found = store.api_key(id.to_owned()).await?;
        let mut known = self.lock();
        if known.len() >= BELIEVED_MAX {
            known.retain(|_, (since, _)| believed(since));
        }
        match &found {
            Some(key) if known.len() < BELIEVED_MAX => {
                known.insert(id.to_owned(), (Instant::now(), key.clone()));
            }
            _ => {}
        }
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Instant, ApiKey)>> {
        self.believed.lock().expect("no code panics while it holds this lock")
    }

    fn looked(&self) -> MutexGuard<'_, Option<Instant>> {
        self.looked.lock().expect("no code panics while it holds this lock")
    }
}

/// Whether proxies add a header of this name to requests.
fn is_of_a_proxy(name: &str) -> bool {
    matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
}

/// Whether a `Host` (or the rest of an `Origin`) names this machine, or a name that was allowed.
fn is_local(host: &str, allowed: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) || allowed.contains(&name)
}

/// A new API key: the stored part, and the secret that is shown once.
pub(crate) fn make_key(
    label: String,
    namespace: String,
    scope: Scope,
    expires: Option<When>,
) -> Result<(NewApiKey, String), Problem> {
    let (id, secret) = (hex(&random()?[..8]), hex(&random()?));
    let shown = format!("{KEY_PREFIX}{id}_{secret}");
    Ok((NewApiKey { id, hash: hash(&secret), label, namespace, scope, expires }, shown))
}

/// Bytes that nobody can guess.
pub(crate) fn random() -> Result<[u8; 32], Problem> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map(|()| bytes).map_err(|error| {
        tracing::error!(%error, "the system returned no random bytes");
        Problem::new(Cause::Internal, "the system returned no random bytes, so no secret was created")
    })
}

/// An API key's public part, and the hash of its secret.
fn split(key: &str) -> Option<(&str, [u8; 32])> {
    let (id, secret) = key.strip_prefix(KEY_PREFIX)?.split_once('_')?;
    Some((id, hash(secret)))
}

/// A plain hash is enough: 256 random bits cannot be guessed, however fast the hash is.
pub(crate) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Compares in constant time.
pub(crate) fn is_same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.ct_eq(b).into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_local_by_name_or_address_and_by_nothing_that_looks_like_it() {
        for host in [
            "localhost",
            "LOCALHOST:7878",
            "127.0.0.1:1",
            "127.1.2.3",
            "[::1]:7878",
            "localhost.:80",
            "me.lan:1",
        ] {
            assert!(is_local(host, &["me.lan".to_owned()]), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]",
            "0.0.0.0",
        ] {
            assert!(!is_local(host, &[]), "{host}");
        }
    }

    #[test]
    fn a_key_is_split_into_what_is_looked_up_and_what_is_compared() {
        let made = make_key("test".into(), "default".into(), Scope::Read, None);
        let (stored, shown) = made.expect("random bytes");
        let (id, hash) = split(&shown).expect("a key");
        assert_eq!((id, hash), (stored.id.as_str(), stored.hash));
        assert!(shown.len() > 80 && shown.starts_with("dmk_"));
        assert!(is_same(&hash, &stored.hash) && !is_same(&hash, &[0; 32]));
        for key in ["", "dmk_", "dmk_abc", "sk_abc_def"] {
            assert!(split(key).is_none(), "{key}");
        }
    }
}
