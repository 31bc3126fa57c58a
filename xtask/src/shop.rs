//! The demo shop of `dormouse dev`, for tasks that need a server with data.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::{Result, built, cargo, run};

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
        let text = self.get("/metrics")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.and_then(|value| value.trim().parse().ok()).unwrap_or(0))
    }

    fn get(&self, path: &str) -> Result<String> {
        let host = self.url.trim_start_matches("http://");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        TcpStream::connect(host)
            .and_then(|mut stream| {
                stream.write_all(request.as_bytes())?;
                stream.read_to_string(&mut answer)
            })
            .map_err(|error| format!("{}{path} cannot be read: {error}", self.url))?;
        Ok(answer)
    }
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
