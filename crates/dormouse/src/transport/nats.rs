//! NATS JetStream: each request is a message on one subject, and answers are messages on another.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{Context, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{AckKind, Message};
use futures_util::{FutureExt, StreamExt};
use serde::Deserialize;

use super::envelope::{self, Envelope};
use super::{Reception, Sent, Transport};
use crate::store::{Completed, Completion, Refusal, Which};
use crate::{BoxError, DEFAULT_NAMESPACE, Interaction, InteractionId, Json, Opened, Tokens, When};

/// Answers in progress at a time: received together, committed together.
const ANSWERS_MAX: usize = 256;
/// The default for how long the broker waits for the acknowledgement of an answer before it delivers it again.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// How long one pull waits for answers, and how soon the loss of the broker is noticed.
const PULL: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long to wait after a fault of the broker or the database.
const FAULT_PAUSE: Duration = Duration::from_secs(1);

/// Publishes requests to one subject of NATS JetStream, and receives answers from another.
///
/// You create the streams of both subjects. The message id is the interaction's, so a request that is sent again within
/// the stream's window is stored once. An answer is acknowledged after it was committed; one that is refused is
/// terminated, and one that the database could not store is delivered again.
pub struct Nats {
    jetstream: Context,
    requests: String,
    answers: String,
    durable: Option<String>,
    tokens: Option<(Tokens, Duration)>,
    ack_wait: Duration,
}

impl Nats {
    /// Publishes requests to `requests`, and receives answers from `answers`.
    pub fn new(jetstream: Context, requests: impl Into<String>, answers: impl Into<String>) -> Self {
        let (requests, answers) = (requests.into(), answers.into());
        Self { jetstream, requests, answers, durable: None, tokens: None, ack_wait: ACK_WAIT }
    }

    /// The name of the durable consumer that all workers share (by default `dormouse-` and the transport's name). It is
    /// created if there is none.
    #[must_use]
    pub fn durable(mut self, name: impl Into<String>) -> Self {
        self.durable = Some(name.into());
        self
    }

    /// Sends a resume token with each request, valid this long, and accepts no answer without one. Use it if not
    /// everyone who may publish answers may answer everything.
    #[must_use]
    pub fn tokens(mut self, tokens: Tokens, valid_for: Duration) -> Self {
        self.tokens = Some((tokens, valid_for));
        self
    }

    /// How long the broker waits before it delivers an answer again that a dead worker had received (30 s by default).
    /// It takes effect when the durable consumer is created.
    #[must_use]
    pub fn ack_wait(mut self, ack_wait: Duration) -> Self {
        self.ack_wait = ack_wait;
        self
    }

    async fn publish(&self, asked: &Interaction) -> Sent {
        let resume = self.tokens.as_ref().map(|(tokens, valid_for)| {
            let expires_at = When::In(*valid_for).moment(asked.handed_out_at());
            envelope::Resume::Token(tokens.issue(asked, expires_at))
        });
        let body = Envelope::new(asked, resume).to_json();
        let message = PublishMessage::build().payload(body.into()).message_id(message_id(asked));
        let message = match &asked.trace {
            Some(trace) => message.header("traceparent", trace.as_str()),
            None => message,
        };
        match self.jetstream.send_publish(self.requests.clone(), message).await {
            Ok(stored) => stored.await.map_or_else(not_stored, |_| Sent::Accepted),
            Err(error) => not_stored(error),
        }
    }

    async fn consume(&self, reception: &Reception) -> Result<(), BoxError> {
        let consumer = self.consumer(reception.transport()).await?;
        let messages =
            consumer.stream().max_messages_per_batch(ANSWERS_MAX).expires(PULL).heartbeat(HEARTBEAT);
        let mut messages = messages.messages().await?.ready_chunks(ANSWERS_MAX);
        loop {
            let taken = tokio::select! {
                () = reception.stopped() => {
                    // Otherwise answers that have arrived would wait for more until the acknowledgement time is over.
                    let arrived = messages.next().now_or_never().flatten().unwrap_or_default();
                    self.take(reception, arrived.into_iter().flatten().collect()).await;
                    return Ok(());
                }
                taken = messages.next() => taken.ok_or("the broker has ended the stream")?,
            };
            let mut answers = Vec::with_capacity(taken.len());
            let mut fault = None;
            for message in taken {
                match message {
                    Ok(message) => answers.push(message),
                    Err(error) => fault = Some(error),
                }
            }
            self.take(reception, answers).await;
            if let Some(error) = fault {
                return Err(error.into());
            }
        }
    }

    async fn consumer(&self, transport: &str) -> Result<PullConsumer, BoxError> {
        let stream = self.jetstream.stream_by_subject(&self.answers).await;
        let stream =
            stream.map_err(|error| format!("no stream has the subject {:?}: {error}", self.answers))?;
        let stream = self.jetstream.get_stream_no_info(stream).await?;
        let durable = self.durable.clone().unwrap_or_else(|| format!("dormouse-{transport}"));
        let config = pull::Config {
            durable_name: Some(durable.clone()),
            filter_subject: self.answers.clone(),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_ack_pending: 4 * ANSWERS_MAX as i64,
            ..pull::Config::default()
        };
        Ok(stream.get_or_create_consumer(&durable, config).await?)
    }

    /// Commits answers, then acknowledges them.
    async fn take(&self, reception: &Reception, messages: Vec<Message>) {
        let (mut batch, mut read) = (Vec::new(), Vec::new());
        for message in messages {
            match self.completion(&message.payload) {
                Ok(completion) => {
                    batch.push(completion);
                    read.push(message);
                }
                Err((refusal, reason)) => refuse(reception, &message, refusal, &reason).await,
            }
        }
        if batch.is_empty() {
            return;
        }
        match reception.admit(batch).await {
            Ok(completed) => {
                for (message, completed) in read.iter().zip(completed) {
                    settle(reception, message, completed).await;
                }
            }
            // One of them can never be stored, for example because it is too large. It must not hold up the others.
            Err(error) if error.is_of_the_document() && read.len() > 1 => {
                for message in read {
                    Box::pin(self.take(reception, vec![message])).await;
                }
            }
            Err(error) if error.is_of_the_document() => {
                for message in &read {
                    refuse(reception, message, Refusal::Malformed, &error.to_string()).await;
                }
            }
            Err(error) => {
                tracing::warn!(transport = reception.transport(), %error, "answers could not be stored");
                for message in &read {
                    tell(reception, message, AckKind::Nak(Some(FAULT_PAUSE))).await;
                }
                tokio::time::sleep(FAULT_PAUSE).await;
            }
        }
    }

    /// Parses a message, or returns why it is not an answer.
    fn completion(&self, body: &[u8]) -> Result<Completion, (Refusal, String)> {
        let malformed = |reason: &str| (Refusal::Malformed, reason.to_owned());
        let unreadable = |error: serde_json::Error| match error.classify() {
            // serde's error about a type may quote the message.
            serde_json::error::Category::Data => malformed("the message has a member of the wrong type"),
            _ => malformed(&format!("the message is not valid JSON: {error}")),
        };
        let forged = || (Refusal::Forged, Refusal::Forged.told().to_owned());
        let answer: Answer = serde_json::from_slice(body).map_err(unreadable)?;
        let result = match (answer.output, answer.error) {
            (Some(output), None) => Ok(output),
            (None, Some(reason)) => Err(reason),
            _ => return Err(malformed("the message has no output and no error, or both")),
        };
        if let Some((tokens, _)) = &self.tokens {
            let token = answer.resume_token.ok_or_else(forged)?;
            let Opened { namespace, interaction, proof } = tokens.open(&token).map_err(|_| forged())?;
            let (to, proof) = (Which::Id(interaction), Some(proof));
            return Ok(Completion { namespace, to, result, assignee: None, by: None, proof });
        }
        let to = match (answer.interaction, answer.correlation_id) {
            (Some(id), _) => Which::Id(id),
            (None, Some(id)) => Which::Correlation(id),
            (None, None) => return Err(malformed("the message names no interaction")),
        };
        let namespace = answer.namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        Ok(Completion { namespace, to, result, assignee: None, by: None, proof: None })
    }
}

impl Transport for Nats {
    fn send<'a>(&'a self, asked: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(self.publish(asked))
    }

    fn receive(&self, reception: Reception) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            while let Err(error) = self.consume(&reception).await {
                tracing::warn!(transport = reception.transport(), %error, "could not receive answers: trying again");
                tokio::select! {
                    () = reception.stopped() => return,
                    () = tokio::time::sleep(FAULT_PAUSE) => {}
                }
            }
        })
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, answers, .. } = self;
        f.debug_struct("Nats").field("requests", requests).field("answers", answers).finish_non_exhaustive()
    }
}

/// A message that answers: which request, and the output or why there is none.
#[derive(Deserialize)]
struct Answer {
    namespace: Option<String>,
    interaction: Option<InteractionId>,
    correlation_id: Option<String>,
    resume_token: Option<String>,
    #[serde(default, deserialize_with = "present")]
    output: Option<Json>,
    error: Option<String>,
}

/// An output of `null` is an output.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// The same however often a request is sent, and different from every other request's. It is not the idempotency key:
/// two requests may share that, and the second would be dropped. The moment distinguishes requests of two databases on
/// one stream.
fn message_id(asked: &Interaction) -> String {
    let opened_us = asked.opened_at.map_or(0, jiff::Timestamp::as_microsecond);
    format!("dormouse-{}-{opened_us}", asked.id)
}

fn not_stored(error: PublishError) -> Sent {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => {
            Sent::Rejected("it is larger than the broker's message limit".to_owned())
        }
        _ => Sent::Retry { reason: format!("the broker did not store it: {error}"), after: None },
    }
}

/// Acknowledges a message, or asks for it again.
async fn settle(reception: &Reception, message: &Message, completed: Completed) {
    match completed {
        Completed::Admitted { .. } | Completed::Repeat(_) => tell(reception, message, AckKind::Ack).await,
        // The others were stored; this one comes again, by itself or with others.
        Completed::Refused(Refusal::Busy) => {
            tell(reception, message, AckKind::Nak(Some(FAULT_PAUSE))).await;
        }
        Completed::Refused(refusal) | Completed::Unfit { refusal, .. } => {
            refuse(reception, message, refusal, refusal.told()).await;
        }
    }
}

/// Refuses a message for good. The reason does not quote the message, which may contain a token or anything else that
/// its sender put in. The log names its sequence in the stream instead.
async fn refuse(reception: &Reception, message: &Message, refusal: Refusal, reason: &str) {
    let place = message.info().map_or(0, |info| info.stream_sequence);
    let transport = reception.transport();
    tracing::warn!(transport, place, refusal = refusal.as_str(), "an answer was refused: {reason}");
    tell(reception, message, AckKind::Term).await;
}

async fn tell(reception: &Reception, message: &Message, word: AckKind) {
    let transport = reception.transport();
    let outcome = match word {
        AckKind::Ack => "admitted",
        AckKind::Term => "refused",
        _ => "put_off",
    };
    metrics::counter!("dormouse_answers_total", "transport" => transport.to_owned(), "outcome" => outcome)
        .increment(1);
    // A message that is not acknowledged is delivered again, and still admitted only once.
    if let Err(error) = message.ack_with(word).await {
        tracing::debug!(transport, %error, "an answer could not be acknowledged to the broker");
    }
}
