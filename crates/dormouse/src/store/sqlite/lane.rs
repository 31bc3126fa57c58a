//! Lanes and their limits: who may run, and what becomes of a lane whose limit has changed.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::rate;
use super::tx::{Tx, timestamp};
use crate::limit::{WIDTH_MAX, family};
use crate::rules::Bucket;
use crate::store::{LANES_COUNTED_MAX, LaneView, LimitView, WAITING_COUNTED_MAX};
use crate::{Instance, InstanceId, Limit, Rate, Result};

/// Lanes that one write settles after a limit has changed, so that other writes go on in between.
const LANES_MAX: usize = 256;

impl Tx<'_> {
    /// Settles each lane that this write touched: the next in line run while it has room for them. Once, at its end: of
    /// those that become runnable together, the lane's order decides who is first, and not the order of the batch.
    pub(super) fn settle_lanes(&mut self) -> Result<()> {
        for (namespace, lane) in std::mem::take(&mut self.lanes) {
            let terms = terms(self.conn(), &namespace, &lane)?;
            let width = terms.width();
            let held = holders(self.conn(), &namespace, &lane, 0, width + 1)?.len() as u32;
            if held > width {
                self.sql(include_str!("lane_surplus.sql"))?.execute((&namespace, &lane, width))?;
            } else if held < width {
                let (rows_max, throttled) = match terms.bucket {
                    Some(bucket) => rate::room(self, (&namespace, &lane), bucket, width, width - held)?,
                    None => (width - held, None),
                };
                self.let_run(&namespace, &lane, rows_max)?;
                if let Some(at_us) = throttled {
                    rate::wake(self, &namespace, &lane, at_us)?;
                }
            }
        }
        Ok(())
    }

    fn let_run(&mut self, namespace: &str, lane: &str, rows_max: u32) -> Result<()> {
        let mut sql = self.sql(include_str!("lane_next.sql"))?;
        let next = sql.query_map((namespace, lane, rows_max), |next| Ok((next.get(0)?, next.get(1)?)))?;
        for (id, queue) in next.collect::<rusqlite::Result<Vec<(i64, String)>>>()? {
            self.sql("update instances set blocked = 0 where id = ?1")?.execute([id])?;
            self.effects.runnable(&queue);
        }
        Ok(())
    }
}

/// What a limit says of a lane.
#[derive(Clone, Copy, Default)]
pub(super) struct Terms {
    /// `None` without a limit.
    width: Option<u32>,
    pub(super) bucket: Option<Bucket>,
}

impl Terms {
    /// How many of it run at a time.
    pub(super) fn width(self) -> u32 {
        self.width.unwrap_or(1)
    }
}

/// What limits say of a lane: its own, else its family's, else nothing.
pub(super) fn terms(conn: &Connection, namespace: &str, lane: &str) -> Result<Terms> {
    Ok(match terms_of(conn, namespace, lane)? {
        None if family(lane) != lane => terms_of(conn, namespace, family(lane))?,
        own => own,
    }
    .unwrap_or_default())
}

fn terms_of(conn: &Connection, namespace: &str, name: &str) -> Result<Option<Terms>> {
    let mut sql = conn.prepare_cached(include_str!("lane_width.sql"))?;
    let found = sql.query_row((namespace, name), |row| {
        let interval_ns: Option<i64> = row.get(1)?;
        let burst: Option<u32> = row.get(2)?;
        let since_ns = row.get::<_, i64>(3)? * 1_000;
        let bucket =
            interval_ns.zip(burst).map(|(interval_ns, burst)| Bucket { interval_ns, burst, since_ns });
        Ok(Terms { width: row.get(0)?, bucket })
    });
    Ok(found.optional()?)
}

/// Those that hold a lane, except one.
fn holders(
    conn: &Connection,
    namespace: &str,
    lane: &str,
    except: i64,
    rows_max: u32,
) -> Result<Vec<InstanceId>> {
    let mut sql = conn.prepare_cached(include_str!("lane_holders.sql"))?;
    let ids = sql.query_map((namespace, lane, except, rows_max), |row| Ok(InstanceId(row.get(0)?)))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// A lane as one of its instances sees it.
pub(super) fn view(conn: &Connection, of: &Instance, lane: &str, now: Timestamp) -> Result<LaneView> {
    let terms = terms(conn, &of.namespace, lane)?;
    let holders = holders(conn, &of.namespace, lane, of.id.0, WIDTH_MAX)?;
    let turn = match terms.bucket {
        Some(bucket) if of.lane_blocked && !of.paused => rate::turn(conn, of, lane, bucket, now)?,
        _ => None,
    };
    Ok(LaneView {
        width: terms.width(),
        is_limited: terms.width.is_some(),
        holders,
        turn_at: turn.map(|(at, _)| at),
        turn_is_later: turn.is_some_and(|(_, is_later)| is_later),
    })
}

pub(super) fn set_limit(tx: &mut Tx<'_>, namespace: &str, name: &str, limit: Option<Limit>) -> Result<bool> {
    let had = "select 1 from limits where namespace = ?1 and name = ?2 and width is not null";
    let had = tx.sql(had)?.exists((namespace, name))?;
    if had || limit.is_some() {
        let (width, rate) = (limit.map(|limit| limit.width), limit.and_then(|limit| limit.rate));
        tx.sql(include_str!("limit_set.sql"))?.execute(params![
            namespace,
            name,
            width,
            tx.now_us(),
            rate.map(|rate| rate.count),
            rate.map(|rate| rate.period.as_micros() as i64),
            rate.map(|rate| rate.burst),
            rate.map(Rate::interval_ns),
        ])?;
        // What is claimed and has not started does not start before its lane is settled.
        tx.effects.braked = true;
        settle_some(tx, namespace, name, "")?;
    }
    Ok(had)
}

pub(super) fn settle_limits(tx: &mut Tx<'_>) -> Result<bool> {
    rate::forget_full(tx)?;
    let next = "select namespace, name, settles_after from limits where settles_after is not null limit 1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let next: Option<(String, String, String)> = tx.sql(next)?.query_row([], read).optional()?;
    let Some((namespace, name, after)) = next else { return Ok(false) };
    settle_some(tx, &namespace, &name, &after)?;
    Ok(tx.sql("select 1 from limits where settles_after is not null")?.exists([])?)
}

/// Has the lanes of a limit settled at the end of this write, from this one on, and notes where to go on.
fn settle_some(tx: &mut Tx<'_>, namespace: &str, name: &str, after: &str) -> Result<()> {
    let (lanes, more) = lanes(tx.conn(), namespace, name, after, LANES_MAX)?;
    let last = lanes.last().cloned();
    lanes.iter().try_for_each(|lane| rate::mend(tx, namespace, lane))?;
    tx.lanes.extend(lanes.into_iter().map(|lane| (namespace.to_owned(), lane)));
    let goes_on = last.filter(|_| more);
    tx.sql("update limits set settles_after = ?3 where namespace = ?1 and name = ?2")?
        .execute((namespace, name, &goes_on))?;
    if goes_on.is_none() {
        tx.sql("delete from limits where namespace = ?1 and name = ?2 and width is null")?
            .execute((namespace, name))?;
    }
    Ok(())
}

/// The lanes after this one that a name means, and whether there are more. The lane of that very name is the first, and
/// comes whether or not it is in use.
fn lanes(
    conn: &Connection,
    namespace: &str,
    name: &str,
    after: &str,
    lanes_max: usize,
) -> Result<(Vec<String>, bool)> {
    let mut lanes = Vec::new();
    let mut last = after.to_owned();
    if after.is_empty() {
        // The one without a key, too: no other lane of the family sorts before it.
        lanes.extend([name.to_owned(), format!("{name}/")]);
        last = format!("{name}/");
    }
    if name.contains('/') {
        lanes.truncate(1);
        return Ok((lanes, false));
    }
    let end = format!("{name}0");
    let mut sql = conn.prepare_cached(include_str!("lane_after.sql"))?;
    while let Some(lane) =
        sql.query_row((namespace, &last, &end), |row| row.get::<_, String>(0)).optional()?
    {
        if lanes.len() >= lanes_max {
            return Ok((lanes, true));
        }
        lanes.push(lane.clone());
        last = lane;
    }
    Ok((lanes, false))
}

pub(super) fn limit_of(conn: &Connection, namespace: &str, lane: &str) -> Result<Option<Limit>> {
    for name in [lane, family(lane)] {
        let mut sql = conn.prepare_cached(include_str!("limit_of.sql"))?;
        let found = sql.query_row((namespace, name), limit).optional()?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

pub(super) fn limits(
    conn: &Connection,
    namespace: &str,
    after: Option<&str>,
    rows_max: usize,
) -> Result<Vec<LimitView>> {
    let mut sql = conn.prepare_cached(include_str!("limits.sql"))?;
    let found = sql.query_map((namespace, after.unwrap_or_default(), rows_max as i64), |row| {
        Ok((row.get(0)?, limit(row)?, row.get(2)?))
    })?;
    let found = found.collect::<rusqlite::Result<Vec<(String, Limit, i64)>>>()?;
    found.into_iter().map(|(name, limit, at)| with_use(conn, namespace, name, limit, at)).collect()
}

fn limit(row: &rusqlite::Row<'_>) -> rusqlite::Result<Limit> {
    let limit = Limit::width(row.get(1)?);
    let Some(count) = row.get(3)? else { return Ok(limit) };
    let period = Duration::from_micros(row.get::<_, i64>(4)?.unsigned_abs());
    Ok(limit.and_rate(Rate::new(count, period).burst(row.get(5)?)))
}

fn with_use(conn: &Connection, namespace: &str, name: String, limit: Limit, at: i64) -> Result<LimitView> {
    let (lanes, more_lanes) = lanes(conn, namespace, &name, "", LANES_COUNTED_MAX)?;
    let mut view =
        LimitView { name, limit, changed_at: timestamp(at), lanes: 0, more_lanes, held: 0, waiting: 0 };
    for lane in lanes {
        let own = "select 1 from limits where namespace = ?1 and name = ?2 and width is not null";
        if lane != view.name && conn.prepare_cached(own)?.exists((namespace, &lane))? {
            continue;
        }
        let mut sql = conn.prepare_cached(include_str!("lane_use.sql"))?;
        let bounds = (namespace, &lane, WIDTH_MAX, WAITING_COUNTED_MAX as i64);
        let (held, waiting): (u64, u64) = sql.query_row(bounds, |row| Ok((row.get(0)?, row.get(1)?)))?;
        view.lanes += usize::from(held + waiting > 0);
        view.held += held;
        view.waiting += waiting;
    }
    Ok(view)
}
