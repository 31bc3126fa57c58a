//! schemathesis: generates requests from the OpenAPI document that the server serves, and checks the responses against
//! it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::postgres::Database;
use crate::shop::{self, Shop, dormouse};
use crate::{Result, install_packages, root, run, run_within};

/// Every program it needs, by version.
const REQUIREMENTS: &str = "xtask/schemathesis.txt";
/// Its configuration.
const CONFIG: &str = "xtask/schemathesis.toml";
/// A run that takes longer is stuck: the number of requests is limited.
const RUN_MAX: Duration = Duration::from_secs(240);

/// `cargo xtask schemathesis`.
pub(crate) fn alone(pg_bin: Option<&Path>) -> Result {
    test(&Database::start(pg_bin)?)
}

/// Installs it if it is missing.
pub(crate) fn require() -> Result {
    environment().map(drop)
}

/// Runs once on each store: on one with an API key, on the other open to anyone.
pub(crate) fn test(database: &Database) -> Result {
    let python = environment()?;
    shop::build()?;
    let dir = root().join("target/schemathesis").join(std::process::id().to_string());
    fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let tested = on_sqlite(&python, &dir).and_then(|()| on_postgres(&python, database));
    // Leftovers are removed with the rest of `target`.
    let _ = fs::remove_dir_all(&dir);
    tested
}

fn on_sqlite(python: &Path, dir: &Path) -> Result {
    let db = format!("sqlite:{}", dir.join("shop.db").display());
    run(&mut dormouse(&["--db", &db, "migrate"]))?;
    let key = make_key(&db)?;
    let shop = Shop::open(&db)?;
    let header = format!("Authorization: Bearer {key}");
    run_within(RUN_MAX, schemathesis(python, &shop).arg("--header").arg(header))
}

fn on_postgres(python: &Path, database: &Database) -> Result {
    let db = database.create("schemathesis")?;
    run(&mut dormouse(&["--db", &db, "migrate"]))?;
    let shop = Shop::open(&db)?;
    run_within(RUN_MAX, &mut schemathesis(python, &shop))
}

fn schemathesis(python: &Path, shop: &Shop) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "schemathesis.cli", "--config-file", CONFIG, "run"]);
    command.arg(format!("{}/openapi.json", shop.url)).current_dir(root());
    command
}

fn make_key(db: &str) -> Result<String> {
    let args = ["--db", db, "keys", "create", "--label", "schemathesis", "--scope", "admin"];
    let output = dormouse(&args).output().map_err(|error| format!("cannot run dormouse: {error}"))?;
    let key = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || key.is_empty() {
        return Err(format!("no API key was created: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(key)
}

/// The Python of a virtual environment with schemathesis.
fn environment() -> Result<PathBuf> {
    let home = root().join("target/tools/schemathesis");
    let python = home.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let wanted = fs::read_to_string(root().join(REQUIREMENTS))
        .map_err(|error| format!("cannot read {REQUIREMENTS}: {error}"))?;
    // Written when the installation is complete.
    let whole = home.join("requirements.txt");
    if fs::read_to_string(&whole).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    require_python()?;
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
    let mut pip = Command::new(&python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
        REQUIREMENTS,
    ]);
    run(pip.current_dir(root())).map_err(|error| {
        format!(
            "schemathesis could not be installed ({error}): it comes from PyPI, which pip has to reach, and needs \
             Python 3.10 or newer; without it there is `cargo xtask test --fast`"
        )
    })?;
    fs::write(&whole, wanted).map_err(|error| format!("cannot write {}: {error}", whole.display()))?;
    Ok(python)
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
