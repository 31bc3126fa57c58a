//! A database server that fails in every way it can, under an engine at work: nothing that was acknowledged is
//! lost, doubled or stuck, and the engine goes on by itself.
//!
//! Each test has a server of its own.

#![allow(unreachable_pub, reason = "a test target has no outside")]
#![allow(dead_code, reason = "two test targets share modules, and use different parts of them")]

#[path = "postgres_faults/audit.rs"]
mod audit;
#[path = "postgres_faults/database.rs"]
mod database;
mod errands;
#[path = "postgres_faults/load.rs"]
mod load;
#[path = "postgres_faults/network.rs"]
mod network;
#[path = "postgres_faults/pooler.rs"]
mod pooler;
#[path = "postgres_faults/proxy.rs"]
mod proxy;
#[path = "postgres_faults/server.rs"]
mod server;
#[path = "postgres_faults/shop.rs"]
mod shop;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::Engine;

use self::audit::{Facts, audit};
use self::database::Database;
use self::load::Load;

/// How long anything that must happen may take on a machine that others keep busy.
pub const SOON: Duration = Duration::from_secs(180);
/// How long a statement may go without an answer here.
pub const PATIENCE: Duration = Duration::from_millis(800);
const LEASE: Duration = Duration::from_millis(1500);

/// An engine under load.
struct Rig {
    database: Database,
    engine: Engine,
    load: Load,
    facts: Arc<Mutex<Facts>>,
}

impl Rig {
    /// On a database, by the way that the address says.
    async fn start(database: Database, url: &str) -> Self {
        let (facts, tell) = Facts::gather();
        let builder = Engine::open(&impatient(url)).await.expect("it opens");
        let builder = shop::machines(builder, &tell).lease(LEASE).poll(Duration::from_millis(100));
        let engine = builder.start().await.expect("it starts");
        let mut load = Load::start(&engine.client(), tell);
        load.moved(20).await;
        Self { database, engine, load, facts }
    }

    /// With nothing broken any more, everything ends, by the engine that was there all along; then the books are
    /// checked.
    async fn settle(mut self) {
        self.load.moved(20).await;
        self.load.stop().await;
        let found = audit(&self.database, &self.facts).await;
        println!("audited: {found:?}");
        self.engine.shutdown().await;
        let client = self.database.client().await;
        let left = client.stats().await.expect("a read").workers;
        assert!(left.is_empty(), "the engine that shut down took its leave: {left:?}");
    }
}

/// The address with what makes a dead connection noticed soon.
pub fn impatient(url: &str) -> String {
    format!("{url}?connections=8&patience_ms={}", PATIENCE.as_millis())
}
