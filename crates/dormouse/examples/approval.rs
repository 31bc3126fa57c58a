//! The first of several signals, with a timeout: a request is approved, rejected, or passed on to a director
//! when nobody answers in time.
//!
//! Runs on the testing kit, so that the days between the steps take no time.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::testing::TestEngine;
use dormouse::{Accepts, Error, Json, NewSignal};

struct Approvals;

#[derive(Serialize, Deserialize)]
enum Request {
    Ask { cents: u64 },
    Answer { cents: u64, asked: Who },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Who {
    Manager,
    Director,
}

#[derive(Serialize, Deserialize)]
struct Reason {
    text: String,
}

const APPROVED: Signal<()> = Signal::named("approved");
const REJECTED: Signal<Reason> = Signal::named("rejected");
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Machine for Approvals {
    const NAME: &'static str = "approval";
    type State = Request;
    type Output = String;

    async fn step(&self, state: Request, cx: &Context) -> StepResult<Self> {
        let (cents, asked) = match state {
            Request::Ask { cents } => return Ok(ask(cents, Who::Manager)),
            Request::Answer { cents, asked } => (cents, asked),
        };
        if let Some(reason) = cx.received(REJECTED)?.first() {
            return Ok(Outcome::done(format!("rejected by the {asked:?}: {}", reason.text)));
        }
        if !cx.received(APPROVED)?.is_empty() {
            return Ok(Outcome::done(format!("{cents} cents approved by the {asked:?}")));
        }
        // Neither came, so the deadline woke this step. That is no failure.
        assert!(cx.timed_out() && cx.attempt() == 0);
        Ok(match asked {
            Who::Manager => ask(cents, Who::Director),
            Who::Director => Outcome::stop("nobody answered"),
        })
    }

    /// Payloads of these are checked before they are stored.
    fn accepts() -> Vec<Accepts> {
        vec![APPROVED.into(), REJECTED.into()]
    }
}

fn ask(cents: u64, asked: Who) -> Outcome<Approvals> {
    Outcome::await_signal(APPROVED.or(REJECTED).timeout(DAY), Request::Answer { cents, asked })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let test = TestEngine::start(|engine| engine.machine(Approvals)).await?;
    let client = test.client();
    for key in ["quick", "slow", "forgotten"] {
        client.start::<Approvals>(Request::Ask { cents: 50_000 }).key(key).await?;
    }
    test.drain().await?;
    println!("waiting for \"rejected\": {}", client.find_waiting(REJECTED, 10).await?.instances.len());

    // Whoever sends JSON by name is told at once what is wrong with it.
    let malformed = NewSignal::new("rejected", Json::parse("payload", r#"{"txt":"too dear"}"#)?);
    let refused = client.signal_raw("quick", malformed).await.expect_err("a payload of another shape");
    println!("{refused}");
    assert!(matches!(refused, Error::PayloadRefused { .. }));

    client.signal("quick", REJECTED, Reason { text: "too dear".to_owned() }).await?;
    test.assert_output("quick", "rejected by the Manager: too dear").await;

    test.advance(DAY).await?; // the managers did not answer
    client.signal("slow", APPROVED, ()).await?;
    test.assert_output("slow", "50000 cents approved by the Director").await;

    test.advance(DAY).await?; // and neither did this director
    println!("{}", client.explain("forgotten").await?);
    let ended = client.wait_end("forgotten", Duration::ZERO).await?;
    assert_eq!(ended.last_error.as_deref(), Some("nobody answered"));
    Ok(())
}
