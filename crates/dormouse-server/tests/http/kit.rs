//! What the tests share: a server on a port of its own, and a small client.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use dormouse::graph::Graph;
use dormouse::prelude::*;
use dormouse::store::{Namespaces, Scope};
use dormouse::{Accepts, Client, Engine, InteractionId, Takes, Tokens};
use dormouse_server::{Access, AtOnce, Exporter, Server};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::postgres::Postgres;

/// How long anything that must happen may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// A fresh database of some kind, by its address.
pub struct Database {
    url: String,
    _dir: Option<TempDir>,
    _postgres: Option<Postgres>,
}

impl Database {
    pub fn sqlite() -> Self {
        let dir = TempDir::new().expect("a directory for the test");
        let url = format!("sqlite:{}", dir.path().join("test.db").display());
        Self { url, _dir: Some(dir), _postgres: None }
    }

    pub fn postgres() -> Self {
        let database = Postgres::create();
        Self { url: database.url().to_owned(), _dir: None, _postgres: Some(database) }
    }

    /// A server over it that is open to anyone, with an engine that runs the test's machines.
    pub async fn open(self) -> Site {
        self.serve(Access::open_on_loopback()).await
    }

    /// A server over it that is open to anyone until there is an API key.
    pub async fn open_until_first_key(self) -> Site {
        self.serve(Access::open_until_first_key()).await
    }

    /// A server over it that requires API keys, and waits this long for a body.
    pub async fn in_a_hurry(self, body_within: Duration) -> Site {
        self.serve_as(Access::keys(), |server| server.body_within(body_within)).await
    }

    /// A server over it that requires API keys.
    pub async fn with_keys(self) -> Site {
        self.serve(Access::keys()).await
    }

    /// A server over it that requires API keys and exports the metrics of this process, with an engine that serves only
    /// one namespace.
    pub async fn for_tenant(self, namespace: &str) -> Site {
        static EXPORTER: OnceLock<Option<Exporter>> = OnceLock::new();
        let exporter = EXPORTER.get_or_init(Exporter::install).clone().expect("the only recorder");
        let served = Namespaces::Only(vec![namespace.to_owned()]);
        self.serve_for(served, Access::keys(), |server| server.exporter(exporter)).await
    }

    /// A server over it that requires API keys, with limits on long polls and event streams.
    pub async fn with_places(self, at_once: AtOnce) -> Site {
        self.serve_as(Access::keys(), |server| server.waits_at_once(at_once).streams_at_once(at_once)).await
    }

    async fn serve(self, access: Access) -> Site {
        self.serve_as(access, |server| server).await
    }

    async fn serve_as(self, access: Access, set: impl FnOnce(Server) -> Server) -> Site {
        self.serve_for(Namespaces::All, access, set).await
    }

    async fn serve_for(
        self,
        namespaces: Namespaces,
        access: Access,
        set: impl FnOnce(Server) -> Server,
    ) -> Site {
        let builder = Engine::open(&self.url).await.expect("a new database opens");
        let builder =
            builder.namespaces(namespaces).machine(Shop).machine(Review).job(Double).queue("default", 8);
        let builder = builder.machine(Survey);
        let engine = builder.start().await.expect("the engine starts");
        let client = engine.client();
        let stopping = CancellationToken::new();
        let server =
            Server::new(client.clone(), access).expect("a store for servers").stopping(stopping.clone());
        let server = set(server.resume_tokens(tokens()));
        let address = listen(server).await;
        Site {
            client,
            address,
            stopping,
            prefix: String::new(),
            key: None,
            _engine: Some(engine),
            _database: Some(self),
        }
    }

    /// A server mounted under a prefix, beside another route.
    pub async fn nested(self, prefix: &str) -> Site {
        let engine =
            Engine::open(&self.url).await.expect("it opens").machine(Shop).start().await.expect("it starts");
        let client = engine.client();
        let router = axum::Router::new()
            .nest(
                prefix,
                Server::new(client.clone(), Access::open_on_loopback())
                    .expect("a store for servers")
                    .router(),
            )
            .route("/mine", axum::routing::get(|| async { "mine" }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        let stopping = CancellationToken::new();
        Site {
            client,
            address,
            stopping,
            prefix: prefix.to_owned(),
            key: None,
            _engine: Some(engine),
            _database: Some(self),
        }
    }
}

/// Serves, on a port of its own.
async fn listen(server: Server) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = server.router();
    tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    address
}

/// A server that runs.
pub struct Site {
    pub client: Client,
    pub address: SocketAddr,
    pub stopping: CancellationToken,
    prefix: String,
    key: Option<String>,
    _engine: Option<Engine>,
    _database: Option<Database>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The body of a response that must have this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    /// Checks that it is a problem of this cause, by RFC 9457.
    #[track_caller]
    pub fn expect_problem(self, status: u16, cause: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        let problem = self.json();
        assert_eq!(problem["type"], format!("urn:dormouse:problem:{cause}"), "{problem}");
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
        let told = problem["detail"].as_str().expect("text").to_lowercase();
        for inside in ["sqlite", "postgres", "sqlx", "select ", "/tmp", ".rs", "rusqlite"] {
            assert!(!told.contains(inside), "it exposes internals: {told}");
        }
        problem
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().expect("text")).unwrap_or_default()
    }
}

impl Site {
    /// The address of its database.
    pub fn database(&self) -> &str {
        &self._database.as_ref().expect("it has a database of its own").url
    }

    /// The same site, as the holder of a key sees it.
    pub async fn key(&self, namespace: &str, scope: Scope) -> String {
        self.key_for(namespace, scope, None).await
    }

    /// The same, for a key that expires.
    pub async fn key_for(&self, namespace: &str, scope: Scope, lasts: Option<Duration>) -> String {
        let client = self.client.in_namespace(namespace).expect("a good name");
        let (new, secret) = new_key(namespace, scope);
        let expires = lasts.map(dormouse::When::In);
        client
            .server_store()
            .expect("a store for servers")
            .add_api_key(dormouse::store::NewApiKey { expires, ..new })
            .await
            .expect("a key");
        secret
    }

    pub async fn revoke(&self, key: &str) {
        let id = key.trim_start_matches("dmk_").split('_').next().expect("an id").to_owned();
        self.client
            .server_store()
            .expect("a store for servers")
            .revoke_api_key(None, id)
            .await
            .expect("a write");
    }

    pub fn set_key(&mut self, key: &str) {
        self.key = Some(key.to_owned());
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path).body(Body::empty()).expect("a request")).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.post_text(path, body.to_string()).await
    }

    pub async fn post_text(&self, path: &str, body: impl Into<Body>) -> Answer {
        let request = self.request(Method::POST, path).header("content-type", "application/json");
        self.send(request.body(body.into()).expect("a request")).await
    }

    /// A request to this site, to which headers may be added.
    pub fn request(&self, method: Method, path: &str) -> axum::http::request::Builder {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.prefix));
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    pub async fn send(&self, mut request: Request<Body>) -> Answer {
        let host = self.address.to_string().parse().expect("a header");
        request.headers_mut().entry("host").or_insert(host);
        let response = tokio::time::timeout(SOON, self.open(request)).await.expect("an answer in time");
        let (head, body) = response.into_parts();
        let body = axum::body::to_bytes(Body::new(body), usize::MAX).await.expect("a whole body");
        let text = String::from_utf8_lossy(&body).into_owned();
        Answer { status: head.status.as_u16(), headers: head.headers, text }
    }

    /// A response whose body has not been read.
    pub async fn open(&self, request: Request<Body>) -> axum::http::Response<hyper::body::Incoming> {
        self.opened(request).await
    }

    /// The same for a task of its own.
    pub fn opened(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = axum::http::Response<hyper::body::Incoming>> + Send + 'static {
        let address = self.address;
        async move {
            let stream = TcpStream::connect(address).await.expect("a connection");
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
            tokio::spawn(connection);
            sender.send_request(request).await.expect("an answer")
        }
    }

    /// Starts an order that waits for its payment.
    pub async fn order(&self, number: u64) -> i64 {
        let body = json!({ "machine": "shop", "step": "Start", "state": { "order": number }, "key": format!("order:{number}") });
        let id = self.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
        self.until(id, "awaiting_signal").await;
        id
    }

    /// Waits until an instance is in a status.
    pub async fn until(&self, id: i64, status: &str) -> Value {
        let deadline = tokio::time::Instant::now() + SOON;
        let mut changes = self.client.store().hub().changes();
        loop {
            changes.borrow_and_update();
            let instance = self.get(&format!("/v1/instances/{id}")).await.expect(200);
            if instance["status"] == status {
                return instance;
            }
            let waited = tokio::time::timeout_at(deadline, changes.changed()).await;
            assert!(waited.is_ok(), "expected {status}: {instance}");
        }
    }
}

fn new_key(namespace: &str, scope: Scope) -> (dormouse::store::NewApiKey, String) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = format!("{:016x}", NEXT.fetch_add(1, Ordering::Relaxed));
    let secret = format!("secret-of-{id}");
    let hash = <sha2::Sha256 as sha2::Digest>::digest(secret.as_bytes()).into();
    let new = dormouse::store::NewApiKey {
        id: id.clone(),
        hash,
        label: format!("{scope} of {namespace}"),
        namespace: namespace.to_owned(),
        scope,
        expires: None,
    };
    (new, format!("dmk_{id}_{secret}"))
}

/// Orders that wait for a payment.
pub struct Shop;

#[derive(Serialize, Deserialize)]
pub enum Order {
    Start { order: u64 },
    Ship { order: u64 },
    Split { order: u64 },
    Join { order: u64 },
}

pub const PAID: Signal<u64> = Signal::named("paid");
/// A payment that fails with an error of two hundred lines.
pub const UNLUCKY: u64 = 13;

impl Machine for Shop {
    const NAME: &'static str = "shop";
    type State = Order;
    type Output = String;

    async fn step(&self, state: Order, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Order::Start { order } => Outcome::await_signal(PAID, Order::Ship { order }),
            Order::Ship { order } => match cx.received(PAID)?.first() {
                Some(0) => return Err("a free lunch".into()),
                Some(&UNLUCKY) => {
                    return Err("a line of a stack trace that goes on and on\n".repeat(200).into());
                }
                Some(cents) => Outcome::done(format!("order {order} shipped for {cents}")),
                None => Outcome::stop("never paid"),
            },
            Order::Split { order } => {
                Outcome::spawn((1..=2).map(NewInstance::job::<Double>), Order::Join { order })
            }
            Order::Join { order } => Outcome::done(format!("{order}: {:?}", cx.outputs::<u64>()?)),
        })
    }

    fn accepts() -> Vec<Accepts> {
        vec![PAID.into()]
    }

    fn accepts_others() -> bool {
        true
    }

    fn indexes() -> Vec<String> {
        vec!["order".to_owned()]
    }

    fn graph() -> Option<Graph> {
        let graph =
            Graph::new().step("Start").awaits(PAID, "Ship").sent_by("the bank").step("Ship").done().fails();
        Some(graph.step("Split").spawns("Join").step("Join").done())
    }
}

/// A job.
pub struct Double;

impl Job for Double {
    const NAME: &'static str = "double";
    type Input = u64;
    type Output = u64;

    async fn run(&self, input: u64, cx: &Context) -> Result<u64, BoxError> {
        if input == SLOW {
            cx.progress(&json!({ "rows": 7 }))?;
            cx.cancelled().await;
        }
        Ok(input * 2)
    }
}

/// A job that runs until it is cancelled, and reports its progress.
pub const SLOW: u64 = 1_000_000;

/// The status of a code.
pub fn is_success(status: u16) -> bool {
    StatusCode::from_u16(status).is_ok_and(|status| status.is_success())
}

impl Site {
    pub fn clear_key(&mut self) {
        self.key = None;
    }
}

/// Asks somebody, and is done with the answer.
struct Review;

#[derive(Serialize, Deserialize)]
enum Reviewing {
    Ask { what: String },
    Answered {},
}

impl Machine for Review {
    const NAME: &'static str = "review";
    type State = Reviewing;
    type Output = bool;

    async fn step(&self, state: Reviewing, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Reviewing::Ask { what } => {
                let day = std::time::Duration::from_secs(24 * 3600);
                let unit = Unit::one(what).timeout(day).for_assignee("chef").for_group("critics");
                Outcome::dispatch(unit, Reviewing::Answered {})
            }
            Reviewing::Answered {} => Outcome::done(cx.unit::<bool>().await?.one()?),
        })
    }
}

/// Asks two guests, and is done with the first answer.
struct Survey;

#[derive(Serialize, Deserialize)]
enum Asking {
    Ask {},
    Told {},
}

#[derive(Deserialize)]
pub struct Stars {
    stars: u8,
}

impl Machine for Survey {
    const NAME: &'static str = "survey";
    type State = Asking;
    type Output = String;

    async fn step(&self, state: Asking, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Asking::Ask {} => Outcome::dispatch(Unit::each(["ann", "bob"]).quorum(1), Asking::Told {}),
            Asking::Told {} => Outcome::done(cx.unit::<String>().await?.outputs().remove(0)),
        })
    }

    fn takes() -> Vec<Takes> {
        let stars = json!({ "type": "integer", "maximum": 5 });
        let schema = json!({ "type": "object", "required": ["stars"], "properties": { "stars": stars } });
        let takes = Takes::at::<String>("Told").schema(schema);
        vec![takes.projector(|guest: String, Stars { stars }| match stars {
            0 => Err("nobody is that bad"),
            stars => Ok(format!("{guest} gives {stars}")),
        })]
    }
}

/// The keys that sign and verify the tokens of a site.
pub fn tokens() -> Tokens {
    Tokens::new("k1", b"a secret of more than thirty-two bytes").expect("a key")
}

impl Site {
    /// Starts a survey, and returns its id and the interaction of the first guest; the second guest's is the next.
    pub async fn survey(&self) -> (i64, i64) {
        let body = json!({ "machine": "survey", "step": "Ask", "state": {} });
        let id = self.post("/v1/instances", body).await.expect(201)["id"].as_i64().expect("an id");
        self.until(id, "awaiting_completion").await;
        let page = self.get(&format!("/v1/interactions?instance={id}")).await.expect(200);
        (id, page["items"][0]["id"].as_i64().expect("an id"))
    }

    /// Another server over the same database, open to anyone, in a process that has none of the machines.
    pub async fn without_code(&self) -> Self {
        self.beside(Client::on(self.client.store().clone())).await
    }

    /// Another server over the same database, open to anyone, that works through this client.
    pub async fn beside(&self, client: Client) -> Self {
        let server = Server::new(client.clone(), Access::open_on_loopback())
            .expect("a store for servers")
            .resume_tokens(tokens());
        let address = listen(server).await;
        let stopping = CancellationToken::new();
        Self { client, address, stopping, prefix: String::new(), key: None, _engine: None, _database: None }
    }

    /// A resume token of an interaction, as its request would carry it.
    pub async fn token_of(&self, interaction: i64) -> String {
        let asked = self.client.interaction(InteractionId(interaction)).await.expect("a read");
        let soon = dormouse::jiff::Timestamp::now() + SOON;
        tokens().issue(&asked.expect("it is there"), soon)
    }
}
