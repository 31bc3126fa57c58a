//! A user's program: one call in its `main` gives it the whole command line with its machines.
//!
//! Run by the tests it is the test; run by itself, with `MYSHOP` set, it is the program.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use dormouse::flow::{ActResult, Cx, Flow, act, signal};
use dormouse::prelude::*;
use dormouse_server::Program;
use dormouse_server::cli::clap;
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
        let hello = clap::Command::new("hello").about("Say hello").arg(clap::Arg::new("who"));
        return Program::new(move |engine| engine.job(Greeter).flow(&review))
            .name("myshop")
            .version("7.8.9")
            .command(hello, |_, matches| async move {
                println!("hello {}", matches.get_one::<String>("who").map_or("", String::as_str));
                Ok(ExitCode::SUCCESS)
            })
            .run()
            .await;
    }
    for works_by in [&["worker"][..], &["serve", "--bind", "127.0.0.1:0"]] {
        let dir = tempfile::tempdir().expect("a directory");
        a_program_runs_its_own_machines(&dir.path().join("my.db"), works_by);
    }
    let dir = tempfile::tempdir().expect("a directory");
    a_program_looks_ahead(&dir.path().join("my.db"));
    let dir = tempfile::tempdir().expect("a directory");
    a_graph_is_drawn_without_the_code(&dir.path().join("my.db"));
    let dir = tempfile::tempdir().expect("a directory");
    its_metrics_are_as_prometheus_wants_them(&dir.path().join("my.db"));
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

fn its_metrics_are_as_prometheus_wants_them(db: &Path) {
    assert!(run(db, &["migrate"]).status.success());
    run(db, &["start", "greeter", "--state", "\"world\""]);
    run(db, &["start", "nothing", "--step", "Start", "--even-if-unknown"]);
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let mut server = myshop(db);
    let server = server.args(["serve", "--bind", &free.to_string()]).stderr(Stdio::null());
    let mut server = server.spawn().expect("a server");
    assert!(run(db, &["result", "1", "--wait", "30s"]).status.success());
    let metrics = loop {
        if let Ok(text) = get(free, "/metrics") {
            break text;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    server.kill().expect("it runs");
    server.wait().expect("its end");
    for line in [
        "# HELP dormouse_ends_total ",
        "dormouse_ends_total{machine=\"greeter\",outcome=\"done\"} 1",
        "dormouse_step_seconds_count{machine=\"greeter\",step=\"Run\"} 1",
        "dormouse_claim_wait_seconds_count{queue=\"default\"} 1",
        "dormouse_places{queue=\"default\"} 64",
        "dormouse_troubles{kind=\"nobody_runs\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\nis not in\n{metrics}");
    }
    let families = metrics.lines().filter(|line| line.starts_with("# TYPE ")).count();
    let described = metrics.lines().filter(|line| line.starts_with("# HELP ")).count();
    assert_eq!(families, described, "{metrics}");
    let mut promtool = Command::new("promtool");
    let promtool = promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    let promtool = promtool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut promtool) = promtool else {
        return println!("LEFT OUT: promtool on the metrics, as it is not installed");
    };
    promtool.stdin.take().expect("a pipe").write_all(metrics.as_bytes()).expect("it reads");
    let told = promtool.wait_with_output().expect("its end");
    let said = format!("{}{}", String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(told.status.success() && said.is_empty(), "{said}\n{metrics}");
}

/// The body of a response.
fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// A program without the machines' code draws what a worker declared.
fn a_graph_is_drawn_without_the_code(db: &Path) {
    let told = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(run(db, &["migrate"]).status.success());
    let mut worker = myshop(db).arg("worker").stderr(Stdio::null()).spawn().expect("a worker");
    let plain = || {
        let mut plain = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        plain.arg("--db").arg(db).args(["graph", "review"]).output().expect("a run")
    };
    let mut drawn = plain();
    while !drawn.status.success() {
        drawn = plain();
    }
    assert_eq!(told(&drawn), told(&run(db, &["graph", "review"])));
    worker.kill().expect("it runs");
    worker.wait().expect("its end");
}

fn a_program_looks_ahead(db: &Path) {
    let told = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    // Exploring and drawing need no database. A job has its graph, so that all can be clean.
    let all = run(db, &["check"]);
    assert!(all.status.success(), "{}", told(&all));
    assert!(told(&run(db, &["graph", "greeter"])).contains("Run"));
    let version = run(db, &["--version"]);
    assert!(told(&version).starts_with("myshop 7.8.9"), "{}", told(&version));
    assert_eq!(told(&run(db, &["hello", "world"])), "hello world\n");
    assert!(told(&run(db, &["--help"])).contains("Say hello"));
    assert!(told(&run(db, &["completions", "bash"])).contains("hello"));
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
