//! The parts that wait for others: children, and the outside world.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::parts::{Acting, AskKind, FanKind, Imagine, Imagined, Kind, Part, Place};
use super::{ActResult, FlowState};
use crate::sample::samples;
use crate::{Answering, Answers, ChildView, Context, NewInstance, Result, Takes, Unit, UnitStatus, Verdict};

/// Runs one child for each item, and waits for all of them.
#[track_caller]
pub fn each<S, D>(
    name: impl Into<String>,
    children: impl Fn(&S) -> Vec<NewInstance> + Send + Sync + 'static,
) -> Fan<S, D> {
    fan(name.into(), Location::caller(), move |state, _| children(state))
}

/// Runs another machine or flow as a child, and waits for its end.
#[track_caller]
pub fn call<S, D>(
    name: impl Into<String>,
    child: impl Fn(&S) -> NewInstance + Send + Sync + 'static,
) -> Fan<S, D> {
    fan(name.into(), Location::caller(), move |state, _| vec![child(state)])
}

/// Makes a child from the state.
pub type Child<S> = fn(&S) -> NewInstance;

/// Runs several children side by side, and waits for all of them. Each has the key `KEY/NAME/BRANCH`, where KEY is the
/// parent's key or id: that is where signals for it go.
#[track_caller]
pub fn parallel<S: FlowState, D, const N: usize>(
    name: impl Into<String>,
    branches: [(&'static str, Child<S>); N],
) -> Fan<S, D> {
    let name = name.into();
    let group = name.clone();
    fan(name, Location::caller(), move |state, cx| {
        let owner = cx.key().map_or_else(|| cx.id().to_string(), str::to_owned);
        branches.iter().map(|(branch, child)| child(state).key(format!("{owner}/{group}/{branch}"))).collect()
    })
}

fn fan<S, D>(
    name: String,
    place: Place,
    spawn: impl Fn(&S, &Context) -> Vec<NewInstance> + Send + Sync + 'static,
) -> Fan<S, D> {
    let kind = FanKind { spawn: Arc::new(spawn), in_flight: None, fail_fast: false, join: None };
    Fan { name, place, kind, deps: PhantomData }
}

/// See [`each`], [`call`] and [`parallel`].
pub struct Fan<S, D> {
    name: String,
    place: Place,
    kind: FanKind<S>,
    deps: PhantomData<fn() -> D>,
}

impl<S, D> Fan<S, D> {
    /// How many may run at a time: the others are spawned when those have ended.
    #[must_use]
    pub fn in_flight(mut self, children: usize) -> Self {
        self.kind.in_flight = Some(children.max(1));
        self
    }

    /// Fails the part at the first child that fails or is cancelled, cancels the others, and spawns no more. Then
    /// [`Fan::join`] is not called.
    #[must_use]
    pub fn fail_fast(mut self) -> Self {
        self.kind.fail_fast = true;
        self
    }

    /// Takes the results of the children into the state, a round at a time. Without this, a child that is not done
    /// fails the part when all children of its round have ended.
    #[must_use]
    pub fn join(mut self, join: impl Fn(S, &[ChildView]) -> ActResult<S> + Send + Sync + 'static) -> Self {
        self.kind.join = Some(Arc::new(join));
        self
    }
}

impl<S, D> From<Fan<S, D>> for Part<S, D> {
    fn from(Fan { name, place, kind, .. }: Fan<S, D>) -> Self {
        Self { name, place, kind: Kind::Fan(kind) }
    }
}

/// Asks the outside world by an await unit, and takes the answers into the state.
#[track_caller]
pub fn dispatch<S, R, K, T>(
    name: impl Into<String>,
    unit: impl Fn(&S) -> Unit<R, K> + Send + Sync + 'static,
    on_answers: impl Fn(S, Answers<T>) -> ActResult<S> + Send + Sync + 'static,
) -> Asking<S>
where
    S: FlowState,
    R: Serialize,
    T: DeserializeOwned + Send + 'static,
{
    let on_answers = Arc::new(on_answers);
    let imagine = imagine(on_answers.clone());
    let hear = move |state, cx: Context| -> Acting<S> {
        let on_answers = on_answers.clone();
        Box::pin(async move { on_answers(state, cx.unit::<T>().await?) })
    };
    let ask = move |state: &S, at| unit(state).dispatch(at);
    let kind =
        AskKind { ask: Arc::new(ask), hear: Arc::new(hear), imagine, takes: Takes::one_or_many::<T>() };
    Asking { name: name.into(), place: Location::caller(), kind }
}

/// How many example answers are made up if none was given.
const ANSWERS_MAX: usize = 4;

/// Every item answered alike, for each answer that can be made up; or failed; or too late.
fn imagine<S: FlowState, T: DeserializeOwned + Send + 'static>(
    on_answers: Arc<impl Fn(S, Answers<T>) -> ActResult<S> + Send + Sync + 'static>,
) -> Imagine<S> {
    type Make<T> = Box<dyn Fn() -> Result<Verdict<T>> + Send + Sync>;
    Arc::new(move |items| {
        let mut ends: Vec<(&'static str, UnitStatus, Make<T>)> = Vec::new();
        for example in samples::<T>(ANSWERS_MAX) {
            let make = move || example.decode("output").map(Verdict::Completed);
            ends.push(("is answered", UnitStatus::Completed, Box::new(make)));
        }
        let failed = || Ok(Verdict::Failed("as imagined".to_owned()));
        ends.push(("is answered with failures", UnitStatus::Failed, Box::new(failed)));
        ends.push(("is not answered in time", UnitStatus::TimedOut, Box::new(|| Ok(Verdict::TimedOut))));
        let hear = |(what, status, make): (&'static str, UnitStatus, Make<T>)| {
            let on_answers = on_answers.clone();
            let hear = move |state| {
                let verdicts = (0..items).map(|_| make()).collect::<Result<_>>()?;
                on_answers(state, Answers { status, verdicts })
            };
            (what, Box::new(hear) as Imagined<S>)
        };
        ends.into_iter().map(hear).collect()
    })
}

/// See [`dispatch`].
pub struct Asking<S> {
    name: String,
    place: Place,
    kind: AskKind<S>,
}

impl<S> Asking<S> {
    /// Refuses an answer that does not fit this JSON Schema: see [`Takes::schema`].
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn schema(mut self, schema: serde_json::Value) -> Self {
        self.kind.takes = self.kind.takes.schema(schema);
        self
    }

    /// Builds the output from the request and the answer: see [`Takes::projector`].
    #[must_use]
    pub fn projector<R, A, T, E>(
        mut self,
        build: impl Fn(R, A) -> std::result::Result<T, E> + Send + Sync + 'static,
    ) -> Self
    where
        R: DeserializeOwned,
        A: DeserializeOwned,
        T: Serialize,
        E: fmt::Display,
    {
        self.kind.takes = self.kind.takes.projector(build);
        self
    }

    /// The same, with who answers and when: see [`Takes::projector_with`].
    #[must_use]
    pub fn projector_with<R, A, T, E>(
        mut self,
        build: impl Fn(R, A, &Answering) -> std::result::Result<T, E> + Send + Sync + 'static,
    ) -> Self
    where
        R: DeserializeOwned,
        A: DeserializeOwned,
        T: Serialize,
        E: fmt::Display,
    {
        self.kind.takes = self.kind.takes.projector_with(build);
        self
    }
}

impl<S, D> From<Asking<S>> for Part<S, D> {
    fn from(Asking { name, place, kind }: Asking<S>) -> Self {
        Self { name, place, kind: Kind::Dispatch(kind) }
    }
}
