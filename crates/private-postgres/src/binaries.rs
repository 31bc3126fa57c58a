//! Where PostgreSQL's programs are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::account::Account;

/// The environment variable with the directory to use, which goes before all others.
const VARIABLE: &str = "DORMOUSE_PG_BIN";
/// Where Debian keeps a directory for each major version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The programs of one PostgreSQL version.
#[derive(Clone, Debug)]
pub struct Binaries {
    dir: PathBuf,
    major: u32,
}

impl Binaries {
    /// Those in `DORMOUSE_PG_BIN` if it is set, else the newest of Debian's, else those that `pg_config` names,
    /// else those on the path.
    pub fn find() -> Result<Binaries> {
        if let Some(dir) = env::var_os(VARIABLE) {
            return Binaries::at(Path::new(&dir)).map_err(|error| format!("{VARIABLE} is set, but {error}"));
        }
        let newest = of_debian().into_iter().max_by_key(Binaries::major);
        newest.or_else(|| elsewhere().iter().find_map(|dir| Binaries::at(dir).ok())).ok_or_else(|| {
            format!(
                "there is no PostgreSQL server on this machine; run `cargo xtask test`, which installs one on \
                 Debian, or install one and set {VARIABLE} to the directory of its `postgres` and `initdb`"
            )
        })
    }

    /// Those in `dir`.
    pub fn at(dir: &Path) -> Result<Binaries> {
        let dir = std::path::absolute(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        if let Some(missing) = ["initdb", "postgres"].iter().find(|name| !dir.join(name).is_file()) {
            return Err(format!("there is no `{missing}` in {}", dir.display()));
        }
        let major = major_of(&dir.join("postgres"))?;
        Ok(Binaries { dir, major })
    }

    /// The directory that they are in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Their major version, such as 18.
    pub fn major(&self) -> u32 {
        self.major
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

fn of_debian() -> Vec<Binaries> {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    versions.filter_map(|version| Binaries::at(&version.path().join("bin")).ok()).collect()
}

fn elsewhere() -> Vec<PathBuf> {
    let told = Command::new("pg_config").arg("--bindir").output().ok();
    let told = told.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    told.into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())).collect()
}

/// Runs it as the user that will run the server, so that programs that this user cannot run are not chosen.
fn major_of(postgres: &Path) -> Result<u32> {
    let account = Account::unprivileged()?;
    let output =
        account.command(postgres).arg("--version").output().map_err(|error| {
            format!("the user {} cannot run {}: {error}", account.name(), postgres.display())
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    major_in(&text).ok_or_else(|| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("`{} --version` printed no version: {text}{complaint}", postgres.display())
    })
}

/// The first number in a text such as `postgres (PostgreSQL) 15.8 (Debian 15.8-0)` or `... 19beta1`.
fn major_in(text: &str) -> Option<u32> {
    let from = text.find(|c: char| c.is_ascii_digit())?;
    let digits = text[from..].split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[test]
fn the_major_version_is_read_from_what_postgres_tells() {
    assert_eq!(major_in("postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)"), Some(15));
    assert_eq!(major_in("postgres (PostgreSQL) 19beta1"), Some(19));
    assert_eq!(major_in("sh: not found"), None);
}
