//! `cargo xtask test`: runs the checks in order, until the first that fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use private_postgres::Nats;

use crate::postgres::Database;
use crate::{
    Result, browser, built, cargo, clients, deny, install_packages, kit, litestream, newest,
    require_c_compiler, root, run, run_within, schemathesis, upgrade,
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
        run(database.tell(&mut cargo("test --workspace --all-features --no-fail-fast --lib --bins --tests")))
    }),
    ("doc tests", |database| run(database.tell(&mut cargo("test --workspace --all-features --doc")))),
];

const SLOW: [Check; 5] = [
    ("schemathesis", schemathesis::test),
    ("examples", |_| examples()),
    ("example with sqlx", |_| with_sqlx()),
    ("dependencies", |_| deny::dependencies()),
    ("packages", |_| packages()),
];

pub(crate) fn test(scope: Scope, pg_bin: Option<&Path>) -> Result {
    let started = Instant::now();
    // Check requirements first, so that a missing one is reported at once, not after many minutes.
    timed("C compiler", require_c_compiler)?;
    let database = timed("PostgreSQL", || Database::start(pg_bin))?;
    timed("browser", browser::require)?;
    let promtool = promtool();
    let mut left_out = match scope {
        Scope::Fast => {
            passes(&FAST, &database)?;
            vec![
                "schemathesis, the generated clients, the kit, litestream, the newest PostgreSQL, the upgrade, the examples and the licenses, as `--fast` asks"
                    .to_owned(),
            ]
        }
        Scope::Everything => everything(&database)?,
    };
    left_out.extend(promtool);
    println!("\nall checks passed in {:.1?}", started.elapsed());
    for what in left_out {
        println!("LEFT OUT: {what}");
    }
    Ok(())
}

/// Installs promtool, with which a test looks at the metrics. Returns what is left out without it.
fn promtool() -> Option<String> {
    let is_there =
        || Command::new("promtool").arg("--version").output().is_ok_and(|ran| ran.status.success());
    let is_installed = is_there() || install_packages(&["prometheus"]).is_ok() && is_there();
    (!is_installed)
        .then(|| "promtool on the metrics, as the package prometheus cannot be installed".to_owned())
}

/// Returns the checks that were left out, and why.
fn everything(database: &Database) -> Result<Vec<String>> {
    timed("schemathesis to run", schemathesis::require)?;
    let (newest, generators, linters) = (newest::fetched(), clients::fetched(), kit::fetched());
    let litestream = litestream::fetched();
    passes(&FAST, database)?;
    passes(&SLOW, database)?;
    let mut left_out = Vec::new();
    match generators {
        Ok(generators) => timed("generated clients", || clients::test(&generators))?,
        Err(reason) => left_out.push(format!("the generated clients, as {reason}")),
    }
    match linters {
        Ok(linters) => timed("kit", || kit::test(&linters))?,
        Err(reason) => left_out.push(format!("the checks of deploy/, as {reason}")),
    }
    match litestream {
        Ok(program) => timed("litestream", || litestream::test(&program))?,
        Err(reason) => left_out.push(format!("the copy by litestream, as {reason}")),
    }
    match upgrade::earlier() {
        Ok(commit) => {
            let tested = timed("upgrade", || upgrade::test(&commit, database));
            tested.map_err(|error| database.with_log(error))?;
        }
        Err(reason) => left_out.push(format!("the upgrade from an earlier commit, as {reason}")),
    }
    match newest {
        Ok(binaries) => timed("newest PostgreSQL", || newest::test(&binaries))?,
        Err(reason) => left_out.push(format!("the tests on the newest PostgreSQL, as {reason}")),
    }
    Ok(left_out)
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

/// Checks that a program that uses only PostgreSQL does not compile SQLite. As a lint it shares what the lints of the
/// workspace have compiled.
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
    run(&mut cargo(&format!("clippy {package} -- -D warnings")))
}

/// Packs the crates as for a registry. What is in them was built and tested above, so it is not built again.
fn packages() -> Result {
    run(&mut cargo("package --quiet --no-verify --allow-dirty -p dormouse -p dormouse-server"))
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
    let package = "--locked --manifest-path examples/with-sqlx/Cargo.toml --target-dir target";
    run(&mut cargo(&format!("build {package}")))?;
    run_within(EXAMPLE_MAX, &mut cargo(&format!("run --quiet {package}")))
}
