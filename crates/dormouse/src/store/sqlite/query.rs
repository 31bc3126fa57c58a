//! Queries, on a snapshot.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row as SqlRow, Statement, named_params};

use super::SqliteStore;
use super::backlog::{awaiting, backlog};
use super::fault::{readable, strange};
use super::lane;
use super::lease::declared;
use super::open::schema_version;
use super::progress::reports;
use super::row::{names, names_text, status, wake};
use super::search::{Order, search};
use super::tx::{resolve, timestamp};
use crate::limits::sorted;
use crate::store::{
    About, Addressee, Backlog, Bounds, Count, Declarations, Events, Filter, Namespaces, PAGE_BYTES_MAX,
    PLACES_MAX, Page, Portion, Progress, QUEUES_MAX, Queries, QueueView, Reply, Reports, Situation, Stats,
    WorkerView, counted, share_id, share_name,
};
use crate::{
    Error, Event, InboxSignal, Instance, InstanceId, Json, Process, Result, Run, ShareWeight, SignalId,
    Status, Target, Trace, WorkerId,
};

impl Queries for SqliteStore {
    fn get(&self, namespace: String, target: Target) -> Reply<'_, Option<Instance>> {
        self.read(move |conn| {
            let Some(id) = resolve(conn, &namespace, &target)? else { return Ok(None) };
            let whole = |row: &SqlRow<'_>| {
                let documents = Documents { state: row.get("state")?, output: row.get("output")? };
                Ok(documents.into(instance(row)?))
            };
            let found = conn.prepare_cached(include_str!("get.sql"))?.query_row([id.0], whole).optional()?;
            Ok(found.filter(|instance| instance.namespace == namespace))
        })
    }

    fn head(&self, namespace: String, target: Target) -> Reply<'_, Option<Instance>> {
        self.read(move |conn| head(conn, &namespace, &target))
    }

    fn addressees(&self, namespace: String, targets: Vec<Target>) -> Reply<'_, Vec<Option<Addressee>>> {
        self.read(move |conn| targets.iter().map(|target| addressee(conn, &namespace, target)).collect())
    }

    fn list(&self, filter: Filter) -> Reply<'_, Page> {
        self.read(move |conn| list(conn, &filter))
    }

    fn history(&self, id: InstanceId, events: Events, bounds: Bounds) -> Reply<'_, Portion<Event>> {
        self.read(move |conn| history(conn, id, events, bounds))
    }

    fn inbox(
        &self,
        id: InstanceId,
        after: Option<SignalId>,
        bounds: Bounds,
    ) -> Reply<'_, Portion<InboxSignal>> {
        self.read(move |conn| {
            let mut sql = conn.prepare_cached(include_str!("inbox_page.sql"))?;
            let rows = sql.query((id.0, after.map_or(0, |after| after.0), one_more(bounds)))?;
            portion(rows, bounds, |row| {
                let signal = inbox_signal(row)?;
                Ok((signal.payload.as_str().len(), signal))
            })
        })
    }

    fn situation(&self, namespace: String, target: Target) -> Reply<'_, Option<Situation>> {
        let now = self.clock.now();
        self.read(move |conn| situation(conn, &namespace, &target, now))
    }

    fn stats(&self, namespace: Option<String>) -> Reply<'_, Stats> {
        self.read(move |conn| stats(conn, namespace.as_deref()))
    }

    fn backlog(&self, namespace: Option<String>) -> Reply<'_, Backlog> {
        self.read(move |conn| backlog(conn, namespace.as_deref()))
    }

    fn shares(&self, namespace: Option<String>) -> Reply<'_, Vec<ShareWeight>> {
        self.read(move |conn| shares(conn, namespace.as_deref()))
    }

    fn reports(&self, which: Reports, rows_max: usize) -> Reply<'_, Vec<Progress>> {
        self.read(move |conn| reports(conn, which, rows_max))
    }

    fn declared(&self, known: Option<String>) -> Reply<'_, Option<Declarations>> {
        self.read(move |conn| declared(conn, known.as_deref()))
    }

    fn about(&self) -> Reply<'_, About> {
        let (now, schema_found) = (self.clock.now(), self.schema_found);
        self.read(move |conn| {
            let version = rusqlite::version().to_owned();
            Ok(About { store: "sqlite", version, schema: schema_version(conn)?, schema_found, now })
        })
    }
}

fn addressee(conn: &Connection, namespace: &str, target: &Target) -> Result<Option<Addressee>> {
    let Some(id) = resolve(conn, namespace, target)? else { return Ok(None) };
    let mut sql = conn.prepare_cached(include_str!("addressee.sql"))?;
    let read = |row: &SqlRow<'_>| {
        let awaits: Option<String> = row.get(2)?;
        Ok(Addressee { machine: row.get(0)?, version: row.get(1)?, awaits: names(awaits.as_deref())? })
    };
    Ok(sql.query_row((id.0, namespace), read).optional()?)
}

fn head(conn: &Connection, namespace: &str, target: &Target) -> Result<Option<Instance>> {
    let Some(id) = resolve(conn, namespace, target)? else { return Ok(None) };
    let found = conn.prepare_cached(include_str!("head.sql"))?.query_row([id.0], instance).optional()?;
    Ok(found.filter(|instance| instance.namespace == namespace))
}

/// What a head leaves out.
struct Documents {
    state: Box<str>,
    output: Option<Box<str>>,
}

impl Documents {
    fn bytes(&self) -> usize {
        self.state.len() + self.output.as_ref().map_or(0, |output| output.len())
    }

    fn into(self, head: Instance) -> Instance {
        Instance { state: Json::trusted(self.state), output: self.output.map(Json::trusted), ..head }
    }
}

fn list(conn: &Connection, filter: &Filter) -> Result<Page> {
    let sql = match filter {
        filter if filter.is_search() => return search(conn, filter),
        Filter { awaiting: Some(_), .. } => include_str!("list_awaiting.sql"),
        Filter { parent: Some(_), .. } => include_str!("list_by_parent.sql"),
        Filter { key_prefix: Some(_), namespace: Some(_), .. } => include_str!("list_by_key.sql"),
        Filter { tags, namespace: Some(_), key_prefix: None, .. } if !tags.is_empty() => {
            include_str!("list_by_tag.sql")
        }
        filter if filter.is_by_failure() => include_str!("list_failed.sql"),
        _ => include_str!("list.sql"),
    };
    let mut sql = conn.prepare_cached(sql)?;
    shared(&mut sql, filter)?;
    page_of(conn, &mut sql, filter)
}

/// Binds what every list takes.
pub(super) fn shared(sql: &mut Statement<'_>, filter: &Filter) -> Result<()> {
    let us = |at: Option<Timestamp>| at.map(Timestamp::as_microsecond);
    // One more than asked for tells whether there is a next page.
    let limit = filter.limit.saturating_add(1).min(i64::MAX as usize) as i64;
    let key_end = filter.key_prefix.as_ref().map(|prefix| format!("{prefix}\u{10FFFF}"));
    let all = named_params! {
        ":after": filter.after.map(|id| id.0), ":after_at": us(filter.after_at), ":namespace": filter.namespace, ":machine": filter.machine,
        ":status": filter.status.map(Status::as_str), ":queue": filter.queue,
        ":created_from": us(filter.created_from), ":created_before": us(filter.created_before), ":limit": limit,
        ":parent": filter.parent.map(|id| id.0), ":awaiting": filter.awaiting, ":key": filter.key_prefix,
        ":key_end": key_end, ":roots": filter.roots, ":tag": filter.tags.first(), ":tags": names_text(&sorted(&filter.tags)),
    };
    for (name, value) in all {
        if let Some(index) = sql.parameter_index(name)? {
            sql.raw_bind_parameter(index, value)?;
        }
    }
    Ok(())
}

/// The rows of a list whose parameters are bound.
pub(super) fn page_of(conn: &Connection, sql: &mut Statement<'_>, filter: &Filter) -> Result<Page> {
    let place = Order::of(filter);
    let (mut instances, mut places, mut last, mut count) = (Vec::new(), HashMap::new(), None, 0);
    let mut rows = sql.raw_query();
    while let Some(row) = rows.next()? {
        count += 1;
        if count > filter.limit {
            break;
        }
        last = row.get("id")?;
        places.insert(last, place.at(row)?);
        instances.extend(readable(last, instance(row))?);
    }
    let mut next = last.filter(|_| count > filter.limit).map(InstanceId);
    if !filter.heads_only && with_documents(conn, &mut instances)? {
        next = instances.last().map(|last: &Instance| last.id);
    }
    let next_at = next.and_then(|next| places.get(&Some(next.0)).copied().flatten()).map(timestamp);
    Ok(Page { instances, next, next_at, looked: None })
}

/// Reads the documents of these instances until they are enough for a page, and says whether some were left out for it.
fn with_documents(conn: &Connection, instances: &mut Vec<Instance>) -> Result<bool> {
    let listed = instances.len();
    let mut sql = conn.prepare_cached(include_str!("documents.sql"))?;
    let (mut whole, mut bytes) = (Vec::new(), 0);
    for mut head in instances.drain(..) {
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
        let (error, documents) = sql.query_row([head.id.0], |row| {
            Ok((row.get(0)?, Documents { output: row.get(1)?, state: row.get(2)? }))
        })?;
        bytes += documents.bytes();
        head.last_error = error;
        whole.push(documents.into(head));
    }
    *instances = whole;
    Ok(instances.len() < listed)
}

/// Reads rows until they reach the bounds: no more than that is ever held.
pub(super) fn portion<T>(
    mut rows: rusqlite::Rows<'_>,
    bounds: Bounds,
    read: impl Fn(&SqlRow<'_>) -> rusqlite::Result<(usize, T)>,
) -> Result<Portion<T>> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if bounds.are_reached(items.len(), bytes) {
            return Ok(Portion { items, more: true });
        }
        if let Some((row_bytes, item)) = readable(None, read(row))? {
            bytes += row_bytes;
            items.push(item);
        }
    }
    Ok(Portion { items, more: false })
}

/// One row more than asked for tells whether there are more.
pub(super) fn one_more(bounds: Bounds) -> i64 {
    bounds.rows_max.saturating_add(1).min(i64::MAX as usize) as i64
}

fn history(conn: &Connection, id: InstanceId, events: Events, bounds: Bounds) -> Result<Portion<Event>> {
    let (sql, from) = match events {
        Events::After(seq) => (include_str!("history.sql"), seq),
        Events::Before(seq) => (include_str!("history_back.sql"), seq),
    };
    let from = from.min(i64::MAX.cast_unsigned());
    let mut sql = conn.prepare_cached(sql)?;
    portion(sql.query((id.0, from, one_more(bounds)))?, bounds, |row| {
        let event = event(row)?;
        let json = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.as_str().len());
        let progress = event.run.as_ref().map_or(0, |run| json(&run.progress));
        Ok((event.state.as_str().len() + json(&event.data) + progress, event))
    })
}

fn event(row: &SqlRow<'_>) -> rusqlite::Result<Event> {
    let kind: String = row.get(1)?;
    Ok(Event {
        seq: row.get(0)?,
        kind: kind.parse().map_err(|_| strange("kind of event", &kind))?,
        version: row.get(2)?,
        step: row.get(3)?,
        data: row.get::<_, Option<Box<str>>>(4)?.map(Json::trusted),
        at: timestamp(row.get(5)?),
        run: run(row)?,
        state: Json::trusted(row.get::<_, Box<str>>(9)?),
    })
}

fn run(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Run>> {
    let Some(started_at) = row.get::<_, Option<i64>>(6)? else { return Ok(None) };
    let progress = row.get::<_, Option<Box<str>>>(8)?.map(Json::trusted);
    Ok(Some(Run { started_at: timestamp(started_at), took_us: row.get(7)?, progress }))
}

/// All that waits for an instance.
pub(super) fn inbox(conn: &Connection, id: InstanceId) -> Result<Vec<InboxSignal>> {
    let mut sql = conn.prepare_cached(include_str!("inbox.sql"))?;
    let signals = sql.query_map([id.0], inbox_signal)?;
    Ok(signals.collect::<rusqlite::Result<_>>()?)
}

/// A signal as `inbox.sql` and `signal.sql` have it.
pub(super) fn inbox_signal(row: &SqlRow<'_>) -> rusqlite::Result<InboxSignal> {
    Ok(InboxSignal {
        id: SignalId(row.get(0)?),
        name: row.get(1)?,
        payload: Json::trusted(row.get::<_, Box<str>>(2)?),
        dedup_key: row.get(3)?,
        at: timestamp(row.get(4)?),
        trace: Trace::stored(row.get(5)?),
    })
}

fn situation(
    conn: &Connection,
    namespace: &str,
    target: &Target,
    now: Timestamp,
) -> Result<Option<Situation>> {
    let Some(instance) = head(conn, namespace, target)? else { return Ok(None) };
    let lane = instance.lane.as_deref();
    let lane = lane.map(|lane| lane::view(conn, &instance, lane, now)).transpose()?;
    let queue_paused = conn
        .prepare_cached(include_str!("queue_paused.sql"))?
        .exists((&instance.namespace, &instance.queue))?;
    let share = share_id(&instance.namespace, instance.share.as_deref());
    let (ahead, urgent, weight): (i64, i64, u32) =
        conn.prepare_cached(include_str!("ahead.sql"))?.query_row(
            (
                &instance.queue,
                &instance.machine,
                instance.version,
                &instance.namespace,
                instance.priority,
                share,
                runnable_at(conn, instance.id)?,
                instance.id.0,
            ),
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;
    let (ahead, urgent) = (ahead as usize, urgent as usize);
    let workers = workers(conn)?.into_iter().filter(|worker| worker.lease_until >= now).collect();
    Ok(Some(Situation { instance, now, queue_paused, lane, workers, ahead, urgent, weight }))
}

/// Every place of one namespace or of all, perhaps inside another statement. A namespace is named in a statement of its
/// own: only then are its rows alone walked, by the primary key of the counts.
macro_rules! places {
    ($namespace:expr, $before:literal, $after:literal) => {
        match $namespace {
            Some(_) => concat!($before, include_str!("stats_of_namespace.sql"), $after),
            None => concat!($before, include_str!("stats.sql"), $after),
        }
    };
}

fn stats(conn: &Connection, namespace: Option<&str>) -> Result<Stats> {
    let sql = places!(namespace, "", "order by namespace, machine, version, step, status limit ?2");
    let mut instances: Vec<Count> = conn
        .prepare_cached(sql)?
        .query_map((namespace, PLACES_MAX as i64 + 1), |row| {
            let status = status(row.get_ref(4)?.as_str()?)?;
            Ok(Count {
                namespace: row.get(0)?,
                machine: row.get(1)?,
                version: row.get(2)?,
                step: row.get(3)?,
                status,
                count: row.get(5)?,
            })
        })?
        .filter_map(|count| readable(None, count).transpose())
        .collect::<rusqlite::Result<_>>()?;
    let more_places = instances.len() > PLACES_MAX;
    instances.truncate(PLACES_MAX);
    let sql = places!(namespace, "select status, sum(count) from (\n", ") group by status");
    let statuses: BTreeMap<Status, u64> = conn
        .prepare_cached(sql)?
        .query_map([namespace], |row| Ok((status(row.get_ref(0)?.as_str()?)?, row.get(1)?)))?
        .filter_map(|count| readable(None, count).transpose())
        .collect::<rusqlite::Result<_>>()?;
    let paused_queues = conn
        .prepare_cached(
            "select namespace, queue from paused_queues where ?1 is null or namespace = ?1
             order by namespace, queue limit ?2",
        )?
        .query_map((namespace, QUEUES_MAX as i64), |row| {
            Ok(QueueView { namespace: row.get(0)?, name: row.get(1)?, paused: true })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let next: Option<i64> =
        conn.prepare_cached(include_str!("due_next.sql"))?.query_row([], |row| row.get(0))?;
    let mail = "select deliver_at from mail order by deliver_at limit 1";
    let mail: Option<i64> = conn.prepare_cached(mail)?.query_row([], |row| row.get(0)).optional()?;
    Ok(Stats {
        instances,
        more_places,
        statuses,
        awaiting: counted(awaiting(conn, namespace)?),
        paused_queues,
        workers: workers(conn)?,
        next_wake_at: next.map(timestamp),
        next_mail_at: mail.map(timestamp),
    })
}

fn shares(conn: &Connection, namespace: Option<&str>) -> Result<Vec<ShareWeight>> {
    let mut sql = conn.prepare_cached(include_str!("shares.sql"))?;
    let weighed = |row: &SqlRow<'_>| {
        let (share, namespace): (String, String) = (row.get(0)?, row.get(1)?);
        let name = share_name(&share).unwrap_or(&namespace).to_owned();
        Ok(ShareWeight { namespace, share: name, weight: row.get(2)? })
    };
    Ok(sql.query_map((namespace, QUEUES_MAX as i64), weighed)?.collect::<rusqlite::Result<_>>()?)
}

fn runnable_at(conn: &Connection, id: InstanceId) -> Result<i64> {
    Ok(conn
        .prepare_cached("select runnable_at from instances where id = ?1")?
        .query_row([id.0], |row| row.get(0))?)
}

fn workers(conn: &Connection) -> Result<Vec<WorkerView>> {
    let mut sql = conn.prepare_cached(include_str!("workers.sql"))?;
    let mut rows = sql.query([])?;
    let mut workers = Vec::new();
    while let Some(row) = rows.next()? {
        let list = |index| -> Result<String> { Ok(row.get(index)?) };
        let unreadable = |source| Error::InvalidJson { what: "worker's registration", source };
        workers.push(WorkerView {
            id: WorkerId(row.get(0)?),
            name: row.get(1)?,
            process: Process { host: row.get(2)?, pid: row.get(3)?, birth: row.get(4)? },
            started_at: timestamp(row.get(5)?),
            lease_until: timestamp(row.get(6)?),
            namespaces: match row.get::<_, Option<String>>(7)? {
                None => Namespaces::All,
                Some(names) => Namespaces::Only(serde_json::from_str(&names).map_err(unreadable)?),
            },
            queues: serde_json::from_str(&list(8)?).map_err(unreadable)?,
            machines: serde_json::from_str(&list(9)?).map_err(unreadable)?,
            claims: row.get::<_, i64>(10)? as usize,
            transports: match row.get::<_, Option<String>>(11)? {
                None => None,
                Some(names) => serde_json::from_str(&names).map_err(unreadable)?,
            },
        });
    }
    Ok(workers)
}

/// A head: its documents are read apart.
fn instance(row: &SqlRow<'_>) -> rusqlite::Result<Instance> {
    let us = |name: &str| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<i64>>(name)?.map(timestamp))
    };
    Ok(Instance {
        id: InstanceId(row.get("id")?),
        namespace: row.get("namespace")?,
        machine: row.get("machine")?,
        version: row.get("version")?,
        key: row.get("key")?,
        status: status(row.get_ref("status")?.as_str()?)?,
        step: row.get("step")?,
        state: Json::null(),
        seq: row.get("seq")?,
        attempt: row.get("attempt")?,
        queue: row.get("queue")?,
        priority: row.get("priority")?,
        lane: row.get("lane")?,
        share: row.get::<_, Option<String>>("share")?.as_deref().and_then(share_name).map(str::to_owned),
        trace: Trace::stored(row.get("trace")?),
        cost: row.get("cost")?,
        lane_blocked: row.get("blocked")?,
        paused: row.get("paused")?,
        cancel_requested: row.get("cancel_requested")?,
        cancel_reason: row.get("cancel_reason")?,
        cancelled_with: row.get::<_, Option<i64>>("cancelled_with")?.map(InstanceId),
        awaits: names(row.get_ref("awaits")?.as_str_or_null()?)?,
        wake_at: us("wake_at")?,
        wake: wake(row.get_ref("wake")?.as_str_or_null()?)?,
        inbox: row.get("inbox")?,
        barrier: row.get("barrier")?,
        round: row.get("round")?,
        parent: row.get::<_, Option<i64>>("parent")?.map(InstanceId),
        parent_round: row.get("parent_round")?,
        parent_index: row.get("parent_index")?,
        tags: names(row.get_ref("tags")?.as_str_or_null()?)?,
        worker: row.get::<_, Option<i64>>("worker")?.map(WorkerId),
        output: None,
        last_error: row.get("last_error")?,
        created_at: timestamp(row.get("created_at")?),
        changed_at: timestamp(row.get("changed_at")?),
        ended_at: us("ended_at")?,
    })
}
