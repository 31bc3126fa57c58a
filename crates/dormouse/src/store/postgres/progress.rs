//! What running steps report.

use sqlx::postgres::PgRow;

use super::db::Db;
use super::types::Columns;
use crate::store::{Effects, NewProgress, PROGRESS_QUEUE, Progress, Reports, Written};
use crate::{InstanceId, Result, WorkerId};

const REPORT: &str = "select dormouse.report($1, $2, $3, $4)";

pub(super) async fn report(db: &Db, worker: WorkerId, batch: &[NewProgress]) -> Result<Written<()>> {
    let statement = || {
        sqlx::query(REPORT)
            .bind(worker.0)
            .bind(batch.iter().map(|new| new.instance.0).collect::<Vec<_>>())
            .bind(batch.iter().map(|new| new.seq as i64).collect::<Vec<_>>())
            .bind(batch.iter().map(|new| new.value.as_str()).collect::<Vec<_>>())
    };
    db.one(statement).await?;
    let mut effects = Effects::default();
    effects.runnable(PROGRESS_QUEUE);
    Ok(Written { value: (), effects })
}

pub(super) async fn reports(db: &Db, which: Reports, rows_max: usize) -> Result<Vec<Progress>> {
    let rows_max = rows_max.min(i32::MAX as usize) as i64;
    let statement = || match which {
        Reports::Of(id) => sqlx::query(include_str!("reports_of.sql")).bind(id.0).bind(rows_max),
        Reports::After(place) => sqlx::query(include_str!("reports_after.sql")).bind(place).bind(rows_max),
        Reports::Newest => sqlx::query(include_str!("reports_newest.sql")),
    };
    db.all(statement).await?.iter().map(progress).collect()
}

fn progress(row: &PgRow) -> Result<Progress> {
    Ok(Progress {
        place: row.value("place")?,
        instance: InstanceId(row.value("id")?),
        namespace: row.value("namespace")?,
        machine: row.value("machine")?,
        queue: row.value("queue")?,
        key: row.value("key")?,
        step: row.value("step")?,
        seq: row.number("seq")?,
        at: row.moment("at")?,
        value: row.json("value")?,
    })
}
