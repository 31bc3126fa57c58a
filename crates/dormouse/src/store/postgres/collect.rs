//! Collection: what has ended long ago, and events that nobody will ask for, in bounded batches.

use std::time::Duration;

use super::db::Db;
use super::types::Columns;
use crate::Result;
use crate::store::{Collect, Collected};

/// About as many events as a page of the table holds.
const EVENTS_PER_PAGE: usize = 64;
/// A thousand years, which the database can still subtract from now.
pub(super) const AGE_US_MAX: i64 = 1_000 * 365 * 86_400 * 1_000_000;

pub(super) async fn collect(db: &Db, collect: Collect) -> Result<Collected> {
    let mut collected = Collected::default();
    let rows_max = i32::try_from(collect.rows_max).unwrap_or(i32::MAX);
    if let Some(age_us) = collect.ended_for.and_then(age) {
        let sql = "select dormouse.collect_ended($1, $2, $3) as gone";
        let namespace = collect.namespace.as_deref();
        let row = db.one(|| sqlx::query(sql).bind(age_us).bind(rows_max).bind(namespace)).await?;
        collected.instances = row.number("gone")?;
    }
    if let Some(age_us) = collect.events_for.and_then(age) {
        let pages = collect.rows_max.div_ceil(EVENTS_PER_PAGE) as i32;
        let sql = "select v.gone, v.next_page from dormouse.collect_events($1, $2, $3, $4) v";
        let row = db
            .one(|| sqlx::query(sql).bind(age_us).bind(collect.events_after).bind(pages).bind(rows_max))
            .await?;
        collected.events = row.number("gone")?;
        collected.events_next = row.value("next_page")?;
    }
    Ok(collected)
}

/// An age in microseconds; `None` if nothing is that old.
fn age(age: Duration) -> Option<i64> {
    i64::try_from(age.as_micros()).ok().filter(|us| *us < AGE_US_MAX)
}
