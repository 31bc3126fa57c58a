//! A program of a user's own: one call in its `main`, and it has the whole command line with its machines.
//!
//! Run by the tests it is the test; run by itself, with `MYSHOP` set, it is the program.

use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use dormouse::prelude::*;

struct Greeter;

impl Job for Greeter {
    const NAME: &'static str = "greeter";
    type Input = String;
    type Output = String;

    async fn run(&self, name: String, _cx: &Context) -> Result<String, BoxError> {
        Ok(format!("hello {name}"))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::var_os("MYSHOP").is_some() {
        return dormouse_server::main(|engine| engine.job(Greeter)).await;
    }
    for works_by in [&["worker"][..], &["serve", "--bind", "127.0.0.1:0"]] {
        let dir = tempfile::tempdir().expect("a directory");
        a_program_runs_its_own_machines(&dir.path().join("my.db"), works_by);
    }
    println!("a program of a user's own has the whole command line with its machines ... ok");
    ExitCode::SUCCESS
}

fn a_program_runs_its_own_machines(db: &Path, works_by: &[&str]) {
    assert!(run(db, &["migrate"]).status.success());
    // The step is left out: the program knows that its job has but one.
    let started = run(db, &["--json", "start", "greeter", "--state", "\"world\""]);
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let mut worker = myshop(db).args(works_by).stderr(Stdio::null()).spawn().expect("a worker");
    let result = run(db, &["result", "1", "--wait", "30s"]);
    assert_eq!(String::from_utf8_lossy(&result.stdout), "\"hello world\"\n");
    let killed = Command::new("kill").args(["-TERM", &worker.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    assert_eq!(worker.wait().expect("its end").code(), Some(0));
}

fn run(db: &Path, args: &[&str]) -> Output {
    myshop(db).args(args).output().expect("a run")
}

fn myshop(db: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env("MYSHOP", "1").env_remove("RUST_LOG").arg("--db").arg(db);
    command
}
