//! What running steps report.

use rusqlite::{Connection, Row as SqlRow};

use super::tx::{Tx, timestamp};
use crate::store::{NewProgress, PROGRESS_QUEUE, Progress, Reports};
use crate::{InstanceId, Json, Result, WorkerId};

pub(super) fn report(tx: &mut Tx<'_>, worker: WorkerId, batch: &[NewProgress]) -> Result<()> {
    for NewProgress { instance, seq, value } in batch {
        tx.sql(include_str!("report.sql"))?.execute((
            instance.0,
            seq,
            worker.0,
            tx.now_us(),
            value.as_str(),
        ))?;
    }
    tx.effects.runnable(PROGRESS_QUEUE);
    Ok(())
}

pub(super) fn reports(conn: &Connection, which: Reports, rows_max: usize) -> Result<Vec<Progress>> {
    let rows_max = rows_max as i64;
    let reports = match which {
        Reports::Of(id) => conn
            .prepare_cached(include_str!("reports_of.sql"))?
            .query_map((id.0, rows_max), read)?
            .collect::<rusqlite::Result<_>>(),
        Reports::After(place) => conn
            .prepare_cached(include_str!("reports_after.sql"))?
            .query_map((place, rows_max), read)?
            .collect(),
        Reports::Newest => {
            conn.prepare_cached(include_str!("reports_newest.sql"))?.query_map([], read)?.collect()
        }
    };
    Ok(reports?)
}

fn read(row: &SqlRow<'_>) -> rusqlite::Result<Progress> {
    Ok(Progress {
        place: row.get(0)?,
        instance: InstanceId(row.get(1)?),
        namespace: row.get(2)?,
        machine: row.get(3)?,
        queue: row.get(4)?,
        key: row.get(5)?,
        step: row.get(6)?,
        seq: row.get(7)?,
        at: timestamp(row.get(8)?),
        value: Json::trusted(row.get::<_, Box<str>>(9)?),
    })
}
