//! Starting instances.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;

use super::Client;
use crate::flow::{FlowMachine, FlowState};
use crate::{
    At, Delivered, Error, Inserted, InstanceId, Job, JobMachine, JobState, Json, KeyScope, Machine,
    NewInstance, NewSignal, Result, Target, Trace, When,
};

impl Client {
    /// Starts an instance of a machine. Awaiting the call returns the id once the instance is durable.
    ///
    /// If the key is taken, it fails with [`Error::KeyTaken`], which has the id of the holder.
    #[must_use = "nothing is started before the call is awaited"]
    pub fn start<M: Machine>(&self, state: M::State) -> Start<'_, M> {
        let mut new = NewInstance::of::<M>(state);
        self.namespace.as_ref().clone_into(&mut new.namespace);
        Start { client: self, new, machine: PhantomData }
    }

    /// Starts a job.
    #[must_use = "nothing is started before the call is awaited"]
    pub fn start_job<J: Job>(&self, input: J::Input) -> Start<'_, JobMachine<J>> {
        self.start::<JobMachine<J>>(JobState::Run(input))
    }

    /// Starts an instance of a flow, at its first part.
    ///
    /// ```
    /// # use dormouse::{BoxError, flow::{ActResult, Cx, Flow, act}, testing::TestEngine};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Order { total: u64 }
    /// # async fn ship(order: Order, _: Cx<()>) -> ActResult<Order> { Ok(order) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
    /// let shipping = Flow::new("shipping").then(act(ship)).build(())?;
    /// let flow = shipping.clone();
    /// let test = TestEngine::start(move |engine| engine.flow(&flow)).await?;
    /// let id = test.client().start_flow(&shipping, &Order { total: 5 }).key("order:1").await?;
    /// let order = test.client().wait_flow(&shipping, id, std::time::Duration::from_secs(5)).await?;
    /// assert_eq!(order.total, 5);
    /// # Ok(()) }
    /// ```
    #[must_use = "nothing is started before the call is awaited"]
    pub fn start_flow<S: FlowState, D: Send + Sync + 'static>(
        &self,
        flow: &FlowMachine<S, D>,
        state: &S,
    ) -> Start<'_, FlowMachine<S, D>> {
        let mut new = flow.instance(state).unwrap_or_else(|error| NewInstance {
            invalid: Some(error.to_string()),
            ..NewInstance::named(flow.name(), flow.version(), At { step: "".into(), state: Json::null() })
        });
        self.namespace.as_ref().clone_into(&mut new.namespace);
        Start { client: self, new, machine: PhantomData }
    }

    /// Starts many instances in one write and returns, for each, whether it was inserted or its key was taken.
    ///
    /// All of them start in this client's namespace. If one is malformed, none is started.
    pub async fn start_many(&self, new: impl IntoIterator<Item = NewInstance>) -> Result<Vec<Inserted>> {
        Ok(self.applied(self.store.insert(self.admit_all(new).await?).await?))
    }

    /// Starts an instance with a signal in its inbox. If its key is taken, the holder gets the signal instead.
    pub async fn start_and_signal(&self, new: NewInstance, signal: NewSignal) -> Result<Started> {
        let inserted = self.start_many([new.signal(signal)]).await?;
        match inserted.into_iter().next().expect("one instance, one answer") {
            Inserted::New(id) => Ok(Started::New(id)),
            Inserted::Taken { holder, signals } => match signals.first() {
                Some(Delivered::NoTarget) | None => Err(Error::NoTarget(Target::Id(holder))),
                Some(Delivered::InboxFull) => Err(Error::InboxFull(Target::Id(holder))),
                Some(delivered) => Ok(Started::Signalled(holder, *delivered)),
            },
        }
    }

    pub(super) async fn start_one(&self, new: NewInstance) -> Result<InstanceId> {
        let key = new.key.clone();
        one(self.start_many([new]).await?, key)
    }

    /// Checks all instances; if one is malformed, all are refused.
    pub(super) async fn admit_all(
        &self,
        new: impl IntoIterator<Item = NewInstance>,
    ) -> Result<Vec<NewInstance>> {
        let mut batch: Vec<_> = new.into_iter().collect();
        batch.iter_mut().try_for_each(|new| self.admit(new))?;
        self.check_known(&batch).await?;
        self.check_places(&batch).await?;
        self.check_costs(&batch).await?;
        self.check_signals(&batch).await?;
        Ok(batch)
    }

    fn admit(&self, new: &mut NewInstance) -> Result<()> {
        self.namespace.as_ref().clone_into(&mut new.namespace);
        new.history.get_or_insert(self.history);
        new.inbox_max = self.limits.inbox();
        new.trace = new.trace.take().or_else(|| Trace::current().map(String::from));
        new.check(&self.limits)
    }
}

/// The id of the one instance that was started.
pub(super) fn one(inserted: Vec<Inserted>, key: Option<String>) -> Result<InstanceId> {
    match inserted.into_iter().next().expect("one instance, one answer") {
        Inserted::New(id) => Ok(id),
        Inserted::Taken { holder, .. } => {
            Err(Error::KeyTaken { key: key.expect("only a key can be taken"), holder })
        }
    }
}

/// The result of [`Client::start_and_signal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// A new instance, with the signal in its inbox.
    New(InstanceId),
    /// The key's holder got the signal.
    Signalled(InstanceId, Delivered),
}

/// A start that is not sent yet: set options, then `.await` it.
#[must_use = "nothing is started before it is awaited"]
pub struct Start<'a, M> {
    client: &'a Client,
    new: NewInstance,
    machine: PhantomData<fn() -> M>,
}

impl<M> Start<'_, M> {
    /// Sets its key: its business identity. It can be addressed by it, and a second live instance with it is refused.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.with(|new| new.key(key))
    }

    /// Sets in which statuses its key counts as taken. By default, while it is live.
    pub fn key_scope(self, scope: KeyScope) -> Self {
        self.with(|new| new.key_scope(scope))
    }

    /// Sets its queue instead of the machine's.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.with(|new| new.queue(queue))
    }

    /// Sets its priority; lower runs earlier.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|new| new.priority(priority))
    }

    /// Sets its lane: the steps of a lane run one at a time, in order.
    pub fn lane(self, lane: impl Into<String>) -> Self {
        self.with(|new| new.lane(lane))
    }

    /// Sets its share: work of one queue and priority is served by turns of its shares, so that none of them waits for
    /// all the work of another. By default it is in its namespace's own share.
    pub fn share(self, share: impl Into<String>) -> Self {
        self.with(|new| new.share(share))
    }

    /// Makes it part of a trace, given as in the header `traceparent`: its steps, children and requests are in it too.
    /// With the feature `opentelemetry`, it is in the trace of the current span unless said otherwise.
    pub fn trace(self, trace: impl Into<String>) -> Self {
        self.with(|new| new.trace(trace))
    }

    /// Sets how many starts each of its steps counts as, in a lane with a rate; see [`NewInstance::cost`].
    pub fn cost(self, cost: u32) -> Self {
        self.with(|new| new.cost(cost))
    }

    /// Adds a tag, by which it can be found.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.with(|new| new.tag(tag))
    }

    /// Sets when it first runs; by default at once.
    pub fn start_at(self, when: impl Into<When>) -> Self {
        self.with(|new| new.start_at(when))
    }

    fn with(self, change: impl FnOnce(NewInstance) -> NewInstance) -> Self {
        Self { new: change(self.new), ..self }
    }
}

impl<'a, M: 'a> IntoFuture for Start<'a, M> {
    type Output = Result<InstanceId>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.client.start_one(self.new))
    }
}
