//! The `dormouse` binary.

mod bench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Durable state machines that sleep until something happens.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the embedded store on this machine.
    Bench(bench::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Bench(args) => bench::run(args).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
