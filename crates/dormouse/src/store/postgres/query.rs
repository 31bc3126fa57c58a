//! Queries, each on a snapshot.

use std::collections::HashMap;

use jiff::Timestamp;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::backlog::{awaiting, backlog};
use super::db::{Db, Statement};
use super::deliver::address;
use super::lease::declared;
use super::progress::reports;
use super::search::{candidates, searching};
use super::types::{Columns, Moment, readable, strange};
use crate::store::{
    About, Addressee, Backlog, Bounds, Count, Declarations, Events, Filter, LaneView, Looked, Namespaces,
    PAGE_BYTES_MAX, PLACES_MAX, Page, Portion, Progress, QUEUES_MAX, Queries, QueueView, Reply, Reports,
    Situation, Stats, WorkerView, counted, share_name,
};
use crate::{
    Event, InboxSignal, Instance, InstanceId, Json, Process, Result, Run, ShareWeight, SignalId, Status,
    Target, Trace, WorkerId,
};

impl Queries for PostgresStore {
    fn get(&self, namespace: String, target: Target) -> Reply<'_, Option<Instance>> {
        Box::pin(async move {
            let (id, key) = address(&target);
            let sql = include_str!("get.sql");
            let rows = self.db.all(|| sqlx::query(sql).bind(&namespace).bind(id).bind(key)).await?;
            rows.first().map(whole).transpose()
        })
    }

    fn head(&self, namespace: String, target: Target) -> Reply<'_, Option<Instance>> {
        Box::pin(async move { head(&self.db, &namespace, &target).await })
    }

    fn addressees(&self, namespace: String, targets: Vec<Target>) -> Reply<'_, Vec<Option<Addressee>>> {
        Box::pin(async move {
            let (ids, keys): (Vec<_>, Vec<_>) = targets.iter().map(address).unzip();
            let sql = include_str!("addressees.sql");
            let rows = self.db.all(|| sqlx::query(sql).bind(&namespace).bind(&ids).bind(&keys)).await?;
            rows.iter().map(addressee).collect()
        })
    }

    fn list(&self, filter: Filter) -> Reply<'_, Page> {
        Box::pin(async move { list(&self.db, &filter).await })
    }

    fn history(&self, id: InstanceId, events: Events, bounds: Bounds) -> Reply<'_, Portion<Event>> {
        let (sql, from) = match events {
            Events::After(seq) => (include_str!("history.sql"), seq),
            Events::Before(seq) => (include_str!("history_back.sql"), seq),
        };
        let from = from.min(i64::MAX.cast_unsigned()).cast_signed();
        Box::pin(portion(&self.db, bounds, move || sqlx::query(sql).bind(id.0).bind(from), event))
    }

    fn inbox(
        &self,
        id: InstanceId,
        after: Option<SignalId>,
        bounds: Bounds,
    ) -> Reply<'_, Portion<InboxSignal>> {
        let (sql, after) = (include_str!("inbox.sql"), after.map_or(0, |after| after.0));
        Box::pin(portion(&self.db, bounds, move || sqlx::query(sql).bind(id.0).bind(after), inbox_signal))
    }

    fn situation(&self, namespace: String, target: Target) -> Reply<'_, Option<Situation>> {
        Box::pin(async move { situation(&self.db, &namespace, &target).await })
    }

    fn stats(&self, namespace: Option<String>) -> Reply<'_, Stats> {
        Box::pin(async move { stats(&self.db, namespace.as_deref()).await })
    }

    fn backlog(&self, namespace: Option<String>) -> Reply<'_, Backlog> {
        Box::pin(async move { backlog(&self.db, namespace.as_deref()).await })
    }

    fn shares(&self, namespace: Option<String>) -> Reply<'_, Vec<ShareWeight>> {
        Box::pin(async move {
            let sql = include_str!("shares.sql");
            let rows = self.db.all(|| sqlx::query(sql).bind(&namespace).bind(QUEUES_MAX as i64)).await?;
            rows.iter().map(share_weight).collect()
        })
    }

    fn reports(&self, which: Reports, rows_max: usize) -> Reply<'_, Vec<Progress>> {
        Box::pin(reports(&self.db, which, rows_max))
    }

    fn declared(&self, known: Option<String>) -> Reply<'_, Option<Declarations>> {
        Box::pin(async move { declared(&self.db, known.as_deref()).await })
    }

    fn about(&self) -> Reply<'_, About> {
        Box::pin(async move {
            let sql = "select current_setting('server_version') as server, version, dormouse.now() as now \
                from dormouse.schema";
            let row = self.db.one(|| sqlx::query(sql)).await?;
            let (store, version, schema) = ("postgres", row.value("server")?, row.number("version")?);
            // Opening it changes nothing: a migration is a step of its own.
            Ok(About { store, version, schema, schema_found: schema, now: row.moment("now")? })
        })
    }
}

async fn head(db: &Db, namespace: &str, target: &Target) -> Result<Option<Instance>> {
    let (id, key) = address(target);
    let sql = include_str!("head.sql");
    let rows = db.all(|| sqlx::query(sql).bind(namespace).bind(id).bind(key)).await?;
    rows.first().map(instance).transpose()
}

fn addressee(row: &PgRow) -> Result<Option<Addressee>> {
    let Some(machine) = row.value::<Option<String>>("machine")? else { return Ok(None) };
    let awaits = row.value::<Option<_>>("awaits")?.unwrap_or_default();
    Ok(Some(Addressee { machine, version: row.number("version")?, awaits }))
}

async fn list(db: &Db, filter: &Filter) -> Result<Page> {
    if asks_for_nul(filter) {
        let looked = filter.is_search().then_some(Looked { rows: 0, indexed: true });
        return Ok(Page { looked, ..Page::default() });
    }
    let candidates = if filter.is_search() { Some(candidates(db, filter).await?) } else { None };
    let rows = match &candidates {
        Some(candidates) => db.all(|| searching(filter, candidates)).await?,
        None => db.all(|| listing(filter)).await?,
    };
    let (shown, more) = (rows.len().min(filter.limit), rows.len() > filter.limit);
    let mut instances = readable(&rows[..shown], instance)?;
    let place_at = |id: InstanceId| -> Result<Option<Timestamp>> {
        let column = match filter {
            filter if filter.is_search() => return Ok(None),
            Filter { awaiting: Some(_), .. } => "place_at",
            filter if filter.is_by_failure() => "ended_at",
            _ => return Ok(None),
        };
        let is_it = |row: &&PgRow| row.value::<i64>("id").is_ok_and(|its| its == id.0);
        rows.iter().find(is_it).map_or(Ok(None), |row| row.moment_or_none(column))
    };
    let last = rows[..shown].last().filter(|_| more);
    let mut next = last.map(|last| last.value("id").map(InstanceId)).transpose()?;
    next = next.or(candidates.as_ref().and_then(|candidates| candidates.goes_on_after));
    if !filter.heads_only && !instances.is_empty() {
        let (whole, read) = with_documents(db, &instances).await?;
        if read < instances.len() {
            next = Some(instances[read - 1].id);
        }
        // One that has moved on since it was found may be in another status by now.
        let fits = |instance: &Instance| {
            filter.status.is_none_or(|status| status == instance.status)
                && (filter.statuses.is_empty() || filter.statuses.contains(&instance.status))
        };
        instances = whole.into_iter().filter(fits).collect();
    }
    let next_at = next.map_or(Ok(None), place_at)?;
    Ok(Page { instances, next, next_at, looked: candidates.map(|candidates| candidates.looked()) })
}

/// These instances with their documents, until those are enough for a page, and how many were looked at for it. One that
/// is gone meanwhile is left out.
async fn with_documents(db: &Db, heads: &[Instance]) -> Result<(Vec<Instance>, usize)> {
    let ids: Vec<i64> = heads.iter().map(|head| head.id.0).collect();
    let sql = include_str!("listed.sql");
    let rows = db.all(|| sqlx::query(sql).bind(&ids).bind(PAGE_BYTES_MAX as i64)).await?;
    let mut bytes = 0;
    let mut found = HashMap::new();
    for instance in readable(&rows, whole)? {
        bytes += instance.state.as_str().len() + instance.output.as_ref().map_or(0, |out| out.as_str().len());
        found.insert(instance.id, instance);
    }
    // Those at the end that are gone may as well not have been looked at.
    let last = rows.last().map(|row| row.number::<usize>("nr")).transpose()?;
    let read = if bytes >= PAGE_BYTES_MAX { last.unwrap_or(heads.len()) } else { heads.len() };
    Ok((heads.iter().filter_map(|head| found.remove(&head.id)).collect(), read))
}

/// Whether a filter names what nobody can have because the database has no such text.
fn asks_for_nul(filter: &Filter) -> bool {
    let Filter { namespace, machine, queue, key_prefix, awaiting, tags, step, error, conditions, .. } =
        filter;
    let one = [namespace, machine, queue, key_prefix, awaiting, step, error].into_iter().flatten();
    let values = conditions.iter().map(|condition| condition.value.text());
    one.chain(tags).map(String::as_str).chain(values).any(|text| text.contains('\0'))
}

/// A statement with what every list takes.
pub(super) fn common<'q>(filter: &'q Filter, sql: &'static str) -> Statement<'q> {
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
}

fn listing(filter: &Filter) -> Statement<'_> {
    let common = |sql: &'static str| common(filter, sql);
    match filter {
        Filter { awaiting: Some(name), .. } => common(include_str!("list_awaiting.sql"))
            .bind(name)
            .bind(filter.parent.map(|id| id.0))
            .bind(filter.after_at.map(Moment)),
        Filter { parent: Some(id), .. } => common(include_str!("list_by_parent.sql")).bind(id.0),
        Filter { key_prefix: Some(_), namespace: Some(_), .. } => common(include_str!("list_by_key.sql")),
        Filter { tags, namespace: Some(_), .. } if !tags.is_empty() => {
            common(include_str!("list_by_tag.sql"))
        }
        filter if filter.is_by_failure() => {
            common(include_str!("list_failed.sql")).bind(filter.after_at.map(Moment))
        }
        _ => common(include_str!("list.sql")),
    }
}

/// The rows of a statement that ends by itself where the bounds are reached, and says in each row whether there are more.
pub(super) async fn portion<'q, T>(
    db: &Db,
    Bounds { rows_max, bytes_max }: Bounds,
    statement: impl Fn() -> Statement<'q>,
    read: impl Fn(&PgRow) -> Result<T>,
) -> Result<Portion<T>> {
    let number = |bound: usize| bound.min(i64::MAX as usize) as i64;
    let rows = db.all(|| statement().bind(number(rows_max)).bind(number(bytes_max))).await?;
    let more = rows.last().map_or(Ok(false), |last| last.value("more"))?;
    Ok(Portion { items: readable(&rows, read)?, more })
}

fn event(row: &PgRow) -> Result<Event> {
    let kind: &str = row.value("kind")?;
    Ok(Event {
        seq: row.number("seq")?,
        kind: kind.parse().map_err(|_| strange("kind", kind))?,
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

fn inbox_signal(row: &PgRow) -> Result<InboxSignal> {
    Ok(InboxSignal {
        id: SignalId(row.value("id")?),
        name: row.value("name")?,
        payload: row.json("payload")?,
        dedup_key: row.value("dedup_key")?,
        at: row.moment("at")?,
        trace: Trace::stored(row.value("trace")?),
    })
}

fn lane_view(row: &PgRow) -> Result<LaneView> {
    let width = row.value::<Option<i32>>("width")?.map(|width| width as u32);
    let holders: Vec<i64> = row.value("holders")?;
    let holders = holders.into_iter().map(InstanceId).collect();
    Ok(LaneView {
        width: width.unwrap_or(1),
        is_limited: width.is_some(),
        holders,
        turn_at: row.moment_or_none("turn_at")?,
        turn_is_later: row.value::<Option<bool>>("turn_is_later")?.unwrap_or_default(),
    })
}

async fn situation(db: &Db, namespace: &str, target: &Target) -> Result<Option<Situation>> {
    let Some(instance) = head(db, namespace, target).await? else { return Ok(None) };
    let sql = include_str!("situation.sql");
    let rows = db.all(|| sqlx::query(sql).bind(instance.id.0)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let now = row.moment("now")?;
    let workers = workers(db).await?.into_iter().filter(|worker| worker.lease_until >= now).collect();
    let lane = instance.lane.as_ref().map(|_| lane_view(row)).transpose()?;
    Ok(Some(Situation {
        now,
        queue_paused: row.value("queue_paused")?,
        lane,
        ahead: row.number("ahead")?,
        urgent: row.number("urgent")?,
        weight: row.number("weight")?,
        instance,
        workers,
    }))
}

/// Every place of one namespace or of all, perhaps inside another statement. A namespace is named in a statement of its
/// own: only then are its rows alone walked, by counts_namespace.
macro_rules! places {
    ($namespace:expr, $before:literal, $after:literal) => {
        match $namespace {
            Some(_) => concat!($before, include_str!("stats_of_namespace.sql"), $after),
            None => concat!($before, include_str!("stats.sql"), $after),
        }
    };
}

async fn stats(db: &Db, namespace: Option<&str>) -> Result<Stats> {
    let order = places!(
        namespace,
        "select * from (\n",
        ") place order by namespace, machine, version, step collate \"C\", status collate \"C\" limit $2"
    );
    let places = db.all(|| sqlx::query(order).bind(namespace).bind(PLACES_MAX as i64 + 1)).await?;
    let more_places = places.len() > PLACES_MAX;
    let sums =
        places!(namespace, "select status, sum(count)::bigint as count from (\n", ") place group by status");
    let sums = db.all(|| sqlx::query(sums).bind(namespace)).await?;
    let sum = |row: &PgRow| Ok((row.status("status")?, row.number("count")?));
    let paused = "select namespace, queue from dormouse.paused_queues where $1::text is null or namespace = $1 \
                  order by namespace, queue limit $2";
    let paused = db.all(|| sqlx::query(paused).bind(namespace).bind(QUEUES_MAX as i64)).await?;
    let next = "select least((select min(wake_at) from dormouse.instances where wake_at is not null), \
        (select min(at) from dormouse.rate_wakes)) as next, \
        (select min(deliver_at) from dormouse.mail) as next_mail";
    let next = db.one(|| sqlx::query(next)).await?;
    let queue = |row: &PgRow| -> Result<QueueView> {
        Ok(QueueView { namespace: row.value("namespace")?, name: row.value("queue")?, paused: true })
    };
    Ok(Stats {
        instances: readable(&places[..places.len().min(PLACES_MAX)], count)?,
        more_places,
        statuses: readable(&sums, sum)?.into_iter().collect(),
        awaiting: counted(awaiting(db, namespace).await?),
        paused_queues: paused.iter().map(queue).collect::<Result<_>>()?,
        workers: workers(db).await?,
        next_wake_at: next.moment_or_none("next")?,
        next_mail_at: next.moment_or_none("next_mail")?,
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
        transports: row.value("transports")?,
    })
}

/// An instance with its documents.
fn whole(row: &PgRow) -> Result<Instance> {
    Ok(Instance { state: row.json("state")?, output: row.json_or_none("output")?, ..instance(row)? })
}

fn share_weight(row: &PgRow) -> Result<ShareWeight> {
    let (share, namespace): (&str, String) = (row.value("share")?, row.value("namespace")?);
    let share = share_name(share).unwrap_or(&namespace).to_owned();
    Ok(ShareWeight { namespace, share, weight: row.number("weight")? })
}

/// A head.
fn instance(row: &PgRow) -> Result<Instance> {
    Ok(Instance {
        id: InstanceId(row.value("id")?),
        namespace: row.value("namespace")?,
        machine: row.value("machine")?,
        version: row.number("version")?,
        key: row.value("key")?,
        status: row.status("status")?,
        step: row.value("step")?,
        state: Json::null(),
        seq: row.number("seq")?,
        attempt: row.number("attempt")?,
        queue: row.value("queue")?,
        priority: row.value("priority")?,
        lane: row.value("lane")?,
        share: row.value::<Option<&str>>("share")?.and_then(share_name).map(str::to_owned),
        trace: Trace::stored(row.value("trace")?),
        cost: row.number("cost")?,
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
        output: None,
        last_error: row.value("last_error")?,
        created_at: row.moment("created_at")?,
        changed_at: row.moment("changed_at")?,
        ended_at: row.moment_or_none("ended_at")?,
    })
}
