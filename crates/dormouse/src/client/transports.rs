//! Transports: what limits their sends, over all workers.

use super::Client;
use crate::sends::check_transport_name;
use crate::store::TransportView;
use crate::{Result, TransportChange};

/// Transports listed in one read.
const PAGE: usize = 100;

impl Client {
    /// Changes what limits a transport's sends: its rate, how many are in flight, its breaker. It holds at once, for all
    /// workers and all namespaces, in place of what code declares ([`Sending`](crate::Sending)), until it is changed again.
    /// What is in flight goes on.
    ///
    /// A transport that no engine has had yet may be limited, too: `declared` is `None` in the answer then, which may be a
    /// mistake in the name.
    ///
    /// ```no_run
    /// # async fn shop(client: dormouse::Client) -> dormouse::Result<()> {
    /// use dormouse::{SendRate, Setting, TransportChange};
    /// client.set_transport("stripe", TransportChange::new().rate(SendRate::per_second(20)).in_flight(50)).await?;
    /// client.set_transport("stripe", TransportChange::new().in_flight(Setting::Declared)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_transport(
        &self,
        name: impl Into<String>,
        change: TransportChange,
    ) -> Result<TransportView> {
        let name = name.into();
        change.check(&name)?;
        self.applied(self.store.set_transport(name.clone(), change).await?);
        let view = self.store.transport(name.clone()).await?;
        let view = view.ok_or_else(|| crate::Error::Storage("the transport is gone".into()))?;
        if view.declared.is_none() {
            tracing::warn!(
                transport = name,
                "no engine has had this transport yet: its limits hold when one has"
            );
        }
        Ok(view)
    }

    /// Closes a transport's breaker, so that its requests are sent at once, by all workers. Returns whether it was open.
    pub async fn close_breaker(&self, name: impl Into<String>) -> Result<bool> {
        let name = name.into();
        check_transport_name(&name)?;
        let was_open = self.applied(self.store.close_breaker(name.clone()).await?);
        if was_open {
            tracing::warn!(transport = name, "its breaker was closed by an operator");
        }
        Ok(was_open)
    }

    /// A transport, what limits it, and how much of that is in use. `None` if no engine has had it and nobody limited it.
    pub async fn transport(&self, name: impl Into<String>) -> Result<Option<TransportView>> {
        self.store.transport(name.into()).await
    }

    /// The transports that engines have had or that somebody limited, in the order of their names. They are of no
    /// namespace.
    pub async fn transports(&self) -> Result<Vec<TransportView>> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|last: &TransportView| last.name.clone());
            let page = self.store.transports(after, PAGE).await?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }
}
