//! A fraud check by webhook: each order asks a partner over HTTP, signed, and the partner answers by the resume token that
//! came along. It is slow, is busy at first, answers twice, answers before it says 202, or with that, and sometimes never.
//!
//! `cargo run --example fraud_check --features webhook` prints what happened. The partner's answers would come in at
//! the server's `/v1/resume/{token}`; here they go straight to the client that stands behind it.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Client, Engine, Json, Sending, Targets, Tokens, Verdict, Webhook};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const ORDERS: [&str; 6] = ["slow", "busy", "twice", "before it accepts", "at once", "never"];
const RESUME: &str = "https://shop.example/v1/resume/";

struct FraudCheck;

#[derive(Serialize, Deserialize)]
enum State {
    Ask { orders: Vec<String> },
    Decide { orders: Vec<String> },
}

impl Machine for FraudCheck {
    const NAME: &'static str = "fraud_check";
    type State = State;
    type Output = Vec<String>;

    async fn step(&self, state: State, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            State::Ask { orders } => {
                let unit = Unit::each(orders.clone())
                    .transport("partner")
                    .idempotency_key(|order| format!("{}-{order}", cx.id()))
                    .item_timeout(Duration::from_secs(2));
                Outcome::dispatch(unit, State::Decide { orders })
            }
            State::Decide { orders } => {
                let answers = cx.unit::<bool>().await?;
                let decide = |(order, verdict): (&String, &Verdict<bool>)| match verdict {
                    Verdict::Completed(false) => format!("{order}: shipped"),
                    Verdict::Completed(true) => format!("{order}: refused"),
                    // Nobody is kept waiting by a partner that says nothing.
                    other => format!("{order}: to be looked at ({other:?})"),
                };
                Outcome::done(orders.iter().zip(&answers.verdicts).map(decide).collect())
            }
        })
    }
}

/// The partner, and the way in for its answers.
#[derive(Clone)]
struct Partner {
    client: Client,
    tokens: Tokens,
}

/// What the partner reads of a request; there is more in it.
#[derive(Deserialize)]
struct Asked {
    resume_url: String,
    request: String,
    send: u32,
}

impl Partner {
    async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let partner = self.clone();
            tokio::spawn(async move { partner.take(BufReader::new(stream)).await });
        }
    }

    async fn take(self, mut stream: BufReader<TcpStream>) -> Result<(), BoxError> {
        let asked = read(&mut stream).await?;
        println!("the partner is asked about {:?}, send {}", asked.request, asked.send);
        let say = match (asked.request.as_str(), asked.send) {
            ("busy", 1) => "503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
            ("at once", _) => "200 OK\r\ncontent-length: 16\r\n\r\n{\"output\":false}",
            ("before it accepts", _) => {
                self.answer(&asked, 1).await?;
                "202 Accepted\r\ncontent-length: 0\r\n\r\n"
            }
            ("never", _) => "202 Accepted\r\ncontent-length: 0\r\n\r\n",
            _ => {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    self.answer(&asked, if asked.request == "twice" { 2 } else { 1 }).await
                });
                "202 Accepted\r\ncontent-length: 0\r\n\r\n"
            }
        };
        Ok(stream.get_mut().write_all(format!("HTTP/1.1 {say}").as_bytes()).await?)
    }

    async fn answer(&self, asked: &Asked, times: usize) -> Result<(), BoxError> {
        let token = asked.resume_url.strip_prefix(RESUME).ok_or("another address")?;
        for _ in 0..times {
            let no_fraud = Json::encode("output", &false)?;
            let completed = self.client.complete_by_token(&self.tokens, token, Ok(no_fraud)).await?;
            println!("the partner answers about {:?}: {completed:?}", asked.request);
        }
        Ok(())
    }
}

/// Reads one request: its headers as far as they matter here, and its body.
async fn read(stream: &mut BufReader<TcpStream>) -> Result<Asked, BoxError> {
    let (mut line, mut length) = (String::new(), 0);
    while stream.read_line(&mut line).await? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let tokens = Tokens::new("k1", b"thirty-two bytes or more, from a random source")?;
    let url = format!("http://{}/fraud", listener.local_addr()?);
    let webhook = Webhook::new(&url, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?
        .targets(Targets::Any)
        .resume_at(RESUME, tokens.clone(), Duration::from_secs(3600))?;
    let sending = Sending { backoff: Duration::from_millis(50), ..Sending::default() };
    let builder = Engine::open("sqlite::memory:").await?.machine(FraudCheck);
    tokio::spawn(Partner { client: builder.client(), tokens }.serve(listener));
    let engine = builder.transport_with("partner", webhook, sending).start().await?;
    let orders = ORDERS.map(str::to_owned).to_vec();
    let id = engine.client().start::<FraudCheck>(State::Ask { orders }).await?;
    let report = engine.client().wait::<FraudCheck>(id, Duration::from_secs(30)).await?;
    report.iter().for_each(|line| println!("{line}"));
    assert_eq!(report.iter().filter(|line| line.ends_with("shipped")).count(), 5);
    assert_eq!(report[5], "never: to be looked at (TimedOut)");
    engine.shutdown().await;
    Ok(())
}
