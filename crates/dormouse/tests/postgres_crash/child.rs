//! What the worker processes do, and say on their standard output.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dormouse::prelude::*;
use dormouse::{Engine, EngineBuilder};
use tokio::signal::unix::{SignalKind, signal};

use super::load::Load;
use super::shop::{self, Tell, ran};
use super::versions::{NewGreeting, OldGreeting};
use super::{LEASE, LONG_LEASE, SOON};

pub const DATABASE: &str = "DORMOUSE_CRASH_POSTGRES";
pub const MODE: &str = "DORMOUSE_CRASH_MODE";
/// Queues that are served by one kind of worker alone.
pub const HELD: &str = "held";
pub const OWN: &str = "own";

/// A job whose first try lasts until this process was out for longer than a lease, as by a stop; the second try ends.
pub struct Holding {
    pub tell: Tell,
    /// Whether it was dropped before its end.
    pub dropped: Arc<AtomicBool>,
    /// What the first try waits for beside that.
    pub go: Arc<tokio::sync::Notify>,
}

impl Holding {
    pub fn new(tell: &Tell) -> Self {
        Self { tell: tell.clone(), dropped: Arc::default(), go: Arc::default() }
    }
}

/// Notes that it was dropped.
struct Guard(Arc<AtomicBool>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Job for Holding {
    const NAME: &'static str = "holding";
    type Input = ();
    type Output = u64;

    async fn run(&self, (): (), cx: &Context) -> Result<u64, BoxError> {
        let number = ran(&self.tell, cx, "Run");
        if cx.attempt() > 0 {
            return Ok(number);
        }
        let guard = Guard(self.dropped.clone());
        say(&format!("holds {}", cx.id()));
        loop {
            let before = Instant::now();
            let pause = tokio::time::timeout(Duration::from_millis(5), self.go.notified());
            if pause.await.is_ok() || before.elapsed() > LEASE {
                std::mem::forget(guard);
                return Ok(number);
            }
        }
    }
}

/// An engine as all of them are.
pub async fn engine(url: &str, tell: &Tell) -> EngineBuilder {
    let builder = Engine::open(&format!("{url}?connections=6&patience_ms=1000")).await.expect("it opens");
    shop::machines(builder, tell).lease(LEASE).poll(Duration::from_millis(100))
}

/// An engine whose lease outlasts whatever a busy machine does to it, for tests in which none may be lost.
pub async fn patient(url: &str, tell: &Tell) -> EngineBuilder {
    let builder = Engine::open(&format!("{url}?connections=6")).await.expect("it opens");
    shop::machines(builder, tell).lease(LONG_LEASE).drain(SOON).poll(Duration::from_millis(100))
}

/// An engine that also runs what is held.
pub fn holder(engine: EngineBuilder, holding: Holding) -> EngineBuilder {
    engine.job(holding).queue(HELD, 4)
}

#[test]
fn the_child_does_as_it_is_told() {
    let (Ok(url), Ok(mode)) = (std::env::var(DATABASE), std::env::var(MODE)) else { return };
    std::thread::spawn(|| {
        // Nothing is ever written there: it ends with the process that holds the other end, which this one must not
        // outlive.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let tell: Tell = Arc::new(|fact| say(&fact.to_string()));
        match mode.as_str() {
            "load" => load(engine(&url, &tell).await, &tell).await,
            "patient load" => load(patient(&url, &tell).await, &tell).await,
            "hold" => serve(holder(engine(&url, &tell).await, Holding::new(&tell))).await,
            "stop" => {
                let builder = holder(engine(&url, &tell).await, Holding::new(&tell));
                serve(builder.queue(OWN, 4).worker_name("stopped")).await;
            }
            "old" => serve(engine(&url, &tell).await.machine(OldGreeting)).await,
            "new" => serve(engine(&url, &tell).await.machine(NewGreeting)).await,
            other => panic!("{other} is no mode"),
        }
    });
}

/// Starts orders and pays them, until it is killed, or asked to end: then it drains.
async fn load(builder: EngineBuilder, tell: &Tell) {
    // Why a step was interrupted, where none should be, is told by the worker alone.
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr);
    log.with_ansi(false).init();
    let mut asked = signal(SignalKind::terminate()).expect("a handler");
    let engine = builder.start().await.expect("it starts");
    say(&format!("clock {}", clock_s()));
    let load = Load::start(&engine.client(), tell.clone());
    asked.recv().await;
    load.stop().await;
    engine.shutdown().await;
}

/// Runs what others start.
async fn serve(builder: EngineBuilder) {
    let mut asked = signal(SignalKind::terminate()).expect("a handler");
    let engine = builder.start().await.expect("it starts");
    say("serves");
    asked.recv().await;
    engine.shutdown().await;
}

/// What this process takes the time to be, in seconds since 1970.
pub fn clock_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs()
}

pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Once the parent is gone, nobody is left to hear it.
    let _ = writeln!(out, "{}", line.replace('\n', " "));
    let _ = out.flush();
}
