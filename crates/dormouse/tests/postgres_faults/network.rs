//! Faults of the network between the engine and the server.

use std::time::{Duration, Instant};

use dormouse::{Engine, Status};

use super::audit::Facts;
use super::database::Database;
use super::proxy::{Proxy, Weather};
use super::shop::{self, Picking};
use super::{LEASE, PATIENCE, Rig, SOON, impatient};

/// A statement of ours is some hundred bytes, its answer too.
const SOME: std::ops::Range<usize> = 0..6_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_at_any_byte_lose_double_and_stick_nothing() {
    let database = Database::start("cut").await;
    let proxy = Proxy::start(database.server.port()).await;
    let url = database.url_by(proxy.port);
    let mut rig = Rig::start(database, &url).await;
    for _ in 0..5 {
        proxy.set(Weather::Cut(SOME));
        rig.load.refused(fastrand::usize(5..15)).await;
        proxy.set(Weather::Clear);
        rig.load.moved(fastrand::usize(1..30)).await;
    }
    rig.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_stall_or_go_deaf_at_any_byte_lose_double_and_stick_nothing() {
    let database = Database::start("stall").await;
    let proxy = Proxy::start(database.server.port()).await;
    let url = database.url_by(proxy.port);
    let mut rig = Rig::start(database, &url).await;
    for round in 0..4 {
        proxy.set(if round % 2 == 0 { Weather::Stall(SOME) } else { Weather::Swallow(SOME) });
        // Longer than a statement is waited for; and once for longer than a lease.
        tokio::time::sleep(if round == 0 { LEASE * 2 } else { PATIENCE * 3 / 2 }).await;
        proxy.set(Weather::Clear);
        rig.load.moved(fastrand::usize(1..60)).await;
    }
    rig.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_dies_silently_is_noticed_and_polling_bounds_the_delay_meanwhile() {
    const POLL: Duration = Duration::from_secs(4);
    let database = Database::start("deaf").await;
    let proxy = Proxy::start(database.server.port()).await;
    let mut listeners = proxy.listeners();
    let (_, tell) = Facts::gather();
    let builder = Engine::open(&impatient(&database.url_by(proxy.port))).await.expect("it opens");
    let engine = shop::machines(builder, &tell).poll(POLL).start().await.expect("it starts");
    let listens = tokio::time::timeout(SOON, listeners.wait_for(|count| *count == 1)).await;
    drop(listens.expect("it listens").expect("the proxy lives"));
    let client = database.client().await;
    // A job that another process starts is heard of, or found by a poll.
    let runs_within = async |limit: Duration| {
        let started = Instant::now();
        let id = client.start_job::<Picking>(0).await.expect("a start");
        assert_eq!(client.wait_end(id, SOON).await.expect("it ends").status, Status::Done);
        assert!(started.elapsed() < limit, "it took {:?}", started.elapsed());
    };
    let poked = POLL / 2;
    for _ in 0..3 {
        runs_within(poked).await;
    }
    proxy.deafen();
    runs_within(POLL + poked).await;
    let listens = tokio::time::timeout(SOON, listeners.wait_for(|count| *count == 2)).await;
    drop(listens.expect("it notices").expect("the proxy lives"));
    // The first may come before the server has heard it listen.
    runs_within(POLL + poked).await;
    for _ in 0..3 {
        runs_within(poked).await;
    }
    engine.shutdown().await;
}
