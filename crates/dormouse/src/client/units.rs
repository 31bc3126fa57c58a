//! Interactions from outside: find them, claim them, answer them.

use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;

use super::Client;
use crate::gate::Unfit;
use crate::limits::check_name;
use crate::store::{
    Assigned, Completed, Completion, InteractionCount, InteractionFilter, Portion, Refusal, Which,
};
use crate::token::{Opened, Tokens};
use crate::{Error, InstanceId, Interaction, InteractionId, Json, Result, UnitView};

/// Recorded as who answered, when a resume token was used: anybody who has the token.
const BY_TOKEN: &str = "resume token";
/// How long an answer waits for an instance that somebody else's transaction holds, and how long it pauses between tries.
const BUSY_PATIENCE: Duration = Duration::from_secs(30);
const BUSY_PAUSE_MIN: Duration = Duration::from_millis(10);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(250);

impl Client {
    /// Answers an interaction. A repeat returns the first answer and changes nothing. An answer that is late, or whose
    /// interaction is unknown, cancelled or claimed by somebody else, fails with [`Error::CompletionRefused`].
    pub async fn complete<T: Serialize>(&self, to: impl Into<Which>, output: &T) -> Result<Completed> {
        let output = Json::encode("output", output)?;
        self.answer(self.completion(to.into(), Ok(output))).await
    }

    /// Answers an interaction with a failure.
    pub async fn fail(&self, to: impl Into<Which>, reason: impl Into<String>) -> Result<Completed> {
        self.answer(self.completion(to.into(), Err(reason.into()))).await
    }

    /// Answers under a name: the name that claimed the interaction, and that is recorded as having answered.
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

    /// Answers with a failure, under a name.
    pub async fn fail_as(
        &self,
        assignee: &str,
        to: impl Into<Which>,
        reason: impl Into<String>,
    ) -> Result<Completed> {
        let assignee = Some(assignee.to_owned());
        self.answer(Completion { assignee, ..self.completion(to.into(), Err(reason.into())) }).await
    }

    /// Answers an interaction by the resume token that was sent with its request. `result` is the output, or why there
    /// is none.
    pub async fn complete_by_token(
        &self,
        tokens: &Tokens,
        token: &str,
        result: Result<Json, String>,
    ) -> Result<Completed> {
        self.complete_opened(tokens.open(token)?, result).await
    }

    /// Answers an interaction by a resume token that is already checked ([`Tokens::open`]).
    pub async fn complete_opened(&self, token: Opened, result: Result<Json, String>) -> Result<Completed> {
        let Opened { namespace, interaction, proof } = token;
        if *namespace != *self.namespace {
            return Err(Error::TokenRefused(Refusal::OtherNamespace));
        }
        let by = Some(BY_TOKEN.to_owned());
        self.answer(Completion { proof: Some(proof), by, ..self.completion(interaction.into(), result) })
            .await
    }

    /// Answers many interactions at once and returns the result of each. If somebody else's transaction holds an
    /// instance, its answer is tried again by itself until the lock is free or the store's patience ends; then it is
    /// refused as [`Refusal::Busy`].
    pub async fn complete_many(&self, batch: Vec<Completion>) -> Result<Vec<Completed>> {
        let mut completed = self.complete_once(batch.clone()).await?;
        let mut again = JoinSet::new();
        for (place, completion) in batch.into_iter().enumerate() {
            if completed[place] == Completed::Refused(Refusal::Busy) {
                let client = self.clone();
                again.spawn(async move { (place, client.complete_again(completion).await) });
            }
        }
        while let Some(tried) = again.join_next().await {
            let (place, answer) = tried.expect("a completion does not panic");
            completed[place] = answer;
        }
        Ok(completed)
    }

    /// Tries an answer whose instance is locked until the lock is free or our patience ends.
    async fn complete_again(&self, completion: Completion) -> Completed {
        let mut pause = BUSY_PAUSE_MIN;
        let tries = async {
            loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(BUSY_PAUSE_MAX);
                match self.complete_once(vec![completion.clone()]).await {
                    Ok(mut answer) => match answer.pop().expect("one completion, one answer") {
                        Completed::Refused(Refusal::Busy) => {}
                        answer => return answer,
                    },
                    // It may have been admitted: then the next try is a repeat.
                    Err(error) => tracing::debug!(%error, "an answer could not be stored yet; trying again"),
                }
            }
        };
        tokio::time::timeout(BUSY_PATIENCE, tries).await.unwrap_or(Completed::Refused(Refusal::Busy))
    }

    /// The same, without trying again where the instance is locked.
    pub(crate) async fn complete_once(&self, batch: Vec<Completion>) -> Result<Vec<Completed>> {
        let (mut taken, mut unfit) = (Vec::with_capacity(batch.len()), Vec::new());
        let answers: Vec<&Json> =
            batch.iter().filter_map(|completion| completion.result.as_ref().ok()).collect();
        answers.iter().try_for_each(|answer| self.limits.check_document("output", answer))?;
        let mut reasons = batch.iter().filter_map(|completion| completion.result.as_ref().err());
        reasons.try_for_each(|reason| self.limits.check_bytes("reason", reason.len()))?;
        let names = batch.iter().flat_map(|completion| [&completion.assignee, &completion.by]).flatten();
        names.into_iter().try_for_each(|name| check_name("assignee", name))?;
        if self.takes_as_they_are(&answers).await? {
            taken = batch;
        } else {
            for (place, completion) in batch.into_iter().enumerate() {
                match self.fitted(completion).await? {
                    Ok(completion) => taken.push(completion),
                    Err(Unfit { refusal, reason }) => {
                        unfit.push((place, Completed::Unfit { refusal, reason }));
                    }
                }
            }
        }
        let mut completed = self.applied(self.store.complete(taken).await?);
        // In ascending order, so that each goes back to its index.
        for (place, refused) in unfit {
            completed.insert(place, refused);
        }
        Ok(completed)
    }

    /// A completion in this client's namespace, for [`Client::complete_many`].
    pub fn completion(&self, to: Which, result: Result<Json, String>) -> Completion {
        let namespace = self.namespace.to_string();
        Completion { namespace, to, result, assignee: None, by: None, proof: None }
    }

    /// Claims an open interaction for a while, so that nobody else can answer it. Claiming it again extends the claim;
    /// a claim of zero length gives it back.
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
    ///
    /// A page ends early when the documents in it reach 4 MiB ([`PAGE_BYTES_MAX`](crate::store::PAGE_BYTES_MAX));
    /// `more` says whether there is another, which goes on after the last one's id.
    pub async fn interactions(&self, mut filter: InteractionFilter) -> Result<Portion<Interaction>> {
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

    /// The unit that an instance is parked on, or was parked on until it progressed, with how far it is.
    pub async fn unit(&self, instance: InstanceId) -> Result<Option<UnitView>> {
        self.store.unit(instance).await
    }

    /// The completion to store, if the machine that asked accepts its output.
    async fn fitted(&self, mut completion: Completion) -> Result<Result<Completion, Unfit>> {
        let Ok(answer) = &completion.result else { return Ok(Ok(completion)) };
        let asked = self.store.interaction(completion.namespace.clone(), completion.to.clone()).await?;
        // The store itself reports an unknown or answered interaction.
        let Some(asked) = asked.filter(|asked| asked.status.is_open()) else { return Ok(Ok(completion)) };
        let by = completion.answered_by();
        Ok(self.output(&asked, answer.clone(), by).await?.map(|output| {
            completion.result = Ok(output);
            completion
        }))
    }

    async fn answer(&self, completion: Completion) -> Result<Completed> {
        let to = completion.to.clone();
        let completed =
            self.complete_many(vec![completion]).await?.pop().expect("one completion, one answer");
        completed.admitted(to)
    }
}
