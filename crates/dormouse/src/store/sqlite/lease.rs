//! Workers: one row each, whose lease covers everything they hold.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::row::{End, Row};
use super::tx::{Tx, timestamp};
use crate::clock::later;
use crate::store::{Declarations, Declared, Lease, Namespaces, NewWorker, Tried, too_many_crashes};
use crate::{Declaration, EventKind, InstanceId, Json, Process, Result, Status, When, WorkerId};

pub(super) fn register(tx: &mut Tx<'_>, worker: &NewWorker) -> Result<WorkerId> {
    end_leases(tx, |name, process| name == worker.name || process.is_gone())?;
    let Process { host, pid, birth } = &worker.process;
    let namespaces = match &worker.namespaces {
        Namespaces::All => None,
        Namespaces::Only(names) => Some(serde_json::json!(names).to_string()),
    };
    tx.sql(include_str!("register.sql"))?.execute(params![
        worker.name,
        host,
        pid,
        birth,
        tx.now_us(),
        later(tx.now(), worker.lease).as_microsecond(),
        namespaces,
        serde_json::json!(worker.queues).to_string(),
        serde_json::json!(worker.machines).to_string(),
    ])?;
    let id = WorkerId(tx.conn().last_insert_rowid());
    worker.declares.iter().try_for_each(|declaration| declare(tx, declaration))?;
    Ok(id)
}

fn declare(tx: &Tx<'_>, declaration: &Declaration) -> Result<()> {
    let Declaration { name, version, migrates_from, .. } = declaration;
    let told = serde_json::json!(declaration).to_string();
    tx.sql(include_str!("declare.sql"))?.execute(params![name, version, migrates_from, tx.now_us(), told])?;
    Ok(())
}

pub(super) fn declared(conn: &Connection, known: Option<&str>) -> Result<Option<Declarations>> {
    let mut sql = conn.prepare_cached(include_str!("declared.sql"))?;
    let mut rows = sql.query([known])?;
    let mut found: Option<Declarations> = None;
    while let Some(row) = rows.next()? {
        let found = found.get_or_insert_default();
        found.mark = row.get("mark")?;
        // Without any, the mark stands alone.
        if let Some(name) = row.get("name")? {
            found.machines.push(Declared {
                name,
                version: row.get("version")?,
                migrates_from: row.get("migrates_from")?,
                at: timestamp(row.get("declared_at")?),
                told: Json::trusted(row.get::<_, String>("told")?),
            });
        }
    }
    Ok(found)
}

/// Ends the leases of workers that cannot come back.
fn end_leases(tx: &mut Tx<'_>, cannot_come_back: impl Fn(&str, &Process) -> bool) -> Result<()> {
    let live: Vec<(WorkerId, String, Process)> = tx
        .sql("select id, name, host, pid, birth from workers where lease_until > 0")?
        .query_map([], |row| {
            let process = Process { host: row.get(2)?, pid: row.get(3)?, birth: row.get(4)? };
            Ok((WorkerId(row.get(0)?), row.get(1)?, process))
        })?
        .collect::<rusqlite::Result<_>>()?;
    live.iter()
        .filter(|(_, name, process)| cannot_come_back(name, process))
        .try_for_each(|(id, ..)| deregister(tx, *id))
}

pub(super) fn heartbeat(tx: &mut Tx<'_>, worker: WorkerId, lease: Duration) -> Result<Lease> {
    // An ended lease is not renewed: its claims may be someone else's by now.
    let renewed = tx
        .sql("update workers set lease_until = ?2 where id = ?1 and lease_until >= ?3")?
        .execute((worker.0, later(tx.now(), lease).as_microsecond(), tx.now_us()))?;
    if renewed == 0 {
        return Ok(Lease::Lost);
    }
    let held: Vec<(InstanceId, u64, bool)> = tx
        .sql("select id, seq, cancel_requested from instances where worker = ?1 and worker is not null order by id")?
        .query_map([worker.0], |row| Ok((InstanceId(row.get(0)?), row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let cancel = held.iter().filter(|(.., cancel)| *cancel).map(|(id, ..)| *id).collect();
    Ok(Lease::Held { cancel, holds: held.into_iter().map(|(id, seq, _)| (id, seq)).collect() })
}

pub(super) fn holds_lease(tx: &Tx<'_>, worker: WorkerId) -> Result<bool> {
    let mut sql = tx.sql("select 1 from workers where id = ?1 and lease_until >= ?2")?;
    Ok(sql.exists((worker.0, tx.now_us()))?)
}

pub(super) fn deregister(tx: &mut Tx<'_>, worker: WorkerId) -> Result<()> {
    tx.sql("update workers set lease_until = 0 where id = ?1")?.execute([worker.0])?;
    Ok(())
}

pub(super) fn release(
    tx: &mut Tx<'_>,
    worker: WorkerId,
    claims: &[(InstanceId, u64)],
    tried: Tried,
) -> Result<Vec<InstanceId>> {
    for (id, seq) in claims {
        if tx.load(*id)?.is_some_and(|row| row.worker == Some(worker) && row.seq == *seq) {
            match tried {
                Tried::Yes => take_back(tx, *id, None)?,
                Tried::No => forget_claim(tx, *id)?,
            }
        }
    }
    // There is one writer: nobody else keeps a row busy.
    Ok(Vec::new())
}

pub(super) fn reap(tx: &mut Tx<'_>, rows_max: usize, crashes_max: u32) -> Result<usize> {
    end_leases(tx, |_, process| process.is_gone())?;
    let mut ids: Vec<i64> = tx
        .sql(include_str!("reap.sql"))?
        .query_map((tx.now_us(), rows_max as i64), |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    // They are taken back together: of those whose key is the same, the oldest gets it.
    ids.sort_unstable();
    for (place, id) in ids.iter().enumerate() {
        take_back(tx, InstanceId(*id), Some(Crash { crashes_max, place: place as u64 }))?;
    }
    if ids.len() < rows_max {
        tx.sql("delete from workers where lease_until < ?1")?.execute([tx.now_us()])?;
    }
    Ok(ids.len())
}

/// A claim on which no step ran leaves no trace.
fn forget_claim(tx: &mut Tx<'_>, id: InstanceId) -> Result<()> {
    let mut row = held(tx, id)?;
    if row.cancel_requested {
        return super::operate::cancel_row(tx, &mut row).map(drop);
    }
    let runnable_at = row.runnable_at;
    row.run_at(runnable_at);
    tx.save(&mut row)
}

fn held(tx: &Tx<'_>, id: InstanceId) -> Result<Row> {
    let row = tx.load(id)?.expect("a claimed row is there");
    assert_eq!(row.status, Status::Executing, "instance {id} has a worker");
    Ok(row)
}

/// A claim that was lost with its worker.
struct Crash {
    /// After so many in a row, with no commit between them, its instance has failed.
    crashes_max: u32,
    /// Its place among those that were lost together.
    place: u64,
}

impl Crash {
    /// How long a step rests that has crashed more than once in a row: a quarter of a second, twice as long each time,
    /// and up to as much again by its place. Whichever kills its worker, the others do not run beside it every time.
    fn pause(&self, crashes: u32) -> Option<Duration> {
        let doubled = crashes.checked_sub(2)?.min(8);
        Some(Duration::from_micros((250_000 << doubled) * (64 + self.place % 64) / 64))
    }
}

/// A lost try counts as one; the step runs again, in its old place, with its old inputs. If it crashed more than once in a
/// row, it rests before that, or its instance has failed.
fn take_back(tx: &mut Tx<'_>, id: InstanceId, crash: Option<Crash>) -> Result<()> {
    let mut row = held(tx, id)?;
    if row.cancel_requested {
        return super::operate::cancel_row(tx, &mut row).map(drop);
    }
    let (worker, runnable_at) = (row.worker, row.runnable_at);
    row.run_at(runnable_at);
    let worker: Option<String> = tx
        .sql("select name from workers where id = ?1")?
        .query_row([worker.map(|worker| worker.0)], |row| row.get(0))
        .optional()?;
    row.attempt += 1;
    let crashes = if row.crashes_seq == row.seq { row.crashes } else { 0 };
    tx.record(&mut row, EventKind::Reaped, Some(serde_json::json!({ "worker": worker }).to_string()))?;
    row.crashes = crashes + u32::from(crash.is_some());
    row.crashes_seq = row.seq;
    if let Some(crash) = crash {
        if row.crashes >= crash.crashes_max {
            let error = too_many_crashes(&row.step, row.crashes);
            return tx.end(&mut row, &End::Failed(&error));
        }
        if let Some(pause) = crash.pause(row.crashes) {
            row.park(Status::Scheduled, Some(When::In(pause).moment(tx.now())));
        }
    }
    tx.save(&mut row)
}
