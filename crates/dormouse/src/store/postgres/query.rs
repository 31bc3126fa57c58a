//! Queries, each on a snapshot.

use sqlx::postgres::PgRow;

use super::backlog::awaiting;
use super::claim::signals;
use super::db::{Db, Statement};
use super::deliver::address;
use super::types::{Columns, Moment, readable, strange};
use crate::store::access::counted;
use crate::store::{Addressee, Count, Filter, Namespaces, Page, QueueView, Situation, Stats, WorkerView};
use crate::{
    Event, EventKind, InboxSignal, Instance, InstanceId, Process, Result, Run, Status, Target, WorkerId,
};

pub(super) async fn get(db: &Db, namespace: &str, target: &Target) -> Result<Option<Instance>> {
    let (id, key) = address(target);
    let sql = include_str!("get.sql");
    let rows = db.all(|| sqlx::query(sql).bind(namespace).bind(id).bind(key)).await?;
    rows.first().map(instance).transpose()
}

pub(super) async fn addressees(
    db: &Db,
    namespace: &str,
    targets: &[Target],
) -> Result<Vec<Option<Addressee>>> {
    let (ids, keys): (Vec<_>, Vec<_>) = targets.iter().map(address).unzip();
    let sql = include_str!("addressees.sql");
    let rows = db.all(|| sqlx::query(sql).bind(namespace).bind(&ids).bind(&keys)).await?;
    let addressee = |row: &PgRow| -> Result<Option<Addressee>> {
        let Some(machine) = row.value::<Option<String>>("machine")? else { return Ok(None) };
        let awaits = row.value::<Option<_>>("awaits")?.unwrap_or_default();
        Ok(Some(Addressee { machine, version: row.number("version")?, awaits }))
    };
    rows.iter().map(addressee).collect()
}

pub(super) async fn list(db: &Db, filter: &Filter) -> Result<Page> {
    if asks_for_nul(filter) {
        return Ok(Page::default());
    }
    let rows = db.all(|| listing(filter)).await?;
    let (shown, more) = (rows.len().min(filter.limit), rows.len() > filter.limit);
    let instances = readable(&rows[..shown], instance)?;
    let last = rows[..shown].last().filter(|_| more);
    let next = last.map(|last| last.value("id").map(InstanceId)).transpose()?;
    Ok(Page { instances, next })
}

/// Whether a filter names what nobody can have because the database has no such text.
fn asks_for_nul(filter: &Filter) -> bool {
    let Filter { namespace, machine, queue, key_prefix, awaiting, tags, .. } = filter;
    let one = [namespace, machine, queue, key_prefix, awaiting].into_iter().flatten();
    one.chain(tags).any(|text| text.contains('\0'))
}

fn listing(filter: &Filter) -> Statement<'_> {
    let common = |sql: &'static str| {
        // One more than asked for tells whether there is a next page.
        let limit = filter.limit.saturating_add(1).min(i64::MAX as usize) as i64;
        sqlx::query(sql)
            .bind(filter.after.map(|id| id.0))
            .bind(&filter.namespace)
            .bind(&filter.machine)
            .bind(filter.status.map(Status::as_str))
            .bind(&filter.queue)
            .bind(filter.created_from.map(Moment))
            .bind(filter.created_before.map(Moment))
            .bind(limit)
            .bind(&filter.key_prefix)
            .bind(filter.key_prefix.as_ref().map(|prefix| format!("{prefix}\u{10FFFF}")))
            .bind(filter.roots)
            .bind((!filter.tags.is_empty()).then_some(&filter.tags))
    };
    match filter {
        Filter { awaiting: Some(name), .. } => {
            common(include_str!("list_awaiting.sql")).bind(name).bind(filter.parent.map(|id| id.0))
        }
        Filter { parent: Some(id), .. } => common(include_str!("list_by_parent.sql")).bind(id.0),
        Filter { key_prefix: Some(_), namespace: Some(_), .. } => common(include_str!("list_by_key.sql")),
        Filter { tags, namespace: Some(_), .. } if !tags.is_empty() => {
            common(include_str!("list_by_tag.sql"))
        }
        Filter { status: Some(Status::Failed), .. } => common(include_str!("list_failed.sql")),
        _ => common(include_str!("list.sql")),
    }
}

pub(super) async fn history(
    db: &Db,
    id: InstanceId,
    after_seq: u64,
    events_max: usize,
) -> Result<Vec<Event>> {
    let sql = include_str!("history.sql");
    let rows = db
        .all(|| {
            sqlx::query(sql).bind(id.0).bind(after_seq as i64).bind(events_max.min(i64::MAX as usize) as i64)
        })
        .await?;
    readable(&rows, event)
}

fn event(row: &PgRow) -> Result<Event> {
    let kind: &str = row.value("kind")?;
    Ok(Event {
        seq: row.number("seq")?,
        kind: EventKind::parse(kind).ok_or_else(|| strange("kind", kind))?,
        version: row.number("version")?,
        step: row.value("step")?,
        data: row.json_or_none("data")?,
        at: row.moment("at")?,
        run: run(row)?,
        state: row.json("state")?,
    })
}

fn run(row: &PgRow) -> Result<Option<Run>> {
    let Some(started_at) = row.moment_or_none("started_at")? else { return Ok(None) };
    let took_us = row.value::<Option<i64>>("took_us")?.unwrap_or_default().unsigned_abs();
    Ok(Some(Run { started_at, took_us, progress: row.json_or_none("progress")? }))
}

pub(super) async fn inbox(db: &Db, id: InstanceId) -> Result<Vec<InboxSignal>> {
    let row = db.one(|| sqlx::query("select dormouse.inbox($1)::text as inbox").bind(id.0)).await?;
    let inbox: Option<&str> = row.value("inbox")?;
    inbox.map_or_else(|| Ok(Vec::new()), signals)
}

pub(super) async fn situation(db: &Db, namespace: &str, target: &Target) -> Result<Option<Situation>> {
    let Some(instance) = get(db, namespace, target).await? else { return Ok(None) };
    let sql = include_str!("situation.sql");
    let rows = db.all(|| sqlx::query(sql).bind(instance.id.0)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let now = row.moment("now")?;
    let workers = workers(db).await?.into_iter().filter(|worker| worker.lease_until >= now).collect();
    Ok(Some(Situation {
        now,
        queue_paused: row.value("queue_paused")?,
        lane_holder: row.value::<Option<i64>>("lane_holder")?.map(InstanceId),
        ahead: row.number("ahead")?,
        instance,
        workers,
    }))
}

pub(super) async fn stats(db: &Db) -> Result<Stats> {
    let instances = db.all(|| sqlx::query(include_str!("stats.sql"))).await?;
    let paused = "select namespace, queue from dormouse.paused_queues order by namespace, queue";
    let paused = db.all(|| sqlx::query(paused)).await?;
    let next = "select min(wake_at) as next from dormouse.instances where wake_at is not null";
    let next = db.one(|| sqlx::query(next)).await?;
    let queue = |row: &PgRow| -> Result<QueueView> {
        Ok(QueueView { namespace: row.value("namespace")?, name: row.value("queue")?, paused: true })
    };
    Ok(Stats {
        instances: readable(&instances, count)?,
        awaiting: counted(awaiting(db, None).await?),
        paused_queues: paused.iter().map(queue).collect::<Result<_>>()?,
        workers: workers(db).await?,
        next_wake_at: next.moment_or_none("next")?,
    })
}

fn count(row: &PgRow) -> Result<Count> {
    Ok(Count {
        namespace: row.value("namespace")?,
        machine: row.value("machine")?,
        version: row.number("version")?,
        step: row.value("step")?,
        status: row.status("status")?,
        count: row.number("count")?,
    })
}

async fn workers(db: &Db) -> Result<Vec<WorkerView>> {
    readable(&db.all(|| sqlx::query(include_str!("workers.sql"))).await?, worker)
}

fn worker(row: &PgRow) -> Result<WorkerView> {
    let machines: Vec<String> = row.value("machines")?;
    let versions: Vec<i32> = row.value("versions")?;
    Ok(WorkerView {
        id: WorkerId(row.value("id")?),
        name: row.value("name")?,
        process: Process { host: row.value("host")?, pid: row.number("pid")?, birth: row.value("birth")? },
        started_at: row.moment("started_at")?,
        lease_until: row.moment("lease_until")?,
        namespaces: row.value::<Option<_>>("namespaces")?.map_or(Namespaces::All, Namespaces::Only),
        queues: row.value("queues")?,
        machines: machines.into_iter().zip(versions.into_iter().map(|version| version as u32)).collect(),
        claims: row.number("claims")?,
    })
}

fn instance(row: &PgRow) -> Result<Instance> {
    Ok(Instance {
        id: InstanceId(row.value("id")?),
        namespace: row.value("namespace")?,
        machine: row.value("machine")?,
        version: row.number("version")?,
        key: row.value("key")?,
        status: row.status("status")?,
        step: row.value("step")?,
        state: row.json("state")?,
        seq: row.number("seq")?,
        attempt: row.number("attempt")?,
        queue: row.value("queue")?,
        priority: row.value("priority")?,
        lane: row.value("lane")?,
        lane_blocked: row.value("blocked")?,
        paused: row.value("paused")?,
        cancel_requested: row.value("cancel_requested")?,
        cancel_reason: row.value("cancel_reason")?,
        cancelled_with: row.value::<Option<i64>>("cancelled_with")?.map(InstanceId),
        awaits: row.value::<Option<_>>("awaits")?.unwrap_or_default(),
        wake_at: row.moment_or_none("wake_at")?,
        wake: row.wake("wake")?,
        inbox: row.number("inbox")?,
        barrier: row.value::<Option<i32>>("barrier")?.map(|barrier| barrier as u32),
        round: row.number("round")?,
        parent: row.value::<Option<i64>>("parent")?.map(InstanceId),
        parent_round: row.value::<Option<i32>>("parent_round")?.map(|round| round as u32),
        parent_index: row.value::<Option<i32>>("parent_index")?.map(|index| index as u32),
        tags: row.value::<Option<_>>("tags")?.unwrap_or_default(),
        worker: row.value::<Option<i64>>("worker")?.map(WorkerId),
        output: row.json_or_none("output")?,
        last_error: row.value("last_error")?,
        created_at: row.moment("created_at")?,
        changed_at: row.moment("changed_at")?,
        ended_at: row.moment_or_none("ended_at")?,
    })
}
