//! The alert rules and the dashboard in `deploy/` name metrics that a server really exports.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use dormouse::prelude::*;
use dormouse::{Engine, Interaction, Sent, Transport};
use dormouse_server::{Access, Exporter, Server};
use tower::ServiceExt as _;

struct Nothing;

#[derive(Serialize, Deserialize)]
enum Step {
    Only,
}

impl Machine for Nothing {
    const NAME: &'static str = "nothing";
    type State = Step;
    type Output = ();
    async fn step(&self, _: Step, _: &Context) -> StepResult<Self> {
        Ok(Outcome::done(()))
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
    let server = Server::new(client, Access::open_on_loopback()).expect("a server").exporter(exporter);
    let router = server.router();
    let wanted = named_in_the_kit();
    assert!(wanted.len() > 10, "{wanted:?}");
    let started = Instant::now();
    loop {
        let exported = exported(&router).await;
        let missing: Vec<_> = wanted.difference(&exported).collect();
        if missing.is_empty() {
            break;
        }
        // Some are there only after the first look of a task, or after the first request.
        assert!(started.elapsed() < Duration::from_secs(20), "not exported: {missing:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    engine.shutdown().await;
}

/// The metrics of a server, by name and without the suffixes of a histogram's parts.
async fn exported(router: &Router) -> BTreeSet<String> {
    let request = Request::get("/metrics").header(header::HOST, "localhost").body(Body::empty());
    let Ok(answer) = router.clone().oneshot(request.expect("a request")).await;
    let text = to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
    let text = String::from_utf8(text.to_vec()).expect("text");
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

fn named_in_the_kit() -> BTreeSet<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring");
    let files = std::fs::read_dir(dir).expect("the kit").map(|entry| entry.expect("a file").path());
    let mut names = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("text");
        let words = text.split(|character: char| !character.is_ascii_lowercase() && character != '_');
        let metrics = words.filter(|word| word.starts_with("dormouse_"));
        names.extend(metrics.map(|word| {
            let part = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| word.strip_suffix(suffix));
            part.unwrap_or(word).to_owned()
        }));
    }
    names
}
