//! Operating on instances from outside.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::Client;
use crate::limits::{check_name, check_reason, check_seq};
use crate::machine::encode_at;
use crate::share::check_weight;
use crate::store::{Bounds, Brake, Cancel, CancelRequest, Collect, Collected, Events, TagChange};
use crate::{
    At, Error, Event, EventKind, Instance, InstanceId, Json, Machine, NewInstance, NewSignal, Result,
    ShareWeight, Target, When,
};

/// Instances removed in one write.
const COLLECT_ROWS_MAX: usize = 256;

impl Client {
    /// Cancels an instance: at once, or when its running step ends. Its live children are cancelled too, unless their
    /// spawn chose otherwise.
    ///
    /// ```no_run
    /// # async fn shop(client: dormouse::Client, id: dormouse::InstanceId) -> dormouse::Result<()> {
    /// client.cancel(id).reason("the customer called").await?;
    /// # Ok(()) }
    /// ```
    #[must_use = "nothing is cancelled before the call is awaited"]
    pub fn cancel(&self, target: impl Into<Target>) -> CancelCall<'_> {
        CancelCall { client: self, target: target.into(), request: CancelRequest::default() }
    }

    /// Runs a failed or cancelled instance again from its step, with the inputs it had. Fails with
    /// [`Error::InvalidState`] if its machine cannot run from there.
    #[must_use = "nothing is retried before the call is awaited"]
    pub fn retry(&self, target: impl Into<Target>) -> RetryCall<'_> {
        RetryCall { client: self, target: target.into(), at: Ok(None), expected_seq: None }
    }

    /// Runs a failed or cancelled instance again from another step and state.
    #[must_use = "nothing is retried before the call is awaited"]
    pub fn retry_at<M: Machine>(&self, target: impl Into<Target>, state: M::State) -> RetryCall<'_> {
        RetryCall { at: encode_at(&state).map(Some), ..self.retry(target) }
    }

    /// Runs a failed or cancelled instance again from a step and state given as text and JSON.
    #[must_use = "nothing is retried before the call is awaited"]
    pub fn retry_raw(&self, target: impl Into<Target>, at: At) -> RetryCall<'_> {
        RetryCall { at: Ok(Some(at)), ..self.retry(target) }
    }

    /// Pauses an instance: it keeps its status and receives signals, but is not claimed. A step that runs goes on to
    /// its end.
    #[must_use = "nothing is paused before the call is awaited"]
    pub fn pause(&self, target: impl Into<Target>) -> PauseCall<'_> {
        PauseCall { client: self, target: target.into(), brake: Brake::On, expected_seq: None }
    }

    /// Resumes a paused instance.
    #[must_use = "nothing is resumed before the call is awaited"]
    pub fn resume(&self, target: impl Into<Target>) -> PauseCall<'_> {
        PauseCall { brake: Brake::Off, ..self.pause(target) }
    }

    /// Adds and removes tags of an instance, live or ended, and returns the tags it has then. This is not a transition:
    /// its `seq` and its history stay as they are.
    ///
    /// ```no_run
    /// # async fn shop(client: dormouse::Client, id: dormouse::InstanceId) -> dormouse::Result<()> {
    /// let tags = client.tag(id).add("vip").remove("new").await?;
    /// # Ok(()) }
    /// ```
    #[must_use = "nothing is tagged before the call is awaited"]
    pub fn tag(&self, target: impl Into<Target>) -> TagCall<'_> {
        TagCall { client: self, target: target.into(), change: TagChange::default() }
    }

    /// Pauses a queue of this client's namespace: its instances are not claimed. Fails with [`Error::UnknownQueue`] if
    /// no machine, worker or instance names the queue.
    #[must_use = "nothing is paused before the call is awaited"]
    pub fn pause_queue(&self, queue: impl Into<String>) -> PauseQueueCall<'_> {
        PauseQueueCall { client: self, queue: queue.into(), brake: Brake::On, even_if_unknown: false }
    }

    /// Resumes a paused queue.
    #[must_use = "nothing is resumed before the call is awaited"]
    pub fn resume_queue(&self, queue: impl Into<String>) -> PauseQueueCall<'_> {
        PauseQueueCall { client: self, queue: queue.into(), brake: Brake::Off, even_if_unknown: false }
    }

    /// Sets how many rows a share is served in each of its turns: 1, unless set, and up to
    /// [`WEIGHT_MAX`](crate::WEIGHT_MAX). It counts from
    /// the next claim on, for work that waits already too. The share is named as in [`Start::share`](crate::Start::share);
    /// the namespace's own share has the namespace's name.
    ///
    /// ```no_run
    /// # async fn shop(client: dormouse::Client) -> dormouse::Result<()> {
    /// client.weigh_share("tenant-7", 3).await?;
    /// # Ok(()) }
    /// ```
    pub async fn weigh_share(&self, share: impl Into<String>, weight: u32) -> Result<()> {
        let share = share.into();
        check_weight(&share, weight)?;
        self.store.weigh(self.namespace.to_string(), share, weight).await
    }

    /// Lists the shares of this client's namespace whose weight is not 1, in order, up to 1,000.
    pub async fn shares(&self) -> Result<Vec<ShareWeight>> {
        self.store.shares(Some(self.namespace.to_string())).await
    }

    /// Starts a new instance as another one was after an event, perhaps with `change`s such as another key or an edited
    /// state. If the original waited for signals then, the new one waits again, for as long; if a signal had woken it,
    /// the new one has that signal. It gets the original's tags, but not its key.
    pub async fn fork(
        &self,
        target: impl Into<Target>,
        seq: u64,
        change: impl FnOnce(NewInstance) -> NewInstance,
    ) -> Result<InstanceId> {
        let target = target.into();
        check_seq(seq)?;
        let origin = self.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
        let event = self.event(origin.id, seq).await?;
        let new = NewInstance {
            queue: origin.queue,
            priority: origin.priority,
            lane: origin.lane,
            share: origin.share,
            trace: origin.trace.map(String::from),
            cost: origin.cost,
            tags: origin.tags,
            forked_from: Some((origin.id, seq)),
            ..as_after(origin.machine, event)?
        };
        let before = new.at.state.clone();
        let new = change(new);
        self.check_edited(&new.machine, new.version, &before, &new.at).await?;
        self.start_one(new).await
    }

    /// Removes instances of this client's namespace that ended longer ago than `ended_for`, in bounded batches.
    pub async fn collect(&self, ended_for: Duration) -> Result<Collected> {
        let batch = Collect {
            namespace: Some(self.namespace.to_string()),
            ended_for: Some(ended_for),
            events_for: None,
            events_after: 0,
            rows_max: COLLECT_ROWS_MAX,
        };
        let mut total = Collected::default();
        loop {
            let collected = self.store.collect(batch.clone()).await?;
            total.instances += collected.instances;
            if collected.instances < COLLECT_ROWS_MAX {
                return Ok(total);
            }
        }
    }

    async fn event(&self, id: InstanceId, seq: u64) -> Result<Event> {
        let missing = || Error::NoEvent { id, seq };
        let after = seq.checked_sub(1).ok_or_else(missing)?;
        let events = self.store.history(id, Events::After(after), Bounds::rows(1)).await?;
        events.items.into_iter().next().filter(|event| event.seq == seq).ok_or_else(missing)
    }
}

/// A cancel that is not sent yet: set options, then `.await` it.
#[must_use = "nothing is cancelled before it is awaited"]
pub struct CancelCall<'a> {
    client: &'a Client,
    target: Target,
    request: CancelRequest,
}

impl CancelCall<'_> {
    /// Says why, in up to 1,024 bytes. The reason is stored with the instance, in its history, and with every
    /// descendant that is cancelled with it. If a cancel was requested before, the first reason stays.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.request.reason = Some(reason.into());
        self
    }

    /// Cancels it only if it is still at this `seq`; otherwise fails with [`Error::StaleSeq`].
    pub fn expected_seq(mut self, seq: u64) -> Self {
        self.request.expected_seq = Some(seq);
        self
    }
}

impl<'a> IntoFuture for CancelCall<'a> {
    type Output = Result<Cancel>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { client, target, request } = self;
        Box::pin(async move {
            request.reason.as_deref().map_or(Ok(()), check_reason)?;
            request.expected_seq.map_or(Ok(()), check_seq)?;
            Ok(client.applied(client.store.cancel(client.namespace.to_string(), target, request).await?))
        })
    }
}

/// A retry that is not sent yet: set options, then `.await` it.
#[must_use = "nothing is retried before it is awaited"]
pub struct RetryCall<'a> {
    client: &'a Client,
    target: Target,
    at: Result<Option<At>>,
    expected_seq: Option<u64>,
}

impl RetryCall<'_> {
    /// Retries it only if it is still at this `seq`; otherwise fails with [`Error::StaleSeq`].
    pub fn expected_seq(mut self, seq: u64) -> Self {
        self.expected_seq = Some(seq);
        self
    }
}

impl<'a> IntoFuture for RetryCall<'a> {
    type Output = Result<InstanceId>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { client, target, at, expected_seq } = self;
        Box::pin(async move {
            let at = at?;
            expected_seq.map_or(Ok(()), check_seq)?;
            if let Some(at) = &at {
                check_name("step name", &at.step)?;
                client.limits.check_document("state", &at.state)?;
            }
            let namespace = client.namespace.to_string();
            if let Some(instance) = client.store.get(namespace.clone(), target.clone()).await? {
                let Instance { machine, version, step, state, .. } = instance;
                let at = at.clone().unwrap_or_else(|| At { step: step.into(), state: state.clone() });
                client.check_place(&machine, version, &at).await?;
                client.check_edited(&machine, version, &state, &at).await?;
            }
            Ok(client.applied(client.store.retry(namespace, target, at, expected_seq).await?))
        })
    }
}

/// A pause or resume that is not sent yet: set options, then `.await` it.
#[must_use = "nothing is paused or resumed before it is awaited"]
pub struct PauseCall<'a> {
    client: &'a Client,
    target: Target,
    brake: Brake,
    expected_seq: Option<u64>,
}

impl PauseCall<'_> {
    /// Acts only if the instance is still at this `seq`; otherwise fails with [`Error::StaleSeq`]. Pausing itself does
    /// not change the `seq`.
    pub fn expected_seq(mut self, seq: u64) -> Self {
        self.expected_seq = Some(seq);
        self
    }
}

impl<'a> IntoFuture for PauseCall<'a> {
    type Output = Result<InstanceId>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { client, target, brake, expected_seq } = self;
        Box::pin(async move {
            expected_seq.map_or(Ok(()), check_seq)?;
            let namespace = client.namespace.to_string();
            Ok(client.applied(client.store.pause(namespace, target, brake, expected_seq).await?))
        })
    }
}

/// A pause or resume of a queue that is not sent yet: set options, then `.await` it.
#[must_use = "nothing is paused or resumed before it is awaited"]
pub struct PauseQueueCall<'a> {
    client: &'a Client,
    queue: String,
    brake: Brake,
    even_if_unknown: bool,
}

impl PauseQueueCall<'_> {
    /// Also acts on a queue that no machine, worker or instance names yet.
    pub fn even_if_unknown(mut self) -> Self {
        self.even_if_unknown = true;
        self
    }
}

impl<'a> IntoFuture for PauseQueueCall<'a> {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { client, queue, brake, even_if_unknown } = self;
        Box::pin(async move {
            check_name("queue", &queue)?;
            if !even_if_unknown {
                client.check_queue(&queue).await?;
            }
            let written = client.store.pause_queue(client.namespace.to_string(), queue, brake).await?;
            client.store.poke(&written.effects);
            Ok(())
        })
    }
}

/// A change of tags that is not sent yet: say what to add and remove, then `.await` it.
#[must_use = "nothing is tagged before it is awaited"]
pub struct TagCall<'a> {
    client: &'a Client,
    target: Target,
    change: TagChange,
}

impl TagCall<'_> {
    /// Adds a tag. A tag that it already has stays.
    #[expect(clippy::should_implement_trait, reason = "it pairs with `remove`, and nobody adds up calls")]
    pub fn add(mut self, tag: impl Into<String>) -> Self {
        self.change.add.push(tag.into());
        self
    }

    /// Removes a tag. It is not an error if the instance does not have it.
    pub fn remove(mut self, tag: impl Into<String>) -> Self {
        self.change.remove.push(tag.into());
        self
    }
}

impl<'a> IntoFuture for TagCall<'a> {
    type Output = Result<Vec<String>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { client, target, change } = self;
        Box::pin(async move {
            change.check()?;
            client.store.tag(client.namespace.to_string(), target, change).await
        })
    }
}

/// An instance as it was after an event: parked on what it waited for, or woken by the signal it received.
fn as_after(machine: String, event: Event) -> Result<NewInstance> {
    let at = At { step: event.step.into(), state: event.state };
    let new = NewInstance::named(machine, event.version, at).even_if_unknown();
    let (kind, data) = (event.kind, event.data.unwrap_or_else(Json::null));
    Ok(match kind {
        EventKind::SignalWaiting => {
            let Waiting { names, until } = data.decode("event's data")?;
            let left =
                until.map(|until| Duration::try_from(until.duration_since(event.at)).unwrap_or_default());
            NewInstance { awaits: Some((names, left.map(When::In))), ..new }
        }
        EventKind::SignalReceived => {
            let Received { name, payload } = data.decode("event's data")?;
            NewInstance { awaits: Some((vec![name.clone()], None)), ..new }
                .signal(NewSignal::new(name, payload))
        }
        _ => new,
    })
}

/// The data of `signal.waiting`.
#[derive(Deserialize)]
struct Waiting {
    names: Vec<String>,
    until: Option<Timestamp>,
}

/// The data of `signal.received`.
#[derive(Deserialize)]
struct Received {
    name: String,
    payload: Json,
}
