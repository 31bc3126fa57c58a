//! Transports: what limits their sends, changed, judged and listed.

use std::time::Duration;

use serde_json::Value;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::types::{Columns, readable};
use crate::limit::WIDTH_MAX;
use crate::rules::TransportHead;
use crate::store::{
    Effects, Judged, Reply, SendTally, StoredTransport, TransportStore, TransportView, Written,
};
use crate::{Breaker, Error, Result, SendRate, TransportChange, TransportLimits};

const SET: &str = "select v.* from dormouse.set_transport($1, $2::json, $3::json, $4) v";

impl TransportStore for PostgresStore {
    fn declare_transport(&self, name: String, limits: TransportLimits) -> Reply<'_, Written<()>> {
        Box::pin(async move {
            let declared = Value::Object(limits.document()).to_string();
            let (set, unset) = (None::<String>, Vec::<&str>::new());
            let query = || sqlx::query(SET).bind(&name).bind(&declared).bind(&set).bind(&unset);
            let row = self.engine.one(query).await?;
            Ok(Written { value: (), effects: row.effects()? })
        })
    }

    fn set_transport(&self, name: String, change: TransportChange) -> Reply<'_, Written<()>> {
        Box::pin(async move {
            let (set, unset) = change.document();
            let (declared, set) = (None::<String>, Value::Object(set).to_string());
            let query = || sqlx::query(SET).bind(&name).bind(&declared).bind(&set).bind(&unset);
            let row = self.db.one(query).await?;
            Ok(Written { value: (), effects: row.effects()? })
        })
    }

    fn close_breaker(&self, name: String) -> Reply<'_, Written<bool>> {
        Box::pin(async move {
            let sql = "select v.was_open, (v.effects).* from dormouse.close_breaker($1) v";
            let row = self.db.one(|| sqlx::query(sql).bind(&name)).await?;
            Ok(Written { value: row.value("was_open")?, effects: row.effects()? })
        })
    }

    fn judge(&self, name: String, tally: SendTally) -> Reply<'_, Written<Judged>> {
        Box::pin(async move {
            let SendTally { epoch, responded, failures, error } = &tally;
            let failures = i32::try_from(*failures).unwrap_or(i32::MAX);
            let sql = "select v.judged, v.failures, v.until, (v.effects).* \
                from dormouse.judge($1, $2, $3, $4, $5) v";
            let query = || {
                sqlx::query(sql).bind(&name).bind(epoch).bind(responded).bind(failures).bind(error.as_deref())
            };
            let row = self.engine.one(query).await?;
            let effects: Effects = row.effects()?;
            let value = match row.value::<Option<&str>>("judged")? {
                None => Judged::Nothing,
                Some("busy") => Judged::Busy,
                Some("closed") => Judged::Closed,
                Some(word) => Judged::Opened {
                    failures: row.number("failures")?,
                    until: row.moment("until")?,
                    again: word == "again",
                },
            };
            Ok(Written { value, effects })
        })
    }

    fn transports(&self, after: Option<String>, rows_max: usize) -> Reply<'_, Vec<TransportView>> {
        Box::pin(async move { self.listed(None, &after.unwrap_or_default(), rows_max).await })
    }

    fn transport(&self, name: String) -> Reply<'_, Option<TransportView>> {
        Box::pin(async move { Ok(self.listed(Some(&name), "", 1).await?.pop()) })
    }
}

impl PostgresStore {
    async fn listed(&self, name: Option<&str>, after: &str, rows_max: usize) -> Result<Vec<TransportView>> {
        let sql = include_str!("transports.sql");
        let query =
            || sqlx::query(sql).bind(name).bind(after).bind(rows_max as i64).bind(i64::from(WIDTH_MAX));
        readable(&self.db.all(query).await?, view)
    }
}

fn view(row: &PgRow) -> Result<TransportView> {
    let micros = |name: &str| Ok::<_, Error>(Duration::from_micros(row.number(name)?));
    let is_set = |name: &str| Ok::<_, Error>(row.value::<Option<i32>>(name)?.is_some());
    let rate = match is_set("rate_count")? {
        false => None,
        true => {
            let rate = SendRate::new(row.number("rate_count")?, micros("rate_period_us")?);
            Some(rate.burst(row.number("rate_burst")?))
        }
    };
    let breaker = match is_set("breaker_failures")? {
        false => None,
        true => {
            let breaker = Breaker::after(row.number("breaker_failures")?);
            Some(breaker.open_for(micros("breaker_open_us")?, micros("breaker_cap_us")?))
        }
    };
    let in_flight = row.value::<Option<i32>>("in_flight")?.map(|width| width as u32);
    let stored = StoredTransport {
        name: row.value("name")?,
        declared: row.value("declared")?,
        changed: row.value("changed")?,
        changed_at: row.moment_or_none("changed_at")?,
        head: TransportHead {
            limits: TransportLimits { rate, in_flight, breaker },
            spent: row.value("spent")?,
            spent_at: row.moment_or_none("spent_at")?,
            failures: row.number("failures")?,
            opens: row.number("opens")?,
            epoch: row.value("epoch")?,
            opened_at: row.moment_or_none("opened_at")?,
            open_until: row.moment_or_none("open_until")?,
            probe_until: row.moment_or_none("probe_until")?,
            error: row.value("error")?,
            turn: row.value("turn")?,
        },
    };
    Ok(stored.view(row.number("flying")?, row.moment("now")?))
}
