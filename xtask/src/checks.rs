//! `cargo xtask test`: the checks, in order, up to the first that fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Result, cargo, deny, require_c_compiler, root, run, shown, succeeded};

/// An example that runs longer is stuck.
const EXAMPLE_MAX: Duration = Duration::from_secs(60);
const EXAMPLE_POLL: Duration = Duration::from_millis(20);

/// How much `test` checks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of it.
    Everything,
    /// What a change to the code is most likely to break.
    Fast,
}

type Check = (&'static str, fn() -> Result);

const FAST: [Check; 6] = [
    ("C compiler", require_c_compiler),
    ("format", || run(&mut cargo("fmt --all -- --check"))),
    ("lints", || run(&mut cargo("clippy --workspace --all-targets --all-features -- -D warnings"))),
    ("docs", || run(cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"))),
    // Not `--all-targets`: that would run benches as well.
    ("tests", || run(&mut cargo("test --workspace --lib --bins --tests"))),
    ("doc tests", || run(&mut cargo("test --workspace --doc"))),
];

const SLOW: [Check; 3] =
    [("examples", examples), ("example with sqlx", with_sqlx), ("dependencies", deny::dependencies)];

pub(crate) fn test(scope: Scope) -> Result {
    let started = Instant::now();
    let slow = if scope == Scope::Everything { &SLOW[..] } else { &[] };
    for (name, check) in FAST.iter().chain(slow) {
        println!("\n==> {name}");
        let check_started = Instant::now();
        check().map_err(|error| format!("the check \"{name}\" failed: {error}"))?;
        println!("==> {name}: ok in {:.1?}", check_started.elapsed());
    }
    println!("\nall checks passed in {:.1?}", started.elapsed());
    Ok(())
}

/// Builds the library's examples together, then runs each.
fn examples() -> Result {
    let names = example_names(&root().join("crates/dormouse/examples"))?;
    if names.is_empty() {
        println!("crates/dormouse has no examples yet");
        return Ok(());
    }
    run(&mut cargo("build --package dormouse --examples"))?;
    for name in names {
        println!("--> {name}");
        // The build above leaves cargo nothing to do, so the time is the example's own.
        run_example(&mut cargo(&format!("run --quiet --package dormouse --example {name}")))?;
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
    run_example(&mut cargo(&format!("run --quiet {package}")))
}

fn run_example(command: &mut Command) -> Result {
    let name = shown(command);
    let mut child = command.spawn().map_err(|error| format!("cannot run {name}: {error}"))?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("lost sight of {name}: {error}"))? {
            return succeeded(status, command);
        }
        if started.elapsed() > EXAMPLE_MAX {
            // Either it ends here or it just did; both are reported as too slow.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{name} had not ended after {EXAMPLE_MAX:?}"));
        }
        thread::sleep(EXAMPLE_POLL);
    }
}
