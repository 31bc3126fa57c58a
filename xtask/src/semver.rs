//! `cargo xtask semver`: the public API against that of an earlier release or commit, by cargo-semver-checks.

use std::process::Command;

use crate::{Result, root, run, tools, upgrade};

/// Fails on a change that breaks users of the earlier one, unless the version says so. Before the first release, that is
/// a list to read and no fault.
pub(crate) fn check(from: Option<String>) -> Result {
    let program = tools::installed_or_built("cargo-semver-checks", "")?;
    let from = from.map_or_else(upgrade::earlier, Ok)?;
    let mut check = Command::new(program);
    check.args([
        "semver-checks",
        "--baseline-rev",
        &from,
        "--package",
        "dormouse",
        "--package",
        "dormouse-server",
    ]);
    run(check.current_dir(root()))
}
