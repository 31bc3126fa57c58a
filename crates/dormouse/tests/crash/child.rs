//! What the processes do that the tests kill: an order shop under load, which says on its standard output
//! what the library has acknowledged.

use std::fs::OpenOptions;
use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Client, Engine, EngineBuilder, Interaction, Json, Sending, Sent, Transport};

use super::errands::{self, Books};

pub const DATABASE: &str = "DORMOUSE_CRASH_DATABASE";
pub const MODE: &str = "DORMOUSE_CRASH_MODE";
pub const PAID: Signal<String> = Signal::named("paid");
pub const PAYMENTS: [&str; 3] = ["first", "second", "third"];
pub const ITEMS: usize = 3;
/// Requests to the bank.
pub const ASKED: u64 = 4;
/// An item whose first try never ends.
const HELD: u64 = 99;

pub struct Order;

#[derive(Serialize, Deserialize)]
pub enum Ordering {
    Start,
    Paying,
    Pick { payments: Vec<String> },
    Rest { payments: Vec<String>, items: usize },
    Ask { payments: Vec<String>, items: usize },
    End { payments: Vec<String>, items: usize },
}

impl Machine for Order {
    const NAME: &'static str = "order";
    type State = Ordering;
    type Output = (Vec<String>, usize);

    async fn step(&self, state: Ordering, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Ordering::Start => {
                Outcome::await_signal(PAID.timeout(Duration::from_secs(3600)), Ordering::Paying)
            }
            Ordering::Paying => {
                let mut payments = cx.received(PAID)?;
                if payments.len() < PAYMENTS.len() {
                    return Ok(Outcome::await_signal(PAID, Ordering::Paying));
                }
                payments.sort();
                Outcome::next(Ordering::Pick { payments })
            }
            Ordering::Pick { payments } => {
                let items = (0..ITEMS as u64).map(NewInstance::job::<Picking>);
                Outcome::spawn(items, Ordering::Rest { payments, items: 0 })
            }
            Ordering::Rest { payments, .. } => {
                let items = cx.outputs::<u64>()?.len();
                Outcome::sleep(Duration::from_millis(5), Ordering::Ask { payments, items })
            }
            Ordering::Ask { payments, items } => {
                let unit = Unit::each(0..ASKED).transport("bank").in_flight(2);
                Outcome::dispatch(unit, Ordering::End { payments, items })
            }
            Ordering::End { payments, items } => {
                let answers = cx.unit::<u64>().await?.outputs();
                if answers != (0..ASKED).collect::<Vec<_>>() {
                    return Err(format!("the bank's answers are {answers:?}").into());
                }
                let sale = cx.id().0;
                cx.in_commit(move |db| {
                    db.execute_batch("create table if not exists ledger (sale integer)")?;
                    db.execute("insert into ledger (sale) values (?1)", [sale])?;
                    Ok(())
                })?;
                Outcome::done((payments, items))
            }
        })
    }
}

pub struct Picking;

impl Job for Picking {
    const NAME: &'static str = "picking";
    type Input = u64;
    type Output = u64;

    async fn run(&self, item: u64, cx: &Context) -> Result<u64, BoxError> {
        if item == HELD && cx.attempt() == 0 {
            std::future::pending::<()>().await;
        }
        // One of them always needs a second try.
        if item == 1 && cx.attempt() == 0 { Err("dropped it".into()) } else { Ok(item) }
    }

    fn retry(&self) -> Retry {
        Retry::times(1000).backoff(Duration::from_millis(2), Duration::from_millis(10))
    }
}

/// Writes errands into a table of the test's own.
struct Ledger;

impl Books for Ledger {
    async fn book(&self, number: Option<u64>, lane: &str, cx: &Context) -> Result<(), BoxError> {
        let entered = clock_ns();
        tokio::time::sleep(errands::WHILE).await;
        let (lane, left) = (lane.to_owned(), clock_ns());
        cx.in_commit(move |db| {
            db.execute_batch(
                "create table if not exists errands (number integer);
                create table if not exists places (lane text, entered integer, left integer)",
            )?;
            if let Some(number) = number {
                db.execute("insert into errands (number) values (?1)", [number as i64])?;
            }
            let place = "insert into places (lane, entered, left) values (?1, ?2, ?3)";
            db.execute(place, (&lane, entered, left))?;
            Ok(())
        })?;
        Ok(())
    }
}

/// The clock of this machine, which all its processes share.
fn clock_ns() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time after 1970");
    now.as_nanos() as i64
}

/// A partner that notes what it gets in a file, and answers what it is asked: before it says that it accepts, or with that,
/// and perhaps twice.
struct Bank {
    client: Client,
    notes: PathBuf,
}

impl Transport for Bank {
    fn send<'a>(&'a self, asked: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(async move {
            match self.answer(asked).await {
                Ok(sent) => sent,
                Err(error) => Sent::Retry { reason: error.to_string(), after: None },
            }
        })
    }
}

impl Bank {
    async fn answer(&self, asked: &Interaction) -> Result<Sent, BoxError> {
        let mut notes = OpenOptions::new().create(true).append(true).open(&self.notes)?;
        notes.write_all(format!("{} {}\n", asked.id, asked.idempotency_key).as_bytes())?;
        let times = fastrand::usize(..3);
        for _ in 0..times {
            self.client.complete(asked.id, &asked.request).await?;
        }
        Ok(match times {
            0 if fastrand::bool() => Sent::Retry { reason: "busy".to_owned(), after: None },
            0 => Sent::Answered(Json::clone(&asked.request)),
            _ => Sent::Accepted,
        })
    }
}

/// Where a bank notes what it gets.
pub fn notes(database: &Path) -> PathBuf {
    database.with_extension("bank")
}

pub fn machines(engine: EngineBuilder, database: &Path) -> EngineBuilder {
    let bank = Bank { client: engine.client(), notes: notes(database) };
    let sending = Sending {
        timeout: Duration::from_millis(500),
        backoff: Duration::from_millis(5),
        backoff_cap: Duration::from_millis(100),
        ..Sending::default()
    };
    let engine = engine.machine(Order).job(Picking).poll(Duration::from_millis(50));
    let engine = errands::machines(engine, Ledger);
    engine.transport_with("bank", bank, sending)
}

#[test]
fn the_child_does_as_it_is_told() {
    let (Ok(database), Ok(mode)) = (std::env::var(DATABASE), std::env::var(MODE)) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let url = format!("sqlite:{database}");
    let told = match mode.as_str() {
        "hold" => runtime.block_on(hold(&url, Path::new(&database))),
        _ => runtime.block_on(load(&url, Path::new(&database))),
    };
    told.expect("it goes on until it is killed");
}

/// Holds one step under a short lease; once that was taken over, starts another order of its own.
async fn hold(url: &str, database: &Path) -> Result<(), BoxError> {
    let engine =
        machines(Engine::open(url).await?, database).lease(Duration::from_millis(300)).start().await?;
    let client = engine.client();
    let id = client.start_job::<Picking>(HELD).key("held").await?;
    while client.get(id).await?.is_none_or(|row| row.status != dormouse::Status::Executing) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    say(&format!("inserted held {id}"));
    client.wait_job::<Picking>(id, Duration::from_secs(600)).await?;
    say("signalled held ended");
    let next = client.start_job::<Picking>(0).await?;
    say(&format!("inserted next {next}"));
    std::future::pending().await
}

/// Starts orders and pays them, from several callers, for ever.
async fn load(url: &str, database: &Path) -> Result<(), BoxError> {
    let engine = loop {
        // A disk that is full at the start is told like one that fills up later.
        match Engine::open(url).await {
            Ok(builder) => break machines(builder, database).start().await?,
            Err(error) => say(&format!("failed open {error}")),
        }
    };
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let client = engine.client();
            tokio::spawn(async move {
                loop {
                    if let Err(error) = one_order(&client).await {
                        say(&format!("failed order {error}"));
                    }
                }
            })
        })
        .collect();
    let client = engine.client();
    let errands = tokio::spawn(async move {
        loop {
            if let Err(error) = errands::run::<Ledger>(&client, &|told| say(&told.to_string())).await {
                say(&format!("failed errand {error}"));
            }
        }
    });
    for caller in callers.into_iter().chain([errands]) {
        let _never: () = caller.await?;
    }
    Ok(())
}

async fn one_order(client: &dormouse::Client) -> Result<(), BoxError> {
    let key = format!("order:{:016x}", fastrand::u64(..));
    let id =
        client.start::<Order>(Ordering::Start).key(&key).share(format!("s{}", fastrand::u8(..3))).await?;
    say(&format!("inserted {key} {id}"));
    for dedup in PAYMENTS {
        // Some payments are left to the audit, some are sent twice.
        for _ in 0..fastrand::usize(..3) {
            if client.signal(key.as_str(), PAID, dedup.to_owned()).dedup(dedup).await.is_ok() {
                say(&format!("signalled {key} {dedup}"));
            }
        }
    }
    Ok(())
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A parent that has gone away is about to kill us.
    let _ = writeln!(out, "{}", line.replace('\n', " "));
    let _ = out.flush();
}
