//! `views`: makes the typed views of machines on PostgreSQL, and lists them.

use std::process::ExitCode;

use dormouse::store::postgres::PostgresStore;
use serde_json::json;

use super::output::{Output, line, table};
use super::{Failure, Globals};

pub(super) async fn views(globals: &Globals, output: Output) -> Result<ExitCode, Failure> {
    let Some(url) = globals.postgres_url().filter(|_| globals.server.is_none()) else {
        let told = "views of machines are made on PostgreSQL: name the database with --db postgres://…";
        return Err(Failure::usage(told));
    };
    let views = PostgresStore::make_views(&url).await?;
    let is_behind = views.iter().any(|view| matches!(view.result.as_str(), "kept" | "busy"));
    let told: Vec<_> = views
        .iter()
        .map(|view| json!({ "view": view.name, "machine": view.machine, "version": view.version, "result": view.result }))
        .collect();
    output.show(&json!({ "views": told }), |_| {
        let rows = views.iter().map(|view| {
            let version = view.version.map_or_else(|| "all".to_owned(), |version| version.to_string());
            vec![format!("dormouse_views.{}", view.name), view.machine.clone(), version, view.result.clone()]
        });
        let rows: Vec<_> = rows.collect();
        table(&["VIEW", "MACHINE", "VERSION", "RESULT"], &rows, "no worker has declared a machine yet");
        if is_behind {
            line("kept: other objects depend on the old view; drop them. busy: somebody reads it. Then repeat the command.");
        }
    });
    Ok(if is_behind { ExitCode::from(7) } else { ExitCode::SUCCESS })
}
