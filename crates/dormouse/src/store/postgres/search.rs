//! Searches: lists with conditions that no index of theirs leads to. A page looks at a bounded number of rows.

use super::db::{Db, Statement};
use super::query::common;
use super::types::{Columns, Moment};
use crate::Result;
use crate::store::{Candidates, FieldIndex, Filter, LOOKED_MAX, Source, is_indexed, sources, status_words};

/// One more than is looked at tells whether there is more.
const ROWS: i64 = LOOKED_MAX as i64 + 1;

/// The rows that a page looks at.
pub(super) async fn candidates(db: &Db, filter: &Filter) -> Result<Candidates> {
    for source in sources(filter) {
        let since = match &source {
            Source::Field(index) => {
                match since(db, index).await?.filter(|since| is_indexed(filter, *since)) {
                    Some(since) => since,
                    None => continue,
                }
            }
            _ => 0,
        };
        let rows = db.all(|| looking(filter, &source)).await?;
        let ids = rows.iter().map(|row| row.value("id")).collect::<Result<_>>()?;
        if let Some(candidates) = source.candidates(filter, ids) {
            return Ok(candidates.since(since));
        }
    }
    unreachable!("the last source always has candidates")
}

/// Since which instance the index of a field is whole, if there is one.
async fn since(db: &Db, index: &FieldIndex<'_>) -> Result<Option<i64>> {
    let sql = "select since from dormouse.indexes where machine = $1 and field = $2";
    let rows = db.all(|| sqlx::query(sql).bind(index.machine).bind(index.field)).await?;
    rows.first().map(|row| row.value("since")).transpose()
}

fn looking<'q>(filter: &'q Filter, source: &'q Source<'_>) -> Statement<'q> {
    let after = source.after(filter);
    match source {
        Source::Field(FieldIndex { namespace, machine, field, is_of_number, low, high }) => {
            let sql = if *is_of_number {
                include_str!("search_number.sql")
            } else {
                include_str!("search_text.sql")
            };
            let looking = sqlx::query(sql).bind(ROWS).bind(*namespace).bind(*machine).bind(*field);
            looking.bind(low.as_deref()).bind(high.as_deref())
        }
        Source::Key { namespace, prefix } => {
            let looking = sqlx::query(include_str!("search_key.sql")).bind(ROWS).bind(*namespace);
            looking.bind(*prefix).bind(format!("{prefix}\u{10FFFF}"))
        }
        Source::Parent(id) => sqlx::query(include_str!("search_parent.sql")).bind(ROWS).bind(id.0),
        Source::Tag { namespace, tag } => {
            sqlx::query(include_str!("search_tag.sql")).bind(ROWS).bind(after).bind(*namespace).bind(*tag)
        }
        Source::Failed => sqlx::query(include_str!("search_failed.sql")).bind(ROWS).bind(after),
        Source::All if filter.oldest_first => {
            sqlx::query(include_str!("search_oldest.sql")).bind(ROWS).bind(after)
        }
        Source::All => sqlx::query(include_str!("search_all.sql")).bind(ROWS).bind(after),
    }
}

/// Those of the rows that meet every condition.
pub(super) fn searching<'q>(filter: &'q Filter, candidates: &'q Candidates) -> Statement<'q> {
    let conditions = &filter.conditions;
    let each = |told: fn(&crate::search::Condition) -> &str| {
        (!conditions.is_empty()).then(|| conditions.iter().map(told).collect::<Vec<_>>())
    };
    common(filter, include_str!("search.sql"))
        .bind(&candidates.ids)
        .bind(filter.oldest_first)
        .bind(filter.version.map(|version| version.min(i32::MAX as u32) as i32))
        .bind(filter.step.as_deref())
        .bind(status_words(&filter.statuses))
        .bind(filter.changed_from.map(Moment))
        .bind(filter.changed_before.map(Moment))
        .bind(filter.ended_from.map(Moment))
        .bind(filter.ended_before.map(Moment))
        .bind(filter.error.as_deref())
        .bind(filter.parent.map(|id| id.0))
        .bind(filter.awaiting.as_deref())
        .bind(each(|condition| &condition.field))
        .bind(each(|condition| condition.compare.sign()))
        .bind(each(|condition| condition.value.kind()))
        .bind(each(|condition| condition.value.text()))
}
