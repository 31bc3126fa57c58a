//! Leases in real time: what a virtual clock cannot show. The time that passes is the subject here, not luck.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::store::sqlite::SqliteStore;
use dormouse::store::{Bounds, Events, Queries};
use dormouse::{BoxError, Context, Engine, EventKind, Job, NewInstance, Status};
use tempfile::TempDir;

const LEASE: Duration = Duration::from_millis(150);
const SOON: Duration = Duration::from_secs(60);

struct Long(Arc<AtomicUsize>);

impl Job for Long {
    const NAME: &'static str = "long";
    type Input = u64;
    type Output = ();

    async fn run(&self, leases: u64, _cx: &Context) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(LEASE * leases as u32).await;
        Ok(())
    }
}

async fn engine(store: &Arc<SqliteStore>, runs: &Arc<AtomicUsize>) -> Engine {
    Engine::on(store.clone()).job(Long(runs.clone())).lease(LEASE).start().await.expect("it starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_ten_times_as_long_as_its_lease_runs_once_under_a_healthy_heartbeat() {
    let dir = TempDir::new().expect("a directory");
    let store = Arc::new(SqliteStore::open(dir.path().join("long.db")).await.expect("it opens"));
    let runs = Arc::new(AtomicUsize::new(0));
    // Another engine is there to reap what it can.
    let (first, second) = (engine(&store, &runs).await, engine(&store, &runs).await);
    let id = first.client().start_job::<Long>(10).await.expect("a start");
    let ended = first.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!((ended.status, ended.attempt, runs.load(Ordering::SeqCst)), (Status::Done, 0, 1));
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_locked_for_longer_than_a_lease_loses_and_doubles_nothing() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("locked.db");
    let store = Arc::new(SqliteStore::open(&path).await.expect("it opens"));
    let runs = Arc::new(AtomicUsize::new(0));
    let engine = engine(&store, &runs).await;
    let ids =
        engine.client().start_many((0..20).map(|_| NewInstance::job::<Long>(1))).await.expect("a start");
    while runs.load(Ordering::SeqCst) < 20 {
        tokio::task::yield_now().await;
    }
    // Their outcomes cannot be written, nor can the heartbeat, for three leases.
    let other = rusqlite::Connection::open(&path).expect("it opens");
    other.execute_batch("begin immediate").expect("the lock");
    tokio::time::sleep(LEASE * 3).await;
    other.execute_batch("rollback").expect("the lock is free again");
    let mut taken_back = 0;
    for id in &ids {
        let ended = engine.client().wait_end(id.id(), SOON).await.expect("it ends");
        assert_eq!(ended.status, Status::Done);
        let history =
            store.history(id.id(), Events::After(0), Bounds::rows(100)).await.expect("a history").items;
        let numbers: Vec<_> = history.iter().map(|event| event.seq).collect();
        assert_eq!(
            numbers,
            (1..=ended.seq).collect::<Vec<_>>(),
            "committed once, or taken back and run again"
        );
        taken_back += history.iter().filter(|event| event.kind == EventKind::Reaped).count();
        assert_eq!(history.iter().filter(|event| event.kind == EventKind::Done).count(), 1);
    }
    // Every run but the first of each is one that was taken back, and says so.
    assert_eq!(runs.load(Ordering::SeqCst), 20 + taken_back);
    engine.shutdown().await;
}
