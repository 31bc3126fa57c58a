//! schemathesis: generates requests from the OpenAPI document that the server serves, and checks the responses against
//! it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::postgres::Database;
use crate::shop::{self, Shop, dormouse, make_key};
use crate::{Result, root, run, run_within, tools};

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

/// The Python of a virtual environment with schemathesis.
fn environment() -> Result<PathBuf> {
    tools::python("schemathesis", REQUIREMENTS)
        .map_err(|error| format!("{error}; without it there is `cargo xtask test --fast`"))
}
