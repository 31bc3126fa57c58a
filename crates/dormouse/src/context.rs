//! The context of a step: what it knows about its instance.

mod behind;
mod consumption;

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use self::behind::Rider;
pub(crate) use self::behind::{Behind, Own};
pub(crate) use self::consumption::Consumption;
use crate::gate::Check;
use crate::limits::Limits;
use crate::machine::decode_at;
use crate::{
    Answers, At, Error, InboxSignal, InstanceId, Json, LaneChange, Machine, Mail, Outcome, Result, Signal,
    SignalId, Status, Trace, Transition, VerdictStream, Wake,
};

/// The largest progress report, in bytes. It is small because a report is written again and again while the step runs.
const PROGRESS_BYTES_MAX: usize = 8 * 1024;

/// What a step gets besides its state: its instance's identity, why it woke, its signals, children and answers.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) id: InstanceId,
    pub(crate) namespace: String,
    pub(crate) share: Option<String>,
    pub(crate) trace: Option<Trace>,
    pub(crate) key: Option<String>,
    pub(crate) parent: Option<ParentRef>,
    pub(crate) attempt: u32,
    pub(crate) seq: u64,
    pub(crate) wake: Option<Wake>,
    pub(crate) awaits: Vec<String>,
    pub(crate) inbox: Vec<InboxSignal>,
    pub(crate) children: Vec<ChildView>,
    /// Which of the received signals its outcome consumes.
    pub(crate) consumption: Arc<Consumption>,
    pub(crate) now: Timestamp,
    pub(crate) cancel: CancellationToken,
    pub(crate) own: Arc<Own>,
    /// What it reported last.
    pub(crate) progress: Arc<Mutex<Option<Json>>>,
    /// The lane that its outcome leads to.
    pub(crate) lane: Arc<Mutex<Option<LaneChange>>>,
    /// What its outcome sends to other instances.
    pub(crate) mail: Arc<Mutex<Vec<Mail>>>,
}

/// A received signal whose payload is not of the type that the step asked for. It stays in the inbox until somebody
/// drops or edits it, or the instance is done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnreadSignal {
    /// The signal.
    pub id: SignalId,
    /// Its name.
    pub name: String,
    /// The decoding error and its path.
    pub error: String,
}

/// The parent of a child, and which of its children it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentRef {
    /// The parent.
    pub id: InstanceId,
    /// Which of the parent's spawns and dispatches it came from, counted from 1.
    pub round: u32,
    /// Its index in the spawned list, from 0. A child that was dropped because its key was taken leaves a gap, so this
    /// is always the index in the parent's own list.
    pub index: u32,
}

/// A child as its parent sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildView {
    /// Its id.
    pub id: InstanceId,
    /// Its index in the spawned list, from 0.
    pub index: u32,
    /// Its machine.
    pub machine: String,
    /// Its key.
    pub key: Option<String>,
    /// Its machine's version.
    pub version: u32,
    /// Its status; not terminal if a quorum or a deadline released the barrier first.
    pub status: Status,
    /// The step it is at, or ended at.
    pub step: String,
    /// The state of that step; `None` for a child that is done. A parent reads a done child's output, so its state is
    /// not loaded: a claim reads at most one document per child.
    pub state: Option<Json>,
    /// Its output, if it is done.
    pub output: Option<Json>,
    /// Why it failed or was cancelled.
    pub error: Option<String>,
}

impl ChildView {
    /// Its output in its type; `None` if it has none.
    pub fn output<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.output.as_ref().map(|output| output.decode("child's output")).transpose()
    }

    /// Its step and state as its machine's own enum: how far a child got that failed, was cancelled or still runs.
    /// `None` for a child that is done.
    ///
    /// Fails if the child is of another machine, or its state does not decode because it is of another version.
    pub fn state_as<M: Machine>(&self) -> Result<Option<M::State>> {
        if self.machine != M::NAME {
            return Err(Error::WrongMachine {
                id: self.id,
                machine: self.machine.clone(),
                asked_for: M::NAME.to_owned(),
            });
        }
        let Some(state) = &self.state else { return Ok(None) };
        let at = At { step: self.step.clone().into(), state: state.clone() };
        decode_at(&at).map(Some).map_err(|reason| Error::Decode { what: "child's state", reason })
    }
}

impl Context {
    /// The instance.
    pub fn id(&self) -> InstanceId {
        self.id
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its share, if that is not its namespace's own.
    pub fn share(&self) -> Option<&str> {
        self.share.as_deref()
    }

    /// The trace that its instance is part of: pass it on to what the step calls, as the header `traceparent`. Children,
    /// mail and requests of units have it already.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Its key.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Its parent, if it was spawned by one.
    pub fn parent(&self) -> Option<ParentRef> {
        self.parent
    }

    /// Its index in the list that its parent spawned, from 0. `None` for a root.
    pub fn index(&self) -> Option<u32> {
        self.parent.map(|parent| parent.index)
    }

    /// How often this step was tried before: 0 at first.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The fencing token. It grows with every commit, so an outside system can refuse a request with an older one.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Why the instance woke, if it was parked before this step.
    pub fn wake(&self) -> Option<Wake> {
        self.wake
    }

    /// Whether a deadline woke it. A signal may have come as well, so look at the received signals first.
    pub fn timed_out(&self) -> bool {
        self.wake == Some(Wake::Timeout)
    }

    /// The payloads of the awaited signals of this name, in order of arrival. A signal that cannot be read is left out:
    /// it is not consumed, stays in the inbox, and is listed by [`Context::unreadable`].
    ///
    /// Fails if a signal woke the step and none of the awaited signals can be read. That does not happen to a machine
    /// that declares what it [accepts](Machine::accepts): its instance goes on waiting.
    pub fn received<T: DeserializeOwned>(&self, signal: Signal<T>) -> Result<Vec<T>> {
        let mut payloads = Vec::new();
        let mut first_error = None;
        for received in self.received_all().filter(|received| received.name == signal.name()) {
            match crate::json::decode_text(received.payload.as_str()) {
                Ok(payload) => payloads.push(payload),
                Err(reason) => {
                    self.cannot_read(received, reason.clone());
                    first_error.get_or_insert(reason);
                }
            }
        }
        let others = self.received_all().any(|received| received.name != signal.name());
        match first_error {
            Some(reason) if payloads.is_empty() && !others && self.wake == Some(Wake::Signal) => {
                Err(Error::Decode { what: "signal payload", reason })
            }
            _ => Ok(payloads),
        }
    }

    /// The awaited signals that [`Context::received`] could not read so far, in order of arrival.
    pub fn unreadable(&self) -> Vec<UnreadSignal> {
        self.consumption.unread()
    }

    /// Every awaited signal, in order of arrival.
    pub fn received_all(&self) -> impl Iterator<Item = &InboxSignal> {
        self.inbox.iter().filter(|signal| self.awaits.contains(&signal.name))
    }

    /// The whole inbox, awaited or not, in order of arrival.
    pub fn inbox(&self) -> &[InboxSignal] {
        &self.inbox
    }

    /// The children that this step was parked on, in the order in which they were spawned.
    pub fn children(&self) -> &[ChildView] {
        &self.children
    }

    /// The outputs of those children that are done, in the order in which they were spawned.
    pub fn outputs<T: for<'de> Deserialize<'de>>(&self) -> Result<Vec<T>> {
        self.children.iter().filter_map(|child| child.output().transpose()).collect()
    }

    /// The answers of the unit that this step was parked on, in item order.
    pub async fn unit<T: DeserializeOwned>(&self) -> Result<Answers<T>> {
        self.unit_stream().await?.all().await
    }

    /// Like [`Context::unit`], but reads a page at a time. Use it for a unit whose answers do not fit in memory.
    pub async fn unit_stream<T: DeserializeOwned>(&self) -> Result<VerdictStream<T>> {
        let unit = self.own.behind()?.unit(self.id).await?.ok_or(Error::NoUnit(self.id))?;
        Ok(VerdictStream::new(self.own.behind()?.clone(), unit))
    }

    /// The store's time when the step was claimed.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether someone requested to cancel the instance. If so, it ends as `cancelled`, whatever the step returns.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Reports how far the step has come: any value of up to 8 KiB of JSON. Those who watch the instance see the last
    /// report at once, and it is stored with the event of the step's outcome. It is not a commit: a step that runs
    /// again starts from its state.
    pub fn progress<T: Serialize + ?Sized>(&self, value: &T) -> Result<()> {
        let value = Json::encode("progress", value)?;
        let limits = Limits { document_bytes_max: PROGRESS_BYTES_MAX, ..Limits::default() };
        limits.check_document("progress", &value)?;
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(value.clone());
        self.own.report(self.id, self.seq, value);
        Ok(())
    }

    /// Sends mail to another instance with the outcome of this step, whatever that is: for jobs and the acts of a flow,
    /// which return no [`Outcome`]. If the step fails, its mail is dropped; the outcome of its error handler has its own.
    /// See [`Outcome::start`] for how mail is delivered.
    ///
    /// ```
    /// # use dormouse::prelude::*;
    /// const PAID: Signal<u64> = Signal::named("paid");
    /// # async fn run(cx: &Context) -> Result<(), BoxError> {
    /// cx.mail(Mail::signal("order:42", PAID, &100)?);
    /// # Ok(()) }
    /// ```
    pub fn mail(&self, mail: impl Into<Mail>) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).push(mail.into());
    }

    /// The trace of what the outcome of this step starts: the step's own span, if OpenTelemetry knows it.
    pub(crate) fn trace_onwards(&self) -> Option<String> {
        Trace::current().or_else(|| self.trace.clone()).map(String::from)
    }

    /// An outcome's transition; its mail and its lane are kept here until the commit takes them.
    pub(crate) fn transition_of<M: Machine>(&self, outcome: Outcome<M>) -> Result<Transition> {
        let (transition, lane, mail) = outcome.into_parts()?;
        if !mail.is_empty() {
            self.mail.lock().unwrap_or_else(PoisonError::into_inner).extend(mail);
        }
        if lane.is_some() {
            *self.lane.lock().unwrap_or_else(PoisonError::into_inner) = lane;
        }
        Ok(transition)
    }

    /// The lane that the outcome of this step leads to, for its commit.
    pub(crate) fn take_lane(&self) -> Option<LaneChange> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The mail of this step, for its commit.
    pub(crate) fn take_mail(&self) -> Vec<Mail> {
        std::mem::take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Resolves when someone requests to cancel the instance. Use it to end a long step early.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Turns it into the context of the next step, on the same claim.
    pub(crate) fn go_on(&mut self, seq: u64, inbox: Vec<InboxSignal>, now: Timestamp) {
        self.attempt = 0;
        self.seq = seq;
        self.wake = None;
        self.awaits.clear();
        self.children.clear();
        self.inbox = inbox;
        self.consumption = Arc::default();
        self.now = now;
    }

    /// The first awaited signal that can be read. The outcome consumes only this one.
    pub(crate) fn take_first(&self, reads: Check) -> Option<&InboxSignal> {
        let can_read = |received: &&InboxSignal| match reads(&received.payload) {
            Ok(()) => true,
            Err(reason) => {
                self.cannot_read(received, reason);
                false
            }
        };
        let first = self.received_all().find(can_read)?;
        self.consumption.choose(first.id);
        Some(first)
    }

    /// The last progress report, for the outcome's event.
    pub(crate) fn take_progress(&self) -> Option<Json> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The signals that the step was handed as received.
    pub(crate) fn handed_ids(&self) -> Vec<SignalId> {
        self.consumption.handed(self.received_all().map(|signal| signal.id))
    }

    /// The signals that its progress consumes. Those that it could not read are not consumed.
    pub(crate) fn received_ids(&self) -> Vec<SignalId> {
        self.consumption.consumed(self.received_all().map(|signal| signal.id))
    }

    /// Notes a received signal that the step cannot read.
    pub(crate) fn cannot_read(&self, received: &InboxSignal, error: String) {
        self.consumption.cannot_read(received, error);
    }
}
