//! Searches: lists with conditions that no index of theirs leads to. A page looks at a bounded number of rows.

use rusqlite::{Connection, OptionalExtension, Row as SqlRow, named_params, params};

use super::query::{page_of, shared};
use crate::Result;
use crate::store::{
    Candidates, FieldIndex, Filter, LOOKED_MAX, Page, Source, is_indexed, sources, status_words,
};

/// One more than is looked at tells whether there is more.
const ROWS: i64 = LOOKED_MAX as i64 + 1;

pub(super) fn search(conn: &Connection, filter: &Filter) -> Result<Page> {
    let candidates = candidates(conn, filter)?;
    let mut sql = conn.prepare_cached(include_str!("search.sql"))?;
    let us = |at: Option<jiff::Timestamp>| at.map(jiff::Timestamp::as_microsecond);
    let conditions = (!filter.conditions.is_empty()).then(|| conditions(filter));
    let statuses = status_words(&filter.statuses).map(|words| serde_json::json!(words).to_string());
    let ids = serde_json::json!(candidates.ids).to_string();
    let all = named_params! {
        ":ids": ids, ":oldest": filter.oldest_first, ":version": filter.version, ":step": filter.step,
        ":statuses": statuses, ":changed_from": us(filter.changed_from), ":changed_before": us(filter.changed_before),
        ":ended_from": us(filter.ended_from), ":ended_before": us(filter.ended_before), ":error": filter.error,
        ":conditions": conditions,
    };
    shared(&mut sql, filter)?;
    for (name, value) in all {
        if let Some(index) = sql.parameter_index(name)? {
            sql.raw_bind_parameter(index, value)?;
        }
    }
    let page = page_of(conn, &mut sql, filter)?;
    Ok(Page { next: page.next.or(candidates.goes_on_after), looked: Some(candidates.looked()), ..page })
}

/// The conditions, with paths as this database has them.
fn conditions(filter: &Filter) -> String {
    let told = |condition: &crate::search::Condition| {
        let (compare, value) = (condition.compare.sign(), &condition.value);
        serde_json::json!({ "path": path(&condition.field), "compare": compare, "kind": value.kind(), "value": value.text() })
    };
    serde_json::Value::from_iter(filter.conditions.iter().map(told)).to_string()
}

/// A field as a JSON path. Its names have no quotes in them.
pub(super) fn path(field: &str) -> String {
    field.split('.').fold("$".to_owned(), |path, name| format!("{path}.\"{name}\""))
}

fn candidates(conn: &Connection, filter: &Filter) -> Result<Candidates> {
    for source in sources(filter) {
        let after = source.after(filter);
        let ids = match &source {
            Source::Field(index) => match by_field(conn, filter, index)? {
                Some((since, ids)) => {
                    if let Some(candidates) = source.candidates(filter, ids) {
                        return Ok(candidates.since(since));
                    }
                    continue;
                }
                None => continue,
            },
            Source::Key { namespace, prefix } => {
                let end = format!("{prefix}\u{10FFFF}");
                ids(conn, include_str!("search_key.sql"), params![namespace, prefix, end, ROWS])?
            }
            Source::Parent(id) => ids(conn, include_str!("search_parent.sql"), params![id.0, ROWS])?,
            Source::Tag { namespace, tag } => {
                ids(conn, include_str!("search_tag.sql"), params![namespace, tag, after, ROWS])?
            }
            Source::Failed => ids(conn, include_str!("search_failed.sql"), params![after, ROWS])?,
            Source::All if filter.oldest_first => {
                ids(conn, include_str!("search_oldest.sql"), params![after, ROWS])?
            }
            Source::All => ids(conn, include_str!("search_all.sql"), params![after, ROWS])?,
        };
        if let Some(candidates) = source.candidates(filter, ids) {
            return Ok(candidates);
        }
    }
    unreachable!("the last source always has candidates")
}

/// What the index of a field has, and since which instance; `None` if there is no such index or it is of no use here.
fn by_field(conn: &Connection, filter: &Filter, index: &FieldIndex<'_>) -> Result<Option<(i64, Vec<i64>)>> {
    let FieldIndex { namespace, machine, field, is_of_number, low, high } = index;
    let since: Option<i64> = conn
        .prepare_cached("select since from indexes where machine = ?1 and field = ?2")?
        .query_row((machine, field), |row| row.get(0))
        .optional()?;
    let Some(since) = since.filter(|since| is_indexed(filter, *since)) else { return Ok(None) };
    let sql = if *is_of_number { include_str!("search_number.sql") } else { include_str!("search_text.sql") };
    Ok(Some((since, ids(conn, sql, params![namespace, machine, field, low, high, ROWS])?)))
}

fn ids(conn: &Connection, sql: &str, params: &[&dyn rusqlite::ToSql]) -> Result<Vec<i64>> {
    let mut sql = conn.prepare_cached(sql)?;
    let ids = sql.query_map(params, |row| row.get(0))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// What a list is ordered by, besides ids.
pub(super) enum Order {
    Ids,
    Ends,
    Places,
}

impl Order {
    pub(super) fn of(filter: &Filter) -> Self {
        match filter {
            filter if filter.is_search() => Self::Ids,
            Filter { awaiting: Some(_), .. } => Self::Places,
            filter if filter.is_by_failure() => Self::Ends,
            _ => Self::Ids,
        }
    }

    pub(super) fn at(&self, row: &SqlRow<'_>) -> rusqlite::Result<Option<i64>> {
        match self {
            Self::Ids => Ok(None),
            Self::Ends => row.get("ended_at"),
            Self::Places => row.get("place_at"),
        }
    }
}
