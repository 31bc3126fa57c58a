//! Signalling instances.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;

use super::Client;
use crate::limits::check_name;
use crate::store::Delivery;
use crate::{Delivered, Error, Json, NewSignal, Result, Signal, Target, Trace};

impl Client {
    /// Sends a signal to an instance, by id or by key. Awaiting the call returns once the signal is durable, and says
    /// whether it woke the instance or was a duplicate.
    ///
    /// It fails with [`Error::NoTarget`] if the target is unknown or has ended, unless it is
    /// [kept](SignalCall::keep_for) for an instance to come, and with [`Error::InboxFull`] if its
    /// inbox has no room.
    #[must_use = "nothing is sent before the call is awaited"]
    pub fn signal<T: Serialize>(
        &self,
        target: impl Into<Target>,
        signal: Signal<T>,
        payload: T,
    ) -> SignalCall<'_> {
        let payload = Json::encode("signal payload", &payload);
        SignalCall {
            client: self,
            target: target.into(),
            signal: payload.map(|payload| NewSignal::new(signal.name(), payload)),
        }
    }

    /// Sends a signal by name, with a payload in JSON, for callers without the signal's Rust type. The payload is
    /// checked against the declaration of the target's machine.
    pub async fn signal_raw(&self, target: impl Into<Target>, signal: NewSignal) -> Result<Delivered> {
        self.deliver_one(target.into(), signal).await
    }

    /// Sends many signals in one write and returns the result of each. If one is malformed, none is sent.
    pub async fn signal_many(
        &self,
        signals: impl IntoIterator<Item = (Target, NewSignal)>,
    ) -> Result<Vec<Delivered>> {
        let signals: Vec<_> = signals.into_iter().map(|(target, signal)| (target, traced(signal))).collect();
        self.check_all(&signals).await?;
        let delivery = |(target, signal)| self.delivery(target, signal);
        let batch = signals.into_iter().map(delivery).collect();
        let delivered = self.applied(self.store.deliver(batch).await?);
        tracing::trace!(signals = delivered.len(), "signalled");
        Ok(delivered)
    }

    async fn deliver_one(&self, target: Target, signal: NewSignal) -> Result<Delivered> {
        let sent = [(target, traced(signal))];
        self.check_all(&sent).await?;
        let [(target, signal)] = sent;
        let delivery = self.delivery(target.clone(), signal);
        let delivered = self.applied(self.store.deliver(vec![delivery]).await?);
        tracing::trace!(%target, ?delivered, "signalled");
        self.stored(delivered.into_iter().next().expect("one signal, one answer"), target)
    }

    /// A signal and whom it is for, with this client's bounds.
    pub(super) fn delivery(&self, target: Target, signal: NewSignal) -> Delivery {
        let (inbox_max, kept_max) = (self.limits.inbox(), self.limits.kept());
        Delivery { namespace: self.namespace.to_string(), target, signal, inbox_max, kept_max }
    }

    /// The result of one signal, as an error if nothing was stored.
    pub(super) fn stored(&self, delivered: Delivered, target: Target) -> Result<Delivered> {
        match delivered {
            Delivered::NoTarget => Err(Error::NoTarget(target)),
            Delivered::InboxFull => Err(Error::InboxFull(target)),
            Delivered::KeptFull => Err(Error::KeptFull(self.namespace.to_string())),
            delivered => Ok(delivered),
        }
    }

    /// Checks all signals; if one is refused, all are. It looks up targets only for signals that some machine might
    /// refuse, and returns whether those are there.
    pub(crate) async fn check_all(&self, signals: &[(Target, NewSignal)]) -> Result<bool> {
        let mut doubtful = Vec::new();
        for (target, signal) in signals {
            signal.check(&self.limits)?;
            check_target(target)?;
            signal.check_kept_by(target)?;
            if self.might_refuse(signal).await? {
                doubtful.push((target, signal));
            }
        }
        if doubtful.is_empty() {
            return Ok(true);
        }
        let targets = doubtful.iter().map(|(target, _)| (*target).clone()).collect();
        let addressees = self.store.addressees(self.namespace.to_string(), targets).await?;
        let all_there = addressees.iter().all(Option::is_some);
        for ((_, signal), addressee) in doubtful.into_iter().zip(addressees) {
            if let Some(to) = addressee {
                self.check_signal(&to.machine, to.version, &to.awaits, signal).await?;
            }
        }
        Ok(all_there)
    }
}

/// A signal in the trace of the current span, unless it has one.
pub(super) fn traced(signal: NewSignal) -> NewSignal {
    match signal.trace {
        Some(_) => signal,
        None => NewSignal { trace: Trace::current().map(String::from), ..signal },
    }
}

pub(super) fn check_target(target: &Target) -> Result<()> {
    match target {
        Target::Key(key) => check_name("key", key),
        Target::Id(_) => Ok(()),
    }
}

/// A signal that is not sent yet: set options, then `.await` it.
#[must_use = "nothing is sent before it is awaited"]
pub struct SignalCall<'a> {
    client: &'a Client,
    target: Target,
    signal: Result<NewSignal>,
}

impl SignalCall<'_> {
    /// Sets a dedup key: another signal with this key is ignored for the life of the instance, also after the first was
    /// consumed.
    pub fn dedup(self, key: impl Into<String>) -> Self {
        Self { signal: self.signal.map(|signal| signal.dedup(key)), ..self }
    }

    /// Sets the trace in which it is sent, given as in the header `traceparent`. With the feature `opentelemetry`, it is
    /// that of the current span unless said otherwise.
    pub fn trace(self, trace: impl Into<String>) -> Self {
        Self { signal: self.signal.map(|signal| signal.trace(trace)), ..self }
    }

    /// Keeps the signal for so long if no instance has its key yet: it is in the inbox of the instance that starts with
    /// that key in the meantime. The result is then [`Delivered::Kept`].
    ///
    /// The machine of that instance is not known yet, so only the size of the payload is checked. What the machine cannot
    /// read when it comes is an unreadable signal in its inbox.
    pub fn keep_for(self, duration: Duration) -> Self {
        Self { signal: self.signal.map(|signal| signal.keep_for(duration)), ..self }
    }
}

impl<'a> IntoFuture for SignalCall<'a> {
    type Output = Result<Delivered>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.client.deliver_one(self.target, self.signal?).await })
    }
}
