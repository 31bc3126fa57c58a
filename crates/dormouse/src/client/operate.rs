//! Operating on instances from outside.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::Client;
use crate::limits::check_name;
use crate::machine::encode_at;
use crate::store::{Brake, Cancel, Collect, Collected};
use crate::{
    At, Error, Event, EventKind, InstanceId, Json, Machine, NewInstance, NewSignal, Result, Target, When,
};

/// Instances removed in one write.
const COLLECT_ROWS_MAX: usize = 256;

impl Client {
    /// Cancels an instance: at once, or when its running step ends. Its live children go with it, unless
    /// their spawn chose otherwise.
    pub async fn cancel(&self, target: impl Into<Target>) -> Result<Cancel> {
        Ok(self.applied(self.store.cancel(self.namespace.to_string(), target.into()).await?))
    }

    /// Runs a failed or cancelled instance again from its step, with the inputs it had.
    pub async fn retry(&self, target: impl Into<Target>) -> Result<InstanceId> {
        Ok(self.applied(self.store.retry(self.namespace.to_string(), target.into(), None).await?))
    }

    /// Runs a failed or cancelled instance again from another place.
    pub async fn retry_at<M: Machine>(
        &self,
        target: impl Into<Target>,
        state: M::State,
    ) -> Result<InstanceId> {
        self.retry_raw(target.into(), encode_at(&state)?).await
    }

    /// Runs a failed or cancelled instance again from a place known by name.
    pub async fn retry_raw(&self, target: impl Into<Target>, at: At) -> Result<InstanceId> {
        check_name("step name", &at.step)?;
        self.limits.check_document("state", &at.state)?;
        Ok(self.applied(self.store.retry(self.namespace.to_string(), target.into(), Some(at)).await?))
    }

    /// Puts an instance's brake on: it keeps its status, takes signals, and is not claimed.
    pub async fn pause(&self, target: impl Into<Target>) -> Result<InstanceId> {
        Ok(self.applied(self.store.pause(self.namespace.to_string(), target.into(), Brake::On).await?))
    }

    /// Takes an instance's brake off.
    pub async fn resume(&self, target: impl Into<Target>) -> Result<InstanceId> {
        Ok(self.applied(self.store.pause(self.namespace.to_string(), target.into(), Brake::Off).await?))
    }

    /// Puts the brake on a queue of this client's namespace.
    pub async fn pause_queue(&self, queue: &str) -> Result<()> {
        self.brake_queue(queue, Brake::On).await
    }

    /// Takes the brake off a queue.
    pub async fn resume_queue(&self, queue: &str) -> Result<()> {
        self.brake_queue(queue, Brake::Off).await
    }

    /// Starts a new instance as another one was after an event, perhaps with `change`s: another key, an edited
    /// state. One that waited for signals waits again, for as long; one that a signal woke has that signal. The
    /// original's key is not taken along.
    pub async fn fork(
        &self,
        target: impl Into<Target>,
        seq: u64,
        change: impl FnOnce(NewInstance) -> NewInstance,
    ) -> Result<InstanceId> {
        let target = target.into();
        let origin = self.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
        let event = self.event(origin.id, seq).await?;
        let new = NewInstance {
            queue: origin.queue,
            priority: origin.priority,
            lane: origin.lane,
            forked_from: Some((origin.id, seq)),
            ..as_after(origin.machine, event)?
        };
        self.start_one(change(new)).await
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

    async fn brake_queue(&self, queue: &str, brake: Brake) -> Result<()> {
        check_name("queue", queue)?;
        let written = self.store.pause_queue(self.namespace.to_string(), queue.to_owned(), brake).await?;
        self.store.poke(&written.effects);
        Ok(())
    }

    async fn event(&self, id: InstanceId, seq: u64) -> Result<Event> {
        let missing = || Error::NoEvent { id, seq };
        let after = seq.checked_sub(1).ok_or_else(missing)?;
        let events = self.store.history(id, after, 1).await?;
        events.into_iter().next().filter(|event| event.seq == seq).ok_or_else(missing)
    }
}

/// An instance as it was after an event: parked on what it waited for, or woken by the signal it received.
fn as_after(machine: String, event: Event) -> Result<NewInstance> {
    let new = NewInstance::named(machine, event.version, At { step: event.step.into(), state: event.state });
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
