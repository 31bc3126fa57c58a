//! Worker processes on one PostgreSQL database, killed at random moments, stopped, cut off, replaced, and with
//! clocks that are wrong; then an audit: nothing that was acknowledged is lost, doubled or stuck.
//!
//! The children are this very test binary, run again with environment variables.

#![allow(unreachable_pub, reason = "a test target has no outside")]
#![allow(dead_code, reason = "two test targets share modules, and use different parts of them")]

#[path = "postgres_faults/audit.rs"]
mod audit;
#[path = "postgres_crash/child.rs"]
mod child;
#[path = "postgres_crash/clocks.rs"]
mod clocks;
#[path = "postgres_faults/database.rs"]
mod database;
mod errands;
#[path = "postgres_crash/leases.rs"]
mod leases;
#[path = "postgres_faults/load.rs"]
mod load;
#[path = "postgres_crash/processes.rs"]
mod processes;
#[path = "postgres_faults/proxy.rs"]
mod proxy;
#[path = "postgres_faults/shop.rs"]
mod shop;
#[path = "postgres_crash/versions.rs"]
mod versions;

use std::path::Path;
use std::time::Duration;

use private_postgres::Pooler;

use self::audit::{Facts, audit};
use self::database::Database;
use self::processes::{Start, Worker};

/// How long anything that must happen may take on a machine that others keep busy.
pub const SOON: Duration = Duration::from_secs(180);
/// How long a worker's claims are safe without a heartbeat.
pub const LEASE: Duration = Duration::from_millis(1200);
/// The lease where none may be lost.
pub const LONG_LEASE: Duration = Duration::from_secs(30);
/// How often workers look for those whose lease is over.
pub const REAPER_TICK: Duration = Duration::from_millis(400);
/// What a busy machine may add to any of that.
pub const SLACK: Duration = Duration::from_millis(1500);

const WORKERS: usize = 3;
const KILLS: usize = 100;
const POOLED_KILLS: usize = 25;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_of_three_workers_lose_double_and_stick_nothing() {
    let database = Database::start("kills").await;
    let start = Start::new(&database, "load");
    kill_and_audit(&database, &start, KILLS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_workers_behind_a_pooler_lose_double_and_stick_nothing() {
    let database = Database::start("pooled-kills").await;
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pooler-kills-{}", std::process::id()));
    let pooler = Pooler::start(&database.server, &dir, &[("default_pool_size", "40")]);
    let pooler = pooler.unwrap_or_else(|error| panic!("{error}"));
    let start = Start::new(&database, "load").set(child::DATABASE, &pooler.url("postgres"));
    kill_and_audit(&database, &start, POOLED_KILLS).await;
}

async fn kill_and_audit(database: &Database, start: &Start, kills: usize) {
    let (facts, tell) = Facts::gather();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| start.run(tell.clone())).collect();
    for _ in 0..kills {
        // The one that was started first: all of them are killed, somewhere between their first sign of life and the
        // middle of everything.
        let mut victim = workers.remove(0);
        victim.told(fastrand::usize(1..60)).await;
        victim.kill().await;
        workers.push(start.run(tell.clone()));
    }
    for worker in workers {
        worker.kill().await;
    }
    assert!(facts.lock().expect("no panic").inserted.len() > kills / 2, "there was load");
    let engine = child::engine(&database.url(), &tell).await.start().await.expect("it starts");
    let found = audit(database, &facts).await;
    println!("audited: {found:?}");
    assert!(found.reaped > 0, "some were killed in the middle of a step");
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_loses_nothing_and_interrupts_no_step() {
    let database = Database::start("rolling").await;
    let (facts, tell) = Facts::gather();
    let start = Start::new(&database, "patient load");
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| start.run(tell.clone())).collect();
    for _ in 0..2 * WORKERS {
        let mut next = start.run(tell.clone());
        next.told(fastrand::usize(20..60)).await;
        workers.push(next);
        assert!(workers.remove(0).terminate().await.success(), "it drained and took its leave");
    }
    for worker in workers {
        assert!(worker.terminate().await.success(), "it drained and took its leave");
    }
    let client = database.client().await;
    let left = client.stats().await.expect("a read");
    assert!(left.workers.is_empty(), "{:?}", left.workers);
    let engine = child::patient(&database.url(), &tell).await.start().await.expect("it starts");
    let found = audit(&database, &facts).await;
    println!("audited: {found:?}");
    assert_eq!(found.reaped, 0, "every step that was begun was also finished");
    engine.shutdown().await;
}
