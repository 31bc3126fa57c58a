//! Repairing inboxes: dropping and editing signals in them.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use super::Client;
use crate::limits::check_seq;
use crate::store::{Amend, AmendRequest};
use crate::{At, Error, Instance, InstanceId, Json, NewSignal, Result, SignalId, Target};

impl Client {
    /// Removes a signal from an instance's inbox, together with its dedup key, so that it can be sent again. An
    /// instance that only this signal had woken waits again. The inbox of one that failed or was cancelled can be
    /// amended before a retry.
    ///
    /// While a step of the instance runs, this fails with [`Error::WrongStatus`], because the step may have read the
    /// signal.
    #[must_use = "nothing is dropped before the call is awaited"]
    pub fn drop_signal(&self, target: impl Into<Target>, signal: SignalId) -> AmendCall<'_> {
        AmendCall::new(self, target.into(), signal, Amend::Drop)
    }

    /// Replaces the payload of a signal in an instance's inbox. The new payload is checked as if it were sent. An
    /// instance that is parked on the signal wakes. See [`Client::drop_signal`].
    #[must_use = "nothing is edited before the call is awaited"]
    pub fn edit_signal(&self, target: impl Into<Target>, signal: SignalId, payload: Json) -> AmendCall<'_> {
        AmendCall::new(self, target.into(), signal, Amend::Edit(payload))
    }

    /// Replaces the state of an instance that is parked, runnable, failed or cancelled. It stays where it is, at the same
    /// step; to run an ended one again, [retry](Client::retry) it afterwards. The new state is checked against the code, or
    /// its declaration.
    ///
    /// It fails with [`Error::WrongStatus`] while a step of the instance runs, and once it is done, and with
    /// [`Error::StaleSeq`] if the instance moves meanwhile.
    ///
    /// ```no_run
    /// # async fn repair(client: dormouse::Client) -> dormouse::Result<()> {
    /// # use dormouse::Json;
    /// client.edit_state("order:42", Json::from(serde_json::json!({ "order": 42, "carrier": "post" }))).await?;
    /// # Ok(()) }
    /// ```
    #[must_use = "nothing is edited before the call is awaited"]
    pub fn edit_state(&self, target: impl Into<Target>, state: Json) -> EditCall<'_> {
        EditCall { client: self, target: target.into(), state, expected_seq: None }
    }

    /// Refuses a payload that the instance's machine does not accept for this signal.
    async fn check_edit(&self, target: &Target, id: SignalId, payload: &Json) -> Result<()> {
        self.limits.check_document("signal payload", payload)?;
        let instance = self.get(target.clone()).await?.ok_or_else(|| Error::NotFound(target.clone()))?;
        let inbox = self.inbox(instance.id).await?;
        let signal = inbox.into_iter().find(|signal| signal.id == id);
        let signal = signal.ok_or(Error::NoSignal { id: instance.id, signal: id })?;
        let sent = NewSignal::new(signal.name, payload.clone());
        // The signal is already in the inbox, so its name needs no check.
        let names = std::slice::from_ref(&sent.name);
        self.check_signal(&instance.machine, instance.version, names, &sent).await
    }
}

/// A repair of an inbox that is not sent yet: set options, then `.await` it.
#[must_use = "nothing is changed before it is awaited"]
pub struct AmendCall<'a> {
    client: &'a Client,
    target: Target,
    request: AmendRequest,
}

impl<'a> AmendCall<'a> {
    fn new(client: &'a Client, target: Target, signal: SignalId, amend: Amend) -> Self {
        Self { client, target, request: AmendRequest { signal, amend, expected_seq: None } }
    }

    /// Acts only if the instance is still at this `seq`; otherwise fails with [`Error::StaleSeq`].
    pub fn expected_seq(mut self, seq: u64) -> Self {
        self.request.expected_seq = Some(seq);
        self
    }
}

impl<'a> IntoFuture for AmendCall<'a> {
    type Output = Result<InstanceId>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { client, target, request } = self;
        Box::pin(async move {
            if let Amend::Edit(payload) = &request.amend {
                client.check_edit(&target, request.signal, payload).await?;
            }
            Ok(client.applied(client.store.amend(client.namespace.to_string(), target, request).await?))
        })
    }
}

/// A new state that is not sent yet: set options, then `.await` it.
#[must_use = "nothing is edited before it is awaited"]
pub struct EditCall<'a> {
    client: &'a Client,
    target: Target,
    state: Json,
    expected_seq: Option<u64>,
}

impl EditCall<'_> {
    /// Edits it only if it is still at this `seq`; otherwise fails with [`Error::StaleSeq`].
    pub fn expected_seq(mut self, seq: u64) -> Self {
        self.expected_seq = Some(seq);
        self
    }
}

impl<'a> IntoFuture for EditCall<'a> {
    type Output = Result<InstanceId>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { client, target, state, expected_seq } = self;
        Box::pin(async move {
            expected_seq.map_or(Ok(()), check_seq)?;
            client.limits.check_document("state", &state)?;
            let found = client.get(target.clone()).await?.ok_or(Error::NotFound(target))?;
            let Instance { id, machine, version, step, state: before, seq, .. } = found;
            let at = At { step: step.into(), state };
            client.check_place(&machine, version, &at).await?;
            client.check_edited(&machine, version, &before, &at).await?;
            // What was checked is what is written: the state belongs to the step that was seen.
            let seen = expected_seq.unwrap_or(seq);
            client.store.edit(client.namespace.to_string(), id.into(), at.state, Some(seen)).await
        })
    }
}
