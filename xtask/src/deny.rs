//! Licenses, sources and bans of the dependencies, against `deny.toml`: by cargo-deny if it is installed, or else by a
//! script, because to build cargo-deny takes longer than most checks.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Result, cargo, root, run, tools};

const NAME: &str = "cargo-deny";
const SCRIPT: &str = "xtask/dependencies.py";

/// The checks that work offline. Advisories are left out, because they are fetched from the network and change from day
/// to day: a check that passed could fail although nothing changed here.
pub(crate) fn dependencies() -> Result {
    match tools::installed(NAME) {
        Some(program) => deny(&program, "check bans licenses sources"),
        None => by_script(),
    }
}

/// Installs cargo-deny if it is missing.
pub(crate) fn advisories() -> Result {
    deny(&tools::installed_or_built(NAME, "")?, "check advisories")
}

fn deny(program: &Path, args: &str) -> Result {
    run(Command::new(program).args(args.split_whitespace()).current_dir(root()))
}

fn by_script() -> Result {
    let mut metadata = cargo("metadata --format-version 1 --all-features --locked");
    let metadata = metadata.stdout(Stdio::piped()).spawn();
    let mut metadata = metadata.map_err(|error| format!("cannot list the dependencies: {error}"))?;
    let listed = metadata.stdout.take().expect("it is piped");
    let mut script = Command::new("python3");
    run(script.args([SCRIPT, "deny.toml"]).stdin(listed).current_dir(root()))?;
    // A list that broke off is no JSON, which the script has refused.
    metadata.wait().map(drop).map_err(|error| format!("cannot list the dependencies: {error}"))
}
