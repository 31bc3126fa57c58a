//! A refund: asks a person whether the money goes back, and sleeps until they answer.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::InteractionFilter;
use dormouse::{Client, InteractionStatus, Result};

/// How long to wait for an answer before giving up.
const ANSWER_WITHIN: Duration = Duration::from_secs(3600);
/// How many questions may wait for a person, and how often a new one is asked.
const OPEN_MAX: usize = 6;
const FIRST: usize = 3;
const ANOTHER_EVERY: Duration = Duration::from_secs(20);
const REASONS: [&str; 5] =
    ["arrived broken", "wrong size", "never arrived", "ordered twice", "not as in the picture"];

/// The machine `refund`.
pub(super) struct Refunds;

#[derive(Serialize, Deserialize)]
pub(super) enum Refund {
    Ask(Claim),
    Decide(Claim),
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Claim {
    order: u64,
    cents: u64,
    reason: String,
}

/// What the person sees.
#[derive(Serialize)]
struct Question {
    question: String,
    claim: Claim,
}

/// What the person says.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub(super) struct Decision {
    approved: bool,
    #[serde(default)]
    note: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Refunded {
    cents: u64,
    note: Option<String>,
}

impl Machine for Refunds {
    const NAME: &'static str = "refund";
    type State = Refund;
    type Output = Refunded;

    async fn step(&self, state: Refund, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Refund::Ask(claim) => {
                let question = format!("Pay back {}.{:02}?", claim.cents / 100, claim.cents % 100);
                let unit = Unit::one(Question { question, claim: claim.clone() }).timeout(ANSWER_WITHIN);
                Outcome::dispatch(unit, Refund::Decide(claim))
            }
            Refund::Decide(claim) => match cx.unit::<Decision>().await?.one()? {
                Decision { approved: true, note } => Outcome::done(Refunded { cents: claim.cents, note }),
                Decision { approved: false, note } => {
                    Outcome::stop(note.unwrap_or_else(|| "declined".to_owned()))
                }
            },
        })
    }

    fn takes() -> Vec<dormouse::Takes> {
        // The schema also applies where this code is not: in a plain `dormouse serve` beside the shop.
        let schema = schemars::schema_for!(Decision).to_value();
        vec![dormouse::Takes::at::<Decision>("Decide").schema(schema)]
    }
}

/// Keeps a few questions waiting for visitors of the dashboard, until it is aborted.
pub(super) async fn ask_now_and_then(client: Client) {
    let mut tick = tokio::time::interval(ANOTHER_EVERY);
    loop {
        tick.tick().await;
        if let Err(error) = ask(&client, 1).await {
            tracing::warn!(%error, "no refund could be asked for");
        }
    }
}

/// Asks enough questions that the first visitor finds something to decide.
pub(super) async fn ask_first(client: &Client) -> Result<()> {
    ask(client, FIRST).await
}

async fn ask(client: &Client, count: usize) -> Result<()> {
    let open = InteractionFilter {
        status: Some(InteractionStatus::Pending),
        machine: Some(Refunds::NAME.to_owned()),
        limit: OPEN_MAX,
        ..InteractionFilter::default()
    };
    let open = client.interactions(open).await?.items.len();
    for _ in open..OPEN_MAX.min(open + count) {
        let order = fastrand::u64(1_001..2_000);
        let reason = REASONS[fastrand::usize(..REASONS.len())].to_owned();
        let claim = Claim { order, cents: fastrand::u64(900..15_000), reason };
        client.start::<Refunds>(Refund::Ask(claim)).await?;
    }
    Ok(())
}
