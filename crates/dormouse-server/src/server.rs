//! The server as a library: a router to mount anywhere.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{OriginalUri, RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Method, Response, header};
use axum::routing::{MethodFilter, on};
use dormouse::store::ServerStore;
use dormouse::{Client, Tokens, Trace};
use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tower_http::compression::CompressionLayer;
use tracing::Instrument as _;

use crate::access::{Access, Caller, Door, Pass};
use crate::body::Bounds;
use crate::feed::Feed;
use crate::metrics::Exporter;
use crate::places::{AtOnce, Places};
use crate::problem::{Cause, Problem};
use crate::refusals::Refusals;
use crate::repeat::Repeat;
use crate::route::{Needs, Parts, Route, TOKEN, Unchanged, Undecoded};
use crate::tls::Tls;
use crate::turns::Turns;
use crate::web::{self, Web};
use crate::{api, body, traced};

/// The HTTP API and the dashboard over a database, as an [`axum::Router`].
///
/// ```
/// # async fn doc() -> dormouse::Result<()> {
/// use dormouse_server::{Access, Server};
///
/// let client = dormouse::Client::open("sqlite:shop.db").await?;
/// let dormouse = Server::new(client, Access::keys())?.router();
/// let app: axum::Router = axum::Router::new().nest("/dormouse", dormouse);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is served before its router is"]
pub struct Server {
    client: Client,
    store: Arc<dyn ServerStore>,
    access: Access,
    bounds: Bounds,
    answer_within: Duration,
    audit_for: Duration,
    stopping: CancellationToken,
    exporter: Option<Exporter>,
    has_dashboard: bool,
    is_behind_https: bool,
    tls: Option<Tls>,
    tokens: Option<Tokens>,
    waits: AtOnce,
    streams: AtOnce,
}

impl Server {
    /// A server for the client's database and for the callers that `access` admits. Fails if the client's store does
    /// not implement [`ServerStore`].
    pub fn new(client: Client, access: Access) -> dormouse::Result<Self> {
        Ok(Self {
            store: client.server_store()?,
            client,
            access,
            bounds: Bounds { bytes_max: 4 * 1024 * 1024, within: Duration::from_secs(30) },
            answer_within: Duration::from_secs(60),
            audit_for: Duration::from_secs(90 * 24 * 3600),
            stopping: CancellationToken::new(),
            exporter: None,
            has_dashboard: true,
            is_behind_https: false,
            tls: None,
            tokens: None,
            waits: AtOnce::of(1024),
            streams: AtOnce::of(8192),
        })
    }

    /// The largest body to accept; 4 MiB by default.
    pub fn body_bytes_max(self, bytes_max: usize) -> Self {
        Self { bounds: Bounds { bytes_max, ..self.bounds }, ..self }
    }

    /// How long a body may take to arrive: 30 s by default, plus a second for each 16 KiB that have arrived.
    pub fn body_within(self, within: Duration) -> Self {
        Self { bounds: Bounds { within, ..self.bounds }, ..self }
    }

    /// How long [`listen`](crate::listen) waits for a caller that does not read its response before it closes the
    /// connection: 60 s by default, plus a second for each 16 KiB that were read.
    pub fn answer_within(self, within: Duration) -> Self {
        Self { answer_within: within, ..self }
    }

    pub(crate) fn answers_within(&self) -> Duration {
        self.answer_within
    }

    /// How long entries of the audit log are kept; 90 days by default.
    pub fn audit_for(self, audit_for: Duration) -> Self {
        Self { audit_for, ..self }
    }

    /// How many requests may wait for an instance at once: 1,024 by default, of which one namespace gets at most half,
    /// and one key at most a quarter. Others are refused with 429, or with 503 if the whole server has reached its
    /// limit.
    pub fn waits_at_once(self, waits: AtOnce) -> Self {
        Self { waits, ..self }
    }

    /// How many event streams may be open at once: 8,192 by default, shared in the same way. An open page of the
    /// dashboard counts as one.
    pub fn streams_at_once(self, streams: AtOnce) -> Self {
        Self { streams, ..self }
    }

    /// When this token is cancelled, streams and long polls end, so that a graceful shutdown does not wait for them,
    /// and `/readyz` reports that the server is not ready.
    pub fn stopping(self, stopping: CancellationToken) -> Self {
        Self { stopping, ..self }
    }

    /// Adds the metrics of this process to `/metrics`.
    pub fn exporter(self, exporter: Exporter) -> Self {
        Self { exporter: Some(exporter), ..self }
    }

    /// Serves the API alone, without the dashboard.
    pub fn without_dashboard(self) -> Self {
        Self { has_dashboard: false, ..self }
    }

    /// Makes [`listen`](crate::listen) speak TLS. A program that serves the router itself has a listener of its own.
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), is_behind_https: true, ..self }
    }

    pub(crate) fn tls_files(&self) -> Option<Tls> {
        self.tls.clone()
    }

    /// Use this if browsers reach the server by HTTPS, through a proxy that does not set `X-Forwarded-Proto`. Browsers
    /// then never send the dashboard's cookies over plain HTTP.
    pub fn behind_https(self) -> Self {
        Self { is_behind_https: true, ..self }
    }

    /// Accepts answers at `/v1/resume/{token}` with tokens that were signed by these keys. Without it, the server
    /// accepts no resume tokens.
    pub fn resume_tokens(self, tokens: Tokens) -> Self {
        Self { tokens: Some(tokens), ..self }
    }

    /// The routes, to serve as they are or to nest under a prefix.
    pub fn router(self) -> Router {
        let app = Arc::new(App {
            feed: Arc::new(Feed::new(self.store.clone())),
            client: self.client,
            store: self.store,
            door: Door::new(self.access),
            bounds: self.bounds,
            refusals: Refusals::of_known(),
            strangers: Refusals::of_strangers(),
            audit_for: self.audit_for,
            stopping: self.stopping,
            exporter: self.exporter,
            tokens: self.tokens,
            waits: Places::new("long polls", self.waits),
            streams: Places::new("event streams", self.streams),
            turns: Turns::new(),
            changes: AtomicU64::new(0),
            routes: api::table().into_iter().map(Arc::new).collect(),
            web: Web::new(self.is_behind_https),
        });
        let mut router = Router::new();
        for route in &app.routes {
            let method = MethodFilter::try_from(route.method.clone()).expect("a plain method");
            let (path, route, app) = (route.path, route.clone(), app.clone());
            let handler = move |params: PathParams, OriginalUri(full): OriginalUri, request: Request| {
                let (route, app) = (route.clone(), app.clone());
                async move {
                    let Ok(params) = params else {
                        return Problem::invalid("the path is not valid UTF-8").into_response();
                    };
                    let path =
                        params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                    let last_event_id = text_of(request.headers(), "last-event-id");
                    let full_path = full.path().to_owned();
                    let trace = text_of(request.headers(), "traceparent");
                    let trace = trace.as_deref().and_then(Trace::from_header);
                    let parts = Parts { path, full_path, last_event_id, trace, token: None };
                    app.respond(route, parts, request).await
                }
            };
            router = router.route(path, on(method, handler));
        }
        let router = if self.has_dashboard { web::mount(router, &app) } else { router };
        let has_dashboard = self.has_dashboard;
        router
            .fallback(move |request: Request| async move {
                if has_dashboard && web::wants_a_page(&request) {
                    return web::no_such_page(&request);
                }
                Problem::new(Cause::NoRoute, "see /openapi.json for the routes").into_response()
            })
            .method_not_allowed_fallback(|| async {
                let told = "see /openapi.json for the methods of this route";
                Problem::new(Cause::MethodNotAllowed, told).into_response()
            })
            .layer(CompressionLayer::new())
    }
}

type PathParams = Result<RawPathParams, RawPathParamsRejection>;

/// The state that handlers share.
pub(crate) struct App {
    pub(crate) client: Client,
    /// The client's store, with the methods that only a server needs.
    pub(crate) store: Arc<dyn ServerStore>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) stopping: CancellationToken,
    pub(crate) exporter: Option<Exporter>,
    pub(crate) waits: Arc<Places>,
    pub(crate) streams: Arc<Places>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) door: Door,
    pub(crate) bounds: Bounds,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) web: Web,
    pub(crate) refusals: Refusals,
    pub(crate) strangers: Refusals,
    pub(crate) audit_for: Duration,
    pub(crate) changes: AtomicU64,
    routes: Vec<Arc<Route>>,
}

impl App {
    async fn respond(self: Arc<Self>, route: Arc<Route>, parts: Parts, request: Request) -> Response<Body> {
        let started = std::time::Instant::now();
        let span = traced::request(&route.method, route.path, request.headers());
        let handled = self.handle(route.clone(), parts, request).instrument(span.clone());
        // A change runs to its end and is recorded in the audit log, even if the caller hangs up.
        let ended = match route.audit {
            None => handled.await,
            Some(_) => tokio::spawn(handled).await.unwrap_or_else(|error| Err(Problem::panicked(&error))),
        };
        let mut response = ended.unwrap_or_else(Problem::into_response);
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // If a browser ever shows a response as a page, that page can do nothing.
        let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(policy);
        let status = response.status().as_u16();
        traced::answered(&span, status);
        tracing::debug!(method = %route.method, route = route.path, status, "answered");
        metrics::histogram!("dormouse_http_seconds", "method" => route.method.to_string(), "route" => route.path,
            "status" => status.to_string())
        .record(started.elapsed().as_secs_f64());
        response
    }

    async fn handle(
        self: Arc<Self>,
        route: Arc<Route>,
        mut parts: Parts,
        request: Request,
    ) -> Result<Response<Body>, Problem> {
        let route = &*route;
        let (head, body) = request.into_parts();
        let (caller, target) = match self.admit(route, &mut parts, &head).await {
            Ok(admitted) => admitted,
            Err((caller, problem)) => {
                match caller {
                    Some(caller) => self.refused(&caller, route.name(), target_of(&parts), &problem).await,
                    None => self.refused_stranger(&head.extensions, "request", &problem).await,
                }
                return Err(problem);
            }
        };
        let (body, repeat) = match self.read(route, &head, body, &caller).await {
            Ok(read) => read,
            Err(problem) => {
                self.refused(&caller, route.name(), target, &problem).await;
                return Err(problem);
            }
        };
        let client = self.client.in_namespace(&caller.namespace)?;
        let query = head.uri.query().unwrap_or_default().to_owned();
        let request = Undecoded { app: self.clone(), caller: caller.clone(), client, parts, query, body };
        let store = &*self.store;
        let done = self.run(route, request, &caller, target);
        match repeat {
            Some(repeat) => repeat.once(store, done).await,
            None if route.method == Method::GET => self.while_let_in(caller.pass.clone(), done).await,
            None => done.await,
        }
    }

    /// The caller, if they may do this, and the target. A refusal names the caller if they are known.
    async fn admit(
        &self,
        route: &Route,
        parts: &mut Parts,
        head: &axum::http::request::Parts,
    ) -> Result<(Caller, Option<String>), (Option<Caller>, Problem)> {
        let nobody = |problem| (None, problem);
        let store = &*self.store;
        // A probe does not depend on the store.
        if route.needs != Needs::Nothing {
            self.door.look_for_keys(store).await.map_err(nobody)?;
        }
        self.door.check_host(&head.method, &head.headers).map_err(nobody)?;
        let target = target_of(parts);
        match route.needs {
            Needs::Nothing => Ok((Caller::nobody(), target)),
            Needs::Token => self.token_holder(parts).map_err(nobody),
            Needs::Scope(_) => {
                let caller = self.door.caller(&head.headers, store).await.map_err(nobody)?;
                match route.needs.check(&caller) {
                    Ok(()) => Ok((caller, target)),
                    Err(problem) => Err((Some(caller), problem)),
                }
            }
        }
    }

    /// Reads the body, and checks whether the request was sent before.
    async fn read(
        &self,
        route: &Route,
        head: &axum::http::request::Parts,
        body: Body,
        caller: &Caller,
    ) -> Result<(Vec<u8>, Option<Repeat>), Problem> {
        let body = match route.method {
            Method::GET => Vec::new(),
            _ => body::read(&head.headers, body, self.bounds).await?,
        };
        let repeat = Repeat::of(route, head, caller, &body)?;
        Ok((body, repeat))
    }

    /// Ends a long poll or a stream when its caller loses access.
    async fn while_let_in(
        self: &Arc<Self>,
        pass: Pass,
        answer: impl Future<Output = Result<Response<Body>, Problem>>,
    ) -> Result<Response<Body>, Problem> {
        let response = tokio::select! {
            answered = answer => answered?,
            () = self.door.shut(&pass, &*self.store) => {
                let told = "while you waited, your API key was revoked or expired, or the server started to require API keys";
                return Err(Problem::new(Cause::Unauthenticated, told));
            }
        };
        if !goes_on(&response) || pass == Pass::Free {
            return Ok(response);
        }
        Ok(response.map(|body| self.body_while_let_in(pass, body)))
    }

    /// A body that ends when its caller loses access.
    pub(crate) fn body_while_let_in(self: &Arc<Self>, pass: Pass, body: Body) -> Body {
        let app = self.clone();
        let shut = async move { app.door.shut(&pass, &*app.store).await };
        Body::from_stream(body.into_data_stream().take_until(Box::pin(shut)))
    }

    /// The holder of a resume token, and the token's interaction. The token itself is not logged. It is verified once,
    /// here, and kept for the handler.
    fn token_holder(&self, parts: &mut Parts) -> Result<(Caller, Option<String>), Problem> {
        let Some(tokens) = &self.tokens else {
            return Err(Problem::new(Cause::NotFound, "this server does not accept resume tokens"));
        };
        let token = parts.token.insert(tokens.open(parts.named(TOKEN))?);
        Ok((Caller::token_holder(token.namespace.clone()), Some(token.interaction.to_string())))
    }

    /// Runs a route of the API for a caller who was admitted in another way, with the route's own scope, handler and
    /// entry in the audit log.
    pub(crate) async fn act(self: &Arc<Self>, caller: &Caller, act: Act) -> Result<Response<Body>, Problem> {
        let Act { method, path, parts, query, body } = act;
        let is_it = |route: &&Arc<Route>| route.method == method && route.path == path;
        let route = self.routes.iter().find(is_it).expect("a page names routes that there are");
        if let Err(problem) = route.needs.check(caller) {
            self.refused(caller, route.name(), target_of(&parts), &problem).await;
            return Err(problem);
        }
        let client = self.client.in_namespace(&caller.namespace)?;
        let target = target_of(&parts);
        let body = body.map(String::into_bytes).unwrap_or_default();
        let request = Undecoded { app: self.clone(), caller: caller.clone(), client, parts, query, body };
        self.run(route, request, caller, target).await
    }

    /// Runs the handler. A change is recorded in the audit log before the caller gets the response.
    async fn run(
        &self,
        route: &Route,
        request: Undecoded,
        caller: &Caller,
        target: Option<String>,
    ) -> Result<Response<Body>, Problem> {
        let ended = match route.is_heavy(&request) {
            true => self.turns.take(&caller.namespace, route.run(request)).await,
            false => route.run(request).await,
        };
        let Some(what) = route.audit else { return ended };
        // The holder of a resume token can send it as often as they like, so only changes get an entry.
        let is_by_token = route.needs == Needs::Token;
        match &ended {
            Ok(response) if is_by_token && response.extensions().get::<Unchanged>().is_some() => {}
            Ok(response) => self.record(caller, what, target.or_else(|| created(response)), "ok").await?,
            // A caller may be refused as often as it likes: one entry for each would be a write for each.
            Err(problem) if problem.cause.status().is_client_error() => {
                self.refused(caller, what, target, problem).await;
            }
            Err(problem) => self.record(caller, what, target, &problem.audited()).await?,
        }
        ended
    }
}

/// A request from the dashboard to a route of the API.
pub(crate) struct Act {
    pub(crate) method: Method,
    /// The path in the table, such as `/v1/instances/{instance}/cancel`.
    pub(crate) path: &'static str,
    pub(crate) parts: Parts,
    pub(crate) query: String,
    /// JSON.
    pub(crate) body: Option<String>,
}

/// The media type of endless responses.
const EVENTS: &str = "text/event-stream";

/// Whether a response has no end of its own.
pub(crate) fn goes_on(answer: &Response<Body>) -> bool {
    answer.headers().get(header::CONTENT_TYPE).is_some_and(|media| media == EVENTS)
}

/// The target of a request, from its path.
fn target_of(parts: &Parts) -> Option<String> {
    parts.path.first().map(|(_, value)| value.clone())
}

/// What a request created, from the end of its `Location`.
fn created(response: &Response<Body>) -> Option<String> {
    let location = response.headers().get(header::LOCATION)?.to_str().ok()?;
    location.rsplit('/').next().map(str::to_owned)
}

pub(crate) fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
