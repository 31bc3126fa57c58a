//! What waits, with ages, at a cost that does not grow with how much waits.

use sqlx::postgres::PgRow;

use super::db::Db;
use super::types::{Columns, readable};
use crate::store::{AWAITING_MAX, Awaited, Backlog, QUEUES_MAX, QueueDepth};
use crate::{InstanceId, Result};

pub(super) async fn backlog(db: &Db, namespace: Option<&str>) -> Result<Backlog> {
    let queues =
        db.all(|| sqlx::query(include_str!("backlog.sql")).bind(namespace).bind(QUEUES_MAX as i64)).await?;
    Ok(Backlog { queues: readable(&queues, queue)?, awaiting: awaiting(db, namespace).await? })
}

pub(super) async fn awaiting(db: &Db, namespace: Option<&str>) -> Result<Vec<Awaited>> {
    let sql = include_str!("backlog_awaiting.sql");
    let rows = db.all(|| sqlx::query(sql).bind(namespace).bind(AWAITING_MAX as i64)).await?;
    readable(&rows, awaited)
}

fn queue(row: &PgRow) -> Result<QueueDepth> {
    Ok(QueueDepth {
        namespace: row.value("namespace")?,
        name: row.value("queue")?,
        runnable: row.number("runnable")?,
        oldest_runnable_at: row.moment_or_none("oldest_at")?,
        paused: row.value("paused")?,
    })
}

fn awaited(row: &PgRow) -> Result<Awaited> {
    Ok(Awaited {
        names: row.value("awaits")?,
        count: row.number("count")?,
        oldest: InstanceId(row.value("oldest")?),
        since: row.moment("since")?,
    })
}
