//! The browser that the tests drive: Debian's Chromium with its driver, installed if it is missing.

use std::process::{Command, Stdio};

use crate::{Result, install_packages};

pub(crate) fn require() -> Result {
    let missing: Vec<_> = [("chromium", "chromium"), ("chromedriver", "chromium-driver")]
        .into_iter()
        .filter(|(program, _)| !runs(program))
        .map(|(_, package)| package)
        .collect();
    if missing.is_empty() { Ok(()) } else { install_packages(&missing) }
}

fn runs(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}
