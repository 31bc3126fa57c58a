//! The demo as a person or a script uses it: a process with output, signals and an exit code.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use dormouse::store::Filter;
use dormouse::{Client, Status};

type Lines = std::io::Lines<BufReader<ChildStdout>>;

#[tokio::test]
async fn the_demo_runs_and_carries_on_after_kill_9() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = dir.path().join("shop.db");
    let (mut first, mut lines) = start(&db, &["--seconds", "600"]);
    assert!(next(&mut lines).contains("300 orders were placed"));
    wait_for(&mut lines, |line| !line.contains(" 0 done") && !line.contains("executing 0"));
    first.kill().expect("kill -9");
    first.wait().expect("its end");

    let expected = what_was_left(&db).await;
    let (mut second, mut lines) = start(&db, &["--seconds", "2"]);
    assert_eq!(next(&mut lines), expected);
    wait_for(&mut lines, |line| line.starts_with("Stopped."));
    drain(lines);
    assert_eq!(second.wait().expect("its end").code(), Some(0));
    assert_at_rest(&db).await;
}

#[tokio::test]
async fn sigterm_drains_and_exits_0() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = dir.path().join("shop.db");
    let (mut demo, mut lines) = start(&db, &["--orders", "50"]);
    wait_for(&mut lines, |line| line.contains("per second"));
    let killed = Command::new("kill").args(["-TERM", &demo.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    wait_for(&mut lines, |line| line.starts_with("Stopped."));
    drain(lines);
    assert_eq!(demo.wait().expect("its end").code(), Some(0));
    assert_at_rest(&db).await;
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let letter = dir.path().join("letter.txt");
    let text = "Dear Sir or Madam, ".repeat(100);
    std::fs::write(&letter, &text).expect("a letter");
    let output = command(&letter, &[]).output().expect("a run");
    assert_eq!(output.status.code(), Some(6));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.starts_with("error: ") && error.contains("is not a dormouse database"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert_eq!(std::fs::read_to_string(&letter).expect("the letter"), text);
    assert_eq!(std::fs::read_dir(dir.path()).expect("the directory").count(), 1);
}

fn command(db: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command.args(["demo", "--plain", "--db"]).arg(db).args(args).env_remove("RUST_LOG");
    command
}

fn start(db: &Path, args: &[&str]) -> (Child, Lines) {
    let mut demo = command(db, args).stdout(Stdio::piped()).spawn().expect("a demo");
    let lines = BufReader::new(demo.stdout.take().expect("its output")).lines();
    (demo, lines)
}

fn next(lines: &mut Lines) -> String {
    lines.next().expect("a line before the output ends").expect("readable output")
}

fn wait_for(lines: &mut Lines, is_it: impl Fn(&str) -> bool) {
    while !is_it(&next(lines)) {}
}

fn drain(lines: Lines) {
    lines.for_each(drop);
}

async fn open(db: &Path) -> Client {
    Client::open(&format!("sqlite:{}", db.display())).await.expect("the demo's database")
}

/// What the next demo should print about a database whose process died.
async fn what_was_left(db: &Path) -> String {
    let stats = open(db).await.stats().await.expect("counts");
    let live = stats.instances.iter().filter(|row| row.machine == "order" && !row.status.is_terminal());
    let carried_on = format!("carried on with {} live orders", live.map(|row| row.count).sum::<u64>());
    match stats.count(Status::Executing) {
        0 => carried_on,
        1 => format!("{carried_on}; took back 1 step of the process that died"),
        steps => format!("{carried_on}; took back {steps} steps of the process that died"),
    }
}

/// Nothing is held by a worker, and every row and its whole history can be read.
async fn assert_at_rest(db: &Path) {
    let client = open(db).await;
    let stats = client.stats().await.expect("counts");
    assert_eq!(stats.count(Status::Executing), 0);
    assert_eq!(stats.workers.len(), 0, "{:?}", stats.workers);
    let page = client.list(Filter { limit: 10_000, ..Filter::default() }).await.expect("all instances");
    assert!(page.instances.len() >= 50);
    for instance in page.instances {
        assert_eq!(instance.worker, None);
        let history = client.history(instance.id).await.expect("a history");
        assert_eq!(history.last().map(|event| event.seq), Some(instance.seq), "instance {}", instance.id);
    }
}
