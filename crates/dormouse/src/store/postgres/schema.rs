//! The schema: which version is there, and how it becomes ours.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};

use crate::json::digest;
use crate::{Error, Result};

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
    include_str!("migrations/0019_decided.sql"),
];
/// The functions, which are replaced as a whole by every migration.
const FUNCTIONS: &[&str] = &[
    include_str!("gone.sql"),
    include_str!("time.sql"),
    include_str!("effects.sql"),
    include_str!("feed.sql"),
    include_str!("counts.sql"),
    include_str!("key.sql"),
    include_str!("lock.sql"),
    include_str!("lane.sql"),
    include_str!("change.sql"),
    include_str!("apply.sql"),
    include_str!("unit.sql"),
    include_str!("complete.sql"),
    include_str!("deliver.sql"),
    include_str!("insert.sql"),
    include_str!("claim.sql"),
    include_str!("commit_next.sql"),
    include_str!("commit_done.sql"),
    include_str!("commit_plain.sql"),
    include_str!("commit.sql"),
    include_str!("operate.sql"),
    include_str!("amend.sql"),
    include_str!("report.sql"),
    include_str!("rest.sql"),
    include_str!("due.sql"),
    include_str!("reap.sql"),
    include_str!("collect.sql"),
    include_str!("admit.sql"),
    include_str!("declared_fit.sql"),
    include_str!("api.sql"),
    include_str!("plans.sql"),
    include_str!("grants.sql"),
];
/// Where a database says what it holds.
const HEAD: &str = include_str!("migrations/schema.sql");

/// What a migration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version found; 0 if there was none.
    pub from: u32,
    /// The version that is there now.
    pub to: u32,
}

/// Brings a database's schema up to date, in one transaction, so that two that start together do it once.
pub(super) async fn migrate(conn: &mut PgConnection) -> Result<Migrated> {
    // What was done while we waited for the lock must be seen, whatever the server's default is.
    let mut tx = conn.begin_with("begin isolation level read committed").await?;
    sqlx::raw_sql("select pg_advisory_xact_lock(1685025391)").execute(&mut *tx).await?;
    sqlx::raw_sql(HEAD).execute(&mut *tx).await?;
    let (from, functions) = found(&mut tx).await?;
    check_known(from)?;
    let to = MIGRATIONS.len() as u32;
    if from < to || functions != functions_digest() {
        sqlx::raw_sql(AssertSqlSafe(script_from(from))).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(Migrated { from, to })
}

/// Refuses a database whose schema is not exactly ours.
pub(super) async fn check(conn: &mut PgConnection) -> Result<()> {
    let there =
        sqlx::raw_sql("select to_regclass('dormouse.schema') is not null as there").fetch_one(&mut *conn);
    let (version, functions) =
        if there.await?.try_get("there")? { found(conn).await? } else { (0, String::new()) };
    check_known(version)?;
    let known = MIGRATIONS.len() as u32;
    if version < known || functions != functions_digest() {
        return Err(Error::OlderSchema { found: version, known });
    }
    Ok(())
}

/// The whole schema as a script, for running migrations by hand.
pub fn script() -> String {
    format!("begin;\n{HEAD}\n{}\ncommit;\n", script_from(0))
}

/// The script that makes the roles of least privilege, for a superuser to run: it says who may do what.
pub fn roles_script() -> String {
    format!("begin;\n{}\n{}\ncommit;\n", include_str!("roles.sql"), include_str!("grants.sql"))
}

fn script_from(version: u32) -> String {
    let mut script = MIGRATIONS[version as usize..].join("\n");
    script.push_str(&FUNCTIONS.join("\n"));
    let (to, digest) = (MIGRATIONS.len(), functions_digest());
    script.push_str(&format!("\nupdate dormouse.schema set version = {to}, functions = '{digest}';\n"));
    script
}

async fn found(conn: &mut PgConnection) -> Result<(u32, String)> {
    let row = sqlx::raw_sql("select version, functions from dormouse.schema").fetch_one(conn).await?;
    Ok((row.try_get::<i32, _>("version")? as u32, row.try_get("functions")?))
}

fn check_known(found: u32) -> Result<()> {
    let known = MIGRATIONS.len() as u32;
    if found > known {
        return Err(Error::NewerSchema {
            path: "the database".into(),
            found: found.into(),
            known: known.into(),
        });
    }
    Ok(())
}

/// A fingerprint of the functions: a schema of our version with other functions is not ours.
fn functions_digest() -> String {
    digest(FUNCTIONS.iter().copied())
}
