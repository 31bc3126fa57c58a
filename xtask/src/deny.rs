//! cargo-deny: checks licenses, sources and bans of the dependencies against `deny.toml`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{Result, cargo, root, run};

/// The checks that work offline. Advisories are left out, because they are fetched from the network and change from day
/// to day: a check that passed could fail although nothing changed here.
pub(crate) fn dependencies() -> Result {
    deny("check bans licenses sources")
}

pub(crate) fn advisories() -> Result {
    deny("check advisories")
}

/// Installs it if it is missing.
pub(crate) fn require() -> Result {
    program().map(drop)
}

fn deny(args: &str) -> Result {
    run(Command::new(program()?).args(args.split_whitespace()).current_dir(root()))
}

fn program() -> Result<PathBuf> {
    installed().map_or_else(install, Ok)
}

/// The cargo-deny on the path, or the one that was installed here.
fn installed() -> Option<PathBuf> {
    ["cargo-deny".into(), own_binary()].into_iter().find(|program| {
        let version =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

fn install() -> Result<PathBuf> {
    println!("cargo-deny is not installed: building it once into target/tools, which takes some minutes");
    run(&mut cargo("install cargo-deny --locked --debug --root target/tools")).map_err(|error| {
        format!(
            "cargo-deny is missing and could not be installed ({error}); run `cargo install cargo-deny \
             --locked` where there is a network, or put its binary on the path"
        )
    })?;
    Ok(own_binary())
}

fn own_binary() -> PathBuf {
    root().join("target/tools/bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX))
}
