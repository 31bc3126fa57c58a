//! Claiming: the first runnable rows of the machines a worker runs.

use rusqlite::{ErrorCode, OptionalExtension, Row as SqlRow};

use super::counts::Place;
use super::lease::holds_lease;
use super::query::inbox;
use super::row::{names, status, wake};
use super::tx::Tx;
use crate::store::{Claim, Claimed, Namespaces};
use crate::{At, ChildView, InstanceId, Json, Result, Status};

pub(super) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<Vec<Claimed>> {
    // What a worker without a lease took, no reaper would find.
    if !holds_lease(tx, claim.worker)? {
        return Ok(Vec::new());
    }
    let mut candidates = Vec::new();
    for (machine, version) in claim.machines.iter() {
        let backlog = Backlog { queue: &claim.queue, machine, version: *version };
        match &claim.namespaces {
            Namespaces::Only(namespaces) => {
                for namespace in namespaces {
                    backlog.first(tx, namespace, claim.rows_max, &mut candidates)?;
                }
            }
            Namespaces::All => {
                let mut last = String::new();
                while let Some(namespace) = backlog.namespace_after(tx, &last)? {
                    backlog.first(tx, &namespace, claim.rows_max, &mut candidates)?;
                    last = namespace;
                }
            }
        }
    }
    candidates.sort_unstable();
    // A namespace that is named twice is met twice.
    candidates.dedup();
    candidates.truncate(claim.rows_max);
    let mut claimed = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        claimed.extend(take(tx, claim, candidate.id)?);
    }
    Ok(claimed)
}

/// The rows of one machine in one queue.
struct Backlog<'a> {
    queue: &'a str,
    machine: &'a str,
    version: u32,
}

/// In claim order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    priority: i32,
    runnable_at: i64,
    id: i64,
}

impl Backlog<'_> {
    fn first(&self, tx: &Tx<'_>, namespace: &str, rows_max: usize, into: &mut Vec<Candidate>) -> Result<()> {
        if tx.sql(include_str!("queue_paused.sql"))?.exists((namespace, self.queue))? {
            return Ok(());
        }
        let mut sql = tx.sql(include_str!("claim.sql"))?;
        let mut rows = sql.query((self.queue, self.machine, self.version, namespace, rows_max as i64))?;
        while let Some(row) = rows.next()? {
            into.push(Candidate { id: row.get(0)?, priority: row.get(1)?, runnable_at: row.get(2)? });
        }
        Ok(())
    }

    fn namespace_after(&self, tx: &Tx<'_>, last: &str) -> Result<Option<String>> {
        let mut sql = tx.sql(include_str!("claim_namespace.sql"))?;
        Ok(sql.query_row((self.queue, self.machine, self.version, last), |row| row.get(0)).optional()?)
    }
}

/// Takes one row and gathers what its step may ask for; `None` if its key forbids that it runs.
fn take(tx: &mut Tx<'_>, claim: &Claim, id: i64) -> Result<Option<Claimed>> {
    match tx.sql(include_str!("claim_take.sql"))?.execute((id, claim.worker.0, tx.now_us())) {
        Ok(_) => {}
        // A key that counts as taken in `executing` is held by another: that row fails, and it alone.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            let mut row = tx.load(InstanceId(id))?.expect("a candidate is there");
            row.status = Status::Executing;
            tx.save(&mut row)?;
            assert_eq!(row.status, Status::Failed, "only a taken key keeps a row from being claimed");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    }
    let mut sql = tx.sql(include_str!("claim_read.sql"))?;
    let (mut claimed, inbox_count, round) = sql.query_row([id], |row| read(tx, InstanceId(id), row))?;
    let Claimed { namespace, machine, version, at, .. } = &claimed;
    let (queue, version, step, status) = (&claim.queue, *version, &at.step, Status::Runnable);
    let place = Place { namespace, queue, machine, version, step, status };
    tx.counts.add(place, -1);
    if inbox_count > 0 {
        claimed.inbox = inbox(tx.conn(), claimed.id)?;
    }
    if let Some(round) = round {
        claimed.children = children(tx, claimed.id, round)?;
    }
    Ok(Some(claimed))
}

fn read(tx: &Tx<'_>, id: InstanceId, row: &SqlRow<'_>) -> rusqlite::Result<(Claimed, u32, Option<u32>)> {
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
        wake: wake(row.get_ref(6)?.as_str_or_null()?),
        awaits: names(awaits),
        inbox: Vec::new(),
        children: Vec::new(),
        keeps_history: row.get(11)?,
        key: row.get(12)?,
        now: tx.now(),
    };
    Ok((claimed, row.get(8)?, barrier.map(|_| round)))
}

fn children(tx: &Tx<'_>, parent: InstanceId, round: u32) -> Result<Vec<ChildView>> {
    let mut sql = tx.sql(include_str!("claim_children.sql"))?;
    let rows = sql.query_map((parent.0, round), |row| {
        Ok(ChildView {
            id: InstanceId(row.get(0)?),
            machine: row.get(1)?,
            key: row.get(2)?,
            status: status(row.get_ref(3)?.as_str()?),
            output: row.get::<_, Option<Box<str>>>(4)?.map(Json::trusted),
            error: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
