//! Looking at instances, and waiting for them.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Client;
use crate::flow::{FlowMachine, FlowState};
use crate::store::{Bounds, Events, Filter, Page, Portion, Progress, Reports, Stats};
use crate::{Error, Event, InboxSignal, Instance, Job, Json, Machine, Result, SignalId, Status, Target};

/// How often a waiter polls: a change by another process may poke nobody here.
const WAIT_POLL: Duration = Duration::from_millis(250);
/// Rows read at a time when a whole list is wanted.
const PAGE_ROWS: usize = 500;

/// How many signals of an inbox are searched for an unreadable one.
const EXPLAINED_MAX: usize = 100;

impl Client {
    /// Waits for an instance's output. Within one process it returns as soon as the output is durable.
    pub async fn wait<M: Machine>(&self, target: impl Into<Target>, within: Duration) -> Result<M::Output> {
        self.wait_output(M::NAME, target.into(), within).await
    }

    /// Waits for a job's output.
    pub async fn wait_job<J: Job>(&self, target: impl Into<Target>, within: Duration) -> Result<J::Output> {
        self.wait_output(J::NAME, target.into(), within).await
    }

    /// Waits for a flow's output: its state at the end.
    pub async fn wait_flow<S: FlowState, D: Send + Sync + 'static>(
        &self,
        flow: &FlowMachine<S, D>,
        target: impl Into<Target>,
        within: Duration,
    ) -> Result<S> {
        self.wait_output(flow.name(), target.into(), within).await
    }

    /// Waits until an instance is done, failed or cancelled.
    pub async fn wait_end(&self, target: impl Into<Target>, within: Duration) -> Result<Instance> {
        self.wait_until(target.into(), within, Status::is_terminal).await
    }

    /// Waits until an instance has settled: it is parked, on a signal, children, a unit or the clock, or has ended.
    /// After a start or a signal, that is when everything that could happen at once has happened.
    pub async fn wait_settled(&self, target: impl Into<Target>, within: Duration) -> Result<Instance> {
        self.wait_until(target.into(), within, Status::is_settled).await
    }

    async fn wait_until(
        &self,
        target: Target,
        within: Duration,
        is_reached: fn(Status) -> bool,
    ) -> Result<Instance> {
        // A deadline too far off to be a timestamp counts as none.
        let deadline = Instant::now().checked_add(within);
        let id = match target {
            Target::Id(id) => id,
            Target::Key(_) => self.head_of(target).await?.id,
        };
        let waiter = self.store.hub().wait_for(id);
        loop {
            let told = waiter.notify.notified();
            tokio::pin!(told);
            // From here on each commit wakes this waiter, so reading now misses nothing.
            told.as_mut().enable();
            // A waiter reads often, so it reads only the head, however large the documents are.
            if is_reached(self.head_of(id.into()).await?.status) {
                let instance = self.get(id).await?.ok_or(Error::NotFound(Target::Id(id)))?;
                if is_reached(instance.status) {
                    return Ok(instance);
                }
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
        machine: &str,
        target: Target,
        within: Duration,
    ) -> Result<T> {
        let ended = self.wait_end(target, within).await?;
        if ended.machine != machine {
            let asked_for = machine.to_owned();
            return Err(Error::WrongMachine { id: ended.id, machine: ended.machine, asked_for });
        }
        match (ended.status, ended.output) {
            (Status::Done, output) => output.unwrap_or_else(Json::null).decode("output"),
            (Status::Cancelled, _) => {
                Err(Error::Ended { id: ended.id, status: ended.status, error: ended.cancel_reason })
            }
            (status, _) => Err(Error::Ended { id: ended.id, status, error: ended.last_error }),
        }
    }

    /// Returns one instance, by id or key; `None` if there is none.
    pub async fn get(&self, target: impl Into<Target>) -> Result<Option<Instance>> {
        self.store.get(self.namespace.to_string(), target.into()).await
    }

    /// Returns one instance's head: its row without its documents, so `state` is null and `output` is `None`. Use it
    /// instead of [`Client::get`] when you only need the status, the step or the `seq`.
    pub async fn head(&self, target: impl Into<Target>) -> Result<Option<Instance>> {
        self.store.head(self.namespace.to_string(), target.into()).await
    }

    pub(super) async fn head_of(&self, target: Target) -> Result<Instance> {
        self.head(target.clone()).await?.ok_or(Error::NotFound(target))
    }

    /// Lists instances, newest first, a page at a time: those of this client's namespace, unless the filter names one.
    ///
    /// A page ends early, with its `next` set, when the documents in it reach 4 MiB
    /// ([`PAGE_BYTES_MAX`](crate::store::PAGE_BYTES_MAX)). Set [`Filter::heads_only`] if you do not read them.
    pub async fn list(&self, mut filter: Filter) -> Result<Page> {
        filter.namespace.get_or_insert_with(|| self.namespace.to_string());
        if filter.limit == 0 {
            filter.limit = 100;
        }
        self.store.list(filter).await
    }

    /// The names of the signals that an instance is parked on; empty if it is not.
    pub async fn waiting(&self, target: impl Into<Target>) -> Result<Vec<String>> {
        let target = target.into();
        let instance = self.head_of(target).await?;
        Ok(if instance.status == Status::AwaitingSignal { instance.awaits } else { Vec::new() })
    }

    /// The instances that are parked on a signal, oldest first.
    pub async fn find_waiting(&self, signal: impl Into<String>, limit: usize) -> Result<Page> {
        self.list(Filter { awaiting: Some(signal.into()), limit, ..Filter::default() }).await
    }

    /// All signals in an instance's inbox. An instance that failed or was cancelled keeps them for a retry; one that is
    /// done has none.
    pub async fn inbox(&self, target: impl Into<Target>) -> Result<Vec<InboxSignal>> {
        let id = self.head_of(target.into()).await?.id;
        let mut inbox: Vec<InboxSignal> = Vec::new();
        loop {
            let after = inbox.last().map(|signal| signal.id);
            let Portion { items, more } = self.inbox_page(id, after, Bounds::rows(PAGE_ROWS)).await?;
            inbox.extend(items);
            if !more {
                return Ok(inbox);
            }
        }
    }

    /// A page of an instance's inbox, in order of arrival: from the first signal, or after this one. Use it for an
    /// inbox that may be large: a page is bounded in rows and bytes.
    pub async fn inbox_page(
        &self,
        target: impl Into<Target>,
        after: Option<SignalId>,
        bounds: Bounds,
    ) -> Result<Portion<InboxSignal>> {
        self.store.inbox(self.head_of(target.into()).await?.id, after, bounds).await
    }

    /// An instance's whole history, from its first event. Each event holds the state after it, so read a long history
    /// with large states a page at a time, with [`Client::history_page`].
    pub async fn history(&self, target: impl Into<Target>) -> Result<Vec<Event>> {
        let id = self.head_of(target.into()).await?.id;
        let mut history: Vec<Event> = Vec::new();
        loop {
            let after = Events::After(history.last().map_or(0, |event| event.seq));
            let Portion { items, more } = self.store.history(id, after, Bounds::rows(PAGE_ROWS)).await?;
            history.extend(items);
            if !more {
                return Ok(history);
            }
        }
    }

    /// A page of an instance's history, forwards or backwards, bounded in rows and bytes. The next page continues from
    /// the last event's `seq`.
    pub async fn history_page(
        &self,
        target: impl Into<Target>,
        events: Events,
        bounds: Bounds,
    ) -> Result<Portion<Event>> {
        self.store.history(self.head_of(target.into()).await?.id, events, bounds).await
    }

    /// The last progress that an instance's running step reported; `None` if no step runs, or it has reported nothing.
    pub async fn progress(&self, target: impl Into<Target>) -> Result<Option<Progress>> {
        let id = self.head_of(target.into()).await?.id;
        Ok(self.store.reports(Reports::Of(id), 1).await?.pop())
    }

    /// Explains in one sentence why an instance is not moving. If it waits on another instance or on a request, that is
    /// explained too.
    pub async fn explain(&self, target: impl Into<Target>) -> Result<String> {
        let target = target.into();
        let situation = self.store.situation(self.namespace.to_string(), target.clone()).await?;
        let Some(situation) = situation else { return self.explain_nothing(target).await };
        let told = self.followed(&situation).await? + &self.explain_inbox(&situation.instance).await?;
        Ok(told + &self.explain_mail(situation.instance.id).await?)
    }

    /// Adds a remark on signals that the machine cannot read.
    async fn explain_inbox(&self, instance: &Instance) -> Result<String> {
        if instance.inbox == 0 {
            return Ok(String::new());
        }
        let inbox = self.store.inbox(instance.id, None, Bounds::rows(EXPLAINED_MAX)).await?.items;
        let unreadable = self.unreadable(instance, &inbox).await?;
        let mut unreadable = inbox.iter().zip(unreadable).filter_map(|(signal, why)| Some((signal, why?)));
        let Some((InboxSignal { id, name, .. }, why)) = unreadable.next() else { return Ok(String::new()) };
        let more = match unreadable.count() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Ok(format!("; signal {} ({name:?}) in its inbox cannot be read{more}, drop or edit it: {why}", id.0))
    }

    /// Returns counts, queues and workers of every namespace. For one namespace, use
    /// `client.store().stats(Some(namespace))`.
    pub async fn stats(&self) -> Result<Stats> {
        self.store.stats(None).await
    }
}
