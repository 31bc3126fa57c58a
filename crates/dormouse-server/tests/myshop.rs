//! A user's program: one call in its `main` gives it the whole command line with its machines.
//!
//! Run by the tests it is the test; run by itself, with `MYSHOP` set, it is the program.

use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use dormouse::flow::{ActResult, Cx, Flow, act, signal};
use dormouse::prelude::*;
use serde_json::Value;

struct Greeter;

impl Job for Greeter {
    const NAME: &'static str = "greeter";
    type Input = String;
    type Output = String;

    async fn run(&self, name: String, _cx: &Context) -> Result<String, BoxError> {
        Ok(format!("hello {name}"))
    }
}

#[derive(Serialize, Deserialize)]
struct Document {
    accepted: bool,
}

const VERDICT: Signal<bool> = Signal::named("verdict");

async fn publish(document: Document, _: Cx<()>) -> ActResult<Document> {
    Ok(document)
}

/// A flow; on request, with a wait that nobody will satisfy.
fn review() -> Flow<Document> {
    let verdict = signal(VERDICT, |_, accepted| Ok(Document { accepted }));
    let is_broken = std::env::var_os("MYSHOP_BROKEN").is_some();
    let verdict = if is_broken { verdict } else { verdict.sent_by("the editor") };
    Flow::new("review").then(verdict).then(act(publish))
}

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::var_os("MYSHOP").is_some() {
        let review = review().build(()).expect("it is well formed");
        return dormouse_server::main(move |engine| engine.job(Greeter).flow(&review)).await;
    }
    for works_by in [&["worker"][..], &["serve", "--bind", "127.0.0.1:0"]] {
        let dir = tempfile::tempdir().expect("a directory");
        a_program_runs_its_own_machines(&dir.path().join("my.db"), works_by);
    }
    let dir = tempfile::tempdir().expect("a directory");
    a_program_looks_ahead(&dir.path().join("my.db"));
    println!("a program of a user's own has the whole command line with its machines ... ok");
    ExitCode::SUCCESS
}

fn a_program_runs_its_own_machines(db: &Path, works_by: &[&str]) {
    assert!(run(db, &["migrate"]).status.success());
    // The step is omitted: the program knows that its job has only one.
    let started = run(db, &["--json", "start", "greeter", "--state", "\"world\""]);
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let mut worker = myshop(db).args(works_by).stderr(Stdio::null()).spawn().expect("a worker");
    let result = run(db, &["result", "1", "--wait", "30s"]);
    assert_eq!(String::from_utf8_lossy(&result.stdout), "\"hello world\"\n");
    let killed = Command::new("kill").args(["-TERM", &worker.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    assert_eq!(worker.wait().expect("its end").code(), Some(0));
}

fn a_program_looks_ahead(db: &Path) {
    let told = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    // Exploring and drawing need no database.
    let checked = run(db, &["check", "review"]);
    assert!(checked.status.success(), "{}", told(&checked));
    assert!(told(&checked).starts_with("review version 1: no fault in "), "{}", told(&checked));
    let broken =
        myshop(db).env("MYSHOP_BROKEN", "1").args(["--json", "check", "review"]).output().expect("a run");
    assert_eq!(broken.status.code(), Some(7));
    let report: Value = serde_json::from_slice(&broken.stdout).expect("JSON");
    assert_eq!(report["reports"][0]["problems"][0]["kind"], "endless_wait", "{report}");
    assert!(told(&run(db, &["graph", "review"])).starts_with("flowchart TD"));
    assert!(told(&run(db, &["graph", "review", "--as", "svg"])).starts_with("<svg"));
    assert!(told(&run(db, &["graph", "review", "--as", "dot"])).starts_with("digraph"));
    assert_eq!(run(db, &["graph", "nothing"]).status.code(), Some(3));

    assert!(run(db, &["migrate"]).status.success());
    for args in [["review", "verdict"], ["review", "gone"]] {
        let state = r#"{"accepted":false}"#;
        let started = run(db, &["start", args[0], "--step", args[1], "--state", state]);
        assert_eq!(started.status.success(), args[1] == "verdict", "a step that it does not have is refused");
    }
    let fits = run(db, &["diff"]);
    assert!(fits.status.success(), "{}", told(&fits));
    assert_eq!(told(&fits), "this code fits all 1 live instances\n");
    // A process without the machine's code can start an instance that the machine cannot read.
    let malformed = ["start", "review", "--step", "verdict", "--state", r#"{"accepted":3}"#];
    assert_eq!(run(db, &malformed).status.code(), Some(4));
    let mut plain = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    let plain = plain.arg("--db").arg(db).args(malformed);
    let plain = plain.arg("--even-if-unknown").status();
    assert!(plain.expect("a run").success());
    let differs = run(db, &["--json", "diff"]);
    assert_eq!(differs.status.code(), Some(7));
    let diff: Value = serde_json::from_slice(&differs.stdout).expect("JSON");
    assert_eq!(
        (&diff["differences"][0]["kind"], &diff["live"]),
        (&"state_unreadable".into(), &2.into()),
        "{diff}"
    );

    let foreseen = run(db, &["what-if", "1", "--signal", "verdict", "--payload", "true"]);
    assert!(told(&foreseen).starts_with("way 1\n  verdict: waits for"), "{}", told(&foreseen));
}

fn run(db: &Path, args: &[&str]) -> Output {
    myshop(db).args(args).output().expect("a run")
}

fn myshop(db: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env("MYSHOP", "1").env_remove("RUST_LOG").arg("--db").arg(db);
    command
}
