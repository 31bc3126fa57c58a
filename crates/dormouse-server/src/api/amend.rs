//! Repairing an inbox: dropping and editing signals in it.

use dormouse::{AmendCall, Json, SignalId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::operate::InstanceRef;
use crate::problem::Problem;
use crate::route::{Answer, Call, Nothing};

/// The condition for dropping a signal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DropSignal")]
pub(super) struct DropBody {
    /// Change it only if the instance is at this `seq`.
    expected_seq: Option<u64>,
}

/// The new payload of a signal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EditSignal")]
pub(super) struct EditBody {
    /// The payload that replaces the old one.
    #[schemars(with = "serde_json::Value")]
    payload: Json,
    /// Change it only if the instance is at this `seq`.
    expected_seq: Option<u64>,
}

pub(super) async fn drop(call: Call<Nothing, DropBody>) -> Result<Answer<InstanceRef>, Problem> {
    let dropped = call.client.drop_signal(call.target()?, signal(&call)?);
    amended(dropped, call.body.expected_seq).await
}

pub(super) async fn edit(call: Call<Nothing, EditBody>) -> Result<Answer<InstanceRef>, Problem> {
    let edited = call.client.edit_signal(call.target()?, signal(&call)?, call.body.payload.clone());
    amended(edited, call.body.expected_seq).await
}

async fn amended(call: AmendCall<'_>, expected_seq: Option<u64>) -> Result<Answer<InstanceRef>, Problem> {
    let id = match expected_seq {
        Some(seq) => call.expected_seq(seq).await?,
        None => call.await?,
    };
    Answer::ok(InstanceRef { id: id.0 })
}

/// The signal that the path names.
fn signal<B>(call: &Call<Nothing, B>) -> Result<SignalId, Problem> {
    let text = call.path("signal");
    text.parse().map(SignalId).map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        Problem::invalid(format!("{shown:?} is not the id of a signal: write the id that the inbox shows"))
    })
}
