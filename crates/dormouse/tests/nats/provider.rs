//! A NATS server with two streams, and a provider that takes requests from the one and answers on the other.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Info, pull};
use async_nats::jetstream::{self, Context, stream};
use dormouse::{Nats, async_nats};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};

pub const REQUESTS: &str = "bank.requests";
pub const ANSWERS: &str = "bank.answers";
const DURABLE: &str = "dormouse-bank";
const SOON: Duration = Duration::from_secs(60);

/// A broker of this test's own.
pub struct Broker {
    pub server: private_postgres::Nats,
    pub jetstream: Context,
}

impl Broker {
    pub async fn start() -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nats-{:016x}", fastrand::u64(..)));
        let server = private_postgres::Nats::start(&dir).unwrap_or_else(|error| panic!("{error}"));
        let jetstream = connect(&server).await;
        for (name, subject) in [("REQUESTS", REQUESTS), ("ANSWERS", ANSWERS)] {
            let config = stream::Config {
                name: name.to_owned(),
                subjects: vec![subject.to_owned()],
                ..Default::default()
            };
            jetstream.create_stream(config).await.expect("a stream");
        }
        Self { server, jetstream }
    }

    /// The transport, on a connection of its own.
    pub async fn transport(&self) -> Nats {
        Nats::new(connect(&self.server).await, REQUESTS, ANSWERS).ack_wait(Duration::from_secs(2))
    }

    /// Publishes an answer, and waits until it is stored.
    pub async fn answer(&self, answer: impl Into<Vec<u8>>) {
        let stored = self.jetstream.publish(ANSWERS, answer.into().into()).await.expect("a publish");
        stored.await.expect("it is stored");
    }

    /// Waits until every answer was taken and the broker was told of it.
    pub async fn until_settled(&self) -> Info {
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            let info = self.durable().await;
            match info {
                Some(info) if info.num_pending == 0 && info.num_ack_pending == 0 => return info,
                info => assert!(tokio::time::Instant::now() < deadline, "not yet settled: {info:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn durable(&self) -> Option<Info> {
        let stream = self.jetstream.get_stream("ANSWERS").await.ok()?;
        stream.consumer_info(DURABLE).await.ok()
    }

    pub async fn requests_stored(&self) -> u64 {
        self.jetstream.get_stream("REQUESTS").await.expect("a stream").cached_info().state.messages
    }
}

async fn connect(server: &private_postgres::Nats) -> Context {
    let client = async_nats::ConnectOptions::new()
        .retry_on_initial_connect()
        // Soon, so that a server that was killed is found again soon.
        .reconnect_delay_callback(|_| Duration::from_millis(50))
        .connect(server.url())
        .await
        .expect("the server is there");
    jetstream::new(client)
}

/// What the provider got.
#[derive(Clone, Debug, Deserialize)]
pub struct Request {
    pub interaction: i64,
    pub namespace: String,
    pub idempotency_key: String,
    pub resume_token: Option<String>,
    pub request: Value,
}

impl Request {
    pub fn output(&self, output: Value) -> Vec<u8> {
        let Self { namespace, interaction, resume_token, .. } = self;
        let answer = json!({ "namespace": namespace, "interaction": interaction, "resume_token": resume_token,
            "output": output });
        answer.to_string().into_bytes()
    }
}

/// Notes each request, then does as it is told, and only then acknowledges.
#[derive(Clone, Default)]
pub struct Provider {
    got: Arc<Mutex<Vec<Request>>>,
}

impl Provider {
    /// Answers each request with what the closure says, so often.
    pub async fn start(
        broker: &Broker,
        answers: impl Fn(&Request) -> Vec<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let provider = Self::default();
        let (got, jetstream) = (provider.got.clone(), connect(&broker.server).await);
        tokio::spawn(async move {
            loop {
                // A broker that was killed comes back.
                let _ = provide(&jetstream, &got, &answers).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        provider
    }

    pub fn got(&self) -> Vec<Request> {
        self.got.lock().expect("no panic").clone()
    }

    /// Waits until it got so many requests.
    pub async fn until_got(&self, requests: usize) -> Vec<Request> {
        let deadline = tokio::time::Instant::now() + SOON;
        while self.got().len() < requests {
            assert!(tokio::time::Instant::now() < deadline, "{:?}", self.got());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.got()
    }

    /// How often each interaction was asked, and by which keys.
    pub fn keys(&self) -> BTreeMap<i64, Vec<String>> {
        let mut keys: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for request in self.got() {
            keys.entry(request.interaction).or_default().push(request.idempotency_key);
        }
        keys
    }
}

async fn provide(
    jetstream: &Context,
    got: &Mutex<Vec<Request>>,
    answers: &(impl Fn(&Request) -> Vec<Vec<u8>> + Send + Sync),
) -> Result<(), async_nats::Error> {
    let config = pull::Config {
        durable_name: Some("provider".to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(2),
        ..Default::default()
    };
    let stream = jetstream.get_stream("REQUESTS").await?;
    let consumer = stream.get_or_create_consumer("provider", config).await?;
    let heartbeat = Duration::from_millis(500);
    let messages = consumer.stream().expires(Duration::from_secs(2)).heartbeat(heartbeat).messages();
    let mut messages = messages.await?;
    while let Some(message) = messages.next().await {
        let message = message?;
        let request: Request = serde_json::from_slice(&message.payload)?;
        got.lock().expect("no panic").push(request.clone());
        for answer in answers(&request) {
            jetstream.publish(ANSWERS, answer.into()).await?.await?;
        }
        message.ack().await?;
    }
    Ok(())
}
