//! `dormouse migrate`: brings a database's schema up to date, or prints how.

use dormouse::BoxError;
use dormouse::store::postgres::{Migrated, PostgresStore, roles_script, schema_script};
use dormouse::store::sqlite::SqliteStore;

/// Which database, or what to print.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The database: postgres://user@host/database, or sqlite:path/to/file.db.
    #[arg(long, value_name = "URL", required_unless_present_any = ["sql", "roles"])]
    db: Option<String>,
    /// Print the PostgreSQL schema as a script instead, for whoever runs migrations by hand.
    #[arg(long)]
    sql: bool,
    /// Print the script that makes the roles for migrating, running, reading and calling instead.
    #[arg(long, conflicts_with = "sql")]
    roles: bool,
}

/// Migrates, or prints.
pub(crate) async fn run(args: Args) -> Result<(), BoxError> {
    match args {
        Args { sql: true, .. } => print!("{}", schema_script()),
        Args { roles: true, .. } => print!("{}", roles_script()),
        Args { db, .. } => migrate(&db.expect("clap asks for it")).await?,
    }
    Ok(())
}

async fn migrate(url: &str) -> Result<(), BoxError> {
    if let Some(path) = url.strip_prefix("sqlite:") {
        // Opening a file is all it takes.
        SqliteStore::open(path).await?;
        println!("the schema of {path} is up to date");
        return Ok(());
    }
    match PostgresStore::migrate(url).await? {
        Migrated { from: 0, to } => println!("created the schema `dormouse`, version {to}"),
        Migrated { from, to } if from == to => println!("the schema is up to date, version {to}"),
        Migrated { from, to } => println!("brought the schema from version {from} to {to}"),
    }
    Ok(())
}
