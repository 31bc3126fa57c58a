//! Workers: one row each, whose lease covers everything they hold.

use std::time::Duration;

use sqlx::postgres::PgRow;

use super::db::Db;
use super::types::Columns;
use crate::clock::micros;
use crate::store::{Declarations, Declared, Lease, Namespaces, NewWorker, Tried, Written};
use crate::{Error, InstanceId, Process, Result, WorkerId};

/// Counts are folded once they take this much room, and so many rows at a time.
const COUNTS_BYTES_MIN: i64 = 512 * 1024;
const COUNTS_ROWS_MAX: i32 = 50_000;
/// A heartbeat is given at least this long, however short the lease.
const HEARTBEAT_MIN: Duration = Duration::from_millis(200);

pub(super) async fn register(db: &Db, worker: &NewWorker) -> Result<WorkerId> {
    end_leases(db, |name, process| name == worker.name || process.is_gone()).await?;
    let namespaces = match &worker.namespaces {
        Namespaces::All => None,
        Namespaces::Only(names) => Some(names.as_slice()),
    };
    let (machines, versions): (Vec<&str>, Vec<i32>) =
        worker.machines.iter().map(|(name, version)| (name.as_str(), *version as i32)).unzip();
    let declares = serde_json::json!(worker.declares).to_string();
    let row = db
        .one(|| {
            sqlx::query(include_str!("register.sql"))
                .bind(&worker.name)
                .bind(&worker.process.host)
                .bind(i64::from(worker.process.pid))
                .bind(&worker.process.birth)
                .bind(micros(worker.lease))
                .bind(namespaces)
                .bind(&worker.queues)
                .bind(&machines)
                .bind(&versions)
                .bind(&declares)
                .bind(&worker.transports)
        })
        .await?;
    if !worker.declares.is_empty() {
        make_views(db).await;
    }
    Ok(WorkerId(row.value("id")?))
}

/// Makes the views of what is declared. A worker runs without them.
async fn make_views(db: &Db) {
    let made = db.all(|| sqlx::query("select view from dormouse.make_views() where result <> 'there'")).await;
    if let Err(error) = made {
        tracing::debug!(%error, "the views of the machines were not made; `dormouse views` makes them");
    }
}

pub(super) async fn declared(db: &Db, known: Option<&str>) -> Result<Option<Declarations>> {
    let rows = db.all(|| sqlx::query(include_str!("declared.sql")).bind(known)).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let mark = first.value("mark")?;
    // Without any, the mark stands alone.
    let machines =
        rows.iter().filter(|row| row.value::<Option<&str>>("name").is_ok_and(|name| name.is_some()));
    let declared = |row: &PgRow| {
        Ok(Declared {
            name: row.value("name")?,
            version: row.number("version")?,
            migrates_from: row.number("migrates_from")?,
            at: row.moment("declared_at")?,
            told: row.json("told")?,
        })
    };
    Ok(Some(Declarations { mark, machines: machines.map(declared).collect::<Result<_>>()? }))
}

/// Ends the leases of workers that cannot come back.
async fn end_leases(db: &Db, cannot_come_back: impl Fn(&str, &Process) -> bool) -> Result<()> {
    let sql = "select id, name, host, pid, birth from dormouse.workers where lease_until > 'epoch'";
    for row in db.all(|| sqlx::query(sql)).await? {
        let process =
            Process { host: row.value("host")?, pid: row.number("pid")?, birth: row.value("birth")? };
        if cannot_come_back(row.value("name")?, &process) {
            deregister(db, WorkerId(row.value("id")?)).await?;
        }
    }
    Ok(())
}

pub(super) async fn heartbeat(db: &Db, worker: WorkerId, lease: Duration) -> Result<Lease> {
    let sql = include_str!("heartbeat.sql");
    // A dead connection must leave time to renew the lease on another one.
    let limit = (lease / 3).max(HEARTBEAT_MIN);
    let beat =
        tokio::time::timeout(limit, db.one(|| sqlx::query(sql).bind(worker.0).bind(micros(lease)))).await;
    let row = beat
        .unwrap_or_else(|_| Err(Error::Busy(format!("no answer to a heartbeat within {limit:?}").into())))?;
    let ids = |name| -> Result<Vec<InstanceId>> {
        let ids: Option<Vec<i64>> = row.value(name)?;
        Ok(ids.unwrap_or_default().into_iter().map(InstanceId).collect())
    };
    if !row.value("renewed")? {
        return Ok(Lease::Lost);
    }
    let seqs: Option<Vec<i64>> = row.value("seqs")?;
    let seqs = seqs.unwrap_or_default().into_iter().map(|seq| seq as u64);
    Ok(Lease::Held { cancel: ids("cancel")?, holds: ids("holds")?.into_iter().zip(seqs).collect() })
}

pub(super) async fn deregister(db: &Db, worker: WorkerId) -> Result<()> {
    let sql = "update dormouse.workers set lease_until = 'epoch' where id = $1";
    db.all(|| sqlx::query(sql).bind(worker.0)).await.map(drop)
}

pub(super) async fn release(
    db: &Db,
    worker: WorkerId,
    claims: &[(InstanceId, u64)],
    tried: Tried,
) -> Result<Written<Vec<InstanceId>>> {
    let (ids, seqs): (Vec<i64>, Vec<i64>) = claims.iter().map(|(id, seq)| (id.0, *seq as i64)).unzip();
    let tried = tried == Tried::Yes;
    let sql = "select v.busy, (v.effects).* from dormouse.release($1, $2, $3, $4) v";
    let row = db.one(|| sqlx::query(sql).bind(worker.0).bind(&ids).bind(&seqs).bind(tried)).await?;
    let busy: Vec<i64> = row.value("busy")?;
    Ok(Written { value: busy.into_iter().map(InstanceId).collect(), effects: row.effects()? })
}

pub(super) async fn reap(db: &Db, rows_max: usize, crashes_max: u32) -> Result<Written<usize>> {
    end_leases(db, |_, process| process.is_gone()).await?;
    fold_counts(db).await?;
    let crashes_max = i32::try_from(crashes_max).unwrap_or(i32::MAX);
    let sql = "select v.reaped, (v.effects).* from dormouse.reap($1, $2) v";
    let row = db.one(|| sqlx::query(sql).bind(rows_max as i32).bind(crashes_max)).await?;
    Ok(Written { value: row.number("reaped")?, effects: row.effects()? })
}

/// Folds the counts if there are enough. The reaper calls this every few seconds.
async fn fold_counts(db: &Db) -> Result<()> {
    let sql = "select dormouse.fold_counts($1, $2)";
    db.one(|| sqlx::query(sql).bind(COUNTS_BYTES_MIN).bind(COUNTS_ROWS_MAX)).await.map(drop)
}
