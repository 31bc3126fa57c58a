//! A flow in a process of its own, killed with -9 at each of its commits in turn, and taken up by another process.
//!
//! The process is this very test binary, run again with an environment variable.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dormouse::{Client, Engine};

use super::shop::*;
use crate::faulty::Faulty;
use crate::kit::SOON;

const DATABASE: &str = "KILLED_FLOW_DATABASE";
const KEY: &str = "KILLED_FLOW_KEY";
const TOTAL: &str = "KILLED_FLOW_TOTAL";
const COMMITS: &str = "KILLED_FLOW_COMMITS";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_on_a_file_is_killed_at_every_commit_and_ends_the_same() {
    let dir = tempfile::TempDir::new().expect("a directory for the test");
    killed_at_every_commit(format!("sqlite:{}", dir.path().join("test.db").display())).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_on_postgres_is_killed_at_every_commit_and_ends_the_same() {
    let database = crate::postgres::Database::new(dormouse::jiff::Timestamp::now()).await;
    database.let_time_pass().await;
    killed_at_every_commit(database.store_url()).await;
}

async fn killed_at_every_commit(url: String) {
    let client = Client::open(&url).await.expect("it opens");
    for total in [5000, 13] {
        for commits_max in 0.. {
            let key = format!("order:{total}:{commits_max}");
            let is_killed = run(&url, &key, total, commits_max).await;
            if is_killed {
                assert!(!run(&url, &key, total, u64::MAX).await, "nobody kills the heir");
            }
            let ended = client.wait_end(key.as_str(), SOON).await.expect("it ends");
            assert_booking(total, &ended);
            if !is_killed {
                assert!(commits_max >= 10, "it was killed at each of its {commits_max} commits");
                break;
            }
        }
    }
}

/// Runs a process until the flow has ended, or it is killed before one commit more than this; says whether it was.
async fn run(url: &str, key: &str, total: u64, commits_max: u64) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", "flows::killed::the_process_does_as_it_is_told", "--test-threads", "1"]);
    command.env(DATABASE, url).env(KEY, key);
    command.env(TOTAL, total.to_string()).env(COMMITS, commits_max.to_string()).stdout(Stdio::null());
    let ended = tokio::task::spawn_blocking(move || command.status()).await.expect("no panic");
    let ended = ended.expect("a process");
    assert!(ended.success() || ended.signal() == Some(9), "{ended}");
    !ended.success()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_does_as_it_is_told() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    let told = |name: &str| std::env::var(name).expect("the test says so");
    let [total, commits_max] = [TOTAL, COMMITS].map(|name| told(name).parse::<u64>().expect("a number"));
    let store = Client::open(&url).await.expect("it opens").store().clone();
    let commits = AtomicU64::new(0);
    let store = Faulty::on(store).refuse_commit(move |batch| {
        let before = commits.fetch_add(batch.len() as u64, Ordering::SeqCst);
        if before + batch.len() as u64 > commits_max {
            die();
        }
        None
    });
    let machine = booking().build(Log::default()).expect("it is well formed");
    let mut new = machine.instance(&Order { total, ..Order::default() }).expect("a state");
    new = new.key(told(KEY));
    let builder = Engine::on(Arc::new(store)).worker_name("w").poll(Duration::from_millis(20));
    let engine = builder.flow(&machine).job(Double).start().await.expect("it starts");
    let client = engine.client();
    // The heir finds that this was done.
    let id = client.start_many([new]).await.expect("a start, or the one who holds the key")[0].id();
    for by in ["Ada", "Bob"] {
        let _ = client.signal(id, APPROVAL, yes(by)).dedup(by).await;
    }
    client.wait_end(id, SOON).await.expect("it ends");
}

/// Ends this process as a power cut would.
fn die() -> ! {
    let me = std::process::id().to_string();
    Command::new("kill").args(["-9", &me]).status().expect("kill runs");
    loop {
        std::thread::park();
    }
}
