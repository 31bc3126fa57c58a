//! A NATS server with JetStream.

use std::env;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::home::Home;
use crate::process::Process;
use crate::{Result, port};

/// Where Debian installs it, which is not on everyone's path.
const DEBIAN: &str = "/usr/sbin";

/// A start may include recovery after a crash.
const START_MAX: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(10);
/// How long a restart waits for its port, which another process may be probing in search of a free one.
const PORT_WAIT_MAX: Duration = Duration::from_secs(10);

/// What the server logs before it ends when its port is taken.
const PORT_TAKEN: &str = "address already in use";

/// Ends the server without a warning.
const STOP_SIGNAL: &str = "KILL";

/// A running NATS server, which ends and loses its streams when this is dropped.
pub struct Nats {
    // Dropped before the home, which is removed after the process has ended.
    process: Option<Process>,
    home: Home,
    program: PathBuf,
    port: u16,
}

impl Nats {
    /// The program: on the path, or where Debian installs it.
    pub fn find() -> Result<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let dirs = env::split_paths(&path).chain([DEBIAN.into()]);
        dirs.map(|dir| dir.join("nats-server")).find(|program| program.is_file()).ok_or_else(|| {
            "there is no NATS server on this machine; run `cargo xtask test`, which installs it on Debian, or \
             put `nats-server` on the path"
                .to_owned()
        })
    }

    /// Starts one in `dir`, which nothing else may use.
    pub fn start(dir: &Path) -> Result<Nats> {
        let program = Nats::find()?;
        let home = Home::claim(dir)?;
        for port in port::free() {
            if let Some(process) = launch(&program, &home, port)? {
                return Ok(Nats { process: Some(process), home, program, port });
            }
        }
        Err("every port that was free a moment ago was taken when the NATS server started".to_owned())
    }

    /// Its address, the same after [`Nats::start_again`].
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Everything that it has logged.
    pub fn log(&self) -> String {
        self.home.log()
    }

    /// Kills it, as by `kill -9`. Returns when it has ended.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it on the streams and the port that it had. It must have been killed.
    pub fn start_again(&mut self) -> Result {
        assert!(self.process.is_none(), "a server must be killed before it is started again");
        let started = Instant::now();
        while self.process.is_none() && started.elapsed() < PORT_WAIT_MAX {
            self.process = launch(&self.program, &self.home, self.port)?;
            thread::sleep(START_POLL);
        }
        let taken = || format!("the port {} was taken while its server was stopped", self.port);
        self.process.as_ref().map(|_| ()).ok_or_else(taken)
    }
}

/// `None` if the port is taken.
fn launch(program: &Path, home: &Home, port: u16) -> Result<Option<Process>> {
    let log_before = home.log().len();
    let mut command = home.account.command(program);
    command.args(["--jetstream", "--addr", "127.0.0.1", "--port", &port.to_string(), "--store_dir"]);
    let mut process = Process::start(command.arg(home.data()), home.open_log()?, STOP_SIGNAL)?;
    let started = Instant::now();
    loop {
        let log = home.log();
        let said = log.get(log_before..).unwrap_or_default();
        if let Some(status) = process.ended() {
            let taken = said.contains(PORT_TAKEN);
            return if taken {
                Ok(None)
            } else {
                Err(format!("the NATS server ended with {status}: {said}"))
            };
        }
        if said.contains("Server is ready") {
            return Ok(Some(process));
        }
        if started.elapsed() > START_MAX {
            return Err(format!("the NATS server had not started after {START_MAX:?}: {said}"));
        }
        thread::sleep(START_POLL);
    }
}
