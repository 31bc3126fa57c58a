//! The route that lists what keeps many instances from moving.

use dormouse::jiff::Timestamp;
use dormouse::{Trouble, TroubleKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::problem::Problem;
use crate::route::{Answer, Call};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Troubles")]
pub(super) struct TroublesView {
    troubles: Vec<TroubleView>,
}

/// Something that keeps many instances from moving.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Trouble")]
struct TroubleView {
    /// What kind: `no_worker`, `nobody_runs`, `nobody_serves`, `nobody_sends`, `sends_fail`, `breaker_open`
    /// or `queue_paused`.
    #[schemars(with = "String")]
    kind: TroubleKind,
    /// The machine, queue or transport; empty if there is no worker at all.
    name: String,
    /// The version of the machine.
    version: Option<u32>,
    /// How many instances, or requests; of requests, counted up to 1,000.
    count: u64,
    /// Since when the oldest of the requests may be sent.
    since: Option<Timestamp>,
    /// An instance that it concerns.
    instance: Option<i64>,
    /// The last error of a send.
    error: Option<String>,
    /// When the next send is due.
    next_at: Option<Timestamp>,
    /// What is wrong, in one sentence.
    told: String,
    /// What to do about it.
    advice: &'static str,
}

pub(super) async fn list(call: Call) -> Result<Answer<TroublesView>, Problem> {
    let troubles = call.client.troubles().await?.into_iter().map(view).collect();
    Answer::ok(TroublesView { troubles })
}

fn view(trouble: Trouble) -> TroubleView {
    TroubleView {
        told: trouble.told(),
        advice: trouble.advice(),
        kind: trouble.kind,
        name: trouble.name,
        version: trouble.version,
        count: trouble.count,
        since: trouble.since,
        instance: trouble.instance.map(|id| id.0),
        error: trouble.error,
        next_at: trouble.next_at,
    }
}
