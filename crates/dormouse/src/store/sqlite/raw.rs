//! The floor under every figure: the bare statements of a run-ahead commit, with nothing around them.

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, params};

use super::open;
use crate::Result;

/// Statements in one transaction.
const BATCH: u64 = 256;
/// Instances that the steps go round.
const INSTANCES: u64 = 1000;

/// Commits guarded updates, each with a history row, in durable batches of 256 on a new file, and says how
/// many there were in a second.
pub fn raw_steps_per_s(path: &Path, steps: u64) -> Result<f64> {
    let (conn, _) = open::file(path)?;
    conn.pragma_update(None, "wal_autocheckpoint", 4000)?;
    seed(&conn)?;
    let started = Instant::now();
    let mut step = 0;
    while step < steps {
        conn.execute_batch("begin immediate")?;
        let mut update = conn.prepare_cached(include_str!("commit_next.sql"))?;
        let mut record = conn.prepare_cached(include_str!("record.sql"))?;
        for _ in 0..BATCH {
            let (id, seq) = ((step % INSTANCES) as i64 + 1, step / INSTANCES + 1);
            let state = r#"{"left":19}"#;
            let updated = update.execute(params![id, seq, 1, "Count", state, step, 1])?;
            assert_eq!(updated, 1, "the limit is measured on updates that happen");
            let (data, run) = (None::<&str>, (None::<i64>, None::<i64>, None::<&str>));
            let (kind, place) = ("step.completed", "Count");
            record.execute(params![id, seq + 1, kind, 1, place, step, data, state, run.0, run.1, run.2])?;
            step += 1;
        }
        conn.execute_batch("commit")?;
    }
    Ok(step as f64 / started.elapsed().as_secs_f64())
}

fn seed(conn: &Connection) -> Result<()> {
    conn.execute_batch("begin")?;
    for _ in 0..INSTANCES {
        conn.prepare_cached(
            "insert into instances (namespace, machine, version, status, step, seq, queue, priority, runnable_at,
                worker, created_at, changed_at, state)
             values ('default', 'chain', 1, 'executing', 'Count', 1, 'default', 0, 0, 1, 0, 0, '{\"left\":20}')",
        )?
        .execute([])?;
    }
    Ok(conn.execute_batch("commit")?)
}

#[cfg(test)]
mod tests {
    use super::raw_steps_per_s;

    #[test]
    fn the_bare_statements_are_those_of_the_store() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(raw_steps_per_s(&dir.path().join("raw.db"), 512).expect("they run") > 0.0);
    }
}
