//! A PgBouncer in front of a server.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::home::{Home, failed};
use crate::process::Process;
use crate::{Result, Server, port};

/// Where Debian installs it, which is not on everyone's path.
const DEBIAN: &str = "/usr/sbin";

const START_MAX: Duration = Duration::from_secs(20);
const START_POLL: Duration = Duration::from_millis(10);

/// What PgBouncer logs before it ends when its port is taken.
const PORT_TAKEN: &str = "nowhere to listen on";

/// It has nothing to save. Versions differ in what the milder signals mean.
const STOP_SIGNAL: &str = "KILL";

/// A running PgBouncer in transaction mode, which ends when this is dropped.
pub struct Pooler {
    // Dropped before the home, which is removed after the process has ended.
    _process: Process,
    home: Home,
    port: u16,
}

impl Pooler {
    /// The program: on the path, or where Debian installs it.
    pub fn find() -> Result<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let dirs = env::split_paths(&path).chain([DEBIAN.into()]);
        dirs.map(|dir| dir.join("pgbouncer")).find(|program| program.is_file()).ok_or_else(|| {
            "there is no PgBouncer on this machine; run `cargo xtask test`, which installs it on Debian, or \
             put `pgbouncer` on the path"
                .to_owned()
        })
    }

    /// Starts one in front of `server`, in `dir`, which nothing else may use. The settings belong to the section
    /// `[pgbouncer]`, such as `default_pool_size` and `server_round_robin`.
    pub fn start(server: &Server, dir: &Path, settings: &[(&str, &str)]) -> Result<Pooler> {
        let program = Pooler::find()?;
        let home = Home::claim(dir)?;
        for port in port::free() {
            configure(&home, server, port, settings)?;
            if let Some(process) = launch(&program, &home, port)? {
                return Ok(Pooler { _process: process, home, port });
            }
        }
        Err("every port that was free a moment ago was taken when the pooler started".to_owned())
    }

    /// The address of a database of the server, through this pooler.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1 that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Everything that it has logged.
    pub fn log(&self) -> String {
        self.home.log()
    }
}

fn configure(home: &Home, server: &Server, port: u16, settings: &[(&str, &str)]) -> Result {
    let own = format!(
        "[databases]\n* = host=127.0.0.1 port={} user=postgres\n\n[pgbouncer]\npool_mode = transaction\n\
         listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
         max_client_conn = 1000\n",
        server.port()
    );
    let chosen = settings.iter().map(|(name, value)| format!("{name} = {value}\n"));
    let path = ini(home);
    fs::write(&path, own + &chosen.collect::<String>()).map_err(failed("write to", &path))
}

/// `None` if the port is taken.
fn launch(program: &Path, home: &Home, port: u16) -> Result<Option<Process>> {
    let log_before = home.log().len();
    let mut command = home.account.command(program);
    let mut process = Process::start(command.arg(ini(home)), home.open_log()?, STOP_SIGNAL)?;
    let started = Instant::now();
    loop {
        let log = home.log();
        let said = log.get(log_before..).unwrap_or_default();
        if let Some(status) = process.ended() {
            let taken = said.contains(PORT_TAKEN);
            return if taken { Ok(None) } else { Err(format!("PgBouncer ended with {status}: {said}")) };
        }
        // It logs this only when it has its port, so this process is the one that answers there.
        if said.contains("process up") && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(Some(process));
        }
        if started.elapsed() > START_MAX {
            return Err(format!("PgBouncer had not started after {START_MAX:?}: {said}"));
        }
        thread::sleep(START_POLL);
    }
}

fn ini(home: &Home) -> PathBuf {
    home.data().join("pgbouncer.ini")
}
