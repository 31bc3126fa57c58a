//! Run: one claimed row, step after step, each outcome committed before the next step starts.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::lease::Registered;
use super::queue::{Hand, RunningPlace};
use super::{FAULT_PAUSE, Shared, effects, lease, unread};
use crate::context::{Own, Progress};
use crate::rules::{Handed, Head};
use crate::store::{Claimed, Commit, Hold, Reading, Receipt, Rider, Tried, Written};
use crate::{At, Context, DynMachine, Error, Fault, Run, Spawn, StepError, Transition};

/// A claimed row that starts to run.
pub(super) struct Starting {
    pub(super) row: Claimed,
    pub(super) registered: Registered,
    pub(super) cancel: CancellationToken,
    pub(super) hand: Hand,
    pub(super) handed_out: Instant,
}

/// Runs a claimed row until its claim is over. Its steps run in a place; its outcomes are committed without one.
pub(super) async fn run(shared: &Shared, starting: Starting, place: RunningPlace) {
    let Starting { row, registered, cancel, hand, mut handed_out } = starting;
    let mut place = Some(place);
    let Some(row) = read_apart(shared, row).await else { return };
    let machine =
        shared.registry.get(&row.machine, row.version).expect("only registered machines are claimed").clone();
    let lifted = lift(&*machine, &row);
    let claimed_version = row.version;
    let mut head = row.head();
    let mut cx = context(shared, row, cancel);
    let commit = |cx: &Context, head: &Head, version, transition, hold| {
        // Whoever parks has been handed all of it; only what was read is used up.
        let received = match &transition {
            Transition::Await { .. } => cx.handed_ids(),
            _ => cx.received_ids(),
        };
        let handed = Handed::of(&cx.inbox, &transition, &received);
        Commit { head: head.clone(), version, received, transition, hold, run: None, handed }
    };
    let mut at = match lifted {
        Ok(at) => at,
        Err(error) => {
            let failed = commit(&cx, &head, claimed_version, Transition::Fail { error }, Hold::Release);
            shared.committer.commit(failed).await;
            return;
        }
    };
    let until = Instant::now().checked_add(shared.config.run_ahead);
    let mut budget = RunAhead { steps: shared.config.run_ahead_steps, until };
    loop {
        let span = tracing::debug_span!(
            "step", machine = machine.name(), version = machine.version(), step = %at.step, id = %cx.id,
            seq = cx.seq, attempt = cx.attempt
        );
        let started = Instant::now();
        let transition = match unread::wait_on(shared, &*machine, &at, &cx).await {
            Some(waits) => waits,
            None => outcome(shared, &*machine, &at, &cx).instrument(span).await,
        };
        unread::warn(shared, &*machine, &cx);
        let run = run_of(&cx, started.duration_since(handed_out), started.elapsed());
        let may_hold = !matches!(transition, Transition::Next { ahead: false, .. });
        let hold = if may_hold && budget.allows_another() && !shared.stop.is_cancelled() {
            Hold::Keep
        } else {
            Hold::Release
        };
        let mut outcome =
            Commit { run: Some(run), ..commit(&cx, &head, machine.version(), transition, hold) };
        let with_rider = match cx.own.take() {
            Ok(Some(rider)) => commit_with(shared, &*machine, &at, &cx, &mut outcome, rider).await,
            Ok(None) => Carried::Alone,
            Err(still_writes) => {
                // The task that was left behind keeps the old one; the next step of this run has its own.
                cx.own = Arc::new(Own::new(shared.store.clone()));
                let error = StepError::Error(Box::new(still_writes));
                outcome.transition = handled(shared, &*machine, &at, &cx, error).await;
                drop(cx.own.take());
                Carried::Alone
            }
        };
        let next = outcome.transition.next().cloned();
        let receipt = match with_rider {
            Carried::Receipt(receipt) => Some(receipt),
            Carried::Alone => {
                place = None;
                shared.committer.commit(outcome).await
            }
            Carried::Lost => return,
        };
        match (receipt, next) {
            (Some(Receipt::Held { seq, inbox, now }), Some(next)) => {
                at = next;
                head.go_on(&at.step, machine.version(), seq, inbox.len());
                registered.go_on(seq);
                cx.go_on(seq, inbox, now);
                handed_out = Instant::now();
                if place.is_none() {
                    place = Some(hand.place().await);
                }
            }
            _ => return,
        }
    }
}

/// The row with what is too large to come with its claim. One of which that cannot be read is set aside, and it alone.
async fn read_apart(shared: &Shared, row: Claimed) -> Option<Claimed> {
    if !row.is_apart {
        return Some(row);
    }
    let error = match shared.store.reading(row.id, shared.config.limits.reading_bytes_max).await {
        Ok(Reading { inbox, children }) => return Some(Claimed { inbox, children, ..row }),
        Err(error) => error,
    };
    if error.is_transient() {
        tracing::warn!(%error, id = %row.id, "what a step is handed could not be read: it is given back");
        tokio::time::sleep(FAULT_PAUSE).await;
        lease::give_back(shared, vec![(row.id, row.seq)], Tried::No).await;
        return None;
    }
    tracing::error!(%error, id = %row.id, machine = row.machine, "an instance is set aside: it cannot be run");
    let transition = Transition::Fail { error: format!("it was set aside: {error}") };
    let failed = Commit::new(&row, Vec::new(), transition);
    shared.committer.commit(failed).await;
    None
}

/// What is recorded of a run that started this long after the store handed its row out.
fn run_of(cx: &Context, waited: Duration, took: Duration) -> Run {
    let started_at = cx.now.checked_add(waited).unwrap_or(cx.now);
    Run { started_at, took_us: took.as_micros() as u64, progress: cx.progress.take() }
}

/// How an outcome and its step's own writes fared together.
enum Carried {
    /// They were committed, or refused as stale.
    Receipt(Receipt),
    /// There are no such writes: the outcome goes alone.
    Alone,
    /// Neither was committed: the step will run again.
    Lost,
}

/// Commits an outcome with what its step wrote. If that is refused, the step has failed, and its handler decides.
async fn commit_with(
    shared: &Shared,
    machine: &dyn DynMachine,
    at: &At,
    cx: &Context,
    outcome: &mut Commit,
    rider: Rider,
) -> Carried {
    match shared.store.commit_with(shared.worker, outcome.clone(), rider).await {
        Ok(Written { value: receipt, effects }) => {
            effects::apply(shared, std::slice::from_ref(&receipt), &effects);
            Carried::Receipt(receipt)
        }
        Err(error @ Error::OwnWrites(_)) => {
            outcome.transition = handled(shared, machine, at, cx, StepError::Error(Box::new(error))).await;
            // What the handler wrote could be refused as well: its outcome goes alone.
            drop(cx.own.take());
            Carried::Alone
        }
        Err(error) => {
            tracing::warn!(%error, id = %cx.id, "a step's writes were not committed: it will run again");
            lease::give_back(shared, vec![(cx.id, cx.seq)], Tried::Yes).await;
            Carried::Lost
        }
    }
}

/// How far an instance may run on before others get its place.
struct RunAhead {
    steps: u32,
    /// None if that is further off than can be told as a moment.
    until: Option<Instant>,
}

impl RunAhead {
    fn allows_another(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0 && self.until.is_none_or(|until| Instant::now() < until)
    }
}

/// The place to run at: the row's own, or where a migration lifts it.
fn lift(machine: &dyn DynMachine, row: &Claimed) -> Result<At, String> {
    if machine.version() == row.version {
        return Ok(row.at.clone());
    }
    let lifted = catch_unwind(AssertUnwindSafe(|| machine.migrate(row.version, row.at.clone())));
    let reason = match lifted {
        Ok(Ok(at)) => return Ok(at),
        Ok(Err(error)) => format!("failed: {error}"),
        Err(panic) => format!("panicked: {}", panic_message(&*panic)),
    };
    Err(format!("migrating from version {} to {} {reason}", row.version, machine.version()))
}

fn context(shared: &Shared, row: Claimed, cancel: CancellationToken) -> Context {
    Context {
        id: row.id,
        namespace: row.namespace,
        key: row.key,
        parent: row.parent,
        attempt: row.attempt,
        seq: row.seq,
        wake: row.wake,
        awaits: row.awaits,
        inbox: row.inbox,
        children: row.children,
        unread: Arc::default(),
        takes: Arc::default(),
        now: row.now,
        cancel,
        own: Arc::new(Own::new(shared.store.clone())),
        progress: Progress::to(shared.reported.clone()),
    }
}

/// One run of a step, whatever it does: an outcome, or what its error handler makes of the failure.
async fn outcome(shared: &Shared, machine: &dyn DynMachine, at: &At, cx: &Context) -> Transition {
    let started = Instant::now();
    let ran = guarded(async { machine.step(at, cx).await }, machine.step_timeout()).await;
    metrics::histogram!("dormouse_step_seconds", "machine" => machine.name().to_owned())
        .record(started.elapsed());
    let error = match ran.map(|transition| admit(shared, at, cx, transition)) {
        Ok(Ok(transition)) => return transition,
        Ok(Err(refused)) => StepError::Error(Box::new(refused)),
        Err(Failure::Unreadable(reason)) => return unreadable(at, &reason),
        Err(Failure::Step(error)) => error,
    };
    handled(shared, machine, at, cx, error).await
}

/// What a machine's error handler makes of a failed step. What the step wrote is undone before.
async fn handled(
    shared: &Shared,
    machine: &dyn DynMachine,
    at: &At,
    cx: &Context,
    error: StepError,
) -> Transition {
    drop(cx.own.take());
    tracing::debug!(%error, "the step failed");
    metrics::counter!("dormouse_step_errors_total", "machine" => machine.name().to_owned()).increment(1);
    let reason = error.to_string();
    let handled = guarded(async { machine.handle(error, at, cx).await }, machine.step_timeout()).await;
    let second = match handled.map(|transition| admit(shared, at, cx, transition)) {
        Ok(Ok(transition)) => return transition,
        Ok(Err(refused)) => refused.to_string(),
        Err(Failure::Unreadable(reason)) => return unreadable(at, &reason),
        Err(Failure::Step(error)) => error.to_string(),
    };
    Transition::Fail { error: format!("{reason} (and its handler failed: {second})") }
}

fn unreadable(at: &At, reason: &str) -> Transition {
    Transition::Fail { error: format!("step {:?}: its state does not decode: {reason}", at.step) }
}

/// Checks an outcome, and gives children what they have from their parent.
fn admit(shared: &Shared, at: &At, cx: &Context, mut transition: Transition) -> Result<Transition, Error> {
    if let Transition::Replay { at: to, .. } = &transition
        && to.step != at.step
    {
        return Err(Error::InvalidOutcome(format!(
            "`replay` runs the same step again, not {:?}; use `next` or `sleep` to go elsewhere",
            to.step
        )));
    }
    if let Transition::Spawn(Spawn { children, .. }) = &mut transition {
        for child in children {
            child.namespace.clone_from(&cx.namespace);
            child.history.get_or_insert(shared.config.history);
            child.inbox_max = shared.config.limits.inbox();
            shared.registry.check_signals(child)?;
        }
    }
    if let Transition::Dispatch(dispatch) = &mut transition {
        dispatch.outputs_max = shared.config.limits.items_max;
    }
    transition.check(&shared.config.limits)?;
    Ok(transition)
}

enum Failure {
    Step(StepError),
    Unreadable(String),
}

/// Runs user code so that neither its panic nor its slowness is ours. It is called inside the future, so that
/// even a panic before its first await is caught.
async fn guarded(
    code: impl Future<Output = Result<Transition, Fault>>,
    limit: Option<Duration>,
) -> Result<Transition, Failure> {
    let mut code = pin!(code);
    let caught = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| code.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panic) => Poll::Ready(Err(panic)),
    });
    let ended = match limit {
        None => caught.await,
        Some(limit) => match tokio::time::timeout(limit, caught).await {
            Ok(ended) => ended,
            Err(_) => return Err(Failure::Step(StepError::TimedOut(limit))),
        },
    };
    match ended {
        Ok(Ok(transition)) => Ok(transition),
        Ok(Err(Fault::Failed(error))) => Err(Failure::Step(StepError::Error(error))),
        Ok(Err(Fault::Unreadable(reason))) => Err(Failure::Unreadable(reason)),
        Err(panic) => Err(Failure::Step(StepError::Panic(panic_message(&*panic)))),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
