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
/// The functions, which are replaced as a whole by every migration.
const FUNCTIONS: &[&str] = &[
    include_str!("gone.sql"),
    include_str!("time.sql"),
    include_str!("effects.sql"),
    include_str!("feed.sql"),
    include_str!("counts.sql"),
    include_str!("indexes.sql"),
    include_str!("key.sql"),
    include_str!("lock.sql"),
    include_str!("rate.sql"),
    include_str!("lane.sql"),
    include_str!("change.sql"),
    include_str!("limit.sql"),
    include_str!("apply.sql"),
    include_str!("transport.sql"),
    include_str!("unit.sql"),
    include_str!("complete.sql"),
    include_str!("deliver.sql"),
    include_str!("kept.sql"),
    include_str!("insert.sql"),
    include_str!("turns.sql"),
    include_str!("claim.sql"),
    include_str!("commit_next.sql"),
    include_str!("commit_done.sql"),
    include_str!("commit_plain.sql"),
    include_str!("commit.sql"),
    include_str!("operate.sql"),
    include_str!("amend.sql"),
    include_str!("mail.sql"),
    include_str!("report.sql"),
    include_str!("rest.sql"),
    include_str!("due.sql"),
    include_str!("reap.sql"),
    include_str!("collect.sql"),
    include_str!("admit.sql"),
    include_str!("declared_fit.sql"),
    include_str!("views.sql"),
    include_str!("api.sql"),
    include_str!("plans.sql"),
    include_str!("grants.sql"),
];
/// A migration whose file has this line leaves everything in place that engines of the version before use.
const EXPANDS: &str = "-- expands:";
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
    // What is not there to be dropped, or is there already, is no news.
    sqlx::raw_sql("set local client_min_messages = warning").execute(&mut *tx).await?;
    sqlx::raw_sql("select pg_advisory_xact_lock(1685025391)").execute(&mut *tx).await?;
    sqlx::raw_sql(HEAD).execute(&mut *tx).await?;
    let Found { version: from, functions, .. } = found(&mut tx).await?;
    if from > MIGRATIONS.len() as u32 {
        return Err(newer(from));
    }
    let to = MIGRATIONS.len() as u32;
    if from < to || functions != functions_digest() {
        sqlx::raw_sql(AssertSqlSafe(script_from(from))).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(Migrated { from, to })
}

/// Refuses a database whose schema is not ours, unless it is a newer one that engines of our version may run on: then this
/// is an upgrade under way.
pub(super) async fn check(conn: &mut PgConnection) -> Result<()> {
    let there =
        sqlx::raw_sql("select to_regclass('dormouse.schema') is not null as there").fetch_one(&mut *conn);
    let found = if there.await?.try_get("there")? { found(conn).await? } else { Found::default() };
    let known = MIGRATIONS.len() as u32;
    if found.version > known {
        if known < found.oldest {
            return Err(newer(found.version));
        }
        tracing::info!(
            found = found.version,
            known,
            "the database has a newer schema that this program may run on: finish the upgrade soon"
        );
        return Ok(());
    }
    if found.version < known || found.functions != functions_digest() {
        return Err(Error::OlderSchema { found: found.version, known });
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
    let oldest = oldest();
    script.push_str(&format!(
        "\nupdate dormouse.schema set version = {to}, functions = '{digest}', oldest = {oldest};\n"
    ));
    script
}

/// The oldest version whose engines may run on this schema: it goes back over migrations that only expand.
fn oldest() -> u32 {
    let expanding = MIGRATIONS
        .iter()
        .rev()
        .take_while(|migration| migration.lines().any(|line| line.starts_with(EXPANDS)));
    (MIGRATIONS.len() - expanding.count()) as u32
}

/// What a database says of its schema.
#[derive(Default)]
struct Found {
    version: u32,
    functions: String,
    oldest: u32,
}

async fn found(conn: &mut PgConnection) -> Result<Found> {
    // Schemas before the 20th do not say the oldest: engines of no other version run on them.
    let sql = "select version, functions, coalesce((to_jsonb(s) ->> 'oldest')::integer, version) as oldest \
        from dormouse.schema s";
    let row = sqlx::raw_sql(sql).fetch_one(conn).await?;
    let number = |name: &str| row.try_get::<i32, _>(name).map(|number| number as u32);
    Ok(Found { version: number("version")?, functions: row.try_get("functions")?, oldest: number("oldest")? })
}

fn newer(found: u32) -> Error {
    let known = MIGRATIONS.len() as u32;
    Error::NewerSchema { path: "the database".into(), found: found.into(), known: known.into() }
}

/// A fingerprint of the functions: a schema of our version with other functions is not ours.
fn functions_digest() -> String {
    digest(FUNCTIONS.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_reaches_back_over_migrations_that_only_expand() {
        let newest = MIGRATIONS.last().expect("there are migrations");
        let expands = newest.lines().any(|line| line.starts_with(EXPANDS));
        assert_eq!(oldest() < MIGRATIONS.len() as u32, expands);
    }
}
