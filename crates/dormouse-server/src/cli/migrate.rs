//! `migrate`: creates a database or brings its schema up to date, or prints the scripts for it.

use std::process::ExitCode;

use dormouse::store::postgres::{Migrated, PostgresStore, roles_script, schema_script};
use serde_json::json;

use super::output::{Output, line};
use super::{Failure, Globals};

/// What to print instead of migrating.
#[derive(Debug, clap::Args)]
pub struct Migrate {
    /// Print the PostgreSQL schema as a script, to migrate by hand
    #[arg(long)]
    sql: bool,
    /// Print the script that creates the PostgreSQL roles for migrating, running, reading and calling
    #[arg(long, conflicts_with = "sql")]
    roles: bool,
}

pub(super) async fn migrate(globals: &Globals, output: Output, args: Migrate) -> Result<ExitCode, Failure> {
    match args {
        Migrate { sql: true, .. } => line(schema_script().trim_end()),
        Migrate { roles: true, .. } => line(roles_script().trim_end()),
        Migrate { .. } => tell(globals, output, bring_up_to_date(globals).await?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the schema version found, and the version after the migration.
async fn bring_up_to_date(globals: &Globals) -> Result<(i64, i64), Failure> {
    match globals.postgres_url().filter(|_| globals.server.is_none()) {
        Some(url) => {
            let Migrated { from, to } = PostgresStore::migrate(&url).await?;
            Ok((from.into(), to.into()))
        }
        // Opening a file migrates it.
        None => {
            let about = globals.open().await?.about().await?;
            Ok((about.schema_found, about.schema))
        }
    }
}

fn tell(globals: &Globals, output: Output, (found, now): (i64, i64)) {
    let db = globals.shown();
    let value = json!({ "db": db, "schema_found": found, "schema": now });
    output.show(&value, |_| {
        line(&match found {
            0 => format!("created {db} with schema version {now}"),
            _ if found == now => format!("{db} has schema version {now}: nothing to do"),
            _ => format!("migrated {db} from schema version {found} to {now}"),
        });
    });
}
