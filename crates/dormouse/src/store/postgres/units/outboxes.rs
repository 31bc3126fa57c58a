//! What waits to be sent, by transport, at a cost that does not grow with how much waits.

use sqlx::postgres::PgRow;

use crate::store::postgres::db::Db;
use crate::store::postgres::types::{Columns, readable};
use crate::store::{FailingSend, OUTBOX_MAX, OutboxDepth};
use crate::{InstanceId, Result};

pub(super) async fn outboxes(db: &Db, namespace: Option<&str>) -> Result<Vec<OutboxDepth>> {
    let sql = include_str!("../outboxes.sql");
    let rows = db.all(|| sqlx::query(sql).bind(namespace).bind(OUTBOX_MAX as i64)).await?;
    readable(&rows, depth)
}

fn depth(row: &PgRow) -> Result<OutboxDepth> {
    let first = match row.value::<Option<i64>>("instance")? {
        None => None,
        Some(instance) => Some(FailingSend {
            instance: InstanceId(instance),
            sends: row.number("sends")?,
            next_at: row.moment("send_at")?,
            error: row.value("error")?,
        }),
    };
    Ok(OutboxDepth {
        transport: row.value("transport")?,
        namespace: row.value("namespace")?,
        count: row.number("count")?,
        failing: row.number("failing")?,
        oldest_at: row.moment("oldest_at")?,
        first,
    })
}
