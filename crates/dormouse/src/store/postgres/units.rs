//! Units and interactions.

mod outbox;
mod outboxes;
mod query;

use std::time::Duration;

use serde::Serialize;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::db::Db;
use super::fault::lock_timed_out;
use super::types::{Columns, batch};
use crate::clock::micros;
use crate::limits::storable;
use crate::store::{
    Assigned, Completed, Completion, Effects, InteractionCount, InteractionFilter, Namespaces, Outbox,
    OutboxDepth, Portion, Refusal, Reply, SendReport, UnitStore, Which, Written,
};
use crate::{Dispatch, Error, InstanceId, Interaction, InteractionId, Json, Result, UnitId, UnitView};

const COMPLETE: &str =
    "select v.results, v.outputs, v.errors, (v.effects).* from dormouse.complete($1::json, $2) v";

impl UnitStore for PostgresStore {
    fn complete(&self, batch: Vec<Completion>) -> Reply<'_, Written<Vec<Completed>>> {
        Box::pin(async move { complete(&self.db, &batch).await })
    }

    fn outbox(
        &self,
        transport: String,
        namespaces: Namespaces,
        rows_max: usize,
        lease: Duration,
    ) -> Reply<'_, Outbox> {
        Box::pin(async move {
            let outbox = outbox::take(&self.engine, &transport, &namespaces, rows_max, lease).await?;
            outbox.now.into_iter().for_each(|now| self.note_time(now));
            Ok(outbox)
        })
    }

    fn sent(&self, batch: Vec<SendReport>) -> Reply<'_, Written<Vec<SendReport>>> {
        Box::pin(async move { outbox::sent(&self.engine, &batch).await })
    }

    fn assign(
        &self,
        namespace: String,
        id: InteractionId,
        assignee: String,
        lease: Duration,
    ) -> Reply<'_, Assigned> {
        Box::pin(async move { assign(&self.db, &namespace, id, assignee, lease).await })
    }

    fn unit(&self, instance: InstanceId) -> Reply<'_, Option<UnitView>> {
        Box::pin(query::unit(&self.db, instance))
    }

    fn items(&self, unit: UnitId, from_item: u32, items_max: usize) -> Reply<'_, Vec<Interaction>> {
        Box::pin(query::items(&self.db, unit, from_item, items_max))
    }

    fn interaction(&self, namespace: String, which: Which) -> Reply<'_, Option<Interaction>> {
        Box::pin(async move { query::interaction_in(&self.db, &namespace, &which).await })
    }

    fn interactions(&self, filter: InteractionFilter) -> Reply<'_, Portion<Interaction>> {
        Box::pin(async move { query::interactions(&self.db, &filter).await })
    }

    fn outboxes(&self, namespace: Option<String>) -> Reply<'_, Vec<OutboxDepth>> {
        Box::pin(async move { outboxes::outboxes(&self.db, namespace.as_deref()).await })
    }

    fn count_interactions(&self, filter: InteractionFilter) -> Reply<'_, Vec<InteractionCount>> {
        Box::pin(async move { query::count_interactions(&self.db, &filter).await })
    }
}

async fn complete(db: &Db, completions: &[Completion]) -> Result<Written<Vec<Completed>>> {
    if completions.is_empty() {
        return Ok(Written::default());
    }
    let written = match try_complete(db, completions, false).await? {
        Some(written) => written,
        // One of them waits for a key that another transaction inserts.
        None if completions.len() > 1 => {
            let mut all: Written<Vec<_>> = Written::default();
            for half in completions.chunks(completions.len().div_ceil(2)) {
                let Written { value, effects } = Box::pin(complete(db, half)).await?;
                all.value.extend(value);
                all.effects.merge(effects);
            }
            return Ok(all);
        }
        None => busy(),
    };
    if written.value != busy().value {
        return Ok(written);
    }
    // One that is alone waits in line for a moment, where it takes no place that others need.
    let _place = db.again.acquire().await.map_err(|_| Error::Closed)?;
    Ok(try_complete(db, completions, true).await?.unwrap_or_else(busy))
}

fn busy() -> Written<Vec<Completed>> {
    Written { value: vec![Completed::Refused(Refusal::Busy)], effects: Effects::default() }
}

/// Completes these in one statement; none if another transaction holds it up, and nothing has happened.
async fn try_complete(
    db: &Db,
    completions: &[Completion],
    wait: bool,
) -> Result<Option<Written<Vec<Completed>>>> {
    let sent = batch(&completions.iter().enumerate().map(Sent::new).collect::<Vec<_>>())?;
    match db.raw_one(|| sqlx::query(COMPLETE).bind(&sent).bind(wait)).await {
        Ok(row) => completed(&row).map(Some),
        Err(error) if lock_timed_out(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn completed(row: &PgRow) -> Result<Written<Vec<Completed>>> {
    let words: Vec<String> = row.value("results")?;
    let outputs: Vec<Option<Box<str>>> = row.value("outputs")?;
    let errors: Vec<Option<String>> = row.value("errors")?;
    let completed = |((word, output), error): ((String, Option<Box<str>>), Option<String>)| match &*word {
        "admitted" => Completed::Admitted { woke: false },
        "woke" => Completed::Admitted { woke: true },
        "repeat" => Completed::Repeat(output.map(Json::trusted).ok_or_else(|| error.unwrap_or_default())),
        word => {
            let refusal = word.parse();
            Completed::Refused(refusal.unwrap_or_else(|_| panic!("{word:?} is no answer to a completion")))
        }
    };
    let value = words.into_iter().zip(outputs).zip(errors).map(completed).collect();
    Ok(Written { value, effects: row.effects()? })
}

/// A completion as the database takes it: the type `dormouse.completion`.
#[derive(Serialize)]
struct Sent<'a> {
    ord: usize,
    namespace: &'a str,
    id: Option<i64>,
    correlation_id: Option<&'a str>,
    output: Option<&'a str>,
    error: Option<std::borrow::Cow<'a, str>>,
    assignee: Option<&'a str>,
    answered_by: Option<std::borrow::Cow<'a, str>>,
    instance: Option<i64>,
    unit: Option<i64>,
    sends: Option<u32>,
    expires_us: Option<i64>,
}

impl<'a> Sent<'a> {
    fn new((index, completion): (usize, &'a Completion)) -> Self {
        let Completion { namespace, to, result, assignee, by: _, proof } = completion;
        Self {
            ord: index + 1,
            namespace,
            id: match to {
                Which::Id(id) => Some(id.0),
                Which::Correlation(_) => None,
            },
            correlation_id: match to {
                Which::Id(_) => None,
                // The database has no such text, so nobody can have it.
                Which::Correlation(id) => Some(id.as_str()).filter(|id| !id.contains('\0')),
            },
            output: result.as_ref().ok().map(Json::as_str),
            error: result.as_ref().err().map(|reason| storable(reason)),
            assignee: assignee.as_deref().filter(|assignee| !assignee.contains('\0')),
            answered_by: completion.answered_by().map(storable),
            instance: proof.map(|proof| proof.instance.0),
            unit: proof.map(|proof| proof.unit.0),
            sends: proof.map(|proof| proof.sends),
            expires_us: proof.map(|proof| proof.expires_at.as_microsecond()),
        }
    }
}

async fn assign(
    db: &Db,
    namespace: &str,
    id: InteractionId,
    assignee: String,
    lease: Duration,
) -> Result<Assigned> {
    let sql = "select v.assignee, v.until from dormouse.assign($1, $2, $3, $4) v";
    let lease_us = micros(lease);
    let row = db.one(|| sqlx::query(sql).bind(namespace).bind(id.0).bind(&assignee).bind(lease_us)).await?;
    Ok(match (row.value::<Option<String>>("assignee")?, row.moment_or_none("until")?) {
        (Some(holder), Some(until)) if holder == assignee => Assigned::Until(until),
        (Some(by), Some(until)) => Assigned::Taken { by, until },
        _ => Assigned::NotOpen,
    })
}

/// A unit as the database takes it: the type `dormouse.dispatch`.
#[derive(Serialize)]
pub(super) struct Unit<'a> {
    shape: &'static str,
    transport: &'a str,
    on_failure: &'static str,
    quorum: Option<u32>,
    in_flight: Option<u32>,
    item_timeout_us: Option<i64>,
    outputs_max: i64,
    asks: Vec<Ask<'a>>,
}

#[derive(Serialize)]
struct Ask<'a> {
    request: &'a str,
    idempotency_key: &'a str,
    correlation_id: Option<&'a str>,
    for_assignee: Option<&'a str>,
    for_group: Option<&'a str>,
}

impl<'a> Unit<'a> {
    pub(super) fn new(dispatch: &'a Dispatch) -> Self {
        let in_the_column = |count: u32| count.min(i32::MAX as u32);
        let ask = |ask: &'a crate::Ask| Ask {
            request: ask.request.as_str(),
            idempotency_key: &ask.idempotency_key,
            correlation_id: ask.correlation_id.as_deref(),
            for_assignee: ask.for_assignee.as_deref(),
            for_group: ask.for_group.as_deref(),
        };
        Self {
            shape: dispatch.shape.as_str(),
            transport: &dispatch.transport,
            on_failure: dispatch.on_failure.as_str(),
            quorum: dispatch.quorum.map(in_the_column),
            in_flight: dispatch.in_flight.map(in_the_column),
            item_timeout_us: dispatch.item_timeout.map(micros),
            outputs_max: dispatch.outputs_max.min(i64::MAX as usize) as i64,
            asks: dispatch.asks.iter().map(ask).collect(),
        }
    }
}
