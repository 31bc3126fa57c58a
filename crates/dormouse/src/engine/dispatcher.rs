//! The dispatcher: sends committed requests from their rows until they are accepted. There is one for each transport.

mod breaker;
mod health;

use std::collections::HashSet;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::Instrument as _;

use self::breaker::{Breaker, Response};
use self::health::Health;
pub(super) use self::health::one_line;
use super::{FAULT_PAUSE, Shared};
use crate::gate::Unfit;
use crate::store::{
    Completed, Completion, Gate, Held, Outbox, Refusal, SendOutcome, SendReport, Which, Written, gate_queue,
    outbox_queue,
};
use crate::transport::NamedTransport;
use crate::{Interaction, InteractionId, Json, Sending, Sent, Trace, When};

/// Requests taken in one go, however many places are free.
const TAKE_ROWS_MAX: usize = 256;
/// Reports written in one go.
const REPORTS_MAX: usize = 256;
/// How long a result is put off whose row another transaction locks.
const HELD_UP_PAUSE: Duration = Duration::from_millis(50);
/// How long to wait while another sender takes from the transport.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// A send's lease is twice the time that a send may take, plus this much to store its result.
const LEASE_SPARE: Duration = Duration::from_secs(5);

/// Sends whenever there is a free place and a request, until the engine stops.
pub(super) async fn run(shared: Arc<Shared>, named: NamedTransport, steps: TaskTracker) {
    // Waiting for the steps to end includes the sends under way here.
    let sending = steps.token();
    let (reports, told) = mpsc::channel(REPORTS_MAX);
    let breaker = Arc::new(Breaker::new(&named.name));
    let reporter = AbortOnDropHandle::new(tokio::spawn(report(shared.clone(), breaker.clone(), told)));
    let places = Arc::new(Semaphore::new(named.sending.concurrency_max));
    let mut pokes = shared.store.hub().queue(&outbox_queue(&named.name));
    // What was held up by the transport's limits listens here: to new places, and to changes of the limits.
    let mut gates = shared.store.hub().queue(&gate_queue(&named.name));
    let health = Arc::new(Health::new(&named.name));
    shared.stop.run_until_cancelled(declare(&shared, &named)).await;
    while let Some(mut free) = shared.stop.run_until_cancelled(take_free(&places)).await {
        let asked = free.num_permits();
        pokes.borrow_and_update();
        gates.borrow_and_update();
        let Outbox { taken, next, now, gate } = take(&shared, &named, asked).await;
        breaker.saw(gate);
        let now = now.unwrap_or(Timestamp::MIN);
        let took = taken.len();
        for interaction in taken {
            let place = free.split(1).expect("no more requests than free places");
            let (reports, health) = (reports.clone(), health.clone());
            spawn(&shared, &steps, &named, Send { interaction, now, gate, reports, health }, place);
        }
        drop(free);
        if took < asked {
            let moment = async {
                match next {
                    Some(at) => shared.store.sleep(When::At(at)).await,
                    None => std::future::pending().await,
                }
            };
            let poll = if gate.held == Some(Held::Busy) { BUSY_PAUSE } else { shared.config.poll };
            // More to send changes nothing for who may not send.
            let more = if gate.held.is_some() { &mut gates } else { &mut pokes };
            tokio::select! {
                () = moment => {}
                _ = more.changed() => {}
                () = tokio::time::sleep(poll) => {}
                () = shared.stop.cancelled() => {}
            }
        }
        if shared.stop.is_cancelled() {
            break;
        }
    }
    drop(sending);
    let _for_what_is_under_way = reporter;
    std::future::pending::<()>().await;
}

/// Stores the limits that code declares, before anything is sent.
async fn declare(shared: &Shared, named: &NamedTransport) {
    loop {
        match shared.store.declare_transport(named.name.clone(), named.sending.limits()).await {
            Ok(Written { effects, .. }) => {
                shared.outage.succeeded("declare_transport");
                return shared.store.poke(&effects);
            }
            Err(error) => shared.outage.failed("declare_transport", &error),
        }
        tokio::time::sleep(FAULT_PAUSE).await;
    }
}

/// Waits for one free place and takes all that are free with it.
async fn take_free(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let mut free = places.clone().acquire_owned().await.expect("a transport's places are never closed");
    let more = places.available_permits().min(TAKE_ROWS_MAX - 1);
    if let Ok(rest) = places.clone().try_acquire_many_owned(more as u32) {
        free.merge(rest);
    }
    free
}

async fn take(shared: &Shared, named: &NamedTransport, rows_max: usize) -> Outbox {
    let lease = named.sending.timeout.saturating_mul(2).saturating_add(LEASE_SPARE);
    let namespaces = shared.config.namespaces.clone();
    match shared.store.outbox(named.name.clone(), namespaces, rows_max, lease).await {
        Ok(outbox) => {
            shared.outage.succeeded("outbox");
            outbox
        }
        Err(error) => {
            shared.outage.failed("outbox", &error);
            tokio::time::sleep(FAULT_PAUSE).await;
            Outbox::default()
        }
    }
}

/// One request that was taken from the outbox.
struct Send {
    interaction: Interaction,
    /// The store's time when it was taken.
    now: Timestamp,
    gate: Gate,
    reports: mpsc::Sender<Told>,
    health: Arc<Health>,
}

fn spawn(
    shared: &Arc<Shared>,
    steps: &TaskTracker,
    named: &NamedTransport,
    send: Send,
    place: OwnedSemaphorePermit,
) {
    let (shared, named) = (shared.clone(), named.clone());
    steps.spawn(async move {
        // If it is abandoned, it is sent again when its lease ends.
        shared.abandon.clone().run_until_cancelled(send_one(&shared, &named, send)).await;
        drop(place);
    });
}

async fn send_one(shared: &Shared, named: &NamedTransport, send: Send) {
    let Send { mut interaction, now, gate, reports, health } = send;
    let (id, sends) = (interaction.id, interaction.sends);
    let trace_id = interaction.trace.as_ref().map(Trace::trace_id);
    let span =
        tracing::debug_span!("send", transport = named.name, %id, sends, trace_id, otel.kind = "client");
    crate::trace::adopt(&span, interaction.trace.as_ref(), iter::empty());
    interaction.trace = span.in_scope(Trace::current).or(interaction.trace);
    let sent = hand_over(named, interaction.clone()).instrument(span).await;
    let failure = if let Sent::Retry { reason, .. } = &sent { Some(reason.clone()) } else { None };
    let response = Response { epoch: gate.epoch, failure };
    let is_refused = matches!(sent, Sent::Rejected(_));
    let outcome = match sent {
        Sent::Accepted => SendOutcome::Sent,
        Sent::Answered(answer) => match shared.client.output(&interaction, answer, Some(&named.name)).await {
            Ok(Ok(output)) => {
                count(named, "answered");
                health.responded();
                let report = Report::Answered(completion(&interaction, output), sends);
                return tell(&reports, report, response).await;
            }
            // It stays open for an answer that fits: to this send, to the next, or in some other way.
            Ok(Err(Unfit { refusal, reason })) => {
                let reason = format!("its answer was refused: {}: {reason}", refusal.told());
                again(&named.sending, &interaction, now, reason, None)
            }
            Err(error) if error.is_of_the_document() => {
                let reason = format!("its answer was refused: {error}");
                again(&named.sending, &interaction, now, reason, None)
            }
            // The store could not say what the machine accepts: the answer is not at fault, and the request is sent
            // again.
            Err(error) if error.is_transient() => {
                let reason = format!("its answer could not be checked: {error}");
                again(&named.sending, &interaction, now, reason, None)
            }
            Err(error) => SendOutcome::Rejected(error.to_string()),
        },
        Sent::Rejected(reason) => SendOutcome::Rejected(reason),
        Sent::Retry { reason, after } => again(&named.sending, &interaction, now, reason, after),
    };
    let word = match &outcome {
        SendOutcome::Sent => "sent",
        SendOutcome::Retry { .. } => "retry",
        SendOutcome::Rejected(_) => "rejected",
    };
    match &outcome {
        SendOutcome::Retry { error, .. } => health.failed(error),
        // One that is given up says nothing about the next.
        SendOutcome::Rejected(_) if !is_refused => {}
        SendOutcome::Sent | SendOutcome::Rejected(_) => health.responded(),
    }
    count(named, word);
    tracing::debug!(transport = named.name, %id, sends, outcome = word, "handed over");
    tell(&reports, Report::Sent(SendReport { id, sends, outcome }), response).await;
}

/// Hands the result over to be stored, and waits until it is.
async fn tell(reports: &mpsc::Sender<Told>, report: Report, response: Response) {
    let (written, is_written) = oneshot::channel();
    if reports.send(Told { report, response, _written: written }).await.is_ok() {
        let _ = is_written.await;
    }
}

/// Calls the transport in a task of its own, so that its panic or slowness does not become ours.
async fn hand_over(named: &NamedTransport, interaction: Interaction) -> Sent {
    let transport = named.transport.clone();
    let sending = tokio::spawn(async move { transport.send(&interaction).await }.in_current_span());
    let retry = |reason: String| Sent::Retry { reason, after: None };
    match tokio::time::timeout(named.sending.timeout, AbortOnDropHandle::new(sending)).await {
        Ok(Ok(sent)) => sent,
        Ok(Err(panic)) => retry(format!("the transport panicked: {panic}")),
        Err(_) => retry(format!("it was not accepted within {:?}", named.sending.timeout)),
    }
}

/// Another try, unless the sender gives up.
fn again(
    sending: &Sending,
    interaction: &Interaction,
    now: Timestamp,
    reason: String,
    after: Option<Duration>,
) -> SendOutcome {
    let delay = sending.delay(interaction.sends).max(after.unwrap_or_default());
    // What it waited before it was first sent is no try.
    let opened_at = interaction.opened_at.filter(|_| interaction.sends > 1);
    let tried_for = opened_at.map_or(Duration::ZERO, |opened_at| {
        Duration::try_from(now.duration_since(opened_at)).unwrap_or_default()
    });
    if tried_for.saturating_add(delay) >= sending.give_up_after {
        let tries = interaction.sends;
        return SendOutcome::Rejected(format!("given up after {tries} tries in {tried_for:?}: {reason}"));
    }
    SendOutcome::Retry { after: delay, error: reason }
}

fn completion(interaction: &Interaction, output: Json) -> Completion {
    Completion {
        namespace: interaction.namespace.clone(),
        to: Which::Id(interaction.id),
        result: Ok(output),
        assignee: interaction.assignee.clone(),
        by: Some(interaction.transport.clone()),
        proof: None,
    }
}

/// The result of a send: how it went, or the answer that it brought back.
#[derive(Clone)]
enum Report {
    Sent(SendReport),
    Answered(Completion, u32),
}

/// A result to store.
struct Told {
    report: Report,
    /// What it says of the other side.
    response: Response,
    /// Who waits until it is stored hears of it when this is dropped.
    _written: oneshot::Sender<()>,
}

/// Stores the results of sends, as many at a time as have gathered. A result that somebody else's transaction holds up
/// is tried again with the next ones, and does not delay them.
async fn report(shared: Arc<Shared>, breaker: Arc<Breaker>, mut told: mpsc::Receiver<Told>) {
    let mut held_up: Vec<Told> = Vec::new();
    loop {
        let mut gathered = std::mem::take(&mut held_up);
        let (before, none_yet) = (gathered.len(), gathered.is_empty());
        tokio::select! {
            taken = told.recv_many(&mut gathered, REPORTS_MAX) => {
                if taken == 0 && none_yet {
                    return;
                }
            }
            () = tokio::time::sleep(HELD_UP_PAUSE), if !none_yet => {}
        }
        // First the breaker: a result that is stored may let others be taken.
        let responses = gathered[before..].iter().map(|told| told.response.clone());
        breaker.report(&shared, responses).await;
        held_up = write_down(&shared, gathered).await;
    }
}

/// Stores what it can, and returns what is held up.
async fn write_down(shared: &Shared, gathered: Vec<Told>) -> Vec<Told> {
    let (mut sent, mut answered) = (Vec::new(), Vec::new());
    for told in &gathered {
        match told.report.clone() {
            Report::Sent(report) => sent.push(report),
            Report::Answered(completion, sends) => answered.push((completion, sends)),
        }
    }
    let mut held_up = HashSet::new();
    if !answered.is_empty() {
        let Admitted { rejected, busy } = admit(shared, &answered).await;
        sent.extend(rejected);
        held_up.extend(busy);
    }
    while !sent.is_empty() {
        match shared.store.sent(sent.clone()).await {
            Ok(Written { value: busy, effects }) => {
                shared.store.poke(&effects);
                shared.outage.succeeded("sent");
                held_up.extend(busy.into_iter().map(|report| (report.id, report.sends)));
                break;
            }
            // A send whose result is not stored is repeated when its lease ends.
            Err(error) if !error.is_transient() => {
                tracing::error!(%error, "a send's result cannot be stored; the request will be sent again");
                break;
            }
            Err(error) => shared.outage.failed("sent", &error),
        }
        tokio::time::sleep(FAULT_PAUSE).await;
    }
    gathered
        .into_iter()
        .filter(|told| told.report.which().is_some_and(|which| held_up.contains(&which)))
        .collect()
}

impl Report {
    /// Which interaction it is about, and which of its sends.
    fn which(&self) -> Option<(InteractionId, u32)> {
        match self {
            Self::Sent(report) => Some((report.id, report.sends)),
            Self::Answered(Completion { to: Which::Id(id), .. }, sends) => Some((*id, *sends)),
            Self::Answered(..) => None,
        }
    }
}

/// What became of answers that came with the response to a send.
#[derive(Default)]
struct Admitted {
    /// They fail their item.
    rejected: Vec<SendReport>,
    /// Somebody else's transaction holds their instance.
    busy: Vec<(InteractionId, u32)>,
}

/// Admits answers that came with the response to a send. An answer that is not a list fails its item when a list was
/// requested. An answer that the database can never store fails its item too, and does not delay the others.
async fn admit(shared: &Shared, answered: &[(Completion, u32)]) -> Admitted {
    let batch: Vec<_> = answered.iter().map(|(completion, _)| completion.clone()).collect();
    let mut admitted = Admitted::default();
    let completed = loop {
        match shared.store.complete(batch.clone()).await {
            Ok(Written { value, effects }) => {
                shared.store.poke(&effects);
                shared.outage.succeeded("complete");
                break value;
            }
            Err(error) if error.is_of_the_document() && answered.len() > 1 => {
                for one in answered.chunks(1) {
                    let Admitted { rejected, busy } = Box::pin(admit(shared, one)).await;
                    admitted.rejected.extend(rejected);
                    admitted.busy.extend(busy);
                }
                return admitted;
            }
            Err(error) if !error.is_transient() => {
                tracing::error!(%error, "an answer cannot be stored; its item fails");
                let reason = format!("its answer cannot be stored: {error}");
                admitted.rejected.extend(answered.iter().filter_map(|(completion, sends)| {
                    let Which::Id(id) = completion.to else { return None };
                    Some(SendReport { id, sends: *sends, outcome: SendOutcome::Rejected(reason.clone()) })
                }));
                return admitted;
            }
            Err(error) => shared.outage.failed("complete", &error),
        }
        tokio::time::sleep(FAULT_PAUSE).await;
    };
    for ((completion, sends), completed) in answered.iter().zip(completed) {
        let Which::Id(id) = completion.to else { continue };
        match completed {
            Completed::Refused(refusal @ Refusal::NotAList) => {
                let outcome = SendOutcome::Rejected(refusal.told().to_owned());
                admitted.rejected.push(SendReport { id, sends: *sends, outcome });
            }
            Completed::Refused(Refusal::Busy) => admitted.busy.push((id, *sends)),
            _ => {}
        }
    }
    admitted
}

fn count(named: &NamedTransport, outcome: &'static str) {
    metrics::counter!("dormouse_sends_total", "transport" => named.name.clone(), "outcome" => outcome)
        .increment(1);
}
