//! What changes, for those who watch: the history of all instances in the order of its commits.

use rusqlite::{Connection, Row};

use super::fault::{readable, strange};
use super::row::status;
use super::tx::timestamp;
use crate::store::{Change, Changes};
use crate::{InstanceId, Result};

/// Reads up to `rows_max` changes after a position. Without a position, returns where the end is.
pub(super) fn changes(
    conn: &Connection,
    namespace: Option<&str>,
    after: Option<i64>,
    rows_max: usize,
) -> Result<Changes> {
    let end: i64 =
        conn.prepare_cached("select coalesce(max(id), 0) from history")?.query_row([], |row| row.get(0))?;
    let Some(after) = after.filter(|after| *after < end) else {
        return Ok(Changes { changes: Vec::new(), next: end, more: false });
    };
    let mut found = Changes { changes: Vec::new(), next: after, more: false };
    let mut sql = conn.prepare_cached(include_str!("changes.sql"))?;
    let mut rows = sql.query((after, rows_max as i64))?;
    while let Some(row) = rows.next()? {
        found.next = row.get(0)?;
        let Some(its_namespace) = row.get::<_, Option<String>>(2)? else { continue };
        if namespace.is_some_and(|namespace| namespace != its_namespace) {
            continue;
        }
        found.changes.extend(readable(Some(found.next), change(found.next, its_namespace, row))?);
    }
    found.more = found.next < end;
    Ok(found)
}

fn change(id: i64, namespace: String, row: &Row<'_>) -> rusqlite::Result<Change> {
    let kind: String = row.get(7)?;
    Ok(Change {
        id,
        instance: InstanceId(row.get(1)?),
        namespace,
        machine: row.get(3)?,
        key: row.get(4)?,
        queue: row.get(5)?,
        status: status(&row.get::<_, String>(6)?)?,
        kind: kind.parse().map_err(|_| strange("kind of event", &kind))?,
        seq: row.get(8)?,
        step: row.get(9)?,
        at: timestamp(row.get(10)?),
        ran: row.get::<_, Option<i64>>(11)?.map(timestamp).zip(row.get::<_, Option<u64>>(12)?),
    })
}
