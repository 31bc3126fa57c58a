//! Lanes and their limits: who may run, and what becomes of a lane whose limit has changed.

use rusqlite::{Connection, OptionalExtension};

use super::tx::{Tx, timestamp};
use crate::limit::{WIDTH_MAX, family};
use crate::store::{LANES_COUNTED_MAX, LaneView, LimitView, WAITING_COUNTED_MAX};
use crate::{InstanceId, Limit, Result};

/// Lanes that one write settles after a limit has changed, so that other writes go on in between.
const LANES_MAX: usize = 256;

impl Tx<'_> {
    /// Settles each lane that this write touched: the next in line run while it has room for them. Once, at its end: of
    /// those that become runnable together, the lane's order decides who is first, and not the order of the batch.
    pub(super) fn settle_lanes(&mut self) -> Result<()> {
        for (namespace, lane) in std::mem::take(&mut self.lanes) {
            let width = width(self.conn(), &namespace, &lane)?.unwrap_or(1);
            let held = holders(self.conn(), &namespace, &lane, 0, width + 1)?.len() as u32;
            if held > width {
                self.sql(include_str!("lane_surplus.sql"))?.execute((&namespace, &lane, width))?;
            } else if held < width {
                self.let_run(&namespace, &lane, width - held)?;
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

/// The width that limits give a lane.
fn width(conn: &Connection, namespace: &str, lane: &str) -> Result<Option<u32>> {
    let mut sql = conn.prepare_cached(include_str!("lane_width.sql"))?;
    Ok(sql.query_row((namespace, lane, family(lane)), |row| row.get(0))?)
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
pub(super) fn view(conn: &Connection, namespace: &str, lane: &str, of: InstanceId) -> Result<LaneView> {
    let limited = width(conn, namespace, lane)?;
    let holders = holders(conn, namespace, lane, of.0, WIDTH_MAX)?;
    Ok(LaneView { width: limited.unwrap_or(1), is_limited: limited.is_some(), holders })
}

pub(super) fn set_limit(tx: &mut Tx<'_>, namespace: &str, name: &str, limit: Option<Limit>) -> Result<bool> {
    let had = "select 1 from limits where namespace = ?1 and name = ?2 and width is not null";
    let had = tx.sql(had)?.exists((namespace, name))?;
    if had || limit.is_some() {
        let width = limit.map(|limit| limit.width);
        tx.sql(include_str!("limit_set.sql"))?.execute((namespace, name, width, tx.now_us()))?;
        // What is claimed and has not started does not start before its lane is settled.
        tx.effects.braked = true;
        settle_some(tx, namespace, name, "")?;
    }
    Ok(had)
}

pub(super) fn settle_limits(tx: &mut Tx<'_>) -> Result<bool> {
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

pub(super) fn limits(
    conn: &Connection,
    namespace: &str,
    after: Option<&str>,
    rows_max: usize,
) -> Result<Vec<LimitView>> {
    let mut sql = conn.prepare_cached(include_str!("limits.sql"))?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found = sql.query_map((namespace, after.unwrap_or_default(), rows_max as i64), read)?;
    let found = found.collect::<rusqlite::Result<Vec<(String, u32, i64)>>>()?;
    found.into_iter().map(|(name, width, at)| with_use(conn, namespace, name, width, at)).collect()
}

fn with_use(conn: &Connection, namespace: &str, name: String, width: u32, at: i64) -> Result<LimitView> {
    let (lanes, more_lanes) = lanes(conn, namespace, &name, "", LANES_COUNTED_MAX)?;
    let mut view = LimitView {
        name,
        limit: Limit::width(width),
        changed_at: timestamp(at),
        lanes: 0,
        more_lanes,
        held: 0,
        waiting: 0,
    };
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
