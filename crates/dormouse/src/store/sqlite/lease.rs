//! Workers: one row each, whose lease covers everything they hold.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::operate::end_or_undo_tree;
use super::search::path;
use super::tx::{Tx, timestamp};
use crate::clock::later;
use crate::rules::{self, Crash, Head};
use crate::store::{Declarations, Declared, Lease, Namespaces, NewWorker, Tried};
use crate::{Declaration, InstanceId, Json, Process, Result, Status, WorkerId};

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
        serde_json::json!(worker.transports).to_string(),
    ])?;
    let id = WorkerId(tx.conn().last_insert_rowid());
    worker.declares.iter().try_for_each(|declaration| declare(tx, declaration))?;
    Ok(id)
}

fn declare(tx: &Tx<'_>, declaration: &Declaration) -> Result<()> {
    let Declaration { name, version, migrates_from, .. } = declaration;
    let told = serde_json::json!(declaration).to_string();
    // Before the machine is known by its declaration.
    for field in &declaration.indexes {
        tx.sql(include_str!("declare_index.sql"))?.execute(params![name, field, path(field)])?;
    }
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
        if tx.load(*id)?.is_some_and(|row| rules::owns(row.head(), worker, *seq)) {
            let lost = match tried {
                Tried::Yes => Lost::GivenBack,
                Tried::No => Lost::Unused,
            };
            take_back(tx, *id, lost)?;
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
        take_back(tx, InstanceId(*id), Lost::Crashed { crashes_max, place: place as u64 })?;
    }
    if ids.len() < rows_max {
        tx.sql("delete from workers where lease_until < ?1")?.execute([tx.now_us()])?;
    }
    Ok(ids.len())
}

/// Takes back a claim. If a cancel was requested, the instance is cancelled now, with its children.
fn take_back(tx: &mut Tx<'_>, id: InstanceId, lost: Lost) -> Result<()> {
    let mut row = tx.load(id)?.expect("a claimed row is there");
    let Head { status, cancel_requested, worker, .. } = *row.head();
    assert_eq!(status, Status::Executing, "instance {id} has a worker");
    if cancel_requested {
        return end_or_undo_tree(tx, row).map(drop);
    }
    let name = || -> Result<Option<String>> {
        let mut sql = tx.sql("select name from workers where id = ?1")?;
        Ok(sql.query_row([worker.map(|worker| worker.0)], |row| row.get(0)).optional()?)
    };
    match lost {
        Lost::Unused => rules::forget_claim(&mut row.change),
        Lost::GivenBack => rules::take_back(&mut row.change, name()?.as_deref(), None, tx.now()),
        Lost::Crashed { crashes_max, place } => {
            let name = name()?;
            let crash = Crash { worker: name.as_deref(), crashes_max, place };
            rules::take_back(&mut row.change, crash.worker, Some(&crash), tx.now());
        }
    }
    tx.save(&mut row)
}

/// How a claim came to be taken back.
enum Lost {
    /// No step ran on it.
    Unused,
    /// A step ran, or may have.
    GivenBack,
    /// Its worker is gone.
    Crashed {
        crashes_max: u32,
        /// Its place among those that were lost together.
        place: u64,
    },
}
