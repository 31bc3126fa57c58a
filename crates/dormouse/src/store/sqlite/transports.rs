//! Transports: what limits their sends, changed, judged and listed.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Map, Value};

use super::SqliteStore;
use super::tx::{Tx, timestamp};
use crate::limit::WIDTH_MAX;
use crate::rules::TransportHead;
use crate::store::{
    Judged, Reply, SendTally, StoredTransport, TransportStore, TransportView, Written, gate_queue,
};
use crate::{Breaker, Error, Result, SendRate, TransportChange, TransportLimits};

impl TransportStore for SqliteStore {
    fn declare_transport(&self, name: String, limits: TransportLimits) -> Reply<'_, Written<()>> {
        self.write(move |tx| {
            let document = limits.document();
            change(tx, &name, |declared, _| {
                let is_new = declared.as_ref() != Some(&document);
                *declared = Some(document);
                is_new
            })
        })
    }

    fn set_transport(&self, name: String, changes: TransportChange) -> Reply<'_, Written<()>> {
        self.write(move |tx| {
            change(tx, &name, |_, changed| {
                let (set, unset) = changes.document();
                changed.extend(set);
                changed.retain(|field, _| !unset.contains(&field.as_str()));
                true
            })?;
            let sql = "update transports set changed_at = ?2 where name = ?1";
            tx.sql(sql)?.execute((&name, tx.now_us()))?;
            Ok(())
        })
    }

    fn close_breaker(&self, name: String) -> Reply<'_, Written<bool>> {
        self.write(move |tx| {
            let Some(mut stored) = load(tx.conn(), &name)? else { return Ok(false) };
            let was_open = stored.head.close();
            save(tx, &name, &stored.head)?;
            tx.effects.runnable(&gate_queue(&name));
            Ok(was_open)
        })
    }

    fn judge(&self, name: String, tally: SendTally) -> Reply<'_, Written<Judged>> {
        self.write(move |tx| {
            let Some(StoredTransport { mut head, .. }) = load(tx.conn(), &name)? else {
                return Ok(Judged::Nothing);
            };
            let judged = head.judge(&tally, tx.now());
            save(tx, &name, &head)?;
            // Who waits for a probe looks again: it is over.
            if judged != Judged::Nothing {
                tx.effects.runnable(&gate_queue(&name));
            }
            Ok(judged)
        })
    }

    fn transports(&self, after: Option<String>, rows_max: usize) -> Reply<'_, Vec<TransportView>> {
        let now = self.clock.now();
        self.read(move |conn| {
            let mut sql = conn.prepare_cached(include_str!("transports.sql"))?;
            let found = sql.query_map((after.as_deref().unwrap_or_default(), rows_max as i64), stored)?;
            let found = found.collect::<rusqlite::Result<Vec<_>>>()?;
            found.into_iter().map(|stored| view(conn, stored, now)).collect()
        })
    }

    fn transport(&self, name: String) -> Reply<'_, Option<TransportView>> {
        let now = self.clock.now();
        self.read(move |conn| load(conn, &name)?.map(|stored| view(conn, stored, now)).transpose())
    }
}

pub(super) fn load(conn: &Connection, name: &str) -> Result<Option<StoredTransport>> {
    let mut sql = conn.prepare_cached(include_str!("transport_load.sql"))?;
    Ok(sql.query_row([name], stored).optional()?)
}

pub(super) fn save(tx: &Tx<'_>, name: &str, head: &TransportHead) -> Result<()> {
    let us = |at: Option<Timestamp>| at.map(Timestamp::as_microsecond);
    tx.sql(include_str!("transport_save.sql"))?.execute(params![
        name,
        head.spent,
        us(head.spent_at),
        head.failures,
        head.opens,
        head.epoch,
        us(head.opened_at),
        us(head.open_until),
        us(head.probe_until),
        head.error,
        head.turn,
    ])?;
    Ok(())
}

/// How many are in flight, counted up to a bound.
pub(super) fn flying(conn: &Connection, name: &str, rows_max: u32) -> Result<usize> {
    let mut sql = conn.prepare_cached(include_str!("transport_flying.sql"))?;
    Ok(sql.query_row((name, rows_max), |row| row.get(0))?)
}

/// When the next of what is in flight is sent again, if nobody reports it.
pub(super) fn next_overdue(conn: &Connection, name: &str) -> Result<Option<Timestamp>> {
    let mut sql = conn.prepare_cached(include_str!("transport_next.sql"))?;
    Ok(sql.query_row([name], |row| row.get::<_, Option<i64>>(0))?.map(timestamp))
}

/// Notes that a request may no longer be in flight: who waits for a place is poked.
pub(super) fn free_place(tx: &mut Tx<'_>, name: &str) -> Result<()> {
    let is_limited = "select 1 from transports where name = ?1 and in_flight is not null";
    if tx.sql(is_limited)?.exists([name])? {
        tx.effects.runnable(&gate_queue(name));
    }
    Ok(())
}

fn view(conn: &Connection, stored: StoredTransport, now: Timestamp) -> Result<TransportView> {
    let in_flight = flying(conn, &stored.name, WIDTH_MAX)? as u64;
    Ok(stored.view(in_flight, now))
}

/// Changes what is declared or set, unless the change says that there is nothing to do.
fn change(
    tx: &mut Tx<'_>,
    name: &str,
    change: impl FnOnce(&mut Option<Map<String, Value>>, &mut Map<String, Value>) -> bool,
) -> Result<()> {
    let stored = load(tx.conn(), name)?;
    let (declared, changed, changed_at, mut head) = match stored {
        Some(StoredTransport { declared, changed, changed_at, head, .. }) => {
            (declared, changed, changed_at, head)
        }
        None => (None, "{}".to_owned(), None, TransportHead::default()),
    };
    let mut declared = declared.map(|declared| document(&declared)).transpose()?;
    let mut changed = document(&changed)?;
    if !change(&mut declared, &mut changed) {
        return Ok(());
    }
    let limits = TransportLimits::effective(declared.as_ref().unwrap_or(&Map::new()), &changed)?;
    head.limit(limits, tx.now());
    let us = |duration: Duration| crate::clock::micros(duration);
    tx.sql(include_str!("transport_set.sql"))?.execute(params![
        name,
        declared.map(|declared| Value::Object(declared).to_string()),
        Value::Object(changed).to_string(),
        changed_at.map(Timestamp::as_microsecond),
        limits.rate.map(|rate| rate.count),
        limits.rate.map(|rate| us(rate.period)),
        limits.rate.map(|rate| rate.burst),
        limits.in_flight,
        limits.breaker.map(|breaker| breaker.failures),
        limits.breaker.map(|breaker| us(breaker.open_for)),
        limits.breaker.map(|breaker| us(breaker.open_cap)),
    ])?;
    save(tx, name, &head)?;
    tx.effects.runnable(&gate_queue(name));
    Ok(())
}

fn document(text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).map_err(|error| Error::Storage(error.into()))
}

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredTransport> {
    let moment = |name| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(name)?.map(timestamp));
    let period = |name| Ok::<_, rusqlite::Error>(Duration::from_micros(row.get::<_, u64>(name)?));
    let rate = match row.get("rate_count")? {
        None => None,
        Some(count) => Some(SendRate::new(count, period("rate_period_us")?).burst(row.get("rate_burst")?)),
    };
    let breaker = match row.get("breaker_failures")? {
        None => None,
        Some(failures) => {
            Some(Breaker::after(failures).open_for(period("breaker_open_us")?, period("breaker_cap_us")?))
        }
    };
    Ok(StoredTransport {
        name: row.get("name")?,
        declared: row.get("declared")?,
        changed: row.get("changed")?,
        changed_at: moment("changed_at")?,
        head: TransportHead {
            limits: TransportLimits { rate, in_flight: row.get("in_flight")?, breaker },
            spent: row.get("spent")?,
            spent_at: moment("spent_at")?,
            failures: row.get("failures")?,
            opens: row.get("opens")?,
            epoch: row.get("epoch")?,
            opened_at: moment("opened_at")?,
            open_until: moment("open_until")?,
            probe_until: moment("probe_until")?,
            error: row.get("error")?,
            turn: row.get("turn")?,
        },
    })
}
