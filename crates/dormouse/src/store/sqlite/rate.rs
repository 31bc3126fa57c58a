//! Rates: how much of a lane's bucket is spent, who may take from it, and when the next may.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::lane::{Terms, terms};
use super::turns::Next;
use super::tx::{Tx, timestamp};
use crate::rules::{Bucket, Spent};
use crate::store::{Claim, Starts, WAITING_COUNTED_MAX};
use crate::{Instance, Result};

/// Lanes whose moment has come that one write settles.
const LANES_MAX: i64 = 256;
/// How long a lane that is full of rows of several starts is left alone.
const FULL_PAUSE_NS: i64 = 1_000_000_000;
/// Buckets that have been full for so long are forgotten, so many at a time.
const FORGOTTEN_AFTER_NS: i64 = 60_000_000_000;
const FORGOTTEN_MAX: i64 = 10_000;

/// How many of the next in a lane its bucket has starts for, up to a bound, and when there is one for the first that must
/// wait. Those that could be claimed have theirs already.
pub(super) fn room(
    tx: &Tx<'_>,
    (namespace, lane): (&str, &str),
    bucket: Bucket,
    width: u32,
    rows_max: u32,
) -> Result<(u32, Option<i64>)> {
    let spent_ns = spent_ns(tx.conn(), namespace, lane, bucket, tx.now())?;
    let mut sql = tx.sql(include_str!("lane_ready.sql"))?;
    let ready: i64 = sql.query_row((namespace, lane, bucket.burst, width), |row| row.get(0))?;
    let mut needed_ns = ready * bucket.interval_ns;
    let free = (bucket.size_ns() - spent_ns - needed_ns).max(0) / bucket.interval_ns;
    let mut sql = tx.sql(include_str!("lane_line.sql"))?;
    let looked_at = i64::from(rows_max).min(free + 1);
    let line = sql.query_map((namespace, lane, bucket.burst, looked_at), |row| row.get::<_, u32>(0))?;
    for (admitted, cost) in (0_u32..).zip(line) {
        let cost = cost?;
        needed_ns += bucket.cost_ns(cost);
        let wait_ns = bucket.wait_ns(spent_ns, needed_ns);
        if wait_ns > 0 {
            let is_full = needed_ns > bucket.size_ns();
            let wait_ns = match cost {
                // Whoever takes one of those that could be claimed has the lane settled again.
                1 if is_full && bucket.burst < width => return Ok((admitted, None)),
                _ if is_full => (needed_ns - bucket.size_ns()).max(FULL_PAUSE_NS),
                _ => wait_ns,
            };
            return Ok((admitted, Some(after(tx.now(), wait_ns))));
        }
    }
    Ok((rows_max, None))
}

/// Has a lane settled at a moment.
pub(super) fn wake(tx: &mut Tx<'_>, namespace: &str, lane: &str, at_us: i64) -> Result<()> {
    let set = tx.sql(include_str!("rate_wake.sql"))?.execute((namespace, lane, at_us, tx.now_us()))?;
    if set > 0 {
        tx.effects.arm(timestamp(at_us));
    }
    Ok(())
}

/// Has the lanes settled whose moment has come.
pub(super) fn due(tx: &mut Tx<'_>) -> Result<()> {
    let mut sql = tx.sql(include_str!("rate_due.sql"))?;
    let due = sql.query_map((tx.now_us(), LANES_MAX), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    for (id, namespace, lane) in due.collect::<rusqlite::Result<Vec<(i64, String, String)>>>()? {
        tx.sql("delete from rate_wakes where id = ?1")?.execute([id])?;
        mend(tx, &namespace, &lane)?;
        tx.lanes.insert((namespace, lane));
    }
    Ok(())
}

/// Writes a lane's bucket anew if its limit was changed, or the clock turned back.
pub(super) fn mend(tx: &Tx<'_>, namespace: &str, lane: &str) -> Result<()> {
    let Some(spent) = spent(tx.conn(), namespace, lane)? else { return Ok(()) };
    let Some(bucket) = terms(tx.conn(), namespace, lane)?.bucket else { return Ok(()) };
    bucket.mended(spent, now_ns(tx.now())).map_or(Ok(()), |mended| write(tx, namespace, lane, mended))
}

fn write(tx: &Tx<'_>, namespace: &str, lane: &str, spent: Spent) -> Result<()> {
    let row = (namespace, lane, spent.until_ns, spent.interval_ns, spent.at_ns);
    tx.sql(include_str!("rate_take.sql"))?.execute(row)?;
    Ok(())
}

/// Forgets buckets that have long been full.
pub(super) fn forget_full(tx: &Tx<'_>) -> Result<()> {
    let sql = "delete from rates where (namespace, lane) in \
        (select namespace, lane from rates where until_ns < ?1 order by until_ns limit ?2)";
    tx.sql(sql)?.execute((now_ns(tx.now()) - FORGOTTEN_AFTER_NS, FORGOTTEN_MAX))?;
    Ok(())
}

/// When an instance that waits in a lane may start, if that is not yet, and whether it may be later than that.
pub(super) fn turn(
    conn: &Connection,
    of: &Instance,
    lane: &str,
    bucket: Bucket,
    now: Timestamp,
) -> Result<Option<(Timestamp, bool)>> {
    let spent_ns = spent_ns(conn, &of.namespace, lane, bucket, now)?;
    let counted = WAITING_COUNTED_MAX as i64;
    let mut sql = conn.prepare_cached(include_str!("lane_ready.sql"))?;
    let ready: i64 = sql.query_row((&of.namespace, lane, bucket.burst, counted), |row| row.get(0))?;
    let mut sql = conn.prepare_cached(include_str!("lane_turn.sql"))?;
    let line = (&of.namespace, lane, bucket.burst, of.id.0, counted);
    let (before, rows): (i64, i64) = sql.query_row(line, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let needed_ns = (ready + before) * bucket.interval_ns + bucket.cost_ns(of.cost);
    let wait_ns = bucket.wait_ns(spent_ns, needed_ns);
    Ok((wait_ns > 0).then(|| (timestamp(after(now, wait_ns)), rows == counted)))
}

/// A row as it is claimed: it starts at any time, or is counted.
pub(super) type Counted = (Next, Starts);

/// A lane with a rate, of which rows are about to be claimed.
struct Lane {
    bucket: Bucket,
    width: u32,
    spent_ns: i64,
    /// What its rows so far would take: those that start at once, and all of them.
    now_ns: i64,
    all_ns: i64,
    /// What is spent after those that are claimed.
    after_ns: i64,
    /// How long the first of its rows must wait that is not claimed.
    wait_ns: Option<i64>,
}

/// Takes from the buckets what these rows start, in their order. Rows that must start at once and have no place are left out,
/// as are those for which there is nothing in the bucket: they stand in line again.
pub(super) fn take(tx: &mut Tx<'_>, claim: &Claim, next: Vec<Next>) -> Result<Vec<Counted>> {
    let anytime = |next: Vec<Next>| next.into_iter().map(|next| (next, Starts::Anytime)).collect();
    if !tx.sql("select 1 from limits where interval_ns is not null limit 1")?.exists([])? {
        return Ok(anytime(next));
    }
    let mut lanes: BTreeMap<(String, String), Option<Lane>> = BTreeMap::new();
    let (mut counted, mut blocked) = (Vec::with_capacity(next.len()), Vec::new());
    for (place, next) in next.into_iter().enumerate() {
        let mut sql = tx.sql("select namespace, lane, cost from instances where id = ?1")?;
        let (namespace, lane, cost) = sql.query_row([next.id], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, row.get(2)?))
        })?;
        let Some(lane) = lane else {
            counted.push((next, Starts::Anytime));
            continue;
        };
        let key = (namespace, lane);
        if !lanes.contains_key(&key) {
            let of = Lane::of(tx, &key.0, &key.1)?;
            lanes.insert(key.clone(), of);
        }
        let Some(lane) = lanes.get_mut(&key).and_then(Option::as_mut) else {
            counted.push((next, Starts::Anytime));
            continue;
        };
        match lane.count(cost, place < claim.places) {
            Counts::Starts(starts) => counted.push((next, starts)),
            Counts::HeldBack => tx.effects.held_back = true,
            Counts::Waits => blocked.push(next.id),
        }
    }
    for id in blocked {
        tx.sql("update instances set blocked = 1 where id = ?1")?.execute([id])?;
    }
    for ((namespace, lane), of) in lanes.iter().filter_map(|(key, of)| Some((key, of.as_ref()?))) {
        of.write(tx, namespace, lane)?;
    }
    Ok(counted)
}

/// What becomes of a row that is about to be claimed.
enum Counts {
    Starts(Starts),
    HeldBack,
    Waits,
}

impl Lane {
    fn of(tx: &Tx<'_>, namespace: &str, lane: &str) -> Result<Option<Self>> {
        let terms: Terms = terms(tx.conn(), namespace, lane)?;
        let Some(bucket) = terms.bucket else { return Ok(None) };
        let spent_ns = spent_ns(tx.conn(), namespace, lane, bucket, tx.now())?;
        let width = terms.width();
        Ok(Some(Self { bucket, width, spent_ns, now_ns: 0, all_ns: 0, after_ns: spent_ns, wait_ns: None }))
    }

    fn count(&mut self, cost: u32, is_at_once: bool) -> Counts {
        let cost_ns = self.bucket.cost_ns(cost);
        self.all_ns += cost_ns;
        let wait_ns = self.bucket.wait_ns(self.spent_ns, self.all_ns);
        if wait_ns > 0 {
            self.wait_ns.get_or_insert(wait_ns);
            return Counts::Waits;
        }
        if is_at_once {
            self.now_ns += cost_ns;
            self.after_ns = self.spent_ns + self.now_ns;
            return Counts::Starts(Starts::Now);
        }
        match self.bucket.ahead_ns(self.spent_ns + self.now_ns, self.all_ns - self.now_ns) {
            Some(after_ns) => {
                self.after_ns = after_ns;
                Counts::Starts(Starts::Ahead)
            }
            None => Counts::HeldBack,
        }
    }

    /// Writes what was taken, and has the lane settled when its next may start.
    fn write(&self, tx: &mut Tx<'_>, namespace: &str, lane: &str) -> Result<()> {
        let Self { bucket, width, after_ns, .. } = *self;
        if let Some(wait_ns) = self.wait_ns {
            wake(tx, namespace, lane, after(tx.now(), wait_ns))?;
        }
        if after_ns == self.spent_ns {
            return Ok(());
        }
        let (at_ns, interval_ns) = (now_ns(tx.now()), bucket.interval_ns);
        write(tx, namespace, lane, Spent { until_ns: at_ns + after_ns, interval_ns, at_ns })?;
        // If those that could be claimed had been all that the bucket holds, nobody has had the lane settled for the next.
        if bucket.burst < width && is_crowded(tx, namespace, lane, bucket)? {
            wake(tx, namespace, lane, after(tx.now(), bucket.interval_ns))?;
        }
        Ok(())
    }
}

/// Whether others wait in a lane, or as many could be claimed as its bucket holds.
fn is_crowded(tx: &Tx<'_>, namespace: &str, lane: &str, bucket: Bucket) -> Result<bool> {
    let mut sql = tx.sql(include_str!("lane_line.sql"))?;
    if sql.exists((namespace, lane, bucket.burst, 1))? {
        return Ok(true);
    }
    let mut sql = tx.sql(include_str!("lane_ready.sql"))?;
    let ready: u32 = sql.query_row((namespace, lane, bucket.burst, bucket.burst), |row| row.get(0))?;
    Ok(ready >= bucket.burst)
}

fn spent_ns(conn: &Connection, namespace: &str, lane: &str, bucket: Bucket, now: Timestamp) -> Result<i64> {
    Ok(bucket.spent_ns(spent(conn, namespace, lane)?, now_ns(now)))
}

fn spent(conn: &Connection, namespace: &str, lane: &str) -> Result<Option<Spent>> {
    let sql = "select until_ns, interval_ns, at_ns from rates where namespace = ?1 and lane = ?2";
    let mut sql = conn.prepare_cached(sql)?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Spent { until_ns: row.get(0)?, interval_ns: row.get(1)?, at_ns: row.get(2)? })
    };
    Ok(sql.query_row((namespace, lane), read).optional()?)
}

fn now_ns(now: Timestamp) -> i64 {
    now.as_microsecond() * 1_000
}

/// A moment so long after now, in microseconds, rounded up.
fn after(now: Timestamp, wait_ns: i64) -> i64 {
    now.as_microsecond() + (wait_ns + 999) / 1_000
}
