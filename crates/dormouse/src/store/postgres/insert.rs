//! Inserting instances, alone or as children.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;

use super::db::Db;
use super::deliver::bounds;
use super::fault::unreadable;
use super::gather::Write;
use super::types::{Columns, batch, parse, when};
use crate::limits::sorted;
use crate::share::own_share;
use crate::store::Written;
use crate::{Delivered, History, Inserted, InstanceId, NewInstance, NewSignal, Result, SignalId};

const SQL: &str =
    "select v.ids, v.holders, v.signals::text, (v.effects).* from dormouse.insert($1::json, $2) v";

/// Inserts what calls have gathered.
pub(super) fn gathered(db: &Db) -> Write<NewInstance, Inserted> {
    let db = db.clone();
    Arc::new(move |calls, wait| {
        let db = db.clone();
        Box::pin(async move {
            let batch = calls.concat();
            let sent = arrivals(&batch).map_err(unreadable)?;
            let row = db.raw_one(|| sqlx::query(SQL).bind(&sent).bind(wait.ms())).await?;
            let Written { value, effects } = inserted(&row, &batch).map_err(unreadable)?;
            Ok(Written { value: value.into_iter().map(Some).collect(), effects })
        })
    })
}

/// A batch as the database takes it.
pub(super) fn arrivals(instances: &[NewInstance]) -> Result<String> {
    batch(&instances.iter().enumerate().map(Arrival::new).collect::<Vec<_>>())
}

/// What became of each.
pub(super) fn inserted(row: &PgRow, instances: &[NewInstance]) -> Result<Written<Vec<Inserted>>> {
    let (ids, holders): (Vec<Option<i64>>, Vec<Option<i64>>) = (row.value("ids")?, row.value("holders")?);
    let signals: Option<&str> = row.value("signals")?;
    let mut signals = match signals {
        Some(text) => {
            parse::<Answers>("answer of the database", text)?.delivered().into_iter().flatten().collect()
        }
        None => Vec::new(),
    }
    .into_iter();
    let answer = |((new, id), holder): ((&NewInstance, Option<i64>), Option<i64>)| {
        let signals = signals.by_ref().take(new.signals.len()).collect();
        match (id, holder) {
            (Some(id), _) => Inserted::New(InstanceId(id)),
            (None, Some(holder)) => Inserted::Taken { holder: InstanceId(holder), signals },
            (None, None) => panic!("an instance is inserted or its key is taken"),
        }
    };
    let value = instances.iter().zip(ids).zip(holders).map(answer).collect();
    Ok(Written { value, effects: row.effects()? })
}

/// An instance to be inserted, as the database takes it: the type `dormouse.arrival`.
#[derive(Serialize)]
pub(super) struct Arrival<'a> {
    ord: usize,
    namespace: &'a str,
    machine: &'a str,
    version: u32,
    step: &'a str,
    state: &'a str,
    queue: &'a str,
    priority: i32,
    at_us: Option<i64>,
    in_us: Option<i64>,
    lane: Option<&'a str>,
    key: Option<&'a str>,
    key_scope: Option<String>,
    keeps: bool,
    forked: Option<Forked>,
    awaits: Option<Vec<&'a str>>,
    await_at_us: Option<i64>,
    await_in_us: Option<i64>,
    signals: Option<Vec<Sent<'a>>>,
    tags: Option<Vec<&'a str>>,
    share: Option<String>,
    trace: Option<&'a str>,
    cost: u32,
    inbox_max: i32,
    inbox_bytes_max: i64,
}

#[derive(Serialize)]
struct Forked {
    forked_from: InstanceId,
    seq: u64,
}

/// A signal that comes along.
#[derive(Serialize)]
struct Sent<'a> {
    name: &'a str,
    payload: &'a str,
    dedup_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
}

impl<'a> Arrival<'a> {
    pub(super) fn new((index, new): (usize, &'a NewInstance)) -> Self {
        let (at_us, in_us) = when(new.start_at);
        let (names, until) = match &new.awaits {
            Some((names, until)) => (Some(sorted(names)), *until),
            None => (None, None),
        };
        let (await_at_us, await_in_us) = when(until);
        let (inbox_max, inbox_bytes_max) = bounds(new.inbox_max);
        let sent = |signal: &'a NewSignal| Sent {
            name: &signal.name,
            payload: signal.payload.as_str(),
            dedup_key: signal.dedup_key.as_deref(),
            trace: signal.trace.as_deref(),
        };
        Self {
            ord: index + 1,
            namespace: &new.namespace,
            machine: &new.machine,
            version: new.version,
            step: &new.at.step,
            state: new.at.state.as_str(),
            queue: &new.queue,
            priority: new.priority,
            at_us,
            in_us,
            lane: new.lane.as_deref(),
            key: new.key.as_deref(),
            key_scope: new.key_scope.to_text(),
            keeps: new.history.unwrap_or_default() == History::On,
            forked: new.forked_from.map(|(forked_from, seq)| Forked { forked_from, seq }),
            awaits: names,
            await_at_us,
            await_in_us,
            signals: if new.signals.is_empty() { None } else { Some(new.signals.iter().map(sent).collect()) },
            tags: if new.tags.is_empty() { None } else { Some(sorted(&new.tags)) },
            share: own_share(&new.namespace, new.share.as_deref()),
            trace: new.trace.as_deref(),
            cost: new.cost,
            inbox_max,
            inbox_bytes_max,
        }
    }
}

/// The results of signals, as the database returns them.
#[derive(Deserialize)]
pub(super) struct Answers {
    pub(super) results: Vec<String>,
    pub(super) ids: Vec<Option<i64>>,
    pub(super) wokes: Vec<bool>,
}

impl Answers {
    /// None for one that was not tried, as another transaction holds its instance.
    pub(super) fn delivered(self) -> Vec<Option<Delivered>> {
        let answer = |((result, id), woke): ((String, Option<i64>), bool)| match (result.as_str(), id) {
            ("accepted", Some(id)) => Some(Delivered::Accepted { id: SignalId(id), woke }),
            ("duplicate", _) => Some(Delivered::Duplicate),
            ("no_target", _) => Some(Delivered::NoTarget),
            ("inbox_full", _) => Some(Delivered::InboxFull),
            ("kept_full", _) => Some(Delivered::KeptFull),
            ("busy", _) => None,
            (other, _) => panic!("{other:?} is no answer to a signal"),
        };
        self.results.into_iter().zip(self.ids).zip(self.wokes).map(answer).collect()
    }
}
