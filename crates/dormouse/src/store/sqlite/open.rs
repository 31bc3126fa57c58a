//! Opening a database: only ours, only a schema we know, only a SQLite we trust.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::{Error, Result};

/// "dorm", in a database header, says that the file is ours.
const APPLICATION_ID: i64 = 0x646f_726d;
/// One file for each schema version, in order.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_init.sql"),
    include_str!("migrations/0002_access.sql"),
    include_str!("migrations/0003_counts.sql"),
    include_str!("migrations/0004_units.sql"),
    include_str!("migrations/0005_versions.sql"),
    include_str!("migrations/0006_declared.sql"),
    include_str!("migrations/0007_deadlines.sql"),
    include_str!("migrations/0008_barriers.sql"),
    include_str!("migrations/0009_line.sql"),
    include_str!("migrations/0010_assignees.sql"),
    include_str!("migrations/0011_operators.sql"),
    include_str!("migrations/0012_family.sql"),
    include_str!("migrations/0013_tags.sql"),
    include_str!("migrations/0014_runs.sql"),
    include_str!("migrations/0015_crashes.sql"),
    include_str!("migrations/0016_signs.sql"),
    include_str!("migrations/0017_counts_by_namespace.sql"),
    include_str!("migrations/0018_inboxes.sql"),
    include_str!("migrations/0019_places.sql"),
    include_str!("migrations/0020_limits.sql"),
    include_str!("migrations/0021_mail.sql"),
    include_str!("migrations/0022_transports.sql"),
    include_str!("migrations/0023_since_when.sql"),
    include_str!("migrations/0024_shares.sql"),
    include_str!("migrations/0025_indexes.sql"),
    include_str!("migrations/0026_traces.sql"),
    include_str!("migrations/0027_sends.sql"),
    include_str!("migrations/0028_kept.sql"),
    include_str!("migrations/0029_rates.sql"),
];
/// How long a statement waits for another process before it is [`Error::Busy`].
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// The first SQLite without the WAL-reset corruption bug.
const SQLITE_SAFE_VERSION: i32 = 3_051_003;

/// Opens a file for writing and brings its schema up to date; returns the schema version that was found.
pub(super) fn file(path: &Path) -> Result<(Connection, i64)> {
    check_sqlite_version()?;
    let mut conn = connect(path)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    check_ours(&conn, path)?;
    // WAL lets readers go on beside the writer; FULL makes every commit survive a power loss.
    conn.pragma_update(None, "journal_mode", "wal")?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "temp_store", "memory")?;
    conn.pragma_update(None, "cache_size", -64 * 1024)?;
    // After a burst the log shrinks again.
    conn.pragma_update(None, "journal_size_limit", 16 * 1024 * 1024)?;
    // The writer checkpoints by itself, between groups.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    let found = migrate(&mut conn, path)?;
    configure(&conn)?;
    Ok((conn, found))
}

fn connect(path: &Path) -> Result<Connection> {
    let refuse = |reason: String| Error::CannotOpen { path: path.to_owned(), reason };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(missing) = directory.filter(|directory| !directory.is_dir()) {
        return Err(refuse(format!("there is no directory {}", missing.display())));
    }
    create_private(path);
    Connection::open(path).map_err(|error| refuse(error.to_string()))
}

/// Makes a new file that only its owner can read, and leaves one that is there as it is. SQLite gives its log and its
/// index the mode of the file. If the file cannot be created here, SQLite reports the error.
///
/// The file is made under another name and closed before it has its own: closing a file drops every lock that this
/// process has on it, so one that SQLite may have open is never opened here.
#[cfg(unix)]
fn create_private(path: &Path) {
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::sync::atomic::{AtomicU64, Ordering};

    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (false, Some(name)) = (path.symlink_metadata().is_ok(), path.file_name()) else { return };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let fresh =
        path.with_file_name(format!(".{}.{}-{number}.new", name.to_string_lossy(), std::process::id()));
    let make =
        |path| std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop);
    if make(&fresh).is_ok() {
        let named = std::fs::hard_link(&fresh, path);
        let _ = std::fs::remove_file(&fresh);
        // Where another process was faster, its file is the database; where a file has one name only, it is made here.
        if named.is_err_and(|error| error.kind() != std::io::ErrorKind::AlreadyExists) {
            let _ = make(&path.to_owned());
        }
    }
}

#[cfg(not(unix))]
fn create_private(_path: &Path) {}

/// A database in memory.
pub(super) fn memory() -> Result<(Connection, i64)> {
    check_sqlite_version()?;
    let mut conn = Connection::open_in_memory()?;
    let found = migrate(&mut conn, Path::new(":memory:"))?;
    configure(&conn)?;
    Ok((conn, found))
}

/// Opens a file that [`file`] has prepared, for queries alone.
pub(super) fn reader(path: &Path) -> Result<Connection> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.pragma_update(None, "query_only", true)?;
    configure(&conn)?;
    Ok(conn)
}

fn configure(conn: &Connection) -> Result<()> {
    conn.set_prepared_statement_cache_capacity(128);
    // Without this guarantee a plan may depend on what is bound, and a cached statement whose bindings were cleared is
    // compiled again each time it is used.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn check_sqlite_version() -> Result<()> {
    check_version(rusqlite::version_number(), rusqlite::version())
}

fn check_version(number: i32, name: &str) -> Result<()> {
    if number < SQLITE_SAFE_VERSION {
        return Err(Error::UnsafeSqlite { found: name.to_owned() });
    }
    Ok(())
}

fn check_ours(conn: &Connection, path: &Path) -> Result<()> {
    let refuse = |reason: String| Err(Error::NotDormouse { path: path.to_owned(), reason });
    let application_id = match pragma(conn, "application_id") {
        Ok(id) => id,
        Err(Error::Storage(error)) => return refuse(error.to_string()),
        Err(error) => return Err(error),
    };
    let tables: i64 = conn.query_row("select count(*) from sqlite_schema", [], |row| row.get(0))?;
    if application_id != APPLICATION_ID && (application_id != 0 || tables > 0) {
        return refuse(format!("it has {tables} tables of its own and application id {application_id:#x}"));
    }
    check_schema_version(conn, path).map(drop)
}

fn check_schema_version(conn: &Connection, path: &Path) -> Result<i64> {
    let found = schema_version(conn)?;
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(Error::NewerSchema { path: path.to_owned(), found, known });
    }
    Ok(found)
}

/// Refuses to write to a file that a newer program has upgraded since it was opened here.
pub(super) fn check_not_upgraded(conn: &Connection) -> Result<()> {
    let found: i64 = conn.prepare_cached("pragma user_version")?.query_row([], |row| row.get(0))?;
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(Error::NewerSchema { path: conn.path().unwrap_or_default().into(), found, known });
    }
    Ok(())
}

pub(super) fn schema_version(conn: &Connection) -> Result<i64> {
    pragma(conn, "user_version")
}

/// Runs the missing migrations in one transaction, so that two processes that start together do it once. Returns the
/// version it found.
fn migrate(conn: &mut Connection, path: &Path) -> Result<i64> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = check_schema_version(&tx, path)?;
    for migration in &MIGRATIONS[found as usize..] {
        tx.execute_batch(migration)?;
    }
    if found < MIGRATIONS.len() as i64 {
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
    }
    tx.commit()?;
    Ok(found)
}

fn pragma(conn: &Connection, name: &str) -> Result<i64> {
    Ok(conn.pragma_query_value(None, name, |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlite_that_can_corrupt_a_log_is_refused() {
        assert!(check_version(3_051_002, "3.51.2").is_err_and(|error| error.to_string().contains("3.51.2")));
        assert!(check_version(3_051_003, "3.51.3").is_ok());
        assert!(check_sqlite_version().is_ok(), "the bundled one is fit to use");
    }
}
