//! Limits: changed, settled and listed.

use std::time::Duration;

use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::db::Db;
use super::types::Columns;
use crate::store::{Effects, LANES_COUNTED_MAX, LimitStore, LimitView, Reply, WAITING_COUNTED_MAX, Written};
use crate::{Limit, Rate, Result};

impl LimitStore for PostgresStore {
    fn set_limit(&self, namespace: String, name: String, limit: Option<Limit>) -> Reply<'_, Written<bool>> {
        Box::pin(async move { set(&self.db, &namespace, &name, limit).await })
    }

    fn settle_limits(&self) -> Reply<'_, Written<bool>> {
        Box::pin(async move {
            let sql = "select v.more, (v.effects).* from dormouse.settle_limits() v";
            let row = self.db.one(|| sqlx::query(sql)).await?;
            Ok(Written { value: row.value("more")?, effects: row.effects()? })
        })
    }

    fn limit_of(&self, namespace: String, lane: String) -> Reply<'_, Option<Limit>> {
        Box::pin(async move {
            let sql = include_str!("limit_of.sql");
            let rows = self.db.all(|| sqlx::query(sql).bind(&namespace).bind(&lane)).await?;
            rows.first().map(limit).transpose()
        })
    }

    fn limits(&self, namespace: String, after: Option<String>, rows_max: usize) -> Reply<'_, Vec<LimitView>> {
        Box::pin(async move {
            let query = || {
                sqlx::query(include_str!("limits.sql"))
                    .bind(&namespace)
                    .bind(after.as_deref().unwrap_or_default())
                    .bind(rows_max as i64)
                    .bind(LANES_COUNTED_MAX as i32)
                    .bind(WAITING_COUNTED_MAX as i32)
            };
            self.db.all(query).await?.iter().map(view).collect()
        })
    }
}

async fn set(db: &Db, namespace: &str, name: &str, limit: Option<Limit>) -> Result<Written<bool>> {
    let width = limit.map(|limit| limit.width as i32);
    let rate = limit.and_then(|limit| limit.rate);
    let sql = "select v.had, (v.effects).* from dormouse.set_limit($1, $2, $3, $4, $5, $6, $7) v";
    let query = || {
        sqlx::query(sql)
            .bind(namespace)
            .bind(name)
            .bind(width)
            .bind(rate.map(|rate| rate.count as i32))
            .bind(rate.map(|rate| rate.period.as_micros() as i64))
            .bind(rate.map(|rate| rate.burst as i32))
            .bind(rate.map(Rate::interval_ns))
    };
    let row = db.one(query).await?;
    // What is claimed and has not started does not start before its lane is settled.
    let had = row.value("had")?;
    let effects = Effects { braked: had || limit.is_some(), ..row.effects()? };
    Ok(Written { value: had, effects })
}

fn limit(row: &PgRow) -> Result<Limit> {
    let limit = Limit::width(row.number("width")?);
    if row.value::<Option<i32>>("rate")?.is_none() {
        return Ok(limit);
    }
    let period = Duration::from_micros(row.number("period_us")?);
    Ok(limit.and_rate(Rate::new(row.number("rate")?, period).burst(row.number("burst")?)))
}

fn view(row: &PgRow) -> Result<LimitView> {
    Ok(LimitView {
        name: row.value("name")?,
        limit: limit(row)?,
        changed_at: row.moment("changed_at")?,
        lanes: row.number("lanes")?,
        more_lanes: row.value("more_lanes")?,
        held: row.number("held")?,
        waiting: row.number("waiting")?,
    })
}
