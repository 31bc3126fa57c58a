//! The `dormouse` binary.

mod bench;
mod demo;
mod migrate;

use std::process::ExitCode;

use clap::Parser;

/// Durable state machines that sleep until something happens.
#[derive(Parser)]
#[command(name = "dormouse", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run an order shop to watch, interrupt and start again (this is what no command does).
    Demo(demo::Args),
    /// Measure a store on this machine.
    Bench(bench::Args),
    /// Bring a database's schema up to date.
    Migrate(migrate::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let command = Cli::parse().command.unwrap_or_else(|| Command::Demo(demo::Args::parse_from(["dormouse"])));
    let ended = match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Bench(args) => bench::run(args).await,
        Command::Migrate(args) => migrate::run(args).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
