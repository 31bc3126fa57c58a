//! Interactions from outside: find them, claim them, answer them.

use std::time::Duration;

use serde::Serialize;

use super::Client;
use crate::limits::check_name;
use crate::store::{Assigned, Completed, Completion, InteractionCount, InteractionFilter, Refusal, Which};
use crate::token::Tokens;
use crate::{Error, InstanceId, Interaction, InteractionId, Json, Result, UnitView};

impl Client {
    /// Answers an interaction. A repeat is told what was answered first, and changes nothing; what is late, unknown,
    /// cancelled or claimed by somebody else is an [`Error::CompletionRefused`].
    pub async fn complete<T: Serialize>(&self, to: impl Into<Which>, output: &T) -> Result<Completed> {
        let output = Json::encode("output", output)?;
        self.answer(self.completion(to.into(), Ok(output))).await
    }

    /// Answers an interaction with a failure.
    pub async fn fail(&self, to: impl Into<Which>, reason: impl Into<String>) -> Result<Completed> {
        self.answer(self.completion(to.into(), Err(reason.into()))).await
    }

    /// Answers, as whoever has claimed it.
    pub async fn complete_as<T: Serialize>(
        &self,
        assignee: &str,
        to: impl Into<Which>,
        output: &T,
    ) -> Result<Completed> {
        let output = Json::encode("output", output)?;
        let assignee = Some(assignee.to_owned());
        self.answer(Completion { assignee, ..self.completion(to.into(), Ok(output)) }).await
    }

    /// Answers an interaction by the resume token that went out with its request; `result` is the output, or why there
    /// is none.
    pub async fn complete_by_token(
        &self,
        tokens: &Tokens,
        token: &str,
        result: Result<Json, String>,
    ) -> Result<Completed> {
        let (namespace, id, proof) = tokens.check(token)?;
        if *namespace != *self.namespace {
            return Err(Error::TokenRefused(Refusal::OtherNamespace));
        }
        self.answer(Completion { proof: Some(proof), ..self.completion(id.into(), result) }).await
    }

    /// Answers many interactions at once, and says for each what became of it.
    pub async fn complete_many(&self, batch: Vec<Completion>) -> Result<Vec<Completed>> {
        let mut malformed = Vec::new();
        for (place, completion) in batch.iter().enumerate() {
            if let Ok(output) = &completion.result {
                self.limits.check_document("output", output)?;
                if self.is_malformed(completion, output).await? {
                    malformed.push(place);
                }
            }
        }
        let taken = batch.into_iter().enumerate().filter(|(place, _)| !malformed.contains(place));
        let taken = taken.map(|(_, completion)| completion).collect();
        let mut completed = self.applied(self.store.complete(taken).await?);
        // From the first on, so that each is put where it was.
        for place in malformed {
            completed.insert(place, Completed::Refused(Refusal::Malformed));
        }
        Ok(completed)
    }

    /// A completion in this client's namespace, for [`Client::complete_many`].
    pub fn completion(&self, to: Which, result: Result<Json, String>) -> Completion {
        Completion { namespace: self.namespace.to_string(), to, result, assignee: None, proof: None }
    }

    /// Claims an open interaction for a while, so that nobody else answers it meanwhile. Claiming it again extends the
    /// claim; a claim for no time at all gives it back.
    pub async fn claim_interaction(
        &self,
        id: InteractionId,
        assignee: &str,
        lease: Duration,
    ) -> Result<Assigned> {
        check_name("assignee", assignee)?;
        self.store.assign(self.namespace.to_string(), id, assignee.to_owned(), lease).await
    }

    /// One interaction, by its id or its correlation id.
    pub async fn interaction(&self, which: impl Into<Which>) -> Result<Option<Interaction>> {
        self.store.interaction(self.namespace.to_string(), which.into()).await
    }

    /// Interactions, oldest first, a page at a time. Unless the filter names a namespace, in this client's.
    pub async fn interactions(&self, mut filter: InteractionFilter) -> Result<Vec<Interaction>> {
        filter.namespace.get_or_insert_with(|| self.namespace.to_string());
        if filter.limit == 0 {
            filter.limit = 100;
        }
        self.store.interactions(filter).await
    }

    /// How many interactions there are, by transport and status. Unless the filter names a namespace, in this client's.
    pub async fn count_interactions(&self, mut filter: InteractionFilter) -> Result<Vec<InteractionCount>> {
        filter.namespace.get_or_insert_with(|| self.namespace.to_string());
        self.store.count_interactions(filter).await
    }

    /// The unit that an instance is parked on, or was until it progressed: how far it is.
    pub async fn unit(&self, instance: InstanceId) -> Result<Option<UnitView>> {
        self.store.unit(instance).await
    }

    /// Whether the machine that asked declares another output, and would be woken by one that it cannot read.
    async fn is_malformed(&self, completion: &Completion, output: &Json) -> Result<bool> {
        if !self.registry.might_refuse_output(output) {
            return Ok(false);
        }
        let asked = self.store.interaction(completion.namespace.clone(), completion.to.clone()).await?;
        Ok(asked.is_some_and(|asked| {
            asked.status.is_open() && self.registry.refuses_output(&asked.machine, &asked.step, output)
        }))
    }

    async fn answer(&self, completion: Completion) -> Result<Completed> {
        let to = completion.to.clone();
        match self.complete_many(vec![completion]).await?.pop().expect("one completion, one answer") {
            Completed::Refused(refusal) => Err(Error::CompletionRefused { to, refusal }),
            completed => Ok(completed),
        }
    }
}
