//! schemathesis: requests made up from the OpenAPI document that the server serves, and answers held against it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::postgres::Database;
use crate::{Result, cargo, install_packages, root, run, run_within};

/// Every program it needs, by version.
const REQUIREMENTS: &str = "xtask/schemathesis.txt";
/// What it is to try.
const CONFIG: &str = "xtask/schemathesis.toml";
/// A run that takes longer is stuck: it makes up so many requests and no more.
const RUN_MAX: Duration = Duration::from_secs(240);

/// `cargo xtask schemathesis`.
pub(crate) fn alone(pg_bin: Option<&Path>) -> Result {
    test(&Database::start(pg_bin)?)
}

/// Once on each store: on one with an API key, on the other open to anyone.
pub(crate) fn test(database: &Database) -> Result {
    let python = environment()?;
    run(&mut cargo("build --workspace --all-features --bins"))?;
    let dir = root().join("target/schemathesis").join(std::process::id().to_string());
    fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let tested = on_sqlite(&python, &dir).and_then(|()| on_postgres(&python, database));
    // What is left there would be removed with the rest of `target`.
    let _ = fs::remove_dir_all(&dir);
    tested
}

fn on_sqlite(python: &Path, dir: &Path) -> Result {
    let db = format!("sqlite:{}", dir.join("shop.db").display());
    run(dormouse(&db).arg("migrate"))?;
    let key = make_key(&db)?;
    let shop = Shop::open(&db)?;
    let header = format!("Authorization: Bearer {key}");
    run_within(RUN_MAX, schemathesis(python, &shop).arg("--header").arg(header))
}

fn on_postgres(python: &Path, database: &Database) -> Result {
    let db = database.create("schemathesis")?;
    run(dormouse(&db).arg("migrate"))?;
    let shop = Shop::open(&db)?;
    run_within(RUN_MAX, &mut schemathesis(python, &shop))
}

fn schemathesis(python: &Path, shop: &Shop) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "schemathesis.cli", "--config-file", CONFIG, "run"]);
    command.arg(format!("{}/openapi.json", shop.url)).current_dir(root());
    command
}

/// The shop that `dormouse dev` runs, which ends with this.
struct Shop {
    process: Child,
    url: String,
    // It would break if nobody could hear what it says.
    _output: BufReader<ChildStdout>,
}

impl Shop {
    fn open(db: &str) -> Result<Self> {
        let mut command = dormouse(db);
        command.args(["dev", "--bind", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|error| format!("cannot run dormouse: {error}"))?;
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut said = String::new();
        while output.read_line(&mut said).is_ok_and(|bytes| bytes > 0) {
            if let Some(url) = said.split_whitespace().find(|word| word.starts_with("http://")) {
                let url = url.to_owned();
                return Ok(Self { process, url, _output: output });
            }
        }
        let _ = process.wait();
        Err(format!("`dormouse dev` ended without saying where it serves; it said {said:?}"))
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        // It may have ended by itself, which its last answers have told already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn make_key(db: &str) -> Result<String> {
    let mut command = dormouse(db);
    command.args(["keys", "create", "--label", "schemathesis", "--scope", "admin"]);
    let output = command.output().map_err(|error| format!("cannot run dormouse: {error}"))?;
    let key = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || key.is_empty() {
        return Err(format!("no API key was made: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(key)
}

/// The program that was just built, beside this one.
fn dormouse(db: &str) -> Command {
    let this = std::env::current_exe().expect("this program has a path");
    let profiles = this.parent().and_then(Path::parent).expect("it is where cargo put it");
    let mut command =
        Command::new(profiles.join("debug").join(format!("dormouse{}", std::env::consts::EXE_SUFFIX)));
    command.args(["--db", db]).env_remove("RUST_LOG");
    command
}

/// The Python of an environment of our own that has schemathesis.
fn environment() -> Result<PathBuf> {
    let home = root().join("target/tools/schemathesis");
    let python = home.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let wanted = fs::read_to_string(root().join(REQUIREMENTS))
        .map_err(|error| format!("cannot read {REQUIREMENTS}: {error}"))?;
    // Written when all of it is there.
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

/// Debian keeps what makes an environment apart from Python itself.
fn require_python() -> Result {
    let mut python = Command::new("python3");
    python.args(["-c", "import ensurepip, venv"]).stdout(Stdio::null()).stderr(Stdio::null());
    if python.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    install_packages(&["python3-venv"])
}
