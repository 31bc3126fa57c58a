//! The PostgreSQL that the tests use: found or installed, and started only for them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

use private_postgres::{Binaries, Nats, Pooler, Server};

use crate::{Result, install_packages, root, run};

/// The environment variable with the URL of a database that tests may connect to, to create their own.
const URL: &str = "DORMOUSE_TEST_POSTGRES";
/// The environment variable with the directory of the programs for servers that tests start themselves.
const PROGRAMS: &str = "DORMOUSE_PG_BIN";
/// The environment variable that makes the stores of the conformance suite connect through a pooler.
const POOLER: &str = "DORMOUSE_TEST_POOLER";

/// Settings for many databases of many tests at once, none of which needs to survive a power failure.
const SETTINGS: [(&str, &str); 5] = [
    ("fsync", "off"),
    ("synchronous_commit", "on"),
    ("max_connections", "400"),
    ("shared_buffers", "256MB"),
    ("max_wal_size", "512MB"),
];

/// Linux's directory in memory, and how much of it a server may use.
const IN_MEMORY: &str = "/dev/shm/dormouse-tests";
const ROOM_MIB: u64 = 1024;

/// A server that ends when this is dropped.
pub(crate) struct Database {
    server: Server,
}

impl Database {
    /// Installs what is missing. `pg_bin` is the directory of the programs to use instead of those that are found.
    pub(crate) fn start(pg_bin: Option<&Path>) -> Result<Database> {
        install_missing(pg_bin)?;
        Database::of(&programs(pg_bin)?)
    }

    pub(crate) fn of(binaries: &Binaries) -> Result<Database> {
        // Several processes may each run one, and a second one of another version.
        let name = format!("{}-{}", std::process::id(), binaries.major());
        let server = Server::start(binaries, &homes().join(name), &SETTINGS)?;
        println!(
            "PostgreSQL {} of {} runs on {}",
            binaries.major(),
            binaries.dir().display(),
            server.url("")
        );
        Ok(Database { server })
    }

    /// Passes the server's address to the command.
    pub(crate) fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env(URL, self.url()).env(PROGRAMS, self.server.binaries().dir())
    }

    /// The error, with the path of a copy of the server's log: the server removes its own.
    pub(crate) fn with_log(&self, error: String) -> String {
        let dir = root().join("target/postgres");
        match fs::create_dir_all(&dir).and_then(|()| fs::write(dir.join("failed.log"), self.server.log())) {
            Ok(()) => format!("{error}\nPostgreSQL's log is in target/postgres/failed.log"),
            Err(unwritten) => format!("{error}\nPostgreSQL's log could not be kept: {unwritten}"),
        }
    }

    /// The address of a new database.
    pub(crate) fn create(&self, name: &str) -> Result<String> {
        let program = self.server.binaries().dir().join("createdb");
        run(Command::new(program).arg("--maintenance-db").arg(self.url()).arg(name))?;
        Ok(self.server.url(name))
    }

    fn url(&self) -> String {
        self.server.url("postgres")
    }
}

/// Where servers keep their data: in memory, if it has room. Tests create a thousand databases of three hundred files
/// each, and tests of crash recovery start their own servers.
fn homes() -> PathBuf {
    let in_memory = Path::new(IN_MEMORY);
    let usable = || fs::create_dir_all(in_memory).is_ok() && mebibytes_free(in_memory) >= Some(ROOM_MIB);
    if Path::new("/dev/shm").is_dir() && usable() {
        in_memory.to_owned()
    } else {
        root().join("target/postgres")
    }
}

/// `None` if it cannot be determined.
fn mebibytes_free(dir: &Path) -> Option<u64> {
    let told = Command::new("df").args(["--output=avail", "--block-size=1M"]).arg(dir).output().ok()?;
    String::from_utf8(told.stdout).ok()?.lines().nth(1)?.trim().parse().ok()
}

/// `cargo xtask postgres`: a server for those who type `cargo test`.
pub(crate) fn foreground(pg_bin: Option<&Path>) -> Result {
    let database = Database::start(pg_bin)?;
    println!("\nexport {URL}={}", database.url());
    println!("export {PROGRAMS}={}", database.server.binaries().dir().display());
    let pooler = pooler(&database.server)?;
    println!("\nTo let the stores of the conformance suite connect through a pooler:");
    println!("\nexport {POOLER}={}", pooler.url("postgres"));
    println!("\nType these lines where you run the tests. Ctrl-C ends the server.");
    loop {
        thread::park();
    }
}

/// A pooler with few connections for each database, which clients share.
fn pooler(server: &Server) -> Result<Pooler> {
    let dir = root().join("target/postgres").join(format!("{}-pooler", std::process::id()));
    Pooler::start(server, &dir, &[("default_pool_size", "3"), ("server_round_robin", "1")])
}

fn programs(pg_bin: Option<&Path>) -> Result<Binaries> {
    pg_bin.map_or_else(Binaries::find, |dir| Binaries::at(dir).map_err(|error| format!("--pg-bin: {error}")))
}

/// Installs PostgreSQL and what goes with it, unless it is there.
pub(crate) fn install_missing(pg_bin: Option<&Path>) -> Result {
    let mut packages = Vec::new();
    // If the user named a wrong directory, installing something would not help.
    let is_named = pg_bin.is_some() || env::var_os(PROGRAMS).is_some();
    if !is_named && Binaries::find().is_err() {
        packages.push("postgresql");
    }
    if Pooler::find().is_err() {
        packages.push("pgbouncer");
    }
    if Nats::find().is_err() {
        packages.push("nats-server");
    }
    if packages.is_empty() {
        return Ok(());
    }
    install_packages(&packages)
}
