//! Other processes on the same store: this program, started again and controlled by lines on its standard input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dormouse::{BoxError, Client, Engine, InstanceId, NewInstance, NewSignal, Target};

use super::load::{GO, Sleeper, Sleeping};
use super::ratios::Tick;

/// What a process beside the measuring one does.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Role {
    /// Runs an engine with 64 places.
    Work,
    /// Starts and signals.
    Call,
}

/// Another process, until it is dropped.
pub(super) struct Beside {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Beside {
    pub(super) fn start(role: Role, url: &str) -> Result<Self, BoxError> {
        let role = match role {
            Role::Work => "work",
            Role::Call => "call",
        };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "--beside", role, "--beside-url", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let to = child.stdin.take().expect("it is piped");
        let from = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut beside = Self { child, to, from };
        beside.hear()?;
        Ok(beside)
    }

    /// Sends a command, and waits for the answer.
    pub(super) fn tell(&mut self, line: &str) -> Result<String, BoxError> {
        writeln!(self.to, "{line}")?;
        self.hear()
    }

    fn hear(&mut self) -> Result<String, BoxError> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err("the process beside this one ended".into());
        }
        Ok(line.trim().to_owned())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process's side: answers each line, until there are no more.
pub(super) async fn run(role: Role, url: &str) -> Result<(), BoxError> {
    let builder = Engine::open(url).await?;
    let client = builder.client();
    let mut builder = Some(builder.job(Tick(Arc::new(AtomicU64::new(0)))).queue("default", 64));
    let mut engine = None;
    println!("ready");
    let mut lines = std::io::stdin().lines();
    while let Some(line) = lines.next().transpose()? {
        match role {
            Role::Work => {
                if let Some(builder) = builder.take() {
                    engine = Some(builder.start().await?);
                }
                println!("works");
            }
            Role::Call => println!("{}", call(&client, &line).await?),
        }
    }
    if let Some(engine) = engine {
        engine.shutdown().await;
    }
    Ok(())
}

/// Signals the instance that the line names, or starts one if it names none.
async fn call(client: &Client, line: &str) -> Result<i64, BoxError> {
    if let Ok(id) = line.parse() {
        let signal = NewSignal::of(GO, &1)?;
        client.signal_many([(Target::Id(InstanceId(id)), signal)]).await?;
        return Ok(id);
    }
    let new = NewInstance::of::<Sleeper>(Sleeping::Start { order: 1 });
    Ok(client.start_many([new]).await?[0].id().0)
}
