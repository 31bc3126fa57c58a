//! A file of payments: each row asks a bank, at most four at a time, and the file is done when all rows have an answer,
//! in the order of the rows. The bank is slow, answers in any order, is busy at first, answers twice, and refuses one.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Client, Engine, Interaction, Sending, Sent, Transport, Verdict};

const CSV: &str = "ann,100\nbob,250\ncat,-1\ndan,75\neve,9000\nfay,1\n";

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
                    .transport("bank")
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

/// Takes requests now and answers them some time later, through the client, as a partner would over the network.
struct Bank(Client);

impl Transport for Bank {
    fn send<'a>(&'a self, asked: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(async move {
            if asked.sends == 1 && asked.item % 3 == 1 {
                let reason = "the bank is busy".to_owned();
                return Sent::Retry { reason, after: Some(Duration::from_millis(5)) };
            }
            tokio::spawn(work(self.0.clone(), asked.clone()));
            Sent::Accepted
        })
    }
}

async fn work(client: Client, asked: Interaction) {
    let payment: Payment = asked.request.decode("request").expect("what we asked");
    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..30))).await;
    if payment.cents <= 0 {
        client.fail(asked.id, "that is no amount").await.expect("an answer");
        return;
    }
    let receipt = format!("receipt for {} cents", payment.cents);
    client.complete(asked.id, &receipt).await.expect("an answer");
    // Once more, to be sure: it changes nothing.
    client.complete(asked.id, &"another receipt").await.expect("a repeat");
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let builder = Engine::open("sqlite::memory:").await?.machine(PaymentFile);
    let bank = Bank(builder.client());
    let sending = Sending { backoff: Duration::from_millis(5), ..Sending::default() };
    let engine = builder.transport_with("bank", bank, sending).start().await?;
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
