//! The files in `deploy/` name metrics that a server really exports, and settings and commands that the program has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use dormouse::prelude::*;
use dormouse::{Engine, Interaction, Sent, Transport};
use dormouse_server::{Access, Exporter, Server};
use serde_json::Value;
use tower::ServiceExt as _;

struct Nothing;

#[derive(Serialize, Deserialize)]
enum Step {
    Only,
    Wait,
}

impl Machine for Nothing {
    const NAME: &'static str = "nothing";
    type State = Step;
    type Output = ();
    async fn step(&self, at: Step, _: &Context) -> StepResult<Self> {
        Ok(match at {
            Step::Only => Outcome::done(()),
            Step::Wait => Outcome::await_signal(["go"], Step::Only),
        })
    }
}

/// A partner that nothing is asked of.
struct Partner;

impl Transport for Partner {
    fn send<'a>(&'a self, _: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(async { Sent::Accepted })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_of_the_rules_and_of_the_dashboard_is_exported() {
    let exporter = Exporter::install().expect("no other recorder");
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("test.db").display());
    let engine = Engine::open(&url).await.expect("a database").machine(Nothing).transport("partner", Partner);
    let engine = engine.start().await.expect("an engine");
    let client = engine.client();
    let id = client.start::<Nothing>(Step::Only).await.expect("a start");
    client.wait::<Nothing>(id, Duration::from_secs(10)).await.expect("its end");
    client.start::<Nothing>(Step::Wait).await.expect("a start");
    let server = Server::new(client, Access::open_on_loopback()).expect("a server").exporter(exporter);
    let router = server.router();
    let (metrics, labels) = named_in_the_kit();
    assert!(metrics.len() > 10 && labels.len() > 3, "{metrics:?} {labels:?}");
    let started = Instant::now();
    loop {
        let exported = exported(&router).await;
        let all: BTreeSet<_> = exported.values().flatten().collect();
        let missing: Vec<_> = metrics.iter().filter(|name| !exported.contains_key(*name)).collect();
        let unlabelled: Vec<_> = labels
            .iter()
            .filter(|(name, label)| match name {
                Some(name) => !exported.get(name).is_some_and(|labels| labels.contains(label)),
                None => !all.contains(label),
            })
            .collect();
        if missing.is_empty() && unlabelled.is_empty() {
            break;
        }
        // Some are there only after the first look of a task, or after the first request.
        assert!(started.elapsed() < Duration::from_secs(20), "not exported: {missing:?}, {unlabelled:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    engine.shutdown().await;
}

#[test]
fn every_setting_of_the_kit_exists() {
    let settings =
        dormouse(&["--json", "config", "--config", deploy().join("dormouse.toml").to_str().expect("a path")]);
    let settings: Value = serde_json::from_str(&settings).expect("JSON");
    let settings = settings["settings"].as_array().expect("a list");
    let known: BTreeSet<_> = settings.iter().filter_map(|setting| setting["env"].as_str()).collect();
    // How the program finds its settings, and a variable of the compose file's own.
    let others = ["DORMOUSE_CONFIG", "DORMOUSE_IMAGE"];
    let mut seen = 0;
    for (file, text) in files() {
        let words = text.split(|character: char| !character.is_ascii_uppercase() && character != '_');
        for word in words.filter(|word| word.starts_with("DORMOUSE_")) {
            let exists = known.contains(word) || others.contains(&word);
            assert!(exists, "{} names {word}, which is not a setting", file.display());
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

/// The commands in comments and alerts. With `--help`, one is parsed and not run.
#[test]
fn every_command_that_the_kit_advises_exists() {
    let mut seen = 0;
    for (_, text) in files() {
        let quoted = text.split('`').skip(1).step_by(2).filter_map(|quoted| quoted.strip_prefix("dormouse "));
        let comments = text.lines().filter(|line| line.trim().starts_with('#'));
        let told = comments.filter_map(|line| Some(line.split_once(": dormouse ")?.1));
        for command in quoted.chain(told) {
            let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
            assert!(dormouse(&words).contains("Usage:"), "{command}");
            seen += 1;
        }
    }
    assert!(seen > 5, "{seen}");
}

/// The output of a run that must succeed.
fn dormouse(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_dormouse")).args(args).output().expect("a run");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The labels of a server's metrics, by the metric's name without the suffixes of a histogram's parts.
async fn exported(router: &Router) -> BTreeMap<String, BTreeSet<String>> {
    let request = Request::get("/metrics").header(header::HOST, "localhost").body(Body::empty());
    let Ok(answer) = router.clone().oneshot(request.expect("a request")).await;
    let text = to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
    let text = String::from_utf8(text.to_vec()).expect("text");
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut found: BTreeMap<_, _> = names.map(|name| (name.to_owned(), BTreeSet::new())).collect();
    for series in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels)) = series.split_once('{') else { continue };
        let labels = labels.split("=\"").map(|before| before.rsplit([',', ' ', '"']).next().expect("a part"));
        found.entry(base(name).to_owned()).or_default().extend(labels.map(str::to_owned));
    }
    found
}

/// The metrics of the kit, and its labels with the metric that they are of, where that is said.
fn named_in_the_kit() -> (BTreeSet<String>, BTreeSet<(Option<String>, String)>) {
    let (mut names, mut labels) = (BTreeSet::new(), BTreeSet::new());
    for (_, text) in files().into_iter().filter(|(file, _)| file.starts_with(deploy().join("monitoring"))) {
        let is_name = |character: char| character.is_ascii_lowercase() || character == '_';
        let words = text.split(|character| !is_name(character));
        names.extend(words.filter(|word| word.starts_with("dormouse_")).map(|word| base(word).to_owned()));
        for (at, _) in text.match_indices('{') {
            let name = text[..at].rsplit(|character| !is_name(character)).next().expect("a part");
            let within = text[at + 1..].split('}').next().expect("a part");
            // What a rule's test feeds to it has the label that Prometheus adds.
            for matcher in within.split(',').filter(|_| name.starts_with("dormouse_")) {
                let label = matcher.trim().split(['=', '!']).next().expect("a part").to_owned();
                let added = ["instance", "job"].contains(&label.as_str());
                labels.extend((!added).then(|| (Some(base(name).to_owned()), label)));
            }
        }
        for by in text.split(" by (").skip(1) {
            let listed = by.split(')').next().expect("a part").split(',');
            let listed = listed.map(str::trim).filter(|label| !["instance", "job", "le"].contains(label));
            labels.extend(listed.map(|label| (None, label.to_owned())));
        }
    }
    (names, labels)
}

/// The name of a metric without the suffix of a histogram's part.
fn base(name: &str) -> &str {
    let part = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| name.strip_suffix(suffix));
    part.unwrap_or(name)
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Every file of the kit, with its text.
fn files() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut dirs = vec![deploy()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("the kit") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let text = std::fs::read_to_string(&path).expect("text");
                files.push((path, text));
            }
        }
    }
    files
}
