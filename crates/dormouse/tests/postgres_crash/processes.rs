//! Worker processes, and what they said.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::sync::watch;

use super::SOON;
use super::child;
use super::database::Database;
use super::shop::{Fact, Tell};

/// How workers are started.
pub struct Start {
    command: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Start {
    pub fn new(database: &Database, mode: &str) -> Self {
        let program = std::env::current_exe().expect("this binary").display().to_string();
        let test = ["--exact", "child::the_child_does_as_it_is_told", "--nocapture", "--test-threads", "1"];
        let start = Self {
            command: std::iter::once(program).chain(test.map(str::to_owned)).collect(),
            environment: Vec::new(),
        };
        start.set(child::DATABASE, &database.url()).set(child::MODE, mode)
    }

    pub fn set(mut self, variable: &str, value: &str) -> Self {
        self.environment.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Runs it by another command.
    pub fn by(mut self, before: &[&str]) -> Self {
        self.command.splice(0..0, before.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Runs it, and tells what it tells.
    pub fn run(&self, tell: Tell) -> Worker {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).envs(self.environment.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("a process");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (heard, said) = watch::channel(Said::default());
        let reader = std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let fact = Fact::parse(&line);
                heard.send_modify(|said| match &fact {
                    Some(_) => said.facts += 1,
                    None => said.lines.push(line),
                });
                fact.into_iter().for_each(&*tell);
            }
        });
        Worker { child, reader: Some(reader), said }
    }
}

/// What a worker has said so far.
#[derive(Default)]
struct Said {
    facts: usize,
    /// Everything else.
    lines: Vec<String>,
}

/// A worker process, killed when dropped.
pub struct Worker {
    child: Child,
    reader: Option<std::thread::JoinHandle<()>>,
    said: watch::Receiver<Said>,
}

impl Worker {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resolves when it has told this many facts in all.
    pub async fn told(&mut self, facts: usize) {
        self.until(|said| said.facts >= facts).await;
    }

    /// Resolves when it has said this word, with what it said after it.
    pub async fn said(&mut self, word: &str) -> String {
        let after =
            |said: &Said| said.lines.iter().find_map(|line| Some(line.split_once(word)?.1.trim().to_owned()));
        self.until(|said| after(said).is_some()).await;
        after(&self.said.borrow()).expect("it was just there")
    }

    async fn until(&mut self, reached: impl FnMut(&Said) -> bool) {
        let until = tokio::time::timeout(SOON, self.said.wait_for(reached)).await;
        until.expect("it goes on").expect("it runs until it is killed");
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.pid().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Kills it with -9, and returns when it is gone and all that it said was heard.
    pub async fn kill(mut self) {
        self.end();
    }

    /// Asks it to end, and returns how it did.
    pub async fn terminate(mut self) -> ExitStatus {
        self.signal("-TERM");
        let ended = tokio::time::timeout(SOON, async {
            loop {
                if let Some(status) = self.child.try_wait().expect("a child") {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let status = ended.await.expect("it ends");
        self.end();
        status
    }

    fn end(&mut self) {
        // One that has ended cannot be killed, which is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says nothing to anyone.
pub fn deaf() -> Tell {
    std::sync::Arc::new(|_| {})
}
