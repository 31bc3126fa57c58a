//! The setting of the table: a machine that declares everything it accepts, two servers, a partner and a broker.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::async_nats::jetstream::{self, stream};
use dormouse::prelude::*;
use dormouse::store::{InteractionFilter, Namespaces};
use dormouse::{
    Accepts, At, Engine, InstanceId, Interaction, Json, Nats, NewSignal, Sending, Status, Takes, Target,
    Targets, Webhook, async_nats,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::table::Place;
use crate::kit::{Database, SOON, Site};
use crate::log;

/// Waits for its payment, or asks for stars, and is done with that number.
struct Hall;

#[derive(Serialize, Deserialize)]
enum Standing {
    Wait { order: u64, note: Option<Value> },
    Paid {},
    Ask { order: u64, of: Option<String> },
    Told {},
}

#[derive(Serialize, Deserialize)]
struct Payment {
    cents: u64,
    note: Option<Value>,
}

#[derive(Serialize, Deserialize)]
struct Stars {
    stars: u64,
    note: Option<Value>,
}

const PAID: Signal<Payment> = Signal::named("paid");

impl Machine for Hall {
    const NAME: &'static str = "hall";
    type State = Standing;
    type Output = u64;

    async fn step(&self, state: Standing, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Standing::Wait { .. } => Outcome::await_signal(PAID, Standing::Paid {}),
            Standing::Paid {} => Outcome::done(cx.received(PAID)?[0].cents),
            Standing::Ask { order, of } => {
                let unit = Unit::one(order).correlation_id(|order| format!("asked-{order}"));
                let unit = of.into_iter().fold(unit, Unit::transport);
                Outcome::dispatch(unit, Standing::Told {})
            }
            Standing::Told {} => Outcome::done(cx.unit::<Stars>().await?.one()?.stars),
        })
    }

    fn accepts() -> Vec<Accepts> {
        let cents = json!({ "properties": { "cents": { "type": "integer", "minimum": 1 } } });
        vec![Accepts::from(PAID).schema(cents)]
    }

    fn takes() -> Vec<Takes> {
        let stars = json!({ "properties": { "stars": { "type": "integer", "maximum": 5 } } });
        vec![Takes::at::<Stars>("Told").schema(stars)]
    }
}

/// What a way in is tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Nothing: it starts something.
    New,
    /// An instance that waits for its payment.
    Waiting,
    /// One that was cancelled.
    Cancelled,
    /// One that was cancelled, from which another is started.
    Forked,
    /// A paused one with a payment in its inbox.
    Kept,
    /// One that asked a question, which anybody may answer.
    Asked,
    /// One that asked through a transport.
    AskedOf(&'static str),
}

/// The names and ids that a try may use.
#[derive(Default)]
pub struct Subject {
    pub key: String,
    pub id: i64,
    /// A second one in the same scene, for batches.
    pub other: i64,
    /// A signal in its inbox.
    pub kept: i64,
    pub interaction: i64,
    pub correlation: String,
    pub token: String,
}

pub struct World {
    pub site: Site,
    pub with_code: Site,
    pub declared: Site,
    pub partner: Partner,
    pub broker: Option<Broker>,
    pub engine: Engine,
    next: AtomicU32,
}

impl World {
    pub async fn open(database: Database) -> Self {
        log::listen();
        let site = database.open().await;
        let partner = Partner::start().await;
        let broker = Broker::start(if site.database().starts_with("sqlite") { "sqlite" } else { "pg" }).await;
        let soon = Duration::from_millis(10);
        let sending = Sending { backoff: soon, backoff_cap: soon * 2, ..Sending::default() };
        let engine = Engine::on(site.client.store().clone()).namespaces(Namespaces::All).machine(Hall);
        let engine = engine.poll(Duration::from_millis(50));
        let engine = engine.transport_with("partner", partner.webhook(), sending);
        let engine = engine.transport(broker.name(), broker.transport().await);
        let engine = engine.start().await.expect("it starts");
        let with_code = site.beside(engine.client()).await;
        let declared = site.without_code().await;
        Self { site, with_code, declared, partner, broker: Some(broker), engine, next: AtomicU32::new(1) }
    }

    pub fn at(&self, place: Place) -> &Site {
        match place {
            Place::WithCode => &self.with_code,
            Place::Declared => &self.declared,
        }
    }

    pub fn is_postgres(&self) -> bool {
        !self.site.database().starts_with("sqlite")
    }

    pub fn broker(&self) -> &Broker {
        self.broker.as_ref().expect("it is there until the end")
    }

    /// Sets a scene, and waits until nothing in it moves.
    pub async fn set(&self, scene: Scene) -> Subject {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let key = format!("door-{number:04}");
        let client = &self.with_code.client;
        let waiting = || json!({ "order": number });
        let mut subject = Subject { key: key.clone(), ..Subject::default() };
        match scene {
            Scene::New => {}
            Scene::Waiting => {
                subject.id = self.start("Wait", waiting(), &key).await;
                subject.other = self.start("Wait", waiting(), &format!("other-{number:04}")).await;
            }
            Scene::Cancelled | Scene::Forked => {
                subject.id = self.start("Wait", waiting(), &key).await;
                client.cancel(InstanceId(subject.id)).await.expect("a cancel");
            }
            Scene::Kept => {
                subject.id = self.start("Wait", waiting(), &key).await;
                client.pause(InstanceId(subject.id)).await.expect("a brake");
                let paid = NewSignal::new("paid", Json::from(json!({ "cents": 5 })));
                client.signal_raw(InstanceId(subject.id), paid).await.expect("a live target");
                subject.kept = client.inbox(InstanceId(subject.id)).await.expect("a read")[0].id.0;
            }
            Scene::Asked | Scene::AskedOf(_) => {
                let of = match scene {
                    Scene::AskedOf("bank") => Some(self.broker().name()),
                    Scene::AskedOf(transport) => Some(transport.to_owned()),
                    _ => None,
                };
                subject.id = self.start("Ask", json!({ "order": number, "of": of }), &key).await;
                subject.interaction = self.asked(subject.id).await.id.0;
                if scene == Scene::AskedOf("bank") {
                    self.dispatched(subject.id).await;
                }
                subject.correlation = format!("asked-{number}");
                subject.token = self.site.token_of(subject.interaction).await;
            }
        }
        subject
    }

    async fn start(&self, step: &'static str, state: Value, key: &str) -> i64 {
        let new = NewInstance::named("hall", 1, At { step: step.into(), state: Json::from(state) });
        let started = self.with_code.client.start_many([new.key(key)]).await.expect("a start");
        let settled = self.with_code.client.wait_settled(started[0].id(), SOON).await.expect("it settles");
        settled.id.0
    }

    /// Waits until the broker has the question, which is an event of the history.
    async fn dispatched(&self, instance: i64) {
        let deadline = tokio::time::Instant::now() + SOON;
        while self.asked(instance).await.dispatched_at.is_none() {
            assert!(tokio::time::Instant::now() < deadline, "it was not sent");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The interactions of an instance.
    pub async fn asked(&self, instance: i64) -> Interaction {
        let filter =
            InteractionFilter { instance: Some(InstanceId(instance)), ..InteractionFilter::default() };
        let found = self.with_code.client.interactions(filter).await.expect("a read");
        found.items.into_iter().next().expect("a question")
    }

    /// Checks that the good input was accepted: the instance runs to its end with it.
    pub async fn works(&self, scene: Scene, subject: &Subject) -> (Status, Option<Json>) {
        let client = &self.with_code.client;
        let fork = format!("{}:fork", subject.key);
        let key = if scene == Scene::Forked { &*fork } else { &*subject.key };
        if scene == Scene::Kept {
            client.resume(key).await.expect("the brake is off");
        }
        let settled = client.wait_settled(key, SOON).await.expect("it settles");
        if settled.status == Status::AwaitingSignal {
            let paid = NewSignal::new("paid", Json::from(json!({ "cents": 7 })));
            client.signal_raw(key, paid).await.expect("a live target");
        }
        let ended = client.wait_end(key, SOON).await.expect("it ends");
        // The other entry of its batch works, too.
        for beside in [Target::Id(InstanceId(subject.other)), format!("{}:beside", subject.key).into()] {
            if client.get(beside.clone()).await.expect("a read").is_some() {
                client.wait_settled(beside, SOON).await.expect("it settles");
            }
        }
        (ended.status, ended.output)
    }
}

/// A partner behind a webhook, who returns "busy" until the test gives it an answer.
#[derive(Clone)]
pub struct Partner {
    port: u16,
    says: Arc<Mutex<Option<String>>>,
}

impl Partner {
    pub const BUSY: &'static str = "the receiver says 503";

    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let partner = Self { port, says: Arc::default() };
        let serving = partner.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let partner = serving.clone();
                tokio::spawn(async move { partner.serve(stream).await });
            }
        });
        partner
    }

    fn webhook(&self) -> Webhook {
        let url = format!("http://127.0.0.1:{}/", self.port);
        let webhook = Webhook::new(&url, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a webhook");
        webhook.targets(Targets::Any)
    }

    pub fn says(&self, body: Option<String>) {
        *self.says.lock().expect("no panic") = body;
    }

    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            let read = stream.read_line(&mut line).await;
            if read.is_err() || line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        let _ = stream.read_exact(&mut body).await;
        let says = self.says.lock().expect("no panic").clone();
        let answer = match says {
            Some(body) => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
            None => "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_owned(),
        };
        let _ = stream.get_mut().write_all(answer.as_bytes()).await;
    }
}

/// A NATS server with two streams.
pub struct Broker {
    server: private_postgres::Nats,
    jetstream: jetstream::Context,
    of: &'static str,
}

impl Broker {
    async fn start(of: &'static str) -> Self {
        let name = format!("doors-nats-{of}-{:016x}", fastrand::u64(..));
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let server = private_postgres::Nats::start(&dir).unwrap_or_else(|error| panic!("{error}"));
        let jetstream = connect(&server).await;
        for (name, subject) in [("REQUESTS", "bank.requests"), ("ANSWERS", "bank.answers")] {
            let subjects = vec![subject.to_owned()];
            let config = stream::Config { name: name.to_owned(), subjects, ..Default::default() };
            jetstream.create_stream(config).await.expect("a stream");
        }
        Self { server, jetstream, of }
    }

    /// The transport's name, which distinguishes tests in the log.
    pub fn name(&self) -> String {
        format!("bank-{}", self.of)
    }

    async fn transport(&self) -> Nats {
        Nats::new(connect(&self.server).await, "bank.requests", "bank.answers")
    }

    /// Publishes an answer, and returns its position in the stream.
    pub async fn answer(&self, answer: String) -> u64 {
        let stored = self.jetstream.publish("bank.answers", answer.into()).await.expect("a publish");
        stored.await.expect("it is stored").sequence
    }

    /// How many answers the broker has delivered again.
    pub async fn delivered_again(&self) -> usize {
        let stream = self.jetstream.get_stream("ANSWERS").await.expect("a stream");
        let durable = stream.consumer_info(format!("dormouse-{}", self.name())).await.expect("a consumer");
        durable.num_redelivered
    }
}

async fn connect(server: &private_postgres::Nats) -> jetstream::Context {
    let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
    jetstream::new(options.connect(server.url()).await.expect("the server is there"))
}
