//! Tools from PyPI, npm and crates.io, installed into `target/tools` in fixed versions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, io};

use crate::{Result, cargo, install_packages, root, run, run_within};

/// A registry that takes longer counts as unreachable.
const FETCH_MAX: Duration = Duration::from_secs(180);

/// The Python of a virtual environment with what this file of requirements lists.
pub(crate) fn python(name: &str, requirements: &str) -> Result<PathBuf> {
    let home = root().join("target/tools").join(name);
    let python = home.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let wanted = read(&root().join(requirements))?;
    // Written when the installation is complete.
    let whole = home.join("requirements.txt");
    if fs::read_to_string(&whole).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    require_python()?;
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]);
    run_within(FETCH_MAX, pip.args(["--requirement", requirements]).current_dir(root())).map_err(|error| {
        format!(
            "{name} could not be installed ({error}): it comes from PyPI, which pip has to reach, and needs Python 3.10 \
             or newer"
        )
    })?;
    write(&whole, &wanted)?;
    Ok(python)
}

/// A directory with the packages that `package-lock.json` in this directory lists, beside copies of its other files.
pub(crate) fn node(name: &str, from: &str) -> Result<PathBuf> {
    let home = root().join("target/tools").join(name);
    let lock = "package-lock.json";
    let wanted = read(&root().join(from).join(lock))?;
    let whole = home.join("installed.json");
    if fs::read_to_string(&whole).is_ok_and(|installed| installed == wanted) {
        return Ok(home);
    }
    require_npm()?;
    fs::create_dir_all(&home).map_err(|error| format!("cannot make {}: {error}", home.display()))?;
    for file in ["package.json", lock] {
        write(&home.join(file), &read(&root().join(from).join(file))?)?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries", "1"])
        .current_dir(&home);
    run_within(FETCH_MAX, npm.stdout(io::stderr()))?;
    write(&whole, &wanted)?;
    Ok(home)
}

/// A program of crates.io: the one on the path, or the one that was built here before.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let runs = |program: &PathBuf| {
        let version =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    [PathBuf::from(name), own(name)].into_iter().find(runs)
}

/// The same, built here if there is none. `how` are further arguments, such as its version.
pub(crate) fn installed_or_built(name: &str, how: &str) -> Result<PathBuf> {
    if let Some(program) = installed(name) {
        return Ok(program);
    }
    println!("{name} is not installed: building it once into target/tools, which takes some minutes");
    run(&mut cargo(&format!("install {name} --locked --debug --root target/tools {how}"))).map_err(|error| {
        format!(
            "{name} is missing and could not be installed ({error}); run `cargo install {name} --locked` where \
             there is a network, or put its binary on the path"
        )
    })?;
    Ok(own(name))
}

fn own(name: &str) -> PathBuf {
    root().join("target/tools/bin").join(format!("{name}{}", env::consts::EXE_SUFFIX))
}

/// Installs one package, by its name and version, which depends on no other.
pub(crate) fn npm_install(home: &Path, package: &str) -> Result {
    fs::create_dir_all(home).map_err(|error| format!("cannot make {}: {error}", home.display()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries", "1", "--prefix"]);
    run_within(FETCH_MAX, npm.arg(home).arg(package).stdout(io::stderr()))
}

/// Whether there is an `npm`.
pub(crate) fn require_npm() -> Result {
    let npm = Command::new("npm").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match npm {
        Ok(status) if status.success() => Ok(()),
        _ => Err("it comes from npm, and there is no `npm` on the path".to_owned()),
    }
}

/// Debian packages the module for virtual environments separately from Python.
fn require_python() -> Result {
    let mut python = Command::new("python3");
    python.args(["-c", "import ensurepip, venv"]).stdout(Stdio::null()).stderr(Stdio::null());
    if python.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    install_packages(&["python3-venv"])
}

pub(crate) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

pub(crate) fn write(file: &Path, text: &str) -> Result {
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
