//! The parts a flow is made of.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::groups::OnCancel;
use super::{ActResult, Cx};
use crate::{Accepts, At, ChildView, Context, Dispatch, Json, NewInstance, Retry, Signal, Takes, When};

/// A place in the source, for findings that point at it.
pub(super) type Place = &'static Location<'static>;

pub(super) type Acting<S> = Pin<Box<dyn Future<Output = ActResult<S>> + Send>>;
pub(super) type ActFn<S, D> = Arc<dyn Fn(S, Cx<D>) -> Acting<S> + Send + Sync>;
pub(super) type Test<S> = Arc<dyn Fn(&S) -> bool + Send + Sync>;
pub(super) type Receive<S> = Arc<dyn Fn(S, &Json) -> ActResult<S> + Send + Sync>;
pub(super) type Spawning<S> = Arc<dyn Fn(&S, &Context) -> Vec<NewInstance> + Send + Sync>;
pub(super) type Ask<S> = Arc<dyn Fn(&S, At) -> crate::Result<Dispatch> + Send + Sync>;
pub(super) type Hear<S> = Arc<dyn Fn(S, Context) -> Acting<S> + Send + Sync>;
/// The declared result of an act, or of its timeout, which is used when it is explored and not run.
pub(super) type Gives<S> = Arc<dyn Fn(S) -> S + Send + Sync>;
/// The possible answers to a unit of this many items: a description, and the state after it.
pub(super) type Imagine<S> = Arc<dyn Fn(usize) -> Vec<(&'static str, Imagined<S>)> + Send + Sync>;
pub(super) type Imagined<S> = Box<dyn Fn(S) -> ActResult<S> + Send + Sync>;
pub(super) type Join<S> = Arc<dyn Fn(S, &[ChildView]) -> ActResult<S> + Send + Sync>;

/// One part of a flow.
pub struct Part<S, D> {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) kind: Kind<S, D>,
}

pub(super) enum Kind<S, D> {
    Act(ActKind<S, D>),
    Wait(WaitKind<S, D>),
    Sleep(Arc<dyn Fn(&S) -> When + Send + Sync>),
    Scene { parts: Vec<Part<S, D>>, saga: Option<OnCancel> },
    Branch { cases: Vec<CaseOf<S, D>>, otherwise: Option<Vec<Part<S, D>>> },
    Repeat { goes_on: Test<S>, rounds_max: Option<u32>, parts: Vec<Part<S, D>> },
    Fan(FanKind<S>),
    Dispatch(AskKind<S>),
    Stop(Arc<dyn Fn(&S) -> String + Send + Sync>),
}

pub(super) struct ActKind<S, D> {
    pub(super) run: ActFn<S, D>,
    pub(super) retry: Retry,
    pub(super) limit: Option<Duration>,
    pub(super) undo: Option<ActFn<S, D>>,
    pub(super) undo_retry: Retry,
    pub(super) gives: Vec<Gives<S>>,
}

pub(super) struct WaitKind<S, D> {
    pub(super) signal: String,
    pub(super) accepts: Accepts,
    pub(super) receive: Receive<S>,
    pub(super) when: Option<Test<S>>,
    pub(super) timeout: Option<Duration>,
    pub(super) on_timeout: Option<ActFn<S, D>>,
    pub(super) timeout_gives: Vec<Gives<S>>,
    pub(super) sender: Option<String>,
    pub(super) payloads: Vec<Json>,
}

impl<S, D> WaitKind<S, D> {
    /// Payloads it may be sent: those that were given, or made up.
    pub(super) fn examples(&self) -> Vec<Json> {
        if self.payloads.is_empty() { (self.accepts.examples)() } else { self.payloads.clone() }
    }
}

pub(super) struct AskKind<S> {
    pub(super) ask: Ask<S>,
    pub(super) hear: Hear<S>,
    pub(super) imagine: Imagine<S>,
    pub(super) takes: Takes,
}

pub(super) struct CaseOf<S, D> {
    pub(super) name: String,
    pub(super) holds: Test<S>,
    pub(super) parts: Vec<Part<S, D>>,
}

pub(super) struct FanKind<S> {
    pub(super) spawn: Spawning<S>,
    /// How many at a time.
    pub(super) in_flight: Option<usize>,
    /// Whether the first that is not done ends the part.
    pub(super) fail_fast: bool,
    pub(super) join: Option<Join<S>>,
}

/// One part or several: a part, what becomes one, or a tuple of them.
pub trait Parts<S, D> {
    /// Adds them, in order.
    #[doc(hidden)]
    fn add_to(self, parts: &mut Vec<Part<S, D>>);
}

impl<S, D, P: Into<Part<S, D>>> Parts<S, D> for P {
    fn add_to(self, parts: &mut Vec<Part<S, D>>) {
        parts.push(self.into());
    }
}

macro_rules! tuple {
    ($($part:ident)+) => {
        impl<S, D, $($part: Parts<S, D>),+> Parts<S, D> for ($($part,)+) {
            fn add_to(self, parts: &mut Vec<Part<S, D>>) {
                #[allow(non_snake_case, reason = "each type parameter also names its value")]
                let ($($part,)+) = self;
                $($part.add_to(parts);)+
            }
        }
    };
}
tuple!(A B);
tuple!(A B C);
tuple!(A B C E);
tuple!(A B C E F);
tuple!(A B C E F G);

pub(super) fn list<S, D>(parts: impl Parts<S, D>) -> Vec<Part<S, D>> {
    let mut list = Vec::new();
    parts.add_to(&mut list);
    list
}

fn boxed<S, D, F, Fut>(run: F) -> ActFn<S, D>
where
    F: Fn(S, Cx<D>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ActResult<S>> + Send + 'static,
{
    Arc::new(move |state, cx| Box::pin(run(state, cx)))
}

/// A function's own name; a closure has none.
fn name_of<F>() -> String {
    let path = std::any::type_name::<F>();
    path.rsplit("::").next().unwrap_or(path).to_owned()
}

/// How often an undo is tried by default: for more than an hour.
const UNDO_RETRY: Retry = Retry::times(20).backoff(Duration::from_secs(1), Duration::from_secs(300));

/// An async function on the state and the dependencies. It is named after the function.
#[track_caller]
pub fn act<S, D, F, Fut>(run: F) -> Act<S, D>
where
    F: Fn(S, Cx<D>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ActResult<S>> + Send + 'static,
{
    let kind = ActKind {
        run: boxed(run),
        retry: Retry::never(),
        limit: None,
        undo: None,
        undo_retry: UNDO_RETRY,
        gives: Vec::new(),
    };
    Act { name: name_of::<F>(), place: Location::caller(), kind }
}

/// See [`act`].
pub struct Act<S, D> {
    name: String,
    place: Place,
    kind: ActKind<S, D>,
}

impl<S, D> Act<S, D> {
    /// Another name than the function's.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// How often it is tried; by default once. After an error that is [`crate::Final`] it is not tried again.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.kind.retry = retry;
        self
    }

    /// How long one try may take.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.kind.limit = Some(limit);
        self
    }

    /// What undoes it if a later part of its saga fails. By default the undo is tried 20 times with backoff; see
    /// [`Act::undo_retry`]. If the last try fails, the act stays done, the next one is undone, and the flow's error
    /// names both reasons.
    #[must_use]
    pub fn undo<F, Fut>(mut self, undo: F) -> Self
    where
        F: Fn(S, Cx<D>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ActResult<S>> + Send + 'static,
    {
        self.kind.undo = Some(boxed(undo));
        self
    }

    /// How often its undo is tried. After an error that is [`crate::Final`] it is not tried again.
    #[must_use]
    pub fn undo_retry(mut self, retry: Retry) -> Self {
        self.kind.undo_retry = retry;
        self
    }

    /// A state that it may return, for `dormouse check` and `what-if`, which do not run it. Call it once for each; if
    /// there is none, any state counts as possible after it.
    #[must_use]
    pub fn gives(mut self, gives: impl Fn(S) -> S + Send + Sync + 'static) -> Self {
        self.kind.gives.push(Arc::new(gives));
        self
    }
}

impl<S, D> From<Act<S, D>> for Part<S, D> {
    fn from(Act { name, place, kind }: Act<S, D>) -> Self {
        Self { name, place, kind: Kind::Act(kind) }
    }
}

/// Waits for a signal, and takes it into the state. The part is named after the signal.
#[track_caller]
pub fn signal<S, D, T: DeserializeOwned + 'static>(
    signal: Signal<T>,
    on_receive: impl Fn(S, T) -> ActResult<S> + Send + Sync + 'static,
) -> Wait<S, D> {
    let receive = move |state, payload: &Json| on_receive(state, payload.decode("signal payload")?);
    let kind = WaitKind {
        signal: signal.name().to_owned(),
        accepts: signal.into(),
        receive: Arc::new(receive),
        when: None,
        timeout: None,
        on_timeout: None,
        timeout_gives: Vec::new(),
        sender: None,
        payloads: Vec::new(),
    };
    Wait { name: signal.name().to_owned(), place: Location::caller(), kind }
}

/// See [`signal`].
pub struct Wait<S, D> {
    name: String,
    place: Place,
    kind: WaitKind<S, D>,
}

impl<S, D> Wait<S, D> {
    /// Waits only if this holds when the part is entered; otherwise it is skipped.
    #[must_use]
    pub fn when(mut self, holds: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        self.kind.when = Some(Arc::new(holds));
        self
    }

    /// How long to wait. Then [`Wait::on_timeout`] decides; without that, the part fails.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.kind.timeout = Some(timeout);
        self
    }

    /// What to do when nothing came in time. The flow goes on after it.
    #[must_use]
    pub fn on_timeout<F, Fut>(mut self, run: F) -> Self
    where
        F: Fn(S, Cx<D>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ActResult<S>> + Send + 'static,
    {
        self.kind.on_timeout = Some(boxed(run));
        self
    }

    /// A state that [`Wait::on_timeout`] may return: see [`Act::gives`].
    #[must_use]
    pub fn timeout_gives(mut self, gives: impl Fn(S) -> S + Send + Sync + 'static) -> Self {
        self.kind.timeout_gives.push(Arc::new(gives));
        self
    }

    /// An example of its payload, for `dormouse check`. Without any, examples are made up from its type.
    #[must_use]
    pub fn such_as(mut self, payload: &impl Serialize) -> Self {
        self.kind.payloads.extend(Json::encode("signal payload", payload));
        self
    }

    /// Refuses a payload that does not fit this JSON Schema: see [`Accepts::schema`].
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn schema(mut self, schema: serde_json::Value) -> Self {
        self.kind.accepts = self.kind.accepts.schema(schema);
        self
    }

    /// Notes who sends it, for readers of the graph. With this note, `check` does not ask for a timeout.
    #[must_use]
    pub fn sent_by(mut self, who: impl Into<String>) -> Self {
        self.kind.sender = Some(who.into());
        self
    }
}

impl<S, D> From<Wait<S, D>> for Part<S, D> {
    fn from(Wait { name, place, kind }: Wait<S, D>) -> Self {
        Self { name, place, kind: Kind::Wait(kind) }
    }
}

/// Sleeps until a moment or for a while.
#[track_caller]
pub fn sleep<S, W: Into<When>>(
    name: impl Into<String>,
    until: impl Fn(&S) -> W + Send + Sync + 'static,
) -> Sleep<S> {
    Sleep { name: name.into(), place: Location::caller(), until: Arc::new(move |state| until(state).into()) }
}

/// See [`sleep`].
pub struct Sleep<S> {
    name: String,
    place: Place,
    until: Arc<dyn Fn(&S) -> When + Send + Sync>,
}

impl<S, D> From<Sleep<S>> for Part<S, D> {
    fn from(Sleep { name, place, until }: Sleep<S>) -> Self {
        Self { name, place, kind: Kind::Sleep(until) }
    }
}

/// Fails here, for this reason.
#[track_caller]
pub fn fail<S>(name: impl Into<String>, reason: impl Fn(&S) -> String + Send + Sync + 'static) -> Stop<S> {
    Stop { name: name.into(), place: Location::caller(), reason: Arc::new(reason) }
}

/// See [`fail`].
pub struct Stop<S> {
    name: String,
    place: Place,
    reason: Arc<dyn Fn(&S) -> String + Send + Sync>,
}

impl<S, D> From<Stop<S>> for Part<S, D> {
    fn from(Stop { name, place, reason }: Stop<S>) -> Self {
        Self { name, place, kind: Kind::Stop(reason) }
    }
}

impl<S, D> fmt::Debug for Part<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({} at {})", self.name, self.place)
    }
}
