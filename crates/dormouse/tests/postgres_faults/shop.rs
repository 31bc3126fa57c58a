//! What runs while things break: orders that wait for payments, chain steps, spawn children, sleep, ask a bank, and write
//! a table of their own with their last commit; and jobs.
//! Everything that the library acknowledged, and every run of a step, is told to whoever audits it later.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Client, EngineBuilder, InstanceId, Interaction, InteractionId, Sending, Sent, Transport};

use super::errands::{self, Books, Told};

pub const PAID: Signal<String> = Signal::named("paid");
pub const PAYMENTS: [&str; 3] = ["first", "second", "third"];
pub const ITEMS: usize = 3;
/// Whom orders ask, and how much.
const BANK: &str = "bank";
pub const ASKED: u64 = 3;
/// An item whose step fails the first time.
const SLIPPERY: u64 = 1;

/// Something that must still be true at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The library said that this key's instance is durable.
    Inserted(String, InstanceId),
    /// The library said that this key's instance has the signal with this dedup key.
    Signalled(String, String),
    /// A step is about to return its outcome.
    Ran(Run),
    /// The bank was asked, with this idempotency key.
    Asked(InteractionId, String),
    /// An errand got so far.
    Errand(Told),
}

/// One run of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub id: InstanceId,
    /// The transition it stood on.
    pub seq: u64,
    pub step: String,
    /// Tells this run from every other one of the same step.
    pub number: u64,
}

/// Where facts go.
pub type Tell = Arc<dyn Fn(Fact) + Send + Sync>;

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inserted(key, id) => write!(f, "inserted {key} {id}"),
            Self::Signalled(key, dedup) => write!(f, "signalled {key} {dedup}"),
            Self::Ran(Run { id, seq, step, number }) => write!(f, "ran {id} {seq} {step} {number}"),
            Self::Asked(id, key) => write!(f, "asked {id} {key}"),
            Self::Errand(told) => write!(f, "{told}"),
        }
    }
}

impl Fact {
    /// Reads a line that another process wrote.
    pub fn parse(line: &str) -> Option<Self> {
        if let Some(told) = Told::parse(line) {
            return Some(Self::Errand(told));
        }
        let mut words = line.split_whitespace();
        // The test harness writes its own text in front of a child's first line.
        let word = words.find(|word| ["inserted", "signalled", "ran", "asked"].contains(word))?;
        let first = words.next()?.to_owned();
        let second = words.next()?.to_owned();
        Some(match word {
            "inserted" => Self::Inserted(first, InstanceId(second.parse().ok()?)),
            "signalled" => Self::Signalled(first, second),
            "asked" => Self::Asked(InteractionId(first.parse().ok()?), second),
            _ => Self::Ran(Run {
                id: InstanceId(first.parse().ok()?),
                seq: second.parse().ok()?,
                step: words.next()?.to_owned(),
                number: words.next()?.parse().ok()?,
            }),
        })
    }
}

/// Tells of a run, and gives it a number.
pub fn ran(tell: &Tell, cx: &Context, step: &str) -> u64 {
    // Within what a float can hold, should anyone look at it in a browser.
    let number = fastrand::u64(..1 << 53);
    tell(Fact::Ran(Run { id: cx.id(), seq: cx.seq(), step: step.to_owned(), number }));
    number
}

pub struct Order(pub Tell);

#[derive(Serialize, Deserialize)]
pub enum Ordering {
    Start,
    Paying,
    Check { payments: Vec<String> },
    Pick { payments: Vec<String> },
    Rest { payments: Vec<String> },
    Ask { payments: Vec<String>, picked: Vec<u64> },
    End { payments: Vec<String>, picked: Vec<u64> },
}

/// What an order ends with.
#[derive(Serialize, Deserialize)]
pub struct Receipt {
    pub payments: Vec<String>,
    /// The runs that picked its items.
    pub picked: Vec<u64>,
    /// The run that ended it.
    pub run: u64,
}

impl Machine for Order {
    const NAME: &'static str = "order";
    // What it writes by itself goes over a connection that may go deaf, and nobody but this ends such a wait.
    const STEP_TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));
    type State = Ordering;
    type Output = Receipt;

    async fn step(&self, state: Ordering, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Ordering::Start => {
                ran(&self.0, cx, "Start");
                Outcome::await_signal(PAID.timeout(Duration::from_secs(3600)), Ordering::Paying)
            }
            Ordering::Paying => {
                ran(&self.0, cx, "Paying");
                let mut payments = cx.received(PAID)?;
                if payments.len() < PAYMENTS.len() {
                    return Ok(Outcome::await_signal(PAID, Ordering::Paying));
                }
                payments.sort();
                Outcome::next(Ordering::Check { payments })
            }
            Ordering::Check { payments } => {
                ran(&self.0, cx, "Check");
                Outcome::next(Ordering::Pick { payments })
            }
            Ordering::Pick { payments } => {
                ran(&self.0, cx, "Pick");
                let items = (0..ITEMS as u64).map(NewInstance::job::<Picking>);
                Outcome::spawn(items, Ordering::Rest { payments })
            }
            Ordering::Rest { payments } => {
                ran(&self.0, cx, "Rest");
                let picked = cx.outputs::<u64>()?;
                Outcome::sleep(Duration::from_millis(5), Ordering::Ask { payments, picked })
            }
            Ordering::Ask { payments, picked } => {
                ran(&self.0, cx, "Ask");
                let unit = Unit::each(0..ASKED).transport(BANK).in_flight(2);
                Outcome::dispatch(unit, Ordering::End { payments, picked })
            }
            Ordering::End { payments, picked } => {
                let run = ran(&self.0, cx, "End");
                let answers = cx.unit::<u64>().await?.outputs();
                assert_eq!(answers, (0..ASKED).collect::<Vec<_>>(), "the bank's answers to {}", cx.id());
                let mut own = cx.transaction().await?;
                let sold = sqlx::query("insert into ledger (sale, run) values ($1, $2)");
                sold.bind(cx.id().0).bind(run as i64).execute(&mut *own).await?;
                Outcome::done(Receipt { payments, picked, run })
            }
        })
    }

    fn retry(&self) -> Retry {
        Retry::times(1000).backoff(Duration::from_millis(10), Duration::from_millis(100))
    }
}

/// Ends with the number of the run that did it.
pub struct Picking(pub Tell);

impl Job for Picking {
    const NAME: &'static str = "picking";
    type Input = u64;
    type Output = u64;

    async fn run(&self, item: u64, cx: &Context) -> Result<u64, BoxError> {
        let number = ran(&self.0, cx, "Run");
        // Long enough that a fault now and then comes in the middle of it.
        tokio::time::sleep(Duration::from_millis(2)).await;
        if item == SLIPPERY && cx.attempt() == 0 { Err("dropped it".into()) } else { Ok(number) }
    }

    fn retry(&self) -> Retry {
        Retry::times(1000).backoff(Duration::from_millis(2), Duration::from_millis(10))
    }
}

/// Writes errands into a table of the test's own.
pub struct Ledger;

impl Books for Ledger {
    async fn book(&self, number: Option<u64>, lane: &str, cx: &Context) -> Result<(), BoxError> {
        let mut own = cx.transaction().await?;
        if let Some(number) = number {
            let booked = sqlx::query("insert into errands (number) values ($1)").bind(number as i64);
            booked.execute(&mut *own).await?;
        }
        // The clock of the server, which is the same for all workers.
        let place = "with entered as materialized (select clock_timestamp() as at, pg_sleep($2)) \
            insert into places (lane, entered, left_at) select $1, at, clock_timestamp() from entered";
        let place = sqlx::query(place).bind(lane).bind(errands::WHILE.as_secs_f64());
        place.execute(&mut *own).await?;
        Ok(())
    }
}

/// A partner that answers what it is asked: before it says that it accepts, or with that, and perhaps twice.
struct Bank {
    client: Client,
    tell: Tell,
}

impl Transport for Bank {
    fn send<'a>(&'a self, asked: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(async move {
            (self.tell)(Fact::Asked(asked.id, asked.idempotency_key.clone()));
            let times = fastrand::usize(..3);
            for _ in 0..times {
                if let Err(error) = self.client.complete(asked.id, &asked.request).await {
                    return Sent::Retry { reason: error.to_string(), after: None };
                }
            }
            match times {
                0 if fastrand::bool() => Sent::Retry { reason: "busy".to_owned(), after: None },
                0 => Sent::Answered(asked.request.clone()),
                _ => Sent::Accepted,
            }
        })
    }
}

pub fn machines(engine: EngineBuilder, tell: &Tell) -> EngineBuilder {
    let bank = Bank { client: engine.client(), tell: tell.clone() };
    let sending = Sending {
        timeout: Duration::from_secs(2),
        backoff: Duration::from_millis(5),
        backoff_cap: Duration::from_millis(100),
        ..Sending::default()
    };
    let engine = engine.machine(Order(tell.clone())).job(Picking(tell.clone())).queue("default", 16);
    let engine = errands::machines(engine, Ledger);
    engine.transport_with(BANK, bank, sending)
}
