//! Errors after which a further try makes no sense.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dormouse::flow::{ActResult, Cx, Flow, act};
use dormouse::prelude::*;
use dormouse::{EventKind, Status};

use crate::kit::*;

suite![
    a_job_that_fails_for_good_is_not_tried_again,
    a_machine_with_a_retry_policy_stops_at_an_error_that_is_final,
    a_handler_sees_that_an_error_is_final,
    an_act_that_fails_for_good_is_not_tried_again,
];

/// An error around another.
#[derive(Debug)]
struct Around(BoxError);

impl fmt::Display for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the transfer failed")
    }
}

impl std::error::Error for Around {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum How {
    Final,
    Wrapped,
    AroundAnother,
    NotFinal,
}

/// What each tells at its end; the last is tried twice.
const TOLD: [(How, &str, u32); 4] = [
    (How::Final, "no such account", 1),
    (How::Wrapped, "the transfer failed: no such account", 1),
    (How::AroundAnother, "the transfer failed: the line is dead", 1),
    (How::NotFinal, "the line is dead", 2),
];

fn fails(how: How) -> BoxError {
    match how {
        How::Final => Final::new("no such account").into(),
        How::Wrapped => Around(Around(Final::new("no such account").into()).into()).into(),
        How::AroundAnother => Final::new(Around("the line is dead".into())).into(),
        How::NotFinal => "the line is dead".into(),
    }
}

const TWICE: Retry = Retry::times(2).backoff(Duration::ZERO, Duration::ZERO);

struct Transfer(Arc<AtomicU32>);

impl Job for Transfer {
    const NAME: &'static str = "transfer";
    type Input = How;
    type Output = ();
    async fn run(&self, how: How, _: &Context) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(fails(how))
    }
    fn retry(&self) -> Retry {
        TWICE
    }
}

async fn a_job_that_fails_for_good_is_not_tried_again(kit: Kit) {
    let tries = Arc::new(AtomicU32::new(0));
    let engine = kit.engine().job(Transfer(tries.clone())).start().await.expect("the engine starts");
    for (how, told, expected) in TOLD {
        tries.store(0, Ordering::SeqCst);
        let id = engine.client().start_job::<Transfer>(how).await.expect("a start");
        let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
        assert_eq!((ended.status, ended.last_error.as_deref()), (Status::Failed, Some(told)));
        assert_eq!(tries.load(Ordering::SeqCst), expected, "{how:?}");
    }
    engine.shutdown().await;
}

#[derive(Serialize, Deserialize)]
enum State {
    Try(How),
}

struct Trier;

impl Machine for Trier {
    const NAME: &'static str = "trier";
    type State = State;
    type Output = ();
    async fn step(&self, State::Try(how): State, _: &Context) -> StepResult<Self> {
        Err(fails(how))
    }
    fn retry(&self) -> Retry {
        TWICE
    }
}

async fn a_machine_with_a_retry_policy_stops_at_an_error_that_is_final(kit: Kit) {
    let engine = kit.engine().machine(Trier).start().await.expect("the engine starts");
    for (how, told, expected) in TOLD {
        let id = engine.client().start::<Trier>(State::Try(how)).await.expect("a start");
        let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
        assert_eq!((ended.status, ended.last_error.as_deref()), (Status::Failed, Some(told)));
        let retried = kit.story(id).await.into_iter().filter(|kind| *kind == EventKind::StepRetried);
        assert_eq!(retried.count() as u32, expected - 1, "{how:?}");
    }
    engine.shutdown().await;
}

async fn a_handler_sees_that_an_error_is_final(kit: Kit) {
    struct Handler;
    impl Machine for Handler {
        const NAME: &'static str = "handler";
        type State = State;
        type Output = bool;
        async fn step(&self, State::Try(how): State, _: &Context) -> StepResult<Self> {
            Err(fails(how))
        }
        async fn handle(&self, error: StepError, _: State, _: &Context) -> StepResult<Self> {
            Ok(Outcome::done(error.is_final()))
        }
    }
    let engine = kit.engine().machine(Handler).start().await.expect("the engine starts");
    for (how, ..) in TOLD {
        let id = engine.client().start::<Handler>(State::Try(how)).await.expect("a start");
        let is_final = engine.client().wait::<Handler>(id, SOON).await.expect("it is done");
        assert_eq!(is_final, how != How::NotFinal, "{how:?}");
    }
    engine.shutdown().await;
}

async fn an_act_that_fails_for_good_is_not_tried_again(kit: Kit) {
    #[derive(Serialize, Deserialize)]
    struct Account {
        how: How,
    }
    async fn transfer(account: Account, _: Cx<()>) -> ActResult<Account> {
        Err(fails(account.how))
    }
    let flow = Flow::new("f").then(act(transfer).retry(TWICE)).build(()).expect("it is well formed");
    let flow = Arc::new(flow);
    let engine = kit.engine().dyn_machine(flow.clone()).start().await.expect("the engine starts");
    for (how, told, expected) in TOLD {
        let new = flow.instance(&Account { how }).expect("a state");
        let id = engine.client().start_many([new]).await.expect("a start")[0].id();
        let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
        assert_eq!((ended.status, ended.last_error.as_deref()), (Status::Failed, Some(told)));
        let retried = kit.story(id).await.into_iter().filter(|kind| *kind == EventKind::StepRetried);
        assert_eq!(retried.count() as u32, expected - 1, "{how:?}");
    }
    engine.shutdown().await;
}
