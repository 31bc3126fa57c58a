//! Claiming rows.

use serde::Deserialize;
use sqlx::postgres::PgRow;

use super::db::Db;
use super::types::{Columns, parse, strange};
use crate::store::{Claim, Claimed, Effects, Namespaces, Reading, Starts, Turn, Written};
use crate::{
    At, ChildView, Error, InboxSignal, InstanceId, Json, KeyScope, ParentRef, Result, SignalId, Status, Trace,
};

const SQL: &str = "select id, namespace, key, machine, version, step, seq, attempt, wake, awaits, inbox::text, \
    children::text, keeps_history, at, state::text, parent, parent_round, parent_index, rival, apart, lane, barrier, round, \
    key_scope, runnable_at, priority, share, remains, trace, starts from dormouse.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

pub(super) async fn claim(db: &Db, claim: &Claim) -> Result<Written<Vec<Claimed>>> {
    let namespaces = match &claim.namespaces {
        Namespaces::All => None,
        Namespaces::Only(names) => Some(names.as_slice()),
    };
    let (machines, versions): (Vec<&str>, Vec<i32>) =
        claim.machines.iter().map(|(name, version)| (name.as_str(), *version as i32)).unzip();
    let turns = claim.after.as_slice();
    let priorities: Vec<i32> = turns.iter().map(|turn| turn.priority).collect();
    let shares: Vec<&str> = turns.iter().map(|turn| turn.share.as_str()).collect();
    let remains: Vec<i32> = turns.iter().map(|turn| turn.left as i32).collect();
    let rows_max = i32::try_from(claim.rows_max).unwrap_or(i32::MAX);
    let places = i32::try_from(claim.places).unwrap_or(i32::MAX);
    let rows = db
        .all(|| {
            sqlx::query(SQL)
                .bind(claim.worker.0)
                .bind(&claim.queue)
                .bind(namespaces)
                .bind(&machines)
                .bind(&versions)
                .bind(rows_max)
                .bind(claim.later_than)
                .bind(&priorities)
                .bind(&shares)
                .bind(&remains)
                .bind(places)
        })
        .await?;
    let mut claimed = Vec::with_capacity(rows.len());
    let mut effects = Effects::default();
    for row in &rows {
        // Not a row of the claim, but what is to be known of lanes with a rate.
        if row.value::<Option<i64>>("id")?.is_none() {
            effects.held_back = row.value("apart")?;
            row.moment_or_none("runnable_at")?.into_iter().for_each(|at| effects.arm(at));
            continue;
        }
        match row.value::<Option<i64>>("rival")? {
            None => match read(row) {
                Ok(row) => claimed.push(row),
                // It is ours now, and nobody would run it: it is set aside, and the others are handed out.
                Err(error) if !error.is_transient() => {
                    let id: i64 = row.value("id")?;
                    tracing::error!(%error, id, "an instance is set aside: it cannot be read");
                    effects.merge(set_aside(db, claim.worker.0, id, &error).await?);
                }
                Err(error) => return Err(error),
            },
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

async fn set_aside(db: &Db, worker: i64, id: i64, error: &Error) -> Result<Effects> {
    let told = format!("it was set aside: {error}");
    let sql = "select v.* from dormouse.set_aside($1, $2, $3) v";
    db.one(|| sqlx::query(sql).bind(worker).bind(id).bind(&told)).await?.effects()
}

/// What a step is handed that did not come with its claim: by rows, as no one value could hold all of it.
pub(super) async fn reading(db: &Db, id: InstanceId, bytes_max: usize) -> Result<Reading> {
    let sizes = "select inbox_bytes, children_bytes, round from dormouse.reading($1)";
    let sizes = db.one(|| sqlx::query(sizes).bind(id.0)).await?;
    for (what, column) in [("signals", "inbox_bytes"), ("children", "children_bytes")] {
        let bytes = sizes.value::<Option<i64>>(column)?.unwrap_or_default().unsigned_abs();
        if bytes > bytes_max as u64 {
            return Err(Error::TooMuchToRead { id, what, bytes, limit_bytes: bytes_max });
        }
    }
    let inbox = db.all(|| sqlx::query(include_str!("reading_inbox.sql")).bind(id.0)).await?;
    let round: Option<i32> = sizes.value("round")?;
    let children = match round {
        Some(round) => {
            db.all(|| sqlx::query(include_str!("reading_children.sql")).bind(id.0).bind(round)).await?
        }
        None => Vec::new(),
    };
    Ok(Reading {
        inbox: inbox.iter().map(signal).collect::<Result<_>>()?,
        children: children.iter().map(child).collect::<Result<_>>()?,
    })
}

fn signal(row: &PgRow) -> Result<InboxSignal> {
    Ok(InboxSignal {
        id: SignalId(row.value("id")?),
        name: row.value("name")?,
        payload: row.json("payload")?,
        dedup_key: row.value("dedup_key")?,
        at: row.moment("at")?,
        trace: Trace::stored(row.value("trace")?),
    })
}

fn child(row: &PgRow) -> Result<ChildView> {
    Ok(ChildView {
        id: InstanceId(row.value("id")?),
        index: row.number("parent_index")?,
        machine: row.value("machine")?,
        key: row.value("key")?,
        version: row.number("version")?,
        status: row.status("status")?,
        step: row.value("step")?,
        error: row.value("error")?,
        output: row.json_or_none("output")?,
        state: row.json_or_none("state")?,
    })
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
        is_apart: row.value::<Option<bool>>("apart")?.unwrap_or_default(),
        keeps_history: row.value("keeps_history")?,
        lane: row.value("lane")?,
        turn: Turn {
            priority: row.value("priority")?,
            share: row.value("share")?,
            left: row.number("remains")?,
        },
        barrier: row.value::<Option<i32>>("barrier")?.map(|_| row.number("barrier")).transpose()?,
        round: row.number("round")?,
        key_scope: key_scope(row)?,
        runnable_at: row.moment("runnable_at")?,
        trace: Trace::stored(row.value("trace")?),
        starts: starts(row)?,
        now: row.moment("at")?,
    })
}

fn parent(row: &PgRow) -> Result<Option<ParentRef>> {
    let Some(id) = row.value::<Option<i64>>("parent")? else { return Ok(None) };
    let (round, index) = (row.number("parent_round")?, row.number("parent_index")?);
    Ok(Some(ParentRef { id: InstanceId(id), round, index }))
}

fn starts(row: &PgRow) -> Result<Starts> {
    Ok(match row.value::<Option<&str>>("starts")? {
        None => Starts::Anytime,
        Some("now") => Starts::Now,
        Some(_) => Starts::Ahead,
    })
}

fn key_scope(row: &PgRow) -> Result<KeyScope> {
    let text: Option<String> = row.value("key_scope")?;
    let strange = || strange("key scope", text.as_deref().unwrap_or_default());
    KeyScope::from_text(text.as_deref()).ok_or_else(strange)
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
    #[serde(default)]
    trace: Option<String>,
}

impl From<Signal> for InboxSignal {
    fn from(signal: Signal) -> Self {
        let Signal { id, name, payload, dedup_key, at, trace } = signal;
        let (payload, trace) = (Json::trusted(payload), Trace::stored(trace));
        Self { id: SignalId(id), name, payload, dedup_key, at, trace }
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
