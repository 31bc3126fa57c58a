//! Flows: describe a process, get the machine, its graph and its checks.
//!
//! A flow is a description of parts over one state. It becomes an ordinary machine: each part that runs code is a
//! step, named by its path, and its outcome is committed before the next one starts. Nothing is ever replayed.

mod build;
mod fan;
mod foresee;
mod graph;
mod groups;
mod machine;
mod others;
mod parts;
mod saga;
mod trail;

use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::build::{Finding, Findings};
pub use self::groups::{Branch, Repeat, Scene, branch, repeat, saga, scene};
pub use self::machine::FlowMachine;
pub use self::others::{Asking, Child, Fan, call, dispatch, each, parallel};
pub use self::parts::{Act, Part, Parts, Sleep, Stop, Wait, act, fail, signal, sleep};
use crate::{At, BoxError, Context, Json, NewInstance, Result};

/// What an act returns: the new state.
pub type ActResult<S> = Result<S, BoxError>;

/// A state that a flow can have: a struct, so that the flow can keep its own field beside yours.
pub trait FlowState: Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<S: Serialize + DeserializeOwned + Send + Sync + 'static> FlowState for S {}

/// What an act gets besides the state: the flow's dependencies, and everything in a step's [`Context`].
pub struct Cx<D> {
    /// The dependencies that the flow was built with.
    pub deps: Arc<D>,
    context: Context,
}

impl<D> Deref for Cx<D> {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl<D> fmt::Debug for Cx<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cx").field(&self.context).finish()
    }
}

/// A process over one state, as a list of parts.
///
/// ```
/// use std::time::Duration;
///
/// use dormouse::flow::{ActResult, Cx, Flow, act, branch, signal};
/// use dormouse::prelude::*;
///
/// #[derive(Serialize, Deserialize)]
/// struct Order {
///     total: u64,
///     approved: bool,
/// }
///
/// const APPROVAL: Signal<bool> = Signal::named("approval");
///
/// fn is_large(order: &Order) -> bool {
///     order.total > 1000
/// }
///
/// fn decide(order: Order, approved: bool) -> ActResult<Order> {
///     Ok(Order { approved, ..order })
/// }
///
/// async fn ship(order: Order, _: Cx<()>) -> ActResult<Order> {
///     Ok(order)
/// }
///
/// async fn refuse(order: Order, _: Cx<()>) -> ActResult<Order> {
///     Ok(order)
/// }
///
/// let flow = Flow::new("approval")
///     .then(signal(APPROVAL, decide).when(is_large).timeout(Duration::from_secs(48 * 3600)))
///     .then(branch("decision").case("approved", |order: &Order| order.approved, act(ship)).otherwise(act(refuse)));
/// let machine = flow.build(()).expect("it is well formed");
/// assert_eq!(machine.graph().nodes.len(), 6, "four parts, and two ends");
/// ```
pub struct Flow<S, D = ()> {
    name: String,
    version: u32,
    queue: String,
    place: &'static Location<'static>,
    examples: Vec<Json>,
    indexes: Vec<String>,
    parts: Vec<Part<S, D>>,
}

impl<S: FlowState, D: Send + Sync + 'static> Flow<S, D> {
    /// A flow without any parts yet. Its name is that of the machine it becomes.
    #[track_caller]
    pub fn new(name: impl Into<String>) -> Self {
        let (name, queue) = (name.into(), "default".to_owned());
        let (examples, indexes, parts) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, version: 1, queue, place: Location::caller(), examples, indexes, parts }
    }

    /// The version of its description: instances keep the one they started with.
    #[must_use]
    pub fn version(self, version: u32) -> Self {
        Self { version, ..self }
    }

    /// The queue its instances wait in.
    #[must_use]
    pub fn queue(self, queue: impl Into<String>) -> Self {
        Self { queue: queue.into(), ..self }
    }

    /// An example of a state that it starts with, for `dormouse check`. Without any, examples are made up from its type.
    #[must_use]
    pub fn such_as(mut self, state: &S) -> Self {
        self.examples.extend(Json::encode("state", state));
        self
    }

    /// A field of its state that instances are found by: see [`Machine::indexes`](crate::Machine::indexes).
    #[must_use]
    pub fn index(mut self, field: impl Into<String>) -> Self {
        self.indexes.push(field.into());
        self
    }

    /// Adds the next part.
    #[must_use]
    pub fn then(mut self, parts: impl Parts<S, D>) -> Self {
        parts.add_to(&mut self.parts);
        self
    }

    /// Checks the description and builds the machine, with the dependencies that its acts need.
    pub fn build(self, deps: D) -> Result<FlowMachine<S, D>, Findings> {
        build::build(self, Arc::new(deps))
    }
}

impl<S: FlowState, D: Send + Sync + 'static> FlowMachine<S, D> {
    /// A new instance, at the flow's first part.
    pub fn instance(&self, state: &S) -> Result<NewInstance> {
        let at = At { step: self.first().to_owned().into(), state: Json::encode("state", state)? };
        Ok(NewInstance::named(self.name(), self.version(), at).queue(self.queue()).even_if_unknown())
    }
}

impl<S, D> fmt::Debug for Flow<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flow({} version {}, {} parts)", self.name, self.version, self.parts.len())
    }
}
