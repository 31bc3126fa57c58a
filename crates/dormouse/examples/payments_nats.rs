//! A file of payments, over NATS: each row asks a provider by a message, at most four at a time, and the file is done when
//! all rows have an answer, in the order of the rows. The provider is slow, answers in any order and twice, and refuses one.
//!
//! It needs a NATS server with JetStream (`nats-server --jetstream`), at `NATS_URL` or where one usually is:
//! `cargo run --example payments_nats --features nats`.

use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{self, Context as JetStream, stream};
use dormouse::prelude::*;
use dormouse::{Engine, Nats, Verdict, async_nats};
use futures_util::StreamExt;
use serde_json::json;

const CSV: &str = "ann,100\nbob,250\ncat,-1\ndan,75\neve,9000\nfay,1\n";
const REQUESTS: &str = "payments.requests";
const ANSWERS: &str = "payments.answers";

#[derive(Clone, Serialize, Deserialize)]
struct Payment {
    to: String,
    cents: i64,
}

struct PaymentFile;

#[derive(Serialize, Deserialize)]
enum State {
    Read { csv: String },
    Report { rows: Vec<Payment> },
}

impl Machine for PaymentFile {
    const NAME: &'static str = "payment_file";
    type State = State;
    type Output = Vec<String>;

    async fn step(&self, state: State, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            State::Read { csv } => {
                let rows = csv.lines().map(payment).collect::<Result<Vec<_>, _>>()?;
                let unit = Unit::each(rows.clone())
                    .transport("provider")
                    .in_flight(4)
                    .idempotency_key(|row| format!("{}-{}-{}", cx.id(), row.to, row.cents))
                    .item_timeout(Duration::from_secs(60));
                Outcome::dispatch(unit, State::Report { rows })
            }
            State::Report { rows } => {
                let answers = cx.unit::<String>().await?;
                let line = |(row, verdict): (&Payment, &Verdict<String>)| match verdict {
                    Verdict::Completed(receipt) => format!("{}: paid, {receipt}", row.to),
                    Verdict::Failed(reason) => format!("{}: {reason}", row.to),
                    Verdict::TimedOut | Verdict::Cancelled => format!("{}: no answer", row.to),
                };
                Outcome::done(rows.iter().zip(&answers.verdicts).map(line).collect())
            }
        })
    }
}

fn payment(line: &str) -> Result<Payment, BoxError> {
    let (to, cents) = line.split_once(',').ok_or("a row is `name,cents`")?;
    Ok(Payment { to: to.to_owned(), cents: cents.parse()? })
}

/// What the provider reads of a request; there is more in it.
#[derive(Deserialize)]
struct Asked {
    interaction: i64,
    request: Payment,
}

/// Takes requests, works on each for a while, and answers twice, to be sure.
async fn provide(jetstream: JetStream) -> Result<(), BoxError> {
    let durable = pull::Config { durable_name: Some("provider".to_owned()), ..Default::default() };
    let stream = jetstream.get_stream("PAYMENT_REQUESTS").await?;
    let mut requests = stream.get_or_create_consumer("provider", durable).await?.messages().await?;
    while let Some(message) = requests.next().await {
        let jetstream = jetstream.clone();
        let message = message?;
        tokio::spawn(async move {
            let Asked { interaction, request } = serde_json::from_slice(&message.payload)?;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1..30))).await;
            let answer = if request.cents > 0 {
                json!({ "interaction": interaction, "output": format!("receipt for {} cents", request.cents) })
            } else {
                json!({ "interaction": interaction, "error": "that is no amount" })
            };
            for _ in 0..2 {
                jetstream.publish(ANSWERS, answer.to_string().into()).await?.await?;
            }
            // Whoever dies before this gets the request again, with the same idempotency key.
            message.ack().await
        });
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    run(&url).await
}

/// Reads the file and pays; the tests do so, too, on a server of their own.
pub(crate) async fn run(url: &str) -> Result<(), BoxError> {
    let jetstream = jetstream::new(async_nats::connect(url).await?);
    for (name, subject) in [("PAYMENT_REQUESTS", REQUESTS), ("PAYMENT_ANSWERS", ANSWERS)] {
        let (name, subjects) = (name.to_owned(), vec![subject.to_owned()]);
        jetstream.get_or_create_stream(stream::Config { name, subjects, ..Default::default() }).await?;
    }
    tokio::spawn(provide(jetstream.clone()));
    let nats = Nats::new(jetstream, REQUESTS, ANSWERS);
    let engine = Engine::open("sqlite::memory:").await?.machine(PaymentFile).transport("provider", nats);
    let engine = engine.start().await?;
    let client = engine.client();
    let id = client.start::<PaymentFile>(State::Read { csv: CSV.to_owned() }).await?;
    let report = client.wait::<PaymentFile>(id, Duration::from_secs(30)).await?;
    report.iter().for_each(|line| println!("{line}"));
    assert_eq!(report.len(), 6);
    assert_eq!(report[2], "cat: that is no amount");
    assert_eq!(report[4], "eve: paid, receipt for 9000 cents");
    engine.shutdown().await;
    Ok(())
}
