//! Claiming rows.

use serde::Deserialize;
use sqlx::postgres::PgRow;

use super::db::Db;
use super::types::{Columns, parse};
use crate::store::{Claim, Claimed, Effects, Namespaces, Written};
use crate::{At, ChildView, InboxSignal, InstanceId, Json, ParentRef, Result, SignalId, Status};

const SQL: &str = "select id, namespace, key, machine, version, step, seq, attempt, wake, awaits, inbox::text, \
    children::text, keeps_history, at, state::text, parent, parent_round, parent_index, rival from dormouse.claim($1, $2, $3, $4, $5, $6)";

pub(super) async fn claim(db: &Db, claim: &Claim) -> Result<Written<Vec<Claimed>>> {
    let namespaces = match &claim.namespaces {
        Namespaces::All => None,
        Namespaces::Only(names) => Some(names.as_slice()),
    };
    let (machines, versions): (Vec<&str>, Vec<i32>) =
        claim.machines.iter().map(|(name, version)| (name.as_str(), *version as i32)).unzip();
    let rows_max = i32::try_from(claim.rows_max).unwrap_or(i32::MAX);
    let rows = db
        .all(|| {
            sqlx::query(SQL)
                .bind(claim.worker.0)
                .bind(&claim.queue)
                .bind(namespaces)
                .bind(&machines)
                .bind(&versions)
                .bind(rows_max)
        })
        .await?;
    let mut claimed = Vec::with_capacity(rows.len());
    let mut effects = Effects::default();
    for row in &rows {
        match row.value::<Option<i64>>("rival")? {
            None => claimed.push(read(row)?),
            Some(holder) => effects.merge(fail_rival(db, row.value("id")?, holder).await?),
        }
    }
    Ok(Written { value: claimed, effects })
}

/// A key that counts as taken in `executing` is held by another: that row fails, and it alone.
async fn fail_rival(db: &Db, id: i64, holder: i64) -> Result<Effects> {
    let sql = "select v.* from dormouse.fail_rival($1, $2) v";
    db.one(|| sqlx::query(sql).bind(id).bind(holder)).await?.effects()
}

fn read(row: &PgRow) -> Result<Claimed> {
    let inbox: Option<&str> = row.value("inbox")?;
    let children: Option<&str> = row.value("children")?;
    Ok(Claimed {
        id: InstanceId(row.value("id")?),
        namespace: row.value("namespace")?,
        key: row.value("key")?,
        parent: parent(row)?,
        machine: row.value("machine")?,
        version: row.number("version")?,
        at: At { step: row.value::<String>("step")?.into(), state: row.json("state")? },
        seq: row.number("seq")?,
        attempt: row.number("attempt")?,
        wake: row.wake("wake")?,
        awaits: row.value::<Option<_>>("awaits")?.unwrap_or_default(),
        inbox: inbox.map(signals).transpose()?.unwrap_or_default(),
        children: children.map(views).transpose()?.unwrap_or_default(),
        keeps_history: row.value("keeps_history")?,
        now: row.moment("at")?,
    })
}

fn parent(row: &PgRow) -> Result<Option<ParentRef>> {
    let Some(id) = row.value::<Option<i64>>("parent")? else { return Ok(None) };
    let (round, index) = (row.number("parent_round")?, row.number("parent_index")?);
    Ok(Some(ParentRef { id: InstanceId(id), round, index }))
}

/// The signals in an answer's JSON.
pub(super) fn signals(text: &str) -> Result<Vec<InboxSignal>> {
    let signals: Vec<Signal> = parse("inbox", text)?;
    Ok(signals.into_iter().map(InboxSignal::from).collect())
}

#[derive(Deserialize)]
struct Signal {
    id: i64,
    name: String,
    payload: Box<str>,
    dedup_key: Option<String>,
    at: jiff::Timestamp,
}

impl From<Signal> for InboxSignal {
    fn from(signal: Signal) -> Self {
        let Signal { id, name, payload, dedup_key, at } = signal;
        Self { id: SignalId(id), name, payload: Json::trusted(payload), dedup_key, at }
    }
}

fn views(text: &str) -> Result<Vec<ChildView>> {
    let children: Vec<Child> = parse("children", text)?;
    Ok(children.into_iter().map(ChildView::from).collect())
}

#[derive(Deserialize)]
struct Child {
    id: i64,
    index: u32,
    machine: String,
    key: Option<String>,
    version: u32,
    status: Status,
    step: String,
    error: Option<String>,
    output: Option<Box<str>>,
    state: Option<Box<str>>,
}

impl From<Child> for ChildView {
    fn from(child: Child) -> Self {
        let Child { id, index, machine, key, version, status, step, error, output, state } = child;
        let (output, state) = (output.map(Json::trusted), state.map(Json::trusted));
        Self { id: InstanceId(id), index, machine, key, version, status, step, state, output, error }
    }
}
