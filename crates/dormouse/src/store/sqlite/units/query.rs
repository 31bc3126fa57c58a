//! Units and interactions as they are stored.

use std::str::FromStr;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, named_params};

use super::super::fault::strange;
use super::super::query::{one_more, portion};
use super::super::tx::timestamp;
use crate::store::{Bounds, InteractionCount, InteractionFilter, Portion, Which};
use crate::{
    InstanceId, Interaction, InteractionId, InteractionStatus, Json, Result, Trace, UnitId, UnitView,
};

pub(super) fn unit(conn: &Connection, instance: InstanceId) -> Result<Option<UnitView>> {
    let mut sql = conn.prepare_cached(include_str!("../unit_of.sql"))?;
    let read = |row: &Row<'_>| {
        Ok(UnitView {
            id: UnitId(row.get("id")?),
            instance: InstanceId(row.get("instance")?),
            round: row.get("round")?,
            shape: word(row, "shape")?,
            status: word(row, "status")?,
            transport: row.get("transport")?,
            on_failure: word(row, "on_failure")?,
            interactions: row.get("interactions")?,
            quorum: row.get("quorum")?,
            in_flight: row.get("in_flight")?,
            completed: row.get("completed")?,
            failed: row.get("failed")?,
            opened_at: timestamp(row.get("opened_at")?),
            deadline: moment(row, "deadline")?,
            closed_at: moment(row, "closed_at")?,
        })
    };
    Ok(sql.query_row([instance.0], read).optional()?)
}

pub(super) fn items(
    conn: &Connection,
    unit: UnitId,
    from_item: u32,
    items_max: usize,
) -> Result<Vec<Interaction>> {
    let mut sql = conn.prepare_cached(include_str!("../unit_items.sql"))?;
    let items = sql.query_map((unit.0, from_item, items_max as i64), interaction_row)?;
    Ok(items.collect::<rusqlite::Result<_>>()?)
}

/// One interaction, of whatever namespace.
pub(super) fn read(conn: &Connection, id: InteractionId) -> Result<Option<Interaction>> {
    let mut sql = conn.prepare_cached(include_str!("../interaction_get.sql"))?;
    Ok(sql.query_row([id.0], interaction_row).optional()?)
}

pub(super) fn interaction(
    conn: &Connection,
    namespace: &str,
    which: &Which,
    now: Timestamp,
) -> Result<Option<Interaction>> {
    let id = match which {
        Which::Id(id) => Some(*id),
        Which::Correlation(id) => by_correlation(conn, namespace, id, now)?.first().map(|(id, _)| *id),
    };
    let found = id.map(|id| read(conn, id)).transpose()?.flatten();
    Ok(found.filter(|found| found.namespace == namespace))
}

/// Up to two interactions with a correlation id, and whether they can be answered: those come first, then the newest.
pub(super) fn by_correlation(
    conn: &Connection,
    namespace: &str,
    correlation_id: &str,
    now: Timestamp,
) -> Result<Vec<(InteractionId, bool)>> {
    let mut sql = conn.prepare_cached(include_str!("../interaction_by_correlation.sql"))?;
    let found = sql.query_map((namespace, correlation_id, now.as_microsecond()), |row| {
        Ok((InteractionId(row.get(0)?), row.get(1)?))
    })?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// The statement that walks the least for a filter, perhaps inside another.
macro_rules! listing {
    ($filter:expr, $before:literal, $after:literal) => {
        match $filter {
            InteractionFilter { instance: Some(_), .. } => {
                concat!($before, include_str!("../interactions_by_instance.sql"), $after)
            }
            InteractionFilter { status: Some(status), .. } if status.is_open() => {
                concat!($before, include_str!("../interactions_open.sql"), $after)
            }
            _ => concat!($before, include_str!("../interactions.sql"), $after),
        }
    };
}

pub(super) fn interactions(
    conn: &Connection,
    filter: &InteractionFilter,
    now: Timestamp,
) -> Result<Portion<Interaction>> {
    list(conn, listing!(filter, "", ""), (filter, Bounds::rows(filter.limit)), now, |row| {
        let one = interaction_row(row)?;
        let output = one.output.as_ref().map_or(0, |output| output.as_str().len());
        Ok((one.request.as_str().len() + output, one))
    })
}

pub(super) fn count_interactions(
    conn: &Connection,
    filter: &InteractionFilter,
    now: Timestamp,
) -> Result<Vec<InteractionCount>> {
    let sql = listing!(
        filter,
        "select transport, status, count(*), min(opened_at) from (\n",
        ") group by transport, status order by transport, status"
    );
    let counted = list(conn, sql, (filter, Bounds::rows(usize::MAX)), now, |row| {
        let (transport, status) = (row.get(0)?, status(row, 1)?);
        Ok((0, InteractionCount { transport, status, count: row.get(2)?, oldest: timestamp(row.get(3)?) }))
    })?;
    Ok(counted.items)
}

fn list<T>(
    conn: &Connection,
    sql: &str,
    (filter, bounds): (&InteractionFilter, Bounds),
    now: Timestamp,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<(usize, T)>,
) -> Result<Portion<T>> {
    let mut sql = conn.prepare_cached(sql)?;
    let all = named_params! {
        ":after": filter.after.map(|id| id.0), ":namespace": filter.namespace,
        ":status": filter.status.map(InteractionStatus::as_str), ":transport": filter.transport,
        ":machine": filter.machine, ":step": filter.step, ":instance": filter.instance.map(|id| id.0),
        ":assignee": filter.assignee, ":group": filter.group, ":now": now.as_microsecond(),
        ":opened_before": filter.opened_before.map(Timestamp::as_microsecond), ":limit": one_more(bounds),
    };
    for (name, value) in all {
        if let Some(index) = sql.parameter_index(name)? {
            sql.raw_bind_parameter(index, value)?;
        }
    }
    portion(sql.raw_query(), bounds, read)
}

pub(super) fn interaction_row(row: &Row<'_>) -> rusqlite::Result<Interaction> {
    Ok(Interaction {
        id: InteractionId(row.get("id")?),
        unit: UnitId(row.get("unit")?),
        item: row.get("item")?,
        instance: InstanceId(row.get("instance")?),
        namespace: row.get("namespace")?,
        machine: row.get("machine")?,
        version: row.get("version")?,
        step: row.get("step")?,
        transport: row.get("transport")?,
        status: status(row, "status")?,
        idempotency_key: row.get("idempotency_key")?,
        correlation_id: row.get("correlation_id")?,
        sends: row.get("sends")?,
        opened_at: moment(row, "opened_at")?,
        deadline: moment(row, "deadline")?,
        send_at: moment(row, "send_at")?,
        dispatched_at: moment(row, "dispatched_at")?,
        resolved_at: moment(row, "resolved_at")?,
        assignee: row.get("assignee")?,
        assigned_until: moment(row, "assigned_until")?,
        for_assignee: row.get("for_assignee")?,
        for_group: row.get("for_group")?,
        trace: Trace::stored(row.get("trace")?),
        answered: row.get("answered")?,
        answered_by: row.get("answered_by")?,
        error: row.get("error")?,
        request: Json::trusted(row.get::<_, Box<str>>("request")?),
        output: row.get::<_, Option<Box<str>>>("output")?.map(Json::trusted),
    })
}

fn status(row: &Row<'_>, column: impl rusqlite::RowIndex) -> rusqlite::Result<InteractionStatus> {
    let word = row.get_ref(column)?;
    let word = word.as_str()?;
    word.parse().map_err(|_| strange("status of an interaction", word))
}

/// A stored word in its type.
pub(super) fn word<T: FromStr>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    let word = row.get_ref(column)?;
    let word = word.as_str()?;
    word.parse().map_err(|_| strange(column, word))
}

fn moment(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(timestamp))
}
