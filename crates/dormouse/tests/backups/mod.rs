//! What every backup must hold, whichever store it is of: a copy that is made while an engine works.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Client, Delivered, Engine, EngineBuilder, Status};

const GO: Signal<u32> = Signal::named("go");
const STEPS: u32 = 40;
const RUNNERS: usize = 50;
const WITHIN: Duration = Duration::from_secs(30);

/// Counts to a number, and then waits for a signal.
struct Runner;

#[derive(Serialize, Deserialize)]
enum Run {
    Count { n: u32 },
    Wait,
    End,
}

impl Machine for Runner {
    const NAME: &'static str = "runner";
    type State = Run;
    type Output = u32;

    async fn step(&self, state: Run, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Run::Count { n } if n < STEPS => Outcome::next(Run::Count { n: n + 1 }),
            Run::Count { .. } => Outcome::next(Run::Wait),
            Run::Wait => Outcome::await_signal(GO, Run::End),
            Run::End => Outcome::done(cx.received(GO)?.into_iter().sum()),
        })
    }
}

pub(crate) fn with_machine(engine: EngineBuilder) -> EngineBuilder {
    engine.machine(Runner).queue("default", 8)
}

/// Starts work, has a copy made while it runs, and lets all of it end after that.
pub(crate) async fn copied_under_load(engine: Engine, copy: impl AsyncFnOnce()) {
    let client = engine.client();
    client.start::<Runner>(Run::Wait).key("early").await.expect("a start");
    // It is in the copy, consumed or not.
    client.signal("early", GO, 1).dedup("one").await.expect("a signal");
    client.wait_until_ended("early").await;
    client.start::<Runner>(Run::Wait).key("waiting").await.expect("a start");
    for number in 0..RUNNERS {
        client.start::<Runner>(Run::Count { n: 0 }).key(format!("runner:{number}")).await.expect("a start");
    }
    copy().await;
    // What happens after the copy is not in it.
    client.signal("waiting", GO, 5).dedup("lost").await.expect("a signal");
    client.wait_until_ended("waiting").await;
    engine.shutdown().await;
}

/// Goes on from a copy.
pub(crate) async fn goes_on(engine: Engine) {
    let client = engine.client();
    let early = client.get("early").await.expect("a read").expect("it is in the copy");
    assert_eq!(early.status, Status::Done);
    let waiting = client.get("waiting").await.expect("a read").expect("it is in the copy");
    assert!(!waiting.status.is_terminal(), "its signal came after the copy was made: {waiting:?}");
    // Its sender sends it again.
    let delivered = client.signal("waiting", GO, 5).dedup("lost").await.expect("a signal");
    assert!(matches!(delivered, Delivered::Accepted { .. }), "{delivered:?}");
    client.wait_until_ended("waiting").await;
    for number in 0..RUNNERS {
        let key = format!("runner:{number}");
        client.signal(key.as_str(), GO, 7).await.expect("every runner is in the copy");
        client.wait_until_ended(&key).await;
    }
    engine.shutdown().await;
}

trait Ended {
    async fn wait_until_ended(&self, key: &str);
}

impl Ended for Client {
    async fn wait_until_ended(&self, key: &str) {
        let id = self.get(key).await.expect("a read").expect("it is there").id;
        self.wait::<Runner>(id, WITHIN).await.expect("its end");
    }
}
