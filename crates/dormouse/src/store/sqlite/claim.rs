//! Claiming: the first runnable rows of the machines a worker runs.

use rusqlite::{Connection, ErrorCode, Row as SqlRow};

use super::counts::Place;
use super::fault::is_strange;
use super::lease::holds_lease;
use super::query;
use super::rate;
use super::row::{key_scope, names, place, status, wake};
use super::turns::{self, Next};
use super::tx::{Tx, timestamp};
use crate::store::{Claim, Claimed, READ_WITH_CLAIM_MAX, Reading, Starts, Turn};
use crate::{At, ChildView, Error, InstanceId, Json, ParentRef, Result, Status, Trace};

/// The most children that come with a claim.
const CHILDREN_WITH_CLAIM_MAX: i64 = 32;

pub(super) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<Vec<Claimed>> {
    // What a worker without a lease took, no reaper would find.
    if !holds_lease(tx, claim.worker)? {
        return Ok(Vec::new());
    }
    let mut claimed = Vec::with_capacity(claim.rows_max);
    let next = turns::first(tx, claim)?;
    for (next, starts) in rate::take(tx, claim, next)? {
        claimed.extend(take(tx, claim, next)?.map(|row| Claimed { starts, ..row }));
    }
    Ok(claimed)
}

/// Takes one row and gathers what its step may ask for; `None` if its key forbids that it runs.
fn take(tx: &mut Tx<'_>, claim: &Claim, next: Next) -> Result<Option<Claimed>> {
    let Next { id, turn } = next;
    match tx.sql(include_str!("claim_take.sql"))?.execute((id, claim.worker.0, tx.now_us())) {
        Ok(_) => {}
        // A key that counts as taken in `executing` is held by another: that row fails, and it alone.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            let mut row = tx.load(InstanceId(id))?.expect("a candidate is there");
            row.change.head.status = Status::Executing;
            tx.save(&mut row)?;
            assert_eq!(row.head().status, Status::Failed, "only a taken key keeps a row from being claimed");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    }
    let mut sql = tx.sql(include_str!("claim_read.sql"))?;
    let read = sql.query_row([id], |row| read(tx, InstanceId(id), turn, row));
    let Taken { mut claimed, inbox, inbox_bytes, round } = match read {
        Err(error) if is_strange(&error) => {
            set_aside(tx, id, &error.to_string())?;
            return Ok(None);
        }
        read => read?,
    };
    let Claimed { namespace, machine, version, at, .. } = &claimed;
    let (queue, version, step, status) = (&claim.queue, *version, &at.step, Status::Runnable);
    tx.counts.add(Place { namespace, queue, machine, version, step, status }, -1);
    claimed.is_apart = match round {
        _ if inbox_bytes > READ_WITH_CLAIM_MAX => true,
        Some(round) => is_large_round(tx.conn(), claimed.id, round)?,
        None => false,
    };
    if claimed.is_apart {
        return Ok(Some(claimed));
    }
    if inbox > 0 {
        claimed.inbox = query::inbox(tx.conn(), claimed.id)?;
    }
    if let Some(round) = round {
        claimed.children = children(tx.conn(), claimed.id, round)?;
    }
    Ok(Some(claimed))
}

/// Fails a row that cannot be read, and that row alone: what is strange in it is taken away, so that it can be shown, and
/// retried.
fn set_aside(tx: &mut Tx<'_>, id: i64, error: &str) -> Result<()> {
    tracing::error!(error, id, "an instance is set aside: it cannot be read");
    tx.sql(include_str!("claim_mend.sql"))?.execute([id])?;
    let mut row = tx.load(InstanceId(id))?.expect("it was just taken");
    let head = row.head();
    tx.counts.add(place(head, head.version, &head.step, Status::Runnable), -1);
    row.change.fail(&format!("it was set aside: a stored value cannot be read: {error}"), tx.now());
    tx.save(&mut row)
}

/// What a step is handed that did not come with its claim.
pub(super) fn reading(conn: &Connection, id: InstanceId, bytes_max: usize) -> Result<Reading> {
    let mut sql = conn.prepare_cached("select inbox_bytes, barrier, round from instances where id = ?1")?;
    let read = |row: &SqlRow<'_>| Ok((row.get(0)?, row.get::<_, Option<u32>>(1)?, row.get(2)?));
    let (inbox_bytes, barrier, round): (u64, _, u32) = sql.query_row([id.0], read)?;
    let round = barrier.map(|_| round);
    let children_bytes = match round {
        Some(round) => round_size(conn, id, round, i64::MAX)?.1,
        None => 0,
    };
    for (what, bytes) in [("signals", inbox_bytes), ("children", children_bytes)] {
        if bytes > bytes_max as u64 {
            return Err(Error::TooMuchToRead { id, what, bytes, limit_bytes: bytes_max });
        }
    }
    let children = round.map(|round| children(conn, id, round)).transpose()?.unwrap_or_default();
    Ok(Reading { inbox: query::inbox(conn, id)?, children })
}

/// Whether a round's children are more, or larger, than a claim should bring for one row.
fn is_large_round(conn: &Connection, parent: InstanceId, round: u32) -> Result<bool> {
    let (children, bytes) = round_size(conn, parent, round, CHILDREN_WITH_CLAIM_MAX + 1)?;
    Ok(children > CHILDREN_WITH_CLAIM_MAX || bytes > READ_WITH_CLAIM_MAX)
}

/// How many children a round has, up to a bound, and how many bytes their parent reads of them.
fn round_size(conn: &Connection, parent: InstanceId, round: u32, rows_max: i64) -> Result<(i64, u64)> {
    let mut sql = conn.prepare_cached(include_str!("claim_round.sql"))?;
    Ok(sql.query_row((parent.0, round, rows_max), |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// A row as it was taken.
struct Taken {
    claimed: Claimed,
    inbox: u32,
    inbox_bytes: u64,
    /// The round whose children its step sees.
    round: Option<u32>,
}

fn read(tx: &Tx<'_>, id: InstanceId, turn: Turn, row: &SqlRow<'_>) -> rusqlite::Result<Taken> {
    let awaits = row.get_ref(7)?.as_str_or_null()?;
    let barrier: Option<u32> = row.get(9)?;
    let round: u32 = row.get(10)?;
    let claimed = Claimed {
        id,
        namespace: row.get(0)?,
        machine: row.get(1)?,
        version: row.get(2)?,
        at: At { step: row.get::<_, String>(3)?.into(), state: Json::trusted(row.get::<_, Box<str>>(13)?) },
        seq: row.get(4)?,
        attempt: row.get(5)?,
        wake: wake(row.get_ref(6)?.as_str_or_null()?)?,
        awaits: names(awaits)?,
        inbox: Vec::new(),
        children: Vec::new(),
        is_apart: false,
        keeps_history: row.get(11)?,
        lane: row.get(18)?,
        turn,
        barrier,
        round,
        key: row.get(12)?,
        key_scope: key_scope(row.get_ref(19)?.as_str_or_null()?)?,
        parent: parent(row)?,
        runnable_at: timestamp(row.get(20)?),
        trace: Trace::stored(row.get(21)?),
        starts: Starts::Anytime,
        now: tx.now(),
    };
    let (inbox, inbox_bytes) = (row.get(8)?, row.get(17)?);
    Ok(Taken { claimed, inbox, inbox_bytes, round: barrier.map(|_| round) })
}

fn parent(row: &SqlRow<'_>) -> rusqlite::Result<Option<ParentRef>> {
    let Some(id) = row.get::<_, Option<i64>>(14)? else { return Ok(None) };
    Ok(Some(ParentRef { id: InstanceId(id), round: row.get(15)?, index: row.get(16)? }))
}

fn children(conn: &Connection, parent: InstanceId, round: u32) -> Result<Vec<ChildView>> {
    let mut sql = conn.prepare_cached(include_str!("claim_children.sql"))?;
    let rows = sql.query_map((parent.0, round), |row| {
        Ok(ChildView {
            id: InstanceId(row.get(0)?),
            machine: row.get(1)?,
            key: row.get(2)?,
            version: row.get(3)?,
            status: status(row.get_ref(4)?.as_str()?)?,
            step: row.get(5)?,
            error: row.get(6)?,
            output: row.get::<_, Option<Box<str>>>(7)?.map(Json::trusted),
            state: row.get::<_, Option<Box<str>>>(8)?.map(Json::trusted),
            index: row.get(9)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
