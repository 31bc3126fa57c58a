//! Faults of the server.

use std::sync::Arc;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Client, Engine, Status};
use tokio::sync::Semaphore;

use super::database::{Database, execute};
use super::{Rig, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminating_all_backends_again_and_again_loses_doubles_and_sticks_nothing() {
    let database = Database::start("terminate").await;
    let url = database.url();
    let mut rig = Rig::start(database, &url).await;
    let mut admin = rig.database.admin().await;
    for _ in 0..30 {
        rig.load.moved(fastrand::usize(1..20)).await;
        let others = "select pg_terminate_backend(pid) from pg_stat_activity \
            where pid <> pg_backend_pid() and backend_type = 'client backend'";
        execute(&mut admin, others).await;
    }
    rig.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_crashes_of_the_server_lose_double_and_stick_nothing() {
    let database = Database::start("crash").await;
    let url = database.url();
    let mut rig = Rig::start(database, &url).await;
    for _ in 0..10 {
        rig.load.moved(fastrand::usize(1..60)).await;
        rig.database.crash();
    }
    rig.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_the_server_forgot_and_made_again_is_no_second_run() {
    let database = Database::start("forgotten").await;
    let runs = Arc::new(Semaphore::new(0));
    let gate = Arc::new(Semaphore::new(0));
    let engine = Engine::open(&database.url()).await.expect("it opens");
    let engine = engine.job(Gated { runs: runs.clone(), gate: gate.clone() }).start().await;
    let engine = engine.expect("it starts");
    let id = engine.client().start_job::<Gated>(()).await.expect("it starts");
    runs.acquire().await.expect("it is open").forget();
    // What a crash does to a claim, which waits for no disk.
    database.execute("update dormouse.instances set status = 'runnable', worker = null").await;
    let claimed_again = async {
        while engine.client().get(id).await.expect("a read").expect("it is there").status != Status::Executing
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, claimed_again).await.expect("it is claimed again");
    gate.add_permits(2);
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!(ended.status, Status::Done);
    engine.shutdown().await;
    assert_eq!(runs.available_permits(), 0, "it ran once");
}

/// Tells that it runs, and waits until it may end.
struct Gated {
    runs: Arc<Semaphore>,
    gate: Arc<Semaphore>,
}

impl Job for Gated {
    const NAME: &'static str = "gated";
    type Input = ();
    type Output = ();

    async fn run(&self, (): (), _: &Context) -> Result<(), BoxError> {
        self.runs.add_permits(1);
        self.gate.acquire().await?.forget();
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_read_only_for_a_while_is_waited_out() {
    let database = Database::start("read-only").await;
    let url = database.url();
    let mut rig = Rig::start(database, &url).await;
    for _ in 0..5 {
        rig.load.moved(fastrand::usize(1..60)).await;
        rig.database.set("default_transaction_read_only", Some("on")).await;
        rig.load.refused(fastrand::usize(4..20)).await;
        rig.database.set("default_transaction_read_only", None).await;
    }
    rig.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeouts_of_statements_and_locks_are_waited_out_and_blame_no_outcome() {
    let database = Database::start("timeouts").await;
    let url = database.url();
    let mut rig = Rig::start(database, &url).await;
    for _ in 0..3 {
        for setting in ["statement_timeout", "lock_timeout"] {
            rig.load.moved(fastrand::usize(1..60)).await;
            rig.database.set(setting, Some("1ms")).await;
            // A fast server needs less than that for a statement, so each write meets a lock.
            let mut admin = rig.database.admin().await;
            execute(&mut admin, "begin; lock table dormouse.instances in share row exclusive mode").await;
            rig.load.refused(fastrand::usize(4..30)).await;
            execute(&mut admin, "commit").await;
            rig.database.set(setting, None).await;
        }
    }
    rig.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_place_for_another_connection_is_worth_another_try() {
    let database = Database::start("full").await;
    let url = database.url();
    let client = Client::open(&url).await.expect("it opens");
    // The superuser's own places are not counted, so a role that has none of those takes the test.
    database.execute("create role guest login; alter role guest connection limit 0").await;
    let refused = Client::open(&url.replace("postgres@", "guest@")).await.expect_err("there is no place");
    assert!(refused.to_string().contains("too many connections"), "{refused}");
    client.stats().await.expect("others are not concerned");
}
