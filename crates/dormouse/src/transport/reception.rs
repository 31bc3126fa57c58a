//! The reception: what a transport hands its answers to.

use tokio_util::sync::CancellationToken;

use crate::store::{Completed, Completion, Namespaces, Refusal};
use crate::{Client, Result};

/// What a transport that receives answers works with while its engine runs.
pub struct Reception {
    pub(crate) client: Client,
    pub(crate) transport: String,
    pub(crate) namespaces: Namespaces,
    pub(crate) stop: CancellationToken,
}

impl Reception {
    /// The name that the transport was registered by.
    pub fn transport(&self) -> &str {
        &self.transport
    }

    /// Resolves when the engine stops. Finish the answers in progress, and receive no more.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Admits answers and returns the result of each; once this returns, they are committed. An answer whose instance
    /// is locked by another transaction is refused as [`Refusal::Busy`]: try it again in a moment.
    ///
    /// Answers from a transport may answer only requests that were sent through it, in the namespaces that this engine
    /// serves, unless they carry a resume token. All other interactions are as unknown as those that do not exist.
    pub async fn admit(&self, batch: Vec<Completion>) -> Result<Vec<Completed>> {
        let mut refused = Vec::new();
        for (place, completion) in batch.iter().enumerate() {
            if let Some(refusal) = self.refusal(completion).await? {
                refused.push((place, refusal));
            }
        }
        let is_taken = |place: usize| refused.iter().all(|(other, _)| *other != place);
        let by = |completion: Completion| {
            let by = completion.answered_by().unwrap_or(&self.transport).to_owned();
            Completion { by: Some(by), ..completion }
        };
        let taken = batch.into_iter().enumerate().filter(|(place, _)| is_taken(*place));
        let mut completed =
            self.client.complete_once(taken.map(|(_, completion)| by(completion)).collect()).await?;
        // In ascending order, so that each goes back to its index.
        for (place, refusal) in refused {
            completed.insert(place, Completed::Refused(refusal));
        }
        Ok(completed)
    }

    async fn refusal(&self, completion: &Completion) -> Result<Option<Refusal>> {
        let is_served = match &self.namespaces {
            Namespaces::All => true,
            Namespaces::Only(names) => names.contains(&completion.namespace),
        };
        if !is_served {
            return Ok(Some(Refusal::OtherNamespace));
        }
        if completion.proof.is_some() {
            return Ok(None);
        }
        let client = self.client.in_namespace(&completion.namespace)?;
        let asked = client.interaction(completion.to.clone()).await?;
        let is_ours = asked.is_some_and(|asked| asked.transport == self.transport);
        Ok((!is_ours).then_some(Refusal::Unknown))
    }
}

impl std::fmt::Debug for Reception {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reception").field("transport", &self.transport).finish_non_exhaustive()
    }
}
