//! Units and interactions as they are stored.

use std::str::FromStr;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::super::db::{Db, Statement};
use super::super::types::{Columns, Moment, readable, strange};
use crate::store::{InteractionCount, InteractionFilter, PAGE_BYTES_MAX, Portion, Which};
use crate::{
    InstanceId, Interaction, InteractionId, InteractionStatus, Json, Result, Trace, UnitId, UnitView,
};

pub(super) async fn unit(db: &Db, instance: InstanceId) -> Result<Option<UnitView>> {
    let rows = db.all(|| sqlx::query(include_str!("../unit_of.sql")).bind(instance.0)).await?;
    rows.first().map(unit_view).transpose()
}

pub(super) async fn items(
    db: &Db,
    unit: UnitId,
    from_item: u32,
    items_max: usize,
) -> Result<Vec<Interaction>> {
    let items_max = items_max.min(i64::MAX as usize) as i64;
    let sql = include_str!("../unit_items.sql");
    let rows = db.all(|| sqlx::query(sql).bind(unit.0).bind(i64::from(from_item)).bind(items_max)).await?;
    readable(&rows, interaction)
}

pub(super) async fn interaction_in(db: &Db, namespace: &str, which: &Which) -> Result<Option<Interaction>> {
    let (id, correlation_id) = match which {
        Which::Id(id) => (Some(id.0), None),
        Which::Correlation(id) if id.contains('\0') => return Ok(None),
        Which::Correlation(id) => (None, Some(id)),
    };
    let sql = include_str!("../interaction_get.sql");
    let rows = db.all(|| sqlx::query(sql).bind(namespace).bind(id).bind(correlation_id)).await?;
    rows.first().map(interaction).transpose()
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

pub(super) async fn interactions(db: &Db, filter: &InteractionFilter) -> Result<Portion<Interaction>> {
    if asks_for_nul(filter) {
        return Ok(Portion::default());
    }
    let sql = listing!(filter, "select id from (\n", ") listed order by id");
    // One more than asked for tells whether there are more.
    let rows = db.all(|| bound(sql, filter, filter.limit.saturating_add(1))).await?;
    let mut ids = rows.iter().map(|row| row.value("id")).collect::<Result<Vec<i64>>>()?;
    let more = ids.len() > filter.limit;
    ids.truncate(filter.limit);
    let sql = include_str!("../interactions_listed.sql");
    let rows = db.all(|| sqlx::query(sql).bind(&ids).bind(PAGE_BYTES_MAX as i64)).await?;
    let last = rows.last().map(|row| row.value::<i64>("id")).transpose()?;
    // One that was found a moment ago may be in another status by now, or gone.
    let items = readable(&rows, interaction)?;
    let more = more || ids.last().copied() != last && bytes(&items) >= PAGE_BYTES_MAX;
    Ok(Portion { items, more })
}

fn bytes(interactions: &[Interaction]) -> usize {
    let bytes = |one: &Interaction| {
        one.request.as_str().len() + one.output.as_ref().map_or(0, |output| output.as_str().len())
    };
    interactions.iter().map(bytes).sum()
}

pub(super) async fn count_interactions(db: &Db, filter: &InteractionFilter) -> Result<Vec<InteractionCount>> {
    if asks_for_nul(filter) {
        return Ok(Vec::new());
    }
    let sql = listing!(
        filter,
        "select transport, status, count(*), min(opened_at) as oldest from (\n",
        ") counted group by transport, status order by transport, status collate \"C\""
    );
    let rows = db.all(|| bound(sql, filter, usize::MAX)).await?;
    let count = |row: &PgRow| {
        Ok(InteractionCount {
            transport: row.value("transport")?,
            status: word(row, "status")?,
            count: row.number("count")?,
            oldest: row.moment("oldest")?,
        })
    };
    rows.iter().map(count).collect()
}

fn bound<'q>(sql: &'static str, filter: &'q InteractionFilter, limit: usize) -> Statement<'q> {
    let statement = sqlx::query(sql)
        .bind(filter.after.map(|id| id.0))
        .bind(&filter.namespace)
        .bind(filter.status.map(InteractionStatus::as_str))
        .bind(&filter.transport)
        .bind(&filter.machine)
        .bind(&filter.step)
        .bind(&filter.assignee)
        .bind(&filter.group)
        .bind(filter.opened_before.map(Moment))
        .bind(limit.min(i64::MAX as usize) as i64);
    match filter.instance {
        Some(instance) => statement.bind(instance.0),
        None => statement,
    }
}

/// Whether a filter names what nobody can have because the database has no such text.
fn asks_for_nul(filter: &InteractionFilter) -> bool {
    let InteractionFilter { namespace, transport, machine, step, assignee, group, .. } = filter;
    [namespace, transport, machine, step, assignee, group]
        .into_iter()
        .flatten()
        .any(|text| text.contains('\0'))
}

fn unit_view(row: &PgRow) -> Result<UnitView> {
    let count = |name| -> Result<Option<u32>> {
        let count: Option<i32> = row.value(name)?;
        count.map(|count| count.try_into().map_err(|_| strange(name, count))).transpose()
    };
    Ok(UnitView {
        id: UnitId(row.value("id")?),
        instance: InstanceId(row.value("instance")?),
        round: row.number("round")?,
        shape: word(row, "shape")?,
        status: word(row, "status")?,
        transport: row.value("transport")?,
        on_failure: word(row, "on_failure")?,
        interactions: row.number("interactions")?,
        quorum: count("quorum")?,
        in_flight: count("in_flight")?,
        completed: row.number("completed")?,
        failed: row.number("failed")?,
        opened_at: row.moment("opened_at")?,
        deadline: row.moment_or_none("deadline")?,
        closed_at: row.moment_or_none("closed_at")?,
    })
}

pub(super) fn interaction(row: &PgRow) -> Result<Interaction> {
    Ok(Interaction {
        id: InteractionId(row.value("id")?),
        unit: UnitId(row.value("unit")?),
        item: row.number("item")?,
        instance: InstanceId(row.value("instance")?),
        namespace: row.value("namespace")?,
        machine: row.value("machine")?,
        version: row.number("version")?,
        step: row.value("step")?,
        transport: row.value("transport")?,
        status: word(row, "status")?,
        idempotency_key: row.value("idempotency_key")?,
        correlation_id: row.value("correlation_id")?,
        sends: row.number("sends")?,
        opened_at: row.moment_or_none("opened_at")?,
        deadline: row.moment_or_none("deadline")?,
        send_at: row.moment_or_none("send_at")?,
        dispatched_at: row.moment_or_none("dispatched_at")?,
        resolved_at: row.moment_or_none("resolved_at")?,
        assignee: row.value("assignee")?,
        assigned_until: row.moment_or_none("assigned_until")?,
        for_assignee: row.value("for_assignee")?,
        for_group: row.value("for_group")?,
        trace: Trace::stored(row.value("trace")?),
        answered: row.value("answered")?,
        answered_by: row.value("answered_by")?,
        error: row.value("error")?,
        request: document(row, "request")?.expect("a request is never null"),
        output: document(row, "output")?,
    })
}

/// A `json` column, which comes as its text.
fn document(row: &PgRow, name: &str) -> Result<Option<Json>> {
    Ok(row.try_get_unchecked::<Option<Box<str>>, _>(name)?.map(Json::trusted))
}

fn word<T: FromStr>(row: &PgRow, name: &str) -> Result<T> {
    let word: &str = row.value(name)?;
    word.parse().map_err(|_| strange(name, word))
}
