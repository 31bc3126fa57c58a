//! Run: one claimed row, step after step, each outcome committed before the next step starts.
//!
//! A row goes through one pipeline: claimed, read (what was too large for the claim), lifted (to the version of the code),
//! and then again and again: run, checked, committed, next.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::effects::End;
use super::lease::Registered;
use super::queue::{Hand, RunningPlace};
use super::{FAULT_PAUSE, Shared, effects, lease, unread};
use crate::context::Own;
use crate::rules::{Handed, Head};
use crate::store::{Claimed, Commit, Hold, Reading, Receipt, Rider, Starts, Tried, Written, share_name};
use crate::{At, Context, DynMachine, Error, Fault, Mail, Run, Spawn, StepError, Trace, Transition};

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
    let Starting { row, registered, cancel, hand, handed_out } = starting;
    let mut place = Some(place);
    let is_apart = row.is_apart;
    let mut runner = Runner::new(shared, row, cancel, handed_out);
    // What is rare has a future of its own: this one is moved for every row.
    if is_apart && !Box::pin(runner.read()).await {
        return;
    }
    if runner.is_older() && !Box::pin(runner.lift()).await {
        return;
    }
    loop {
        let ran = runner.run().await;
        let Some((Receipt::Held { seq, inbox, now }, Some(next))) = runner.commit(ran, &mut place).await
        else {
            return;
        };
        registered.go_on(seq);
        runner.head.go_on(&next.step, runner.version, seq, inbox.len());
        runner.at = next;
        runner.cx.go_on(seq, inbox, now);
        runner.handed_out = Instant::now();
        if place.is_none() {
            place = Some(hand.place().await);
        }
    }
}

/// A claimed row as it runs.
struct Runner<'a> {
    shared: &'a Shared,
    machine: Arc<dyn DynMachine>,
    /// The claimed version, until the row is lifted to the machine's.
    version: u32,
    at: At,
    /// The row as it was handed out, which its commit goes by.
    head: Head,
    cx: Context,
    budget: RunAhead,
    handed_out: Instant,
}

/// The outcome of a step's run, and how long it took.
struct Ran {
    transition: Transition,
    mail: Vec<Mail>,
    run: Run,
}

/// The result of committing an outcome with its step's own writes.
enum Carried {
    /// They were committed together, or refused as stale.
    Receipt(Receipt),
    /// The writes were refused: this is the handler's outcome, which is committed alone.
    Alone(Transition, Vec<Mail>),
    /// Neither was committed, and the claim was given back: the step will run again.
    Lost,
}

impl<'a> Runner<'a> {
    fn new(shared: &'a Shared, row: Claimed, cancel: CancellationToken, handed_out: Instant) -> Self {
        let machine = shared.registry.get(&row.machine, row.version);
        let until = Instant::now().checked_add(shared.config.run_ahead);
        let head = row.head();
        let steps = match row.starts {
            Starts::Anytime => shared.config.run_ahead_steps,
            // Each start that is counted for a rate is counted by a claim.
            Starts::Now | Starts::Ahead => 0,
        };
        Self {
            shared,
            machine: machine.expect("only registered machines are claimed").clone(),
            version: row.version,
            at: row.at,
            head,
            budget: RunAhead { steps, until },
            handed_out,
            cx: Context {
                id: row.id,
                namespace: row.namespace,
                share: share_name(&row.turn.share).map(str::to_owned),
                trace: row.trace,
                key: row.key,
                parent: row.parent,
                attempt: row.attempt,
                seq: row.seq,
                wake: row.wake,
                awaits: row.awaits,
                inbox: row.inbox,
                children: row.children,
                consumption: Arc::default(),
                now: row.now,
                cancel,
                own: Arc::new(Own::new(shared.behind.clone())),
                progress: Arc::default(),
                lane: Arc::default(),
                mail: Arc::default(),
            },
        }
    }

    /// Reads what was too large to come with the claim. Returns false if the claim has ended: only a row that cannot be
    /// read is set aside.
    async fn read(&mut self) -> bool {
        let (store, bytes_max) = (&self.shared.store, self.shared.config.limits.reading_bytes_max);
        let (id, seq) = (self.cx.id, self.cx.seq);
        match store.reading(id, bytes_max).await {
            Ok(Reading { inbox, children }) => {
                self.head.inbox = inbox.len() as u32;
                (self.cx.inbox, self.cx.children) = (inbox, children);
                return true;
            }
            Err(error) if error.is_transient() => {
                tracing::debug!(%id, "the inbox of a step could not be read: giving back its claim");
                self.shared.outage.missed("reading", &error);
                tokio::time::sleep(FAULT_PAUSE).await;
                lease::give_back(self.shared, vec![(id, seq)], Tried::No).await;
            }
            Err(error) => {
                let machine = self.machine.name();
                tracing::error!(%error, %id, machine, "an instance is set aside: it cannot be run");
                self.fail(format!("it was set aside: {error}")).await;
            }
        }
        false
    }

    /// Whether the row was claimed at an older version.
    fn is_older(&self) -> bool {
        self.version != self.machine.version()
    }

    /// Migrates a row of an older version. Returns false if the claim has ended: a row that cannot be lifted fails.
    async fn lift(&mut self) -> bool {
        let (from, to) = (self.version, self.machine.version());
        let lifted = catch_unwind(AssertUnwindSafe(|| self.machine.migrate(from, self.at.clone())));
        let reason = match lifted {
            Ok(Ok(at)) => {
                (self.at, self.version) = (at, to);
                return true;
            }
            Ok(Err(error)) => format!("failed: {error}"),
            Err(panic) => format!("panicked: {}", panic_message(&*panic)),
        };
        self.fail(format!("migrating from version {from} to {to} {reason}")).await;
        false
    }

    /// Runs the step. If none of the signals that woke it can be read, it waits again instead.
    async fn run(&self) -> Ran {
        let Self { shared, machine, at, cx, .. } = self;
        let span = tracing::debug_span!(
            "step", machine = machine.name(), version = machine.version(), step = %at.step, id = %cx.id,
            seq = cx.seq, attempt = cx.attempt, trace_id = cx.trace.as_ref().map(Trace::trace_id)
        );
        let links = cx.received_all().filter_map(|signal| signal.trace.as_ref());
        crate::trace::adopt(&span, cx.trace.as_ref(), links);
        let started = Instant::now();
        let (transition, mail) = match unread::wait_on(shared, &**machine, at, cx).await {
            Some(waits) => (waits, Vec::new()),
            None => self.outcome().instrument(span).await,
        };
        unread::warn(shared, &**machine, cx);
        let waited = started.duration_since(self.handed_out);
        let run = Run {
            started_at: cx.now.checked_add(waited).unwrap_or(cx.now),
            took_us: started.elapsed().as_micros() as u64,
            progress: cx.take_progress(),
        };
        Ran { transition, mail, run }
    }

    /// Commits a step's outcome, with its own writes if there are any. Returns the receipt, and where the instance goes
    /// next. `None` if the claim was given back, or the engine is gone.
    async fn commit(
        &mut self,
        Ran { transition, mail, run }: Ran,
        place: &mut Option<RunningPlace>,
    ) -> Option<(Receipt, Option<At>)> {
        let hold = self.hold_after(&transition);
        let end = End::of(&transition);
        let commit = self.commit_of(transition, mail, hold, Some(run));
        let commit = match self.cx.own.take() {
            Ok(None) => commit,
            Ok(Some(rider)) => match Box::pin(self.commit_with((*commit).clone(), rider)).await {
                Carried::Receipt(receipt) => {
                    self.report(end, &receipt);
                    return Some((receipt, commit.transition.next().cloned()));
                }
                Carried::Alone(transition, mail) => self.commit_of(transition, mail, hold, commit.run),
                Carried::Lost => return None,
            },
            Err(still_writes) => {
                // The task that was left behind keeps the old one; the next step of this run has its own.
                self.cx.own = Arc::new(Own::new(self.shared.behind.clone()));
                let handled = self.handled(StepError::Error(Box::new(still_writes)));
                let (transition, mail) = Box::pin(handled).await;
                drop(self.cx.own.take());
                self.commit_of(transition, mail, hold, commit.run)
            }
        };
        *place = None;
        let (end, next) = (End::of(&commit.transition), commit.transition.next().cloned());
        let receipt = self.shared.committer.commit(commit).await?;
        self.report(end, &receipt);
        Some((receipt, next))
    }

    /// Counts and logs the end of the row, if this was one.
    fn report(&self, end: Option<End>, receipt: &Receipt) {
        effects::report_end(self.shared, (self.machine.name(), &self.at.step), &self.cx, end, receipt);
    }

    /// Ends the claimed row as failed, because it cannot be run.
    async fn fail(&self, error: String) {
        let failed = self.commit_of(Transition::Fail { error }, Vec::new(), Hold::Release, None);
        let end = End::of(&failed.transition);
        if let Some(receipt) = self.shared.committer.commit(failed).await {
            self.report(end, &receipt);
        }
    }

    /// The commit of an outcome. Every commit of the engine is made here. It is large, so it is moved by its address.
    fn commit_of(
        &self,
        transition: Transition,
        mail: Vec<Mail>,
        hold: Hold,
        run: Option<Run>,
    ) -> Box<Commit> {
        let (Self { cx, version, .. }, head) = (self, self.head.clone());
        // A step that parks was handed all of them; only those that it could read are consumed.
        let received = match &transition {
            Transition::Await { .. } => cx.handed_ids(),
            _ => cx.received_ids(),
        };
        let handed = Handed::of(&cx.inbox, &transition, &received);
        let lane = cx.take_lane();
        Box::new(Commit { head, version: *version, received, transition, hold, run, handed, lane, mail })
    }

    fn hold_after(&mut self, transition: &Transition) -> Hold {
        let may_hold = !matches!(transition, Transition::Next { ahead: false, .. });
        let holds = may_hold && self.budget.allows_another() && !self.shared.stop.is_cancelled();
        if holds { Hold::Keep } else { Hold::Release }
    }

    /// Commits an outcome with its step's own writes. If they are refused, the step has failed, and its handler
    /// decides.
    async fn commit_with(&self, commit: Commit, rider: Rider) -> Carried {
        let (shared, id, seq) = (self.shared, self.cx.id, self.cx.seq);
        match shared.store.commit_with(shared.worker, commit, rider).await {
            Ok(Written { value: receipt, effects }) => {
                effects::apply(shared, std::slice::from_ref(&receipt), &effects);
                Carried::Receipt(receipt)
            }
            Err(error @ Error::OwnWrites(_)) => {
                let (transition, mail) = self.handled(StepError::Error(Box::new(error))).await;
                // The handler's own writes could be refused as well, so its outcome is committed alone.
                drop(self.cx.own.take());
                Carried::Alone(transition, mail)
            }
            Err(error) => {
                tracing::debug!(%id, "a step's writes were not committed: it will run again");
                shared.outage.missed("commit_with", &error);
                lease::give_back(shared, vec![(id, seq)], Tried::Yes).await;
                Carried::Lost
            }
        }
    }

    /// One run of a step: its checked outcome and mail, or those of its error handler.
    async fn outcome(&self) -> (Transition, Vec<Mail>) {
        let Self { machine, at, cx, .. } = self;
        let started = Instant::now();
        let ran = guarded(at, async { machine.step(at, cx).await }, machine.step_timeout()).await;
        let (name, step) = (machine.name().to_owned(), self.shared.step_label(machine.name(), &at.step));
        metrics::histogram!("dormouse_step_seconds", "machine" => name, "step" => step)
            .record(started.elapsed());
        match self.admitted(ran).await {
            Ok(outcome) => outcome,
            Err(error) => Box::pin(self.handled(error)).await,
        }
    }

    /// Calls the machine's error handler for a failed step. The step's own writes are rolled back first, and its mail is
    /// dropped.
    async fn handled(&self, error: StepError) -> (Transition, Vec<Mail>) {
        let Self { machine, at, cx, .. } = self;
        drop(cx.own.take());
        drop(cx.take_lane());
        drop(cx.take_mail());
        tracing::debug!(%error, "the step failed");
        let (name, step) = (machine.name().to_owned(), self.shared.step_label(machine.name(), &at.step));
        metrics::counter!("dormouse_step_errors_total", "machine" => name, "step" => step).increment(1);
        let first = error.to_string();
        let handled =
            guarded(at, async { machine.handle(error, at, cx).await }, machine.step_timeout()).await;
        self.admitted(handled).await.unwrap_or_else(|second| {
            let error = format!("{first} (and its handler failed: {second})");
            (Transition::Fail { error }, Vec::new())
        })
    }

    /// Checks an outcome, and the mail that was sent with it.
    async fn admitted(
        &self,
        ran: Result<Transition, StepError>,
    ) -> Result<(Transition, Vec<Mail>), StepError> {
        let transition = self.checked(ran?)?;
        let mail = self.cx.take_mail();
        if mail.is_empty() {
            return Ok((transition, mail));
        }
        let Self { shared, cx, .. } = self;
        let refuse = |error: Error| StepError::Error(Box::new(error));
        let client = shared.client.in_namespace(&cx.namespace).map_err(refuse)?;
        loop {
            match Box::pin(client.admit_mail(cx, mail.clone())).await {
                // To check it, the store is read. That the store cannot be read is no fault of the step: whoever loses
                // the lease over it is dropped.
                Err(error) if error.is_transient() => {
                    tracing::debug!(%error, "could not check the mail of a step; trying again");
                    tokio::time::sleep(FAULT_PAUSE).await;
                }
                admitted => return Ok((transition, admitted.map_err(refuse)?)),
            }
        }
    }

    /// Checks an outcome, and sets what children get from their parent.
    fn checked(&self, mut transition: Transition) -> Result<Transition, StepError> {
        let refuse = |error: Error| StepError::Error(Box::new(error));
        let Self { shared, at, cx, .. } = self;
        if let Transition::Replay { at: to, .. } = &transition
            && to.step != at.step
        {
            return Err(refuse(Error::InvalidOutcome(format!(
                "`replay` runs the same step again, not {:?}; use `next` or `sleep` to go elsewhere",
                to.step
            ))));
        }
        if let Transition::Spawn(Spawn { children, .. }) = &mut transition {
            let trace = cx.trace_onwards();
            for child in children {
                child.namespace.clone_from(&cx.namespace);
                child.share = child.share.take().or_else(|| cx.share.clone());
                child.trace = child.trace.take().or_else(|| trace.clone());
                child.history.get_or_insert(shared.config.history);
                child.inbox_max = shared.config.limits.inbox();
                shared.registry.check_signals(child).map_err(refuse)?;
            }
        }
        if let Transition::Dispatch(dispatch) = &mut transition {
            dispatch.outputs_max = shared.config.limits.items_max;
        }
        transition.check(&shared.config.limits).map_err(refuse)?;
        Ok(transition)
    }
}

/// How far an instance may run ahead before others get its place.
struct RunAhead {
    steps: u32,
    /// `None` if it is too far off to be an instant.
    until: Option<Instant>,
}

impl RunAhead {
    fn allows_another(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0 && self.until.is_none_or(|until| Instant::now() < until)
    }
}

/// Runs user code so that its panic or slowness does not become ours. The code is called inside the future, so that
/// even a panic before its first await is caught. If the code cannot read the state, its error handler is not called:
/// the instance fails.
async fn guarded(
    at: &At,
    code: impl Future<Output = Result<Transition, Fault>>,
    limit: Option<Duration>,
) -> Result<Transition, StepError> {
    let caught = AssertUnwindSafe(code).catch_unwind();
    let ended = match limit {
        None => caught.await,
        Some(limit) => match tokio::time::timeout(limit, caught).await {
            Ok(ended) => ended,
            Err(_) => return Err(StepError::TimedOut(limit)),
        },
    };
    match ended {
        Ok(Ok(transition)) => Ok(transition),
        Ok(Err(Fault::Failed(error))) => Err(StepError::Error(error)),
        Ok(Err(Fault::Unreadable(reason))) => {
            let error = format!("step {:?}: its state does not decode: {reason}", at.step);
            Ok(Transition::Fail { error })
        }
        Err(panic) => Err(StepError::Panic(panic_message(&*panic))),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ahead_is_bounded_by_steps_and_by_time() {
        let mut steps = RunAhead { steps: 3, until: None };
        assert_eq!([(); 4].map(|()| steps.allows_another()), [true, true, false, false]);
        let mut time = RunAhead { steps: 3, until: Some(Instant::now()) };
        assert!(!time.allows_another(), "its time is over");
    }
}
