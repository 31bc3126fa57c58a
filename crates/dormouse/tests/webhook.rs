//! A partner behind a webhook: slow, busy, answering twice, before it accepts, with that, or never.

#![allow(unreachable_pub, reason = "a test target has no outside")]

#[path = "conformance/postgres.rs"]
mod database;
#[path = "webhook/deep.rs"]
mod deep;
#[path = "../examples/fraud_check.rs"]
mod fraud_check;
#[path = "webhook/tls.rs"]
mod tls;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{InteractionFilter, Refusal};
use dormouse::{
    Client, Engine, Error, InteractionStatus, Json, Sending, Status, Targets, Tokens, Verdict, Webhook,
};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const SOON: Duration = Duration::from_secs(30);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD_SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const TOKEN_SECRET: &[u8] = b"a secret of more than thirty-two bytes";

/// Asks the partner whether each of these is a fraud.
struct FraudCheck;

#[derive(Serialize, Deserialize)]
enum Check {
    Ask { orders: Vec<String> },
    Told,
}

impl Machine for FraudCheck {
    const NAME: &'static str = "fraud_check";
    type State = Check;
    type Output = Vec<String>;

    async fn step(&self, state: Check, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Check::Ask { orders } => {
                let unit = Unit::each(orders).transport("partner").idempotency_key(String::clone);
                let unit = unit.for_assignee("ann").for_group("fraud").timeout(Duration::from_secs(60));
                Outcome::dispatch(unit.item_timeout(Duration::from_secs(2)), Check::Told)
            }
            Check::Told => {
                let told = |verdict: &Verdict<String>| match verdict {
                    Verdict::Completed(verdict) => verdict.clone(),
                    Verdict::Failed(reason) => format!("failed: {reason}"),
                    other => format!("{other:?}"),
                };
                Outcome::done(cx.unit::<String>().await?.verdicts.iter().map(told).collect())
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partner_of_every_kind_is_asked_until_it_answers_or_its_time_is_over() {
    let partner = Partner::start().await;
    let engine = engine(&partner, Targets::Any).await;
    partner.answers_through(engine.client());
    let orders =
        ["later", "twice", "before", "at once", "busy", "never", "not found", "moved"].map(str::to_owned);
    let id =
        engine.client().start::<FraudCheck>(Check::Ask { orders: orders.to_vec() }).await.expect("a start");
    let told = engine.client().wait::<FraudCheck>(id, SOON).await.expect("an output");
    let expected = [
        "later: fine",
        "twice: fine",
        "before: fine",
        "at once: fine",
        "busy: fine",
        "TimedOut",
        "failed: the receiver says 404 Not Found",
        "failed: the receiver says 302 Found: redirects are not followed",
    ];
    assert_eq!(told, expected);
    let requests = partner.requests();
    let asked = engine.client().interactions(InteractionFilter::default()).await.expect("a read").items;
    let of = |order: &str| requests.iter().filter(|request| request.id == order).collect::<Vec<_>>();
    assert_eq!(of("busy").len(), 2, "it was busy once");
    assert_eq!(of("moved").len(), 1, "and nobody went where it pointed");
    for request in &requests {
        assert_eq!(request.signatures.split(' ').count(), 2, "of both secrets");
        assert!(request.signatures.split(' ').all(|signature| signature.starts_with("v1,")));
        assert_eq!(request.envelope.idempotency_key, request.id);
        let asked = asked.iter().find(|asked| asked.idempotency_key == request.id).expect("it was asked");
        assert_eq!(Some(request.envelope.deadline), asked.deadline, "the nearer of both");
        let Envelope { for_assignee, for_group, .. } = &request.envelope;
        assert_eq!((for_assignee.as_str(), for_group.as_str()), ("ann", "fraud"));
    }
    // Every token is good up to its question's deadline, which is over for all of them.
    let again =
        engine.client().complete_by_token(&tokens(), &of("later")[0].token(), Err("no".to_owned())).await;
    let expired = matches!(again, Err(Error::CompletionRefused { refusal: Refusal::Expired, .. }));
    assert!(expired, "{again:?}");
    let late =
        engine.client().complete_by_token(&tokens(), &of("never")[0].token(), Err("no".to_owned())).await;
    let refused =
        matches!(late, Err(Error::CompletionRefused { refusal: Refusal::Late | Refusal::Expired, .. }));
    assert!(refused, "{late:?}");
    engine.shutdown().await;
}

#[test]
fn the_example_of_a_fraud_check_ends_as_it_says() {
    fraud_check::main().expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_inside_is_refused_unless_it_is_allowed() {
    let partner = Partner::start().await;
    let engine = engine(&partner, Targets::Public).await;
    let id = engine
        .client()
        .start::<FraudCheck>(Check::Ask { orders: vec!["a".to_owned()] })
        .await
        .expect("a start");
    let told = engine.client().wait::<FraudCheck>(id, SOON).await.expect("an output");
    assert!(told[0].contains("use https"), "{told:?}");
    assert!(partner.requests().is_empty());
    engine.shutdown().await;

    let inside = Webhook::new(&format!("https://127.0.0.1:{}/", partner.port), SECRET).expect("a webhook");
    let engine = start(inside).await;
    let id = engine
        .client()
        .start::<FraudCheck>(Check::Ask { orders: vec!["a".to_owned()] })
        .await
        .expect("a start");
    let told = engine.client().wait::<FraudCheck>(id, SOON).await.expect("an output");
    assert!(told[0].contains("not a public address"), "{told:?}");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_too_long_is_not_read_to_its_end() {
    let partner = Partner::start().await;
    let webhook = webhook(&partner, Targets::Any).answer_bytes_max(100);
    let engine = start(webhook).await;
    let orders = vec!["endless".to_owned()];
    let id = engine.client().start::<FraudCheck>(Check::Ask { orders }).await.expect("a start");
    let told = engine.client().wait::<FraudCheck>(id, SOON).await.expect("an output");
    assert_eq!(told, ["TimedOut"], "it was accepted, and its answer was as good as none");
    let all = engine.client().interactions(InteractionFilter::default()).await.expect("a read").items;
    assert_eq!((all[0].status, all[0].dispatched_at.is_some()), (InteractionStatus::TimedOut, true));
    let instance = engine.client().get(id).await.expect("a read").expect("it is there");
    assert_eq!(instance.status, Status::Done);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_in_the_trace_of_its_instance() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let partner = Partner::start().await;
    let engine = start(webhook(&partner, Targets::Any).answer_bytes_max(100)).await;
    let ask = || Check::Ask { orders: vec!["endless".to_owned()] };
    let traced = engine.client().start::<FraudCheck>(ask()).trace(TRACE).await.expect("a start");
    engine.client().wait::<FraudCheck>(traced, SOON).await.expect("an output");
    let plain = engine.client().start::<FraudCheck>(ask()).await.expect("a start");
    engine.client().wait::<FraudCheck>(plain, SOON).await.expect("an output");
    let traces: Vec<_> = partner.requests().into_iter().map(|got| got.trace).collect();
    assert_eq!(traces, [Some(TRACE.to_owned()), None]);
    engine.shutdown().await;
}

fn tokens() -> Tokens {
    Tokens::new("k1", TOKEN_SECRET).expect("a key")
}

fn webhook(partner: &Partner, targets: Targets) -> Webhook {
    let url = format!("http://127.0.0.1:{}/fraud?v=1", partner.port);
    let webhook =
        Webhook::new(&url, SECRET).and_then(|webhook| webhook.and_secret(OLD_SECRET)).expect("a webhook");
    let webhook = webhook.targets(targets);
    webhook.resume_at("https://shop.example", tokens(), Duration::from_secs(3600)).expect("an address")
}

async fn engine(partner: &Partner, targets: Targets) -> Engine {
    start(webhook(partner, targets)).await
}

async fn start(webhook: Webhook) -> Engine {
    let sending = Sending { backoff: Duration::from_millis(10), ..Sending::default() };
    let builder = Engine::open("sqlite::memory:").await.expect("a store").machine(FraudCheck);
    builder.transport_with("partner", webhook, sending).start().await.expect("it starts")
}

/// What the partner got.
#[derive(Clone)]
struct Got {
    id: String,
    signatures: String,
    trace: Option<String>,
    envelope: Envelope,
}

#[derive(Clone, Deserialize)]
struct Envelope {
    idempotency_key: String,
    resume_url: String,
    request: String,
    send: u32,
    deadline: dormouse::jiff::Timestamp,
    for_assignee: String,
    for_group: String,
}

impl Got {
    fn token(&self) -> String {
        self.envelope
            .resume_url
            .strip_prefix("https://shop.example/v1/resume/")
            .expect("the resume URL")
            .to_owned()
    }
}

/// An HTTP server of few words.
#[derive(Clone)]
struct Partner {
    port: u16,
    got: Arc<Mutex<Vec<Got>>>,
    client: Arc<Mutex<Option<Client>>>,
}

impl Partner {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let partner = Self { port, got: Arc::default(), client: Arc::default() };
        let serving = partner.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let partner = serving.clone();
                tokio::spawn(async move { partner.serve(stream).await });
            }
        });
        partner
    }

    fn answers_through(&self, client: Client) {
        *self.client.lock().expect("no panic") = Some(client);
    }

    fn requests(&self) -> Vec<Got> {
        self.got.lock().expect("no panic").clone()
    }

    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let Some(got) = read(&mut stream).await else { return };
        self.got.lock().expect("no panic").push(got.clone());
        let client = self.client.lock().expect("no panic").clone();
        let answer = |client: Client, got: Got| async move {
            let output = Json::encode("output", &format!("{}: fine", got.envelope.request)).expect("a text");
            client.complete_by_token(&tokens(), &got.token(), Ok(output)).await.expect("an answer");
        };
        let later = |times: usize| {
            let (client, got) = (client.clone().expect("a client"), got.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                for _ in 0..times {
                    answer(client.clone(), got.clone()).await;
                }
            });
        };
        let say = match (got.envelope.request.as_str(), got.envelope.send) {
            ("later", _) => {
                later(1);
                "202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            ("twice", _) | ("busy", 2..) => {
                later(2);
                "202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            ("before", _) => {
                answer(client.expect("a client"), got).await;
                "202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            ("at once", _) => {
                let body = r#"{"output":"at once: fine"}"#;
                format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            }
            ("busy", _) => {
                "503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            ("not found", _) => "404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
            ("moved", _) => {
                format!("302 Found\r\nlocation: http://127.0.0.1:{}/\r\ncontent-length: 0\r\n\r\n", self.port)
            }
            ("deep", _) => {
                let body = format!(r#"{{"output":{}}}"#, deep::nested(deep::DEPTH));
                format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            }
            ("endless", _) => {
                let body = format!(r#"{{"output":"{}"}}"#, "x".repeat(100_000));
                format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            }
            _ => "202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
        };
        // Whoever has read enough hangs up.
        let _ = stream.get_mut().write_all(format!("HTTP/1.1 {say}").as_bytes()).await;
    }
}

/// One request, with its headers and its body.
async fn read(stream: &mut BufReader<impl AsyncRead + Unpin>) -> Option<Got> {
    let (mut id, mut signatures, mut trace, mut length) = (String::new(), String::new(), None, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|bytes| *bytes > 0)?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            if line.trim().is_empty() {
                break;
            }
            assert_eq!(line.trim(), "POST /fraud?v=1 HTTP/1.1");
            continue;
        };
        match name {
            "webhook-id" => id = value.to_owned(),
            "webhook-signature" => signatures = value.to_owned(),
            "traceparent" => trace = Some(value.to_owned()),
            "content-length" => length = value.parse().expect("a length"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Got { id, signatures, trace, envelope: serde_json::from_slice(&body).expect("an envelope") })
}
