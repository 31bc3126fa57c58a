//! The demo shop of `dormouse dev`, for tasks that need a server with data.

use std::io::{BufRead as _, BufReader};
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
        let mut command = dormouse(&["--db", db, "dev", "--bind", "127.0.0.1:0"]);
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
