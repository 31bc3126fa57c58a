//! `cargo xtask test`: runs the checks in order, until the first that fails.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use private_postgres::Nats;

use crate::postgres::Database;
use crate::{
    Result, browser, built, cargo, deny, newest, require_c_compiler, root, run, run_within, schemathesis,
};

/// An example that runs longer is stuck.
const EXAMPLE_MAX: Duration = Duration::from_secs(60);

/// How much `test` checks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything.
    Everything,
    /// Only what a change to the code is most likely to break.
    Fast,
}

type Check = (&'static str, fn(&Database) -> Result);

const FAST: [Check; 6] = [
    ("format", |_| run(&mut cargo("fmt --all -- --check"))),
    ("lints", |_| run(&mut cargo("clippy --workspace --all-targets --all-features -- -D warnings"))),
    ("without SQLite", |_| without_sqlite()),
    ("docs", |_| run(cargo("doc --workspace --all-features --no-deps").env("RUSTDOCFLAGS", "-D warnings"))),
    // Not `--all-targets`: that would run benches as well.
    ("tests", |database| {
        run(database.tell(&mut cargo("test --workspace --all-features --lib --bins --tests")))
    }),
    ("doc tests", |database| run(database.tell(&mut cargo("test --workspace --all-features --doc")))),
];

const SLOW: [Check; 4] = [
    ("schemathesis", schemathesis::test),
    ("examples", |_| examples()),
    ("example with sqlx", |_| with_sqlx()),
    ("dependencies", |_| deny::dependencies()),
];

pub(crate) fn test(scope: Scope, pg_bin: Option<&Path>) -> Result {
    let started = Instant::now();
    // Check requirements first, so that a missing one is reported at once, not after many minutes.
    timed("C compiler", require_c_compiler)?;
    let database = timed("PostgreSQL", || Database::start(pg_bin))?;
    timed("browser", browser::require)?;
    let left_out = match scope {
        Scope::Fast => {
            passes(&FAST, &database)?;
            vec![
                "schemathesis, the newest PostgreSQL, the examples and cargo-deny, as `--fast` asks"
                    .to_owned(),
            ]
        }
        Scope::Everything => everything(&database)?,
    };
    println!("\nall checks passed in {:.1?}", started.elapsed());
    for what in left_out {
        println!("LEFT OUT: {what}");
    }
    Ok(())
}

/// Returns the checks that were left out, and why.
fn everything(database: &Database) -> Result<Vec<String>> {
    timed("schemathesis to run", schemathesis::require)?;
    timed("cargo-deny to run", deny::require)?;
    let newest = newest::fetched();
    passes(&FAST, database)?;
    passes(&SLOW, database)?;
    match newest {
        Ok(binaries) => {
            timed("newest PostgreSQL", || newest::test(&binaries))?;
            Ok(Vec::new())
        }
        Err(reason) => Ok(vec![format!("the tests on the newest PostgreSQL, as {reason}")]),
    }
}

fn passes(checks: &[Check], database: &Database) -> Result {
    for (name, check) in checks {
        timed(name, || check(database)).map_err(|error| database.with_log(error))?;
    }
    Ok(())
}

fn timed<T>(name: &str, check: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("\n==> {name}");
    let started = Instant::now();
    let value = check().map_err(|error| format!("the check \"{name}\" failed: {error}"))?;
    println!("==> {name}: ok in {:.1?}", started.elapsed());
    Ok(value)
}

/// Checks that a program that uses only PostgreSQL does not compile SQLite. With fewer features the dependencies
/// differ, so this has its own target directory.
fn without_sqlite() -> Result {
    let package = "-p dormouse --no-default-features --features postgres";
    let mut tree = cargo(&format!("tree {package} --edges normal --prefix none"));
    let listed = tree.output().map_err(|error| format!("cannot list the dependencies: {error}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    if !listed.contains("sqlx-postgres") || listed.contains("sqlite3-sys") || listed.contains("rusqlite") {
        return Err(format!(
            "without the feature `sqlite`, the dependencies must include PostgreSQL's driver and not SQLite:\n{listed}"
        ));
    }
    run(cargo(&format!("check {package} --target-dir target/without-sqlite")).env("RUSTFLAGS", "-D warnings"))
}

/// Builds the library's examples together, then runs each. Names the whole workspace, like the run of all tests: for
/// one package alone, its dependencies would be built again with fewer features.
fn examples() -> Result {
    let names = example_names(&root().join("crates/dormouse/examples"))?;
    if names.is_empty() {
        println!("crates/dormouse has no examples yet");
        return Ok(());
    }
    let broker = Nats::start(&root().join("target/nats").join(std::process::id().to_string()))?;
    run(&mut cargo("build --workspace --all-features --examples"))?;
    for name in names {
        println!("--> {name}");
        let mut example = built(&format!("examples/{name}"));
        run_within(EXAMPLE_MAX, example.current_dir(root()).env("NATS_URL", broker.url()))?;
    }
    Ok(())
}

fn example_names(dir: &Path) -> Result<Vec<String>> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let unreadable = |error| format!("cannot list {}: {error}", dir.display());
    let files: Vec<PathBuf> = std::fs::read_dir(dir)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(unreadable)?;
    let mut names: Vec<String> = files
        .iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// The example is a package of its own, so that sqlx's older SQLite does not hold back the workspace's.
fn with_sqlx() -> Result {
    let package = "--locked --manifest-path examples/with-sqlx/Cargo.toml --target-dir target/with-sqlx";
    run(&mut cargo(&format!("build {package}")))?;
    run_within(EXAMPLE_MAX, &mut cargo(&format!("run --quiet {package}")))
}
