//! A PostgreSQL server.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::binaries::Binaries;
use crate::home::{Home, failed};
use crate::process::Process;
use crate::{Result, port};

/// A start may include recovery after a crash.
const START_MAX: Duration = Duration::from_secs(60);
const START_POLL: Duration = Duration::from_millis(10);
/// How long a restart waits for its port, which another process may be probing in search of a free one.
const PORT_WAIT_MAX: Duration = Duration::from_secs(10);
const PORT_POLL: Duration = Duration::from_millis(100);

/// What the server logs before it ends when its port is taken.
const PORT_TAKEN: &str = "could not create any TCP/IP sockets";

/// An immediate shutdown: no checkpoint, so that the next start recovers as after a crash.
const STOP_SIGNAL: &str = "QUIT";

/// A running server, which ends and loses its data when this is dropped.
///
/// Its log stays in its directory if a panic drops it, such as that of a failed test.
pub struct Server {
    // Dropped before the home, which is removed after the process has ended.
    process: Option<Process>,
    home: Home,
    binaries: Binaries,
    port: u16,
}

impl Server {
    /// Creates a new cluster in `dir`, which nothing else may use, and starts it with these settings of
    /// `postgresql.conf`.
    pub fn start(binaries: &Binaries, dir: &Path, settings: &[(&str, &str)]) -> Result<Server> {
        let home = Home::claim(dir)?;
        create_cluster(binaries, &home)?;
        configure(&home, settings)?;
        for port in port::free() {
            if let Some(process) = launch(binaries, &home, port)? {
                return Ok(Server { process: Some(process), home, binaries: binaries.clone(), port });
            }
        }
        Err("every port that was free a moment ago was taken when the server started".to_owned())
    }

    /// The address of a database on this server. A new server has one, named `postgres`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1 that it listens on, the same after [`Server::start_again`].
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory that it was given.
    pub fn dir(&self) -> &Path {
        self.home.dir()
    }

    /// The directory of the cluster, with `postgresql.conf`.
    pub fn data(&self) -> &Path {
        self.home.data()
    }

    /// The programs that it runs.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Everything that it has logged.
    pub fn log(&self) -> String {
        self.home.log()
    }

    /// How many bytes it has logged.
    pub fn log_bytes(&self) -> u64 {
        self.home.log_bytes()
    }

    /// What it has logged after the first so many bytes.
    pub fn log_since(&self, bytes: u64) -> String {
        self.home.log_since(bytes)
    }

    /// Ends it without a checkpoint, as a crash of all its processes would. Returns when it has ended.
    pub fn stop_immediate(&mut self) {
        self.process = None;
    }

    /// Starts it again with its data and its port. It must have been stopped.
    pub fn start_again(&mut self) -> Result {
        assert!(self.process.is_none(), "a server must be stopped before it is started again");
        let started = Instant::now();
        while self.process.is_none() && started.elapsed() < PORT_WAIT_MAX {
            self.process = launch(&self.binaries, &self.home, self.port)?;
            if self.process.is_none() {
                thread::sleep(PORT_POLL);
            }
        }
        let taken = || format!("the port {} was taken while its server was stopped", self.port);
        self.process.as_ref().map(|_| ()).ok_or_else(taken)
    }

    /// Makes it read `postgresql.conf` again. The changes take effect a moment later.
    pub fn reload(&self) -> Result {
        let process = self.process.as_ref().ok_or("a stopped server reads no settings; start it again")?;
        let mut kill = self.home.account.command("sh");
        let kill = kill.args(["-c", "kill -HUP \"$1\"", "reload", &process.id().to_string()]);
        let sent = kill.status().is_ok_and(|status| status.success());
        if sent { Ok(()) } else { Err("the server has ended, see its log".to_owned()) }
    }
}

fn create_cluster(binaries: &Binaries, home: &Home) -> Result {
    let program = binaries.program("initdb");
    // The new cluster need not be on disk: a machine that loses power loses the test too.
    let args = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"];
    let output = home.account.command(&program).args(args).arg(home.data()).output();
    let output = output.map_err(failed("run", &program))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} ended with {}: {said}", program.display(), output.status))
}

/// Writes settings to the file, because a reload could not change settings from the command line.
fn configure(home: &Home, settings: &[(&str, &str)]) -> Result {
    // No socket in the file system, because its path is limited to about a hundred bytes.
    let own = [("listen_addresses", "127.0.0.1"), ("unix_socket_directories", "")];
    let lines = own.iter().chain(settings).map(|(name, value)| {
        let value = value.replace('\'', "''");
        format!("{name} = '{value}'\n")
    });
    let path = home.data().join("postgresql.conf");
    let mut file = File::options().append(true).open(&path).map_err(failed("open", &path))?;
    file.write_all(lines.collect::<String>().as_bytes()).map_err(failed("write to", &path))
}

/// `None` if the port is taken.
fn launch(binaries: &Binaries, home: &Home, port: u16) -> Result<Option<Process>> {
    let log_before = home.log().len();
    let mut command = home.account.command(binaries.program("postgres"));
    command.arg("-D").arg(home.data()).args(["-p", &port.to_string()]);
    let mut process = Process::start(&mut command, home.open_log()?, STOP_SIGNAL)?;
    let started = Instant::now();
    while !accepts_connections(home, &process) {
        let said = || home.log().get(log_before..).unwrap_or_default().to_owned();
        if let Some(status) = process.ended() {
            let said = said();
            let taken = said.contains(PORT_TAKEN);
            return if taken { Ok(None) } else { Err(format!("PostgreSQL ended with {status}: {said}")) };
        }
        if started.elapsed() > START_MAX {
            return Err(format!("PostgreSQL had not started after {START_MAX:?}: {}", said()));
        }
        thread::sleep(START_POLL);
    }
    Ok(Some(process))
}

/// Reads the file that `pg_ctl` reads: the first line is the process id, the eighth its state. A connection would not
/// show whether this server is the one that answers.
fn accepts_connections(home: &Home, process: &Process) -> bool {
    let text = fs::read_to_string(home.data().join("postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.first() == Some(&process.id().to_string().as_str()) && lines.get(7) == Some(&"ready")
}
