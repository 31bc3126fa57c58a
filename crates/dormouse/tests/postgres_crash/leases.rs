//! Workers that are gone, stopped or cut off: how soon others take over, and what becomes of a late outcome.

use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use dormouse::jiff::Timestamp;
use dormouse::store::WorkerView;
use dormouse::{Client, EventKind, Instance, InstanceId, Status, WorkerId};

use super::audit::{Facts, check_history};
use super::child::{self, HELD, Holding, OWN, holder};
use super::database::Database;
use super::processes::{Start, Worker, deaf};
use super::proxy::{Proxy, Weather};
use super::shop::Picking;
use super::{LEASE, REAPER_TICK, SLACK, SOON};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_of_this_machine_held_is_taken_over_at_the_next_reaper_tick() {
    let database = Database::start("gone-here").await;
    let taken_over = kill_a_holder(&database, &Start::new(&database, "hold")).await;
    println!("taken over after {taken_over:?}");
    assert!(taken_over < REAPER_TICK + SLACK, "it took {taken_over:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_of_another_machine_held_is_taken_over_after_its_lease_and_a_reaper_tick() {
    let Some(elsewhere) = elsewhere() else {
        println!("skipped: a process with another host name cannot be made here");
        return;
    };
    let database = Database::start("gone-elsewhere").await;
    let taken_over = kill_a_holder(&database, &Start::new(&database, "hold").by(&elsewhere)).await;
    println!("taken over after {taken_over:?}");
    assert!(taken_over < LEASE + REAPER_TICK + SLACK, "it took {taken_over:?}");
    // Its last heartbeat was at most a third of a lease before.
    assert!(taken_over > LEASE / 3, "nothing but its lease tells that it is gone: {taken_over:?}");
}

/// What runs a command under another host name, so that its process cannot be looked up from here.
fn elsewhere() -> Option<Vec<&'static str>> {
    let rename = ["sh", "-c", "hostname elsewhere && exec \"$0\" \"$@\""];
    let ways: [&[&str]; 2] = [&["unshare", "--uts"], &["unshare", "--map-root-user", "--uts"]];
    ways.into_iter().map(|way| [way, &rename].concat()).find(|way| {
        Command::new(way[0]).args(&way[1..]).arg("true").status().is_ok_and(|status| status.success())
    })
}

/// How long after its worker was killed a row was runnable again.
async fn kill_a_holder(database: &Database, start: &Start) -> Duration {
    let client = database.client().await;
    let mut worker = start.run(deaf());
    let id = hold(&client, &mut worker).await;
    let (_, tell) = Facts::gather();
    let builder = holder(child::engine(&database.url(), &tell).await, Holding::new(&tell));
    let engine = builder.start().await.expect("it starts");
    let killed_at = Timestamp::now();
    worker.kill().await;
    let ended = client.wait_end(id, SOON).await.expect("it is taken over");
    assert_eq!((ended.status, ended.attempt), (Status::Done, 1));
    engine.shutdown().await;
    let history = client.history(id).await.expect("a history");
    check_history(&ended, &history);
    let reaped = history.iter().find(|event| event.kind == EventKind::Reaped).expect("it was taken back");
    reaped.at.duration_since(killed_at).try_into().expect("after the kill")
}

/// Lets a worker hold a step.
async fn hold(client: &Client, worker: &mut Worker) -> InstanceId {
    let id = client.start_job::<Holding>(()).queue(HELD).await.expect("a start");
    assert_eq!(worker.said("holds").await, id.to_string());
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_stopped_for_longer_than_its_lease_changes_nothing_and_registers_anew() {
    let database = Database::start("stopped").await;
    let client = database.client().await;
    let mut stopped = Start::new(&database, "stop").run(deaf());
    let id = hold(&client, &mut stopped).await;
    let first = registered(&client, "stopped", |_| true).await;
    stopped.signal("-STOP");
    let (_, tell) = Facts::gather();
    let builder = holder(child::engine(&database.url(), &tell).await, Holding::new(&tell));
    let engine = builder.start().await.expect("it starts");
    let ended = client.wait_end(id, SOON).await.expect("its step is taken over");
    assert_eq!((ended.status, ended.attempt), (Status::Done, 1));
    stopped.signal("-CONT");
    // Its step ends at once now, and is too late.
    registered(&client, "stopped", |worker| worker.id > first).await;
    run_by_itself(&client).await;
    unchanged(&client, &ended).await;
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_cut_off_for_longer_than_its_lease_drops_its_steps_and_registers_anew_when_it_can() {
    let database = Database::start("cut-off").await;
    let client = database.client().await;
    let proxy = Proxy::start(database.server.port()).await;
    let holding = Holding::new(&deaf());
    let (dropped, go) = (holding.dropped.clone(), holding.go.clone());
    let builder = holder(child::engine(&database.url_by(proxy.port), &deaf()).await, holding);
    let cut_off = builder.queue(OWN, 4).worker_name("cut off").start().await.expect("it starts");
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(client.start_job::<Holding>(()).queue(HELD).await.expect("a start"));
    }
    let first = registered(&client, "cut off", |worker| worker.claims == 2).await;

    proxy.set(Weather::Stall(0..1));
    let since = Instant::now();
    // One step ends now: its outcome is on its way for as long as the network is gone. The other one goes on.
    go.notify_one();
    let (facts, tell) = Facts::gather();
    let builder = holder(child::engine(&database.url(), &tell).await, Holding::new(&tell));
    let other = builder.start().await.expect("it starts");
    until("its steps are dropped", || dropped.load(SeqCst)).await;
    println!("it found out after {:?}", since.elapsed());
    assert!(since.elapsed() < LEASE + REAPER_TICK * 2 + SLACK, "it found out after {:?}", since.elapsed());
    let mut ended = Vec::new();
    for id in ids {
        let row = client.wait_end(id, SOON).await.expect("it is taken over");
        assert_eq!((row.status, row.attempt), (Status::Done, 1));
        let number: u64 = row.output.as_ref().expect("an output").decode("output").expect("a number");
        assert!(facts.lock().expect("no panic").ran(id, number), "by the one that was not cut off");
        ended.push(row);
    }

    // What it had sent arrives now, and is too late.
    proxy.set(Weather::Clear);
    registered(&client, "cut off", |worker| worker.id > first).await;
    run_by_itself(&client).await;
    for row in &ended {
        unchanged(&client, row).await;
    }
    other.shutdown().await;
    cut_off.shutdown().await;
}

/// A job in the queue that only the worker in question serves.
async fn run_by_itself(client: &Client) {
    let id = client.start_job::<Picking>(0).queue(OWN).await.expect("a start");
    assert_eq!(client.wait_end(id, SOON).await.expect("it goes on").status, Status::Done);
}

/// Nothing came after an end.
async fn unchanged(client: &Client, ended: &Instance) {
    let row = client.get(ended.id).await.expect("a read").expect("it is there");
    check_history(&row, &client.history(ended.id).await.expect("a history"));
    assert_eq!((row.seq, &row.output), (ended.seq, &ended.output));
}

/// Resolves when a worker of this name is registered that is as wanted.
async fn registered(client: &Client, name: &str, wanted: impl Fn(&WorkerView) -> bool) -> WorkerId {
    let deadline = Instant::now() + SOON;
    loop {
        let workers = client.stats().await.expect("a read").workers;
        if let Some(worker) = workers.iter().find(|worker| worker.name == name && wanted(worker)) {
            return worker.id;
        }
        assert!(Instant::now() < deadline, "not there: {workers:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until(what: &str, reached: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !reached() {
        assert!(Instant::now() < deadline, "not yet: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
