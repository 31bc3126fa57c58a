//! What an operator reads in the log: one line for each trouble, and one when it is over.

use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::store::NewWorker;
use dormouse::{
    Dispatch, Engine, Interaction, Json, NewInstance, Sending, Sent, Status, Transition, Transport,
    TroubleKind,
};
use tracing::subscriber::DefaultGuard;

use crate::faulty::Faulty;
use crate::kit::*;

/// Runs tests on every store, on one thread, as a log is that of its thread.
macro_rules! on_one_thread {
    ($($test:ident),+ $(,)?) => {
        mod sqlite_file {
            $(#[tokio::test(flavor = "current_thread")]
            async fn $test() {
                super::$test(crate::kit::Kit::sqlite_file().await).await;
            })+
        }
        mod sqlite_memory {
            $(#[tokio::test(flavor = "current_thread")]
            async fn $test() {
                super::$test(crate::kit::Kit::sqlite_memory()).await;
            })+
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test(flavor = "current_thread")]
            async fn $test() {
                super::$test(crate::kit::Kit::postgres().await).await;
            })+
        }
    };
}

on_one_thread![
    an_instance_that_fails_is_one_line_that_says_which_and_why,
    an_instance_that_is_given_up_after_crashes_is_one_line,
    an_outage_of_the_store_is_one_line_when_it_begins_and_one_when_it_is_over,
    sends_that_keep_failing_are_logged_when_it_begins_and_when_it_ends,
    what_nobody_serves_is_logged_once_and_again_when_it_is_over,
];

/// The lines that were logged in this thread at level warn or above.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn listen() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn lines(&self, with: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned();
        text.lines().filter(|line| line.contains(with)).map(str::to_owned).collect()
    }

    async fn until(&self, with: &str) {
        let waited = tokio::time::timeout(SOON, async {
            while self.lines(with).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        if waited.await.is_err() {
            panic!("nothing was logged with {with:?}: {:#?}", self.lines(""));
        }
    }
}

async fn an_instance_that_fails_is_one_line_that_says_which_and_why(kit: Kit) {
    let (log, _listening) = Log::listen();
    let engine = kit.run(|_, _| Ok(fail("out of stock\n  in hall 7"))).await;
    let id = kit.insert(m().key("order:1")).await;
    kit.until(id, Status::Failed).await;
    log.until("an instance failed").await;
    engine.shutdown().await;
    let lines = log.lines("");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for part in [
        "WARN",
        "machine=\"m\"",
        "key=\"order:1\"",
        &format!("id={id}"),
        "step=\"start\"",
        r"out of stock\\n  in hall 7",
    ] {
        assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
    }
}

async fn an_instance_that_is_given_up_after_crashes_is_one_line(kit: Kit) {
    let (log, _listening) = Log::listen();
    let id = kit.insert(m().key("order:2")).await;
    let worker = kit.worker_with_lease("dying", Duration::from_secs(1)).await;
    kit.claim_one(worker).await;
    kit.advance(Duration::from_secs(2));
    // It runs nothing, but takes back what others left.
    let engine = kit.engine().crashes_max(1).start().await.expect("an engine");
    kit.until(id, Status::Failed).await;
    log.until("an instance failed").await;
    engine.shutdown().await;
    let lines = log.lines("an instance failed");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("key=\"order:2\"") && lines[0].contains("machine=\"m\""), "{}", lines[0]);
}

async fn an_outage_of_the_store_is_one_line_when_it_begins_and_one_when_it_is_over(kit: Kit) {
    let (log, _listening) = Log::listen();
    let store = Arc::new(Faulty::on(kit.store.clone()));
    let engine = Engine::on(store.clone())
        .lease(Duration::from_secs(u32::MAX.into()))
        .poll(Duration::from_millis(1))
        .dyn_machine(Script::named("m", |_, _| Ok(done())));
    let engine = engine.start().await.expect("an engine");
    for verb in ["claim", "due"] {
        store.refuse_next(verb, 4);
    }
    log.until("the store works again").await;
    let id = kit.insert(m()).await;
    kit.until(id, Status::Done).await;
    engine.shutdown().await;
    let lines = log.lines("");
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("the store fails: trying again until it works"), "{lines:#?}");
    assert!(lines[1].contains("failures=8"), "every failure is counted: {lines:#?}");
}

/// A partner that is down for its first sends.
struct Down {
    sends: AtomicU32,
    until: u32,
}

impl Transport for Down {
    fn send<'a>(&'a self, _: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        let sent = match self.sends.fetch_add(1, Ordering::Relaxed) {
            number if number < self.until => Sent::Retry { reason: "refused".to_owned(), after: None },
            _ => Sent::Answered(Json::from(serde_json::json!(true))),
        };
        Box::pin(std::future::ready(sent))
    }
}

fn ask(transport: &str) -> Transition {
    let transport = transport.to_owned();
    Transition::Dispatch(Dispatch { transport, ..crate::units::kit::one("anything") })
}

async fn sends_that_keep_failing_are_logged_when_it_begins_and_when_it_ends(kit: Kit) {
    let (log, _listening) = Log::listen();
    let sending = Sending { backoff: Duration::from_millis(1), ..Sending::default() };
    let partner = Down { sends: AtomicU32::new(0), until: 6 };
    let script = Script::named("m", |at, _| Ok(if at.step == "start" { ask("partner") } else { done() }));
    let engine = kit.engine().dyn_machine(script).transport_with("partner", partner, sending);
    let engine = engine.start().await.expect("an engine");
    let id = kit.insert(m()).await;
    let deadline = tokio::time::Instant::now() + SOON;
    while kit.status(id).await != Status::Done {
        assert!(tokio::time::Instant::now() < deadline, "{:#?}", log.lines(""));
        // Time stands still, so what is put off is sent when the test says so.
        kit.advance(Duration::from_secs(600));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    log.until("sends succeed again").await;
    engine.shutdown().await;
    let lines = log.lines("");
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("sends keep failing") && lines[0].contains("refused"), "{lines:#?}");
    assert!(lines[0].contains("transport=\"partner\"") && lines[1].contains("failures=6"), "{lines:#?}");
}

async fn what_nobody_serves_is_logged_once_and_again_when_it_is_over(kit: Kit) {
    let (log, _listening) = Log::listen();
    let script = Script::named("m", |_, _| Ok(ask("partnr")));
    let engine = kit.engine().dyn_machine(script).watch_every(Duration::from_millis(5));
    let engine = engine.start().await.expect("an engine");
    kit.insert(NewInstance::named("forgotten", 1, at("start")).even_if_unknown()).await;
    kit.insert(NewInstance::named("m", 7, at("start")).even_if_unknown()).await;
    kit.insert(m().queue("nightly")).await;
    let asking = kit.insert(m()).await;
    kit.until(asking, Status::AwaitingCompletion).await;
    let told = [
        r#"no live worker runs machine "forgotten", which has 1 live instance"#,
        r#"no live worker runs version 7 of machine "m", which has 1 live instance"#,
        r#"no live worker serves queue "nightly", which has 1 runnable instance"#,
        r#"no live worker has transport "partnr", by which 1 request should be sent"#,
    ];
    for line in told {
        log.until(line).await;
    }
    let troubles = kit.client().troubles().await.expect("a read");
    let kinds: Vec<_> = troubles.iter().map(|trouble| trouble.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == TroubleKind::NobodyRuns).count(), 2, "{troubles:?}");
    // A worker that has all of them ends it.
    let helper = NewWorker {
        machines: vec![("forgotten".to_owned(), 1), ("m".to_owned(), 7)],
        queues: vec!["nightly".to_owned()],
        transports: vec!["partnr".to_owned()],
        ..kit.new_worker("helper")
    };
    kit.store.register(helper).await.expect("a worker");
    while log.lines("this trouble is over").len() < told.len() {
        log.until("this trouble is over").await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.shutdown().await;
    for line in told {
        assert_eq!(log.lines(line).len(), 1, "{:#?}", log.lines(""));
    }
    assert_eq!(log.lines("").len(), 2 * told.len(), "{:#?}", log.lines(""));
}
