//! The envelope of a request: the same JSON document over HTTP and over a broker.

use jiff::Timestamp;
use serde::Serialize;

use crate::{InstanceId, Interaction, InteractionId, Json};

/// A request and what is needed to answer it.
#[derive(Serialize)]
pub(super) struct Envelope<'a> {
    interaction: InteractionId,
    instance: InstanceId,
    namespace: &'a str,
    machine: &'a str,
    idempotency_key: &'a str,
    correlation_id: Option<&'a str>,
    send: u32,
    deadline: Option<Timestamp>,
    for_assignee: Option<&'a str>,
    for_group: Option<&'a str>,
    #[serde(flatten)]
    resume: Option<Resume>,
    request: &'a Json,
}

/// The resume URL or token, which gives its holder the right to answer.
#[derive(Serialize)]
pub(super) enum Resume {
    #[cfg(feature = "webhook")]
    #[serde(rename = "resume_url")]
    Url(String),
    #[cfg(feature = "nats")]
    #[serde(rename = "resume_token")]
    Token(String),
}

impl<'a> Envelope<'a> {
    pub(super) fn new(asked: &'a Interaction, resume: Option<Resume>) -> Self {
        Self {
            interaction: asked.id,
            instance: asked.instance,
            namespace: &asked.namespace,
            machine: &asked.machine,
            idempotency_key: &asked.idempotency_key,
            correlation_id: asked.correlation_id.as_deref(),
            send: asked.sends,
            deadline: asked.deadline,
            for_assignee: asked.for_assignee.as_deref(),
            for_group: asked.for_group.as_deref(),
            resume,
            request: &asked.request,
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("an envelope can be written")
    }
}
