//! Workers whose clocks are wrong.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use dormouse::jiff::Timestamp;

use super::audit::{Facts, audit};
use super::child::{self, clock_s};
use super::database::Database;
use super::processes::Start;

const HOUR_S: i64 = 3600;

/// What skews the clock of a process that loads it. The tests need a C compiler anyway, as SQLite is built with one.
fn skew() -> PathBuf {
    let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("skew-{}.so", std::process::id()));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/postgres_crash/skew.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(built.is_ok_and(|status| status.success()), "the C compiler `cc` builds {source}");
    library
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_whose_clocks_are_an_hour_off_neither_lose_leases_nor_misjudge_time() {
    let database = Database::start("clocks").await;
    let (facts, tell) = Facts::gather();
    let library = skew();
    let began = Timestamp::now();
    let mut workers = Vec::new();
    // Each of them looks for lost leases when it starts: the one that is ahead does so last, and sees the others'.
    for skew_s in [-HOUR_S, 0, HOUR_S] {
        let start = Start::new(&database, "patient load").set("LD_PRELOAD", &library.display().to_string());
        let mut worker = start.set("DORMOUSE_SKEW_S", &skew_s.to_string()).run(tell.clone());
        let told: i64 = worker.said("clock").await.parse().expect("a number");
        assert!((told - skew_s - clock_s() as i64).abs() < 60, "its clock is off as wanted: {told}");
        workers.push(worker);
    }
    for worker in &mut workers {
        worker.told(400).await;
    }
    for worker in workers {
        assert!(worker.terminate().await.success(), "it drained and took its leave");
    }
    let engine = child::patient(&database.url(), &tell).await.start().await.expect("it starts");
    let found = audit(&database, &facts).await;
    println!("audited: {found:?}");
    engine.shutdown().await;
    assert_eq!(found.reaped, 0, "no lease was lost");
    let (first, last) = found.times;
    let moment = Duration::from_secs(1);
    assert!(began - moment < first && last < Timestamp::now() + moment, "one clock, the database's");
    std::fs::remove_file(library).expect("it is there");
}
