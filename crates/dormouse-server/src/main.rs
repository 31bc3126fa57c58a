//! The `dormouse` binary: the command line for any database, and a demo shop.

mod bench;
mod demo;
mod dev;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, Parser};
use dormouse_server::cli::{self, Failure, Globals};

/// Durable state machines that sleep until something happens.
#[derive(Parser)]
#[command(name = "dormouse", version, after_help = cli::EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Serve the dashboard and the HTTP API over a running demo shop: the place to start
    Dev(dev::Args),
    /// Run the demo shop in a terminal, to watch, interrupt and start again
    Demo(demo::Args),
    /// Benchmark a store on this machine: SQLite files, or new databases on a PostgreSQL server with --db postgres://…
    Bench(bench::Args),
    #[command(flatten)]
    Any(Box<cli::Command>),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { globals, command } = Cli::parse();
    let Some(command) = command else {
        // Nothing was asked for, so nothing is done, and that is no mistake.
        return match Cli::command().print_help() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    };
    let as_json = globals.json;
    let globals = match globals.settled() {
        Ok(globals) => globals,
        Err(refused) => return cli::finish(Err(refused), as_json),
    };
    let done = |()| ExitCode::SUCCESS;
    let ended = match command {
        Command::Dev(args) => dev::run(&globals, args).await.map(done),
        Command::Demo(args) => {
            let db =
                globals.db_path().ok_or("the demo needs a SQLite file: use `dev` for a PostgreSQL database");
            match db {
                Ok(db) => demo::run(db, args).await.map(done).map_err(Failure::from),
                Err(refusal) => Err(refusal.into()),
            }
        }
        Command::Bench(args) => {
            bench::run(globals.json, globals.postgres_url(), args).await.map(done).map_err(Failure::from)
        }
        // The plain binary has no machines: it serves any database and leaves running steps to the program that owns
        // it.
        Command::Any(command) => cli::run(&globals, *command, Arc::new(|engine| engine), Cli::command).await,
    };
    cli::finish(ended, globals.json)
}
