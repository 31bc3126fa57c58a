//! The demo shop of `dormouse dev`, for tasks that need a server with data.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::{Result, built, cargo, run};

/// A server that takes longer is not there.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Builds the program, with the features that the tests build it with.
pub(crate) fn build() -> Result {
    run(&mut cargo("build --workspace --all-features --bins"))
}

/// The shop that `dormouse dev` runs, which ends when this is dropped.
pub(crate) struct Shop {
    process: Child,
    pub(crate) url: String,
    // It would fail if nobody read its output.
    _output: BufReader<ChildStdout>,
}

impl Shop {
    pub(crate) fn open(db: &str) -> Result<Self> {
        Self::run_by(dormouse(&[]), db)
    }

    /// The shop of this program.
    pub(crate) fn run_by(mut command: Command, db: &str) -> Result<Self> {
        command.args(["--db", db, "dev", "--bind", "127.0.0.1:0"]);
        command.stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|error| format!("cannot run dormouse: {error}"))?;
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut said = String::new();
        while output.read_line(&mut said).is_ok_and(|bytes| bytes > 0) {
            if let Some(url) = said.split_whitespace().find(|word| word.starts_with("http://")) {
                let url = url.trim_end_matches('/').to_owned();
                return Ok(Self { process, url, _output: output });
            }
        }
        let _ = process.wait();
        Err(format!("`dormouse dev` ended without printing its address; it printed {said:?}"))
    }

    /// The value of a counter without labels that this process exports; 0 if it has not counted yet.
    pub(crate) fn counter(&self, name: &str) -> Result<u64> {
        let host = self.url.trim_start_matches("http://");
        Ok(counter_in(&get(host, "/metrics", None)?, name))
    }
}

/// The value of a counter without labels in the metrics of a process; 0 if it has not counted yet.
pub(crate) fn counter_in(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// The answer of a server at this address and port, with its head; for the holder of an API key, if there is one.
pub(crate) fn get(host: &str, path: &str, key: Option<&str>) -> Result<String> {
    let key = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{key}Connection: close\r\n\r\n");
    let unread = |error| format!("http://{host}{path} cannot be read: {error}");
    let address = host.parse().map_err(|error| format!("{host} is not an address: {error}"))?;
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN).map_err(unread)?;
    let mut answer = String::new();
    stream
        .set_read_timeout(Some(ANSWER_WITHIN))
        .and_then(|()| stream.write_all(request.as_bytes()))
        .and_then(|()| stream.read_to_string(&mut answer))
        .map_err(unread)?;
    Ok(answer)
}

impl Drop for Shop {
    fn drop(&mut self) {
        // It may already have ended, which its last responses have shown.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program that was just built.
pub(crate) fn dormouse(args: &[&str]) -> Command {
    let mut command = built("dormouse");
    command.args(args).env_remove("RUST_LOG");
    command
}

/// Creates an API key that may do anything.
pub(crate) fn make_key(db: &str) -> Result<String> {
    let args = ["--db", db, "keys", "create", "--label", "tests", "--scope", "admin"];
    let output = dormouse(&args).output().map_err(|error| format!("cannot run dormouse: {error}"))?;
    let key = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || key.is_empty() {
        return Err(format!("no API key was created: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(key)
}
