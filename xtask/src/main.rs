//! The repository's habits, one word each: `cargo xtask help` lists them.

mod checks;
mod deny;

use std::env;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Instant;

use crate::checks::Scope;

const HELP: &str = "\
cargo xtask test           every check that a change must pass: format, lints, docs, tests, examples, licenses
cargo xtask test --fast    the same without the examples and cargo-deny
cargo xtask soak [N]       the tests of `dormouse`, N times (100 unless said), up to the first failure
cargo xtask advisories     known vulnerabilities in dependencies; needs a network
cargo xtask help           this list";

/// What a command ends with; an error is a message for whoever typed it.
type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["test"] => checks::test(Scope::Everything),
        ["test", "--fast"] => checks::test(Scope::Fast),
        ["soak"] => soak("100"),
        ["soak", rounds] => soak(rounds),
        ["advisories"] => deny::advisories(),
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        [] => Err(format!("a command is missing; there are\n\n{HELP}")),
        _ => Err(format!("there is no command {:?}; there are\n\n{HELP}", args.join(" "))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("\nxtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn soak(rounds: &str) -> Result {
    let rounds: u32 = rounds.parse().map_err(|_| format!("{rounds:?} is not a number of rounds"))?;
    require_c_compiler()?;
    run(&mut cargo("test --package dormouse --lib --tests --no-run"))?;
    let started = Instant::now();
    for round in 1..=rounds {
        println!("\n==> round {round} of {rounds}");
        run(&mut cargo("test --quiet --package dormouse --lib --tests"))
            .map_err(|error| format!("round {round} of {rounds} failed: {error}"))?;
    }
    println!("\n{rounds} rounds passed in {:.1?}", started.elapsed());
    Ok(())
}

/// The bundled SQLite is C.
fn require_c_compiler() -> Result {
    // On Windows the compiler comes with the linker that rustc has found already, and is not on the path.
    if cfg!(windows) {
        Ok(())
    } else {
        run(Command::new("sh").arg("xtask/require-cc.sh").current_dir(root()))
    }
}

/// A cargo command at the root of the repository, wherever the task was typed.
fn cargo(args: &str) -> Command {
    // Cargo names itself to what it runs, so that a toolchain chosen with `+nightly` is kept.
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args.split_whitespace()).current_dir(root());
    command
}

fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a command to its end, its output shown as it comes.
fn run(command: &mut Command) -> Result {
    let status = command.status().map_err(|error| format!("cannot run {}: {error}", shown(command)))?;
    succeeded(status, command)
}

fn succeeded(status: ExitStatus, command: &Command) -> Result {
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", shown(command))) }
}

fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
