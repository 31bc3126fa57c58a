//! Looking at instances, and waiting for them.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Client;
use crate::explain::explain;
use crate::store::{Filter, Page, Progress, Reports, Stats};
use crate::{Error, Event, InboxSignal, Instance, Job, Json, Machine, Result, Status, Target};

/// How often a waiter looks by itself: what another process does may poke nobody here.
const WAIT_POLL: Duration = Duration::from_millis(250);

/// Signals of an inbox that are looked at for one that cannot be read.
const EXPLAINED_MAX: usize = 100;

impl Client {
    /// Waits for an instance's output. Within one process the answer comes as soon as it is durable.
    pub async fn wait<M: Machine>(&self, target: impl Into<Target>, within: Duration) -> Result<M::Output> {
        self.wait_output(M::NAME, target.into(), within).await
    }

    /// Waits for a job's output.
    pub async fn wait_job<J: Job>(&self, target: impl Into<Target>, within: Duration) -> Result<J::Output> {
        self.wait_output(J::NAME, target.into(), within).await
    }

    /// Waits for an instance's end, whatever it is.
    pub async fn wait_end(&self, target: impl Into<Target>, within: Duration) -> Result<Instance> {
        self.wait_until(target.into(), within, Status::is_terminal).await
    }

    /// Waits until an instance has settled: it is parked, on a signal, children, a unit or the clock, or has ended.
    /// After a start or a signal, that is when all that could follow from it at once has happened.
    pub async fn wait_settled(&self, target: impl Into<Target>, within: Duration) -> Result<Instance> {
        self.wait_until(target.into(), within, Status::is_settled).await
    }

    async fn wait_until(
        &self,
        target: Target,
        within: Duration,
        is_reached: fn(Status) -> bool,
    ) -> Result<Instance> {
        // One that is too far off to be told as a moment is none.
        let deadline = Instant::now().checked_add(within);
        let id = match target {
            Target::Id(id) => id,
            Target::Key(_) => self.get(target.clone()).await?.ok_or(Error::NotFound(target))?.id,
        };
        let waiter = self.store.hub().wait_for(id);
        loop {
            let told = waiter.notify.notified();
            tokio::pin!(told);
            // From here on a commit is heard of, so looking now misses nothing.
            told.as_mut().enable();
            let instance = self.get(id).await?.ok_or(Error::NotFound(Target::Id(id)))?;
            if is_reached(instance.status) {
                return Ok(instance);
            }
            let now = Instant::now();
            let left = deadline.map_or(WAIT_POLL, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() {
                let explanation = self.explain(id).await?;
                return Err(Error::StillLive {
                    id,
                    waited_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
                    explanation,
                });
            }
            let _ = tokio::time::timeout(WAIT_POLL.min(left), told).await;
        }
    }

    async fn wait_output<T: DeserializeOwned>(
        &self,
        machine: &'static str,
        target: Target,
        within: Duration,
    ) -> Result<T> {
        let ended = self.wait_end(target, within).await?;
        if ended.machine != machine {
            return Err(Error::WrongMachine { id: ended.id, machine: ended.machine, asked_for: machine });
        }
        match (ended.status, ended.output) {
            (Status::Done, output) => output.unwrap_or_else(Json::null).decode("output"),
            (Status::Cancelled, _) => {
                Err(Error::Ended { id: ended.id, status: ended.status, error: ended.cancel_reason })
            }
            (status, _) => Err(Error::Ended { id: ended.id, status, error: ended.last_error }),
        }
    }

    /// One instance, by id or key; `None` if there is none.
    pub async fn get(&self, target: impl Into<Target>) -> Result<Option<Instance>> {
        self.store.get(self.namespace.to_string(), target.into()).await
    }

    /// Instances, newest first, a page at a time. Unless the filter names a namespace, in this client's.
    pub async fn list(&self, mut filter: Filter) -> Result<Page> {
        filter.namespace.get_or_insert_with(|| self.namespace.to_string());
        if filter.limit == 0 {
            filter.limit = 100;
        }
        self.store.list(filter).await
    }

    /// The names that an instance is parked on; none if it is not.
    pub async fn waiting(&self, target: impl Into<Target>) -> Result<Vec<String>> {
        let target = target.into();
        let instance = self.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
        Ok(if instance.status == Status::AwaitingSignal { instance.awaits } else { Vec::new() })
    }

    /// The instances that are parked on a signal, oldest first.
    pub async fn find_waiting(&self, signal: impl Into<String>, limit: usize) -> Result<Page> {
        self.list(Filter { awaiting: Some(signal.into()), limit, ..Filter::default() }).await
    }

    /// The signals that wait for an instance, or, if it failed or was cancelled, for its retry. One that is done has none.
    pub async fn inbox(&self, target: impl Into<Target>) -> Result<Vec<InboxSignal>> {
        let target = target.into();
        let instance = self.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
        self.store.inbox(instance.id).await
    }

    /// An instance's history, from its first event.
    pub async fn history(&self, target: impl Into<Target>) -> Result<Vec<Event>> {
        let target = target.into();
        let instance = self.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
        self.store.history(instance.id, 0, usize::MAX >> 1).await
    }

    /// What the running step of an instance reported last; `None` if it does not run, or has reported nothing.
    pub async fn progress(&self, target: impl Into<Target>) -> Result<Option<Progress>> {
        let target = target.into();
        let instance = self.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
        Ok(self.store.reports(Reports::Of(instance.id), 1).await?.pop())
    }

    /// Why an instance is not moving, in one plain sentence.
    pub async fn explain(&self, target: impl Into<Target>) -> Result<String> {
        let target = target.into();
        let situation = self.store.situation(self.namespace.to_string(), target.clone()).await?;
        let situation = situation.ok_or(Error::NotFound(target))?;
        let told = explain(&situation, self.store.hub().is_claimed_ahead(situation.instance.id));
        Ok(told + &self.explain_inbox(&situation.instance).await?)
    }

    /// What there is to tell of signals that its machine cannot read.
    async fn explain_inbox(&self, instance: &Instance) -> Result<String> {
        if instance.inbox == 0 {
            return Ok(String::new());
        }
        let mut inbox = self.inbox(instance.id).await?;
        inbox.truncate(EXPLAINED_MAX);
        let unreadable = self.unreadable(instance, &inbox).await?;
        let mut unreadable = inbox.iter().zip(unreadable).filter_map(|(signal, why)| Some((signal, why?)));
        let Some((InboxSignal { id, name, .. }, why)) = unreadable.next() else { return Ok(String::new()) };
        let more = match unreadable.count() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Ok(format!("; signal {} ({name:?}) in its inbox cannot be read{more}, drop or edit it: {why}", id.0))
    }

    /// Counts, queues and workers, of every namespace.
    pub async fn stats(&self) -> Result<Stats> {
        self.store.stats().await
    }
}
