//! What changes, for those who watch: the history of all instances in the order of the feed.

use sqlx::postgres::PgRow;

use super::db::Db;
use super::types::{Columns, readable, strange};
use crate::store::{Change, Changes};
use crate::{InstanceId, Result};

/// Reads up to `rows_max` changes after a position. Without a position, returns where the end is: transactions that are
/// open at this moment come after it, whenever they commit.
pub(super) async fn changes(
    db: &Db,
    namespace: Option<&str>,
    after: Option<i64>,
    rows_max: usize,
) -> Result<Changes> {
    let limit = rows_max.min(i64::MAX as usize) as i64;
    let rows = db.all(|| sqlx::query(include_str!("changes.sql")).bind(after).bind(limit)).await?;
    let Some(first) = rows.first() else { return Err(sqlx::Error::RowNotFound.into()) };
    let end = first.value::<i64>("frontier")? - 1;
    // A position beyond the end is of another server, from which this database was restored.
    let Some(after) = after.filter(|after| *after <= end) else {
        return Ok(Changes { changes: Vec::new(), next: end, more: false });
    };
    let mut found = Changes { changes: Vec::new(), next: after, more: false };
    for row in &rows {
        let Some(id) = row.value("id")? else { break };
        found.next = id;
        let Some(its_namespace) = row.value::<Option<String>>("namespace")? else { continue };
        if namespace.is_none_or(|namespace| namespace == its_namespace) {
            found
                .changes
                .extend(readable(std::slice::from_ref(row), |row| change(id, its_namespace.clone(), row))?);
        }
    }
    found.more = rows.len() >= rows_max && found.next > after;
    Ok(found)
}

fn change(id: i64, namespace: String, row: &PgRow) -> Result<Change> {
    let kind: &str = row.value("kind")?;
    Ok(Change {
        id,
        instance: InstanceId(row.value("instance")?),
        namespace,
        machine: row.value("machine")?,
        key: row.value("key")?,
        queue: row.value("queue")?,
        status: row.status("status")?,
        kind: kind.parse().map_err(|_| strange("kind", kind))?,
        seq: row.number("seq")?,
        step: row.value("step")?,
        at: row.moment("at")?,
        ran: row
            .moment_or_none("started_at")?
            .zip(row.value::<Option<i64>>("took_us")?.map(i64::unsigned_abs)),
    })
}
