//! The counters that the guide promises, as somebody's recorder gets them.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::InteractionFilter;
use dormouse::{Engine, Interaction, Json, Sending, Sent, Status, Transport};

use crate::counted::Counted;
use crate::kit::{Kit, SOON};

/// Runs a test on one thread, as a recorder hears of its own thread alone.
macro_rules! on_one_thread {
    ($($store:ident: $kit:expr, $test:ident;)+) => {
        $(mod $store {
            #[tokio::test(flavor = "current_thread")]
            async fn $test() {
                super::$test($kit).await;
            }
        })+
    };
}

on_one_thread! {
    sqlite_memory: crate::kit::Kit::sqlite_memory(), steps_and_sends_are_counted;
    sqlite_file: crate::kit::Kit::sqlite_file().await, steps_and_sends_are_counted;
    postgres: crate::kit::Kit::postgres().await, steps_and_sends_are_counted;
}

/// Sends each row to the bank, and fails once before.
struct Payments;

#[derive(Serialize, Deserialize)]
enum Paying {
    Ask,
    Told,
}

impl Machine for Payments {
    const NAME: &'static str = "payments";
    type State = Paying;
    type Output = usize;

    async fn step(&self, state: Paying, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Paying::Ask if cx.attempt() == 0 => return Err("not yet".into()),
            Paying::Ask => {
                let rows = ["accepted", "answered", "rejected", "busy"].map(str::to_owned);
                Outcome::dispatch(Unit::each(rows).transport("bank"), Paying::Told)
            }
            Paying::Told => Outcome::done(cx.unit::<bool>().await?.verdicts.len()),
        })
    }

    fn retry(&self) -> Retry {
        Retry::times(2).backoff(Duration::from_secs(60), Duration::from_secs(60))
    }
}

struct Bank;

impl Transport for Bank {
    fn send<'a>(&'a self, asked: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        let yes = || Json::from(serde_json::json!(true));
        let sent = match (asked.request.as_str(), asked.sends) {
            (r#""accepted""#, _) => Sent::Accepted,
            (r#""rejected""#, _) => Sent::Rejected("no such account".to_owned()),
            (r#""busy""#, 1) => Sent::Retry { reason: "busy".to_owned(), after: None },
            _ => Sent::Answered(yes()),
        };
        Box::pin(std::future::ready(sent))
    }
}

async fn steps_and_sends_are_counted(kit: Kit) {
    let counted = Counted::default();
    let recorder = counted.clone();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let sending = Sending { backoff: Duration::from_millis(1), ..Sending::default() };
    let builder: dormouse::EngineBuilder =
        kit.engine().machine(Payments).transport_with("bank", Bank, sending);
    let engine: Engine = builder.start().await.expect("the engine starts");
    let client = engine.client();
    let id = client.start::<Payments>(Paying::Ask).await.expect("a start");
    kit.until(id, Status::Scheduled).await;
    kit.advance(Duration::from_secs(60));
    kit.until(id, Status::AwaitingCompletion).await;
    assert_eq!(counted.of("dormouse_places", &["queue=default"]), 64.0);
    let all = || InteractionFilter { instance: Some(id), ..InteractionFilter::default() };
    loop {
        // Time stands still, so what is put off is sent when the test says so.
        kit.advance(Duration::from_secs(1));
        let asked = client.interactions(all()).await.expect("a read").items;
        let sent = asked.iter().filter(|item| !item.status.is_open()).count();
        let accepted = asked.iter().find(|item| item.dispatched_at.is_some() && item.status.is_open());
        if let (3, Some(accepted)) = (sent, accepted) {
            client.complete(accepted.id, &true).await.expect("an answer");
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(client.wait::<Payments>(id, SOON).await.expect("an output"), 4);
    engine.shutdown().await;

    let machine: &[&str] = &["machine=payments"];
    assert_eq!(counted.of("dormouse_step_errors_total", machine), 1.0, "{:?}", counted.0);
    assert_eq!(counted.of("dormouse_step_seconds", machine), 3.0, "a failed try is one, too");
    for (step, runs) in [("Ask", 2.0), ("Told", 1.0)] {
        let labels: &[&str] = &["machine=payments", &format!("step={step}")];
        assert_eq!(counted.of("dormouse_step_seconds", labels), runs, "{step}: {:?}", counted.0);
    }
    assert_eq!(counted.of("dormouse_ends_total", &["machine=payments", "outcome=done"]), 1.0);
    assert_eq!(counted.of("dormouse_ends_total", &[]), 1.0);
    assert_eq!(counted.of("dormouse_claim_wait_seconds", &["queue=default"]), 3.0);
    assert_eq!(counted.of("dormouse_places_in_use", &["queue=default"]), 0.0);
    assert_eq!(counted.of("dormouse_claims_total", &[]), 3.0);
    assert_eq!(counted.of("dormouse_commits_total", &[]), 3.0);
    assert!(counted.of("dormouse_commit_group", &[]) >= 1.0);
    assert!(counted.of("dormouse_woken_total", &[]) >= 1.0, "its retry was due");
    for (outcome, times) in [("sent", 1.0), ("answered", 2.0), ("rejected", 1.0), ("retry", 1.0)] {
        let labels: &[&str] = &["transport=bank", &format!("outcome={outcome}")];
        assert_eq!(counted.of("dormouse_sends_total", labels), times, "{outcome}: {:?}", counted.0);
    }
    assert_eq!(counted.of("dormouse_stale_total", &[]), 0.0);
}
