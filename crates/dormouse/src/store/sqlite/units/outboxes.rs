//! What waits to be sent, by transport, at a cost that does not grow with how much waits.

use rusqlite::{Connection, OptionalExtension};

use crate::store::sqlite::tx::timestamp;
use crate::store::{FailingSend, OUTBOX_MAX, OutboxDepth};
use crate::{InstanceId, Result};

/// Outboxes that are looked at; more are left out.
const HOPS_MAX: usize = 1_000;

pub(super) fn outboxes(conn: &Connection, namespace: Option<&str>) -> Result<Vec<OutboxDepth>> {
    let mut depths = Vec::new();
    let mut last = (String::new(), String::new());
    for _ in 0..HOPS_MAX {
        let Some(next) = next(conn, namespace, &last)? else { break };
        depths.extend(depth(conn, &next.0, &next.1)?);
        last = next;
    }
    Ok(depths)
}

/// The outbox after this one: of this namespace, or of any.
fn next(
    conn: &Connection,
    namespace: Option<&str>,
    (transport, its_namespace): &(String, String),
) -> Result<Option<(String, String)>> {
    let Some(namespace) = namespace else {
        let mut sql = conn.prepare_cached(include_str!("../outboxes.sql"))?;
        return Ok(sql
            .query_row((transport, its_namespace), |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?);
    };
    let mut sql = conn.prepare_cached(include_str!("../outboxes_transport.sql"))?;
    let transport: Option<String> = sql.query_row([transport], |row| row.get(0))?;
    Ok(transport.map(|transport| (transport, namespace.to_owned())))
}

/// What it holds; `None` if nothing.
fn depth(conn: &Connection, transport: &str, namespace: &str) -> Result<Option<OutboxDepth>> {
    let mut sql = conn.prepare_cached(include_str!("../outboxes_depth.sql"))?;
    let depth = sql.query_row((transport, namespace, OUTBOX_MAX), |row| {
        let Some(oldest_at) = row.get::<_, Option<i64>>(2)? else { return Ok(None) };
        let first = match row.get::<_, Option<i64>>(3)? {
            None => None,
            Some(instance) => Some(FailingSend {
                instance: InstanceId(instance),
                sends: row.get(4)?,
                next_at: timestamp(row.get(5)?),
                error: row.get(6)?,
            }),
        };
        Ok(Some(OutboxDepth {
            transport: transport.to_owned(),
            namespace: namespace.to_owned(),
            count: row.get(0)?,
            failing: row.get::<_, Option<u64>>(1)?.unwrap_or(0),
            oldest_at: timestamp(oldest_at),
            first,
        }))
    })?;
    Ok(depth)
}
