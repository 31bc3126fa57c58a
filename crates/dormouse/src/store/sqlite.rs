//! The SQLite store: one writer thread with group commit, and readers that never block it.
//!
//! Every write of the process goes through the writer, which runs the calls that have gathered in one transaction and
//! answers them after one fsync. Because it is alone, a verb may load a row, decide, and save it: `BEGIN IMMEDIATE`
//! keeps other processes out for that long.

mod access;
mod amend;
mod backlog;
mod barrier;
mod changes;
mod claim;
mod collect;
mod commit;
mod counts;
mod deliver;
mod due;
mod fault;
mod insert;
mod kept;
mod lane;
mod lease;
mod mail;
mod open;
mod operate;
mod progress;
mod query;
mod rate;
#[cfg(feature = "bench")]
mod raw;
mod readers;
mod rider;
mod row;
mod search;
mod transports;
mod turns;
mod tx;
mod undo;
mod units;
mod writer;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use rusqlite::{self, Connection};

#[cfg(feature = "bench")]
#[doc(hidden)]
pub use self::raw::raw_steps_per_s;
use self::readers::Readers;
pub use self::rider::{InCommit, OwnWrites};
use self::tx::Tx;
use self::writer::{Sync, Writer};
use crate::poke::Hub;
use crate::store::{
    AmendRequest, Brake, Cancel, CancelRequest, Claim, Claimed, Collect, Collected, Commit, Delivery, Due,
    Lease, LimitStore, LimitView, NewProgress, NewWorker, Reading, Receipt, Reply, Rider, ServerStore, Store,
    TagChange, Tried, Written,
};
use crate::{
    At, Clock, Delivered, Error, Inserted, InstanceId, Json, Limit, NewInstance, Result, SystemClock, Target,
    When, WorkerId,
};

/// A SQLite database file, or one in memory.
pub struct SqliteStore {
    hub: Arc<Hub>,
    clock: Arc<dyn Clock>,
    schema_found: i64,
    // Dropped before the writer: the last connection to close folds the log into the file.
    readers: Option<Readers>,
    writer: Writer,
}

impl SqliteStore {
    /// Opens a file, creating it if it is not there, and brings its schema up to date.
    pub async fn open(path: impl Into<std::path::PathBuf>) -> Result<Self> {
        Self::open_with_clock(path, Arc::new(SystemClock)).await
    }

    /// Opens a file with a clock of the caller's.
    pub async fn open_with_clock(path: impl Into<std::path::PathBuf>, clock: Arc<dyn Clock>) -> Result<Self> {
        let path = path.into();
        let (conn, schema_found) = blocking({
            let path = path.clone();
            move || open::file(&path)
        })
        .await?;
        let (hub, reads) = (Arc::<Hub>::default(), Arc::default());
        let writer = Writer::start(conn, clock.clone(), hub.clone(), Arc::clone(&reads))?;
        writer.watch_others(hub.clone())?;
        Ok(Self { hub, clock, schema_found, writer, readers: Some(Readers::new(path, reads)) })
    }

    /// A database in memory, gone when dropped: for tests.
    pub fn in_memory(clock: Arc<dyn Clock>) -> Result<Self> {
        let (conn, schema_found) = open::memory()?;
        let hub = Arc::<Hub>::default();
        let writer = Writer::start(conn, clock.clone(), hub.clone(), Arc::default())?;
        Ok(Self { hub, clock, schema_found, writer, readers: None })
    }

    /// How many fsyncs the writer has caused: one for each group commit, two for each checkpoint.
    pub fn fsyncs(&self) -> u64 {
        self.writer.fsyncs()
    }

    /// Runs a write in the writer's next group, and answers when it is on disk. It may run twice: if another
    /// write of the group fails, the group is rolled back and each of its writes is run alone.
    fn write<T: Send + 'static>(
        &self,
        verb: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Reply<'_, Written<T>> {
        Box::pin(self.writer.write(Sync::Full, verb))
    }

    /// Like [`Self::write`], but without a wait for the disk of its own.
    fn sweep<T: Send + 'static>(
        &self,
        verb: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Reply<'_, Written<T>> {
        Box::pin(self.writer.write(Sync::Later, verb))
    }

    /// Runs a query on a reader; in memory, where there is but one connection, on the writer.
    fn read<T: Send + 'static>(
        &self,
        mut query: impl FnMut(&rusqlite::Connection) -> Result<T> + Send + 'static,
    ) -> Reply<'_, T> {
        match &self.readers {
            Some(readers) => Box::pin(readers.read(query)),
            None => quiet(Box::pin(self.writer.write(Sync::Never, move |tx| query(tx.conn())))),
        }
    }
}

impl Store for SqliteStore {
    fn hub(&self) -> &Hub {
        &self.hub
    }

    fn sleep(&self, until: When) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.clock.sleep_until(until.moment(self.clock.now()))
    }

    fn insert(&self, batch: Vec<NewInstance>) -> Reply<'_, Written<Vec<Inserted>>> {
        self.write(move |tx| insert::insert(tx, &batch, None))
    }

    fn deliver(&self, batch: Vec<Delivery>) -> Reply<'_, Written<Vec<Delivered>>> {
        self.write(move |tx| deliver::deliver(tx, &batch))
    }

    fn claim(&self, claim: Claim) -> Reply<'_, Written<Vec<Claimed>>> {
        self.sweep(move |tx| claim::claim(tx, &claim))
    }

    fn reading(&self, id: InstanceId, bytes_max: usize) -> Reply<'_, Reading> {
        self.read(move |conn| claim::reading(conn, id, bytes_max))
    }

    fn commit(&self, worker: WorkerId, batch: Arc<[Commit]>) -> Reply<'_, Written<Vec<Receipt>>> {
        self.write(move |tx| batch.iter().map(|commit| commit::commit(tx, worker, commit)).collect())
    }

    fn begin(&self) -> Reply<'_, Rider> {
        Box::pin(async {
            let instead = "on SQLite, hand a closure to `cx.in_commit`, which is run inside the commit";
            Err(Error::WrongStore { asked_for: "transaction that stays open beside others", instead })
        })
    }

    fn runs_closures(&self) -> bool {
        true
    }

    fn commit_with(&self, worker: WorkerId, commit: Commit, rider: Rider) -> Reply<'_, Written<Receipt>> {
        let own: OwnWrites = rider.into();
        let written = self.write(move |tx| rider::commit_with(tx, worker, &commit, &own));
        Box::pin(async move {
            let Written { value, effects } = written.await?;
            Ok(Written { value: value.map_err(Error::OwnWrites)?, effects })
        })
    }

    fn due(&self, rows_max: usize) -> Reply<'_, Written<Due>> {
        self.sweep(move |tx| due::due(tx, rows_max))
    }

    fn register(&self, worker: NewWorker) -> Reply<'_, WorkerId> {
        quiet(self.write(move |tx| lease::register(tx, &worker)))
    }

    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> Reply<'_, Lease> {
        quiet(self.sweep(move |tx| lease::heartbeat(tx, worker, lease)))
    }

    fn deregister(&self, worker: WorkerId) -> Reply<'_, ()> {
        quiet(self.write(move |tx| lease::deregister(tx, worker)))
    }

    fn report(&self, worker: WorkerId, batch: Vec<NewProgress>) -> Reply<'_, Written<()>> {
        self.sweep(move |tx| progress::report(tx, worker, &batch))
    }

    fn release(
        &self,
        worker: WorkerId,
        claims: Vec<(InstanceId, u64)>,
        tried: Tried,
    ) -> Reply<'_, Written<Vec<InstanceId>>> {
        self.sweep(move |tx| lease::release(tx, worker, &claims, tried))
    }

    fn reap(&self, rows_max: usize, crashes_max: u32) -> Reply<'_, Written<usize>> {
        self.sweep(move |tx| lease::reap(tx, rows_max, crashes_max))
    }

    fn collect(&self, collect: Collect) -> Reply<'_, Collected> {
        quiet(self.sweep(move |tx| collect::collect(tx, &collect)))
    }

    fn cancel(
        &self,
        namespace: String,
        target: Target,
        request: CancelRequest,
    ) -> Reply<'_, Written<Cancel>> {
        self.write(move |tx| operate::cancel(tx, &namespace, &target, &request))
    }

    fn retry(
        &self,
        namespace: String,
        target: Target,
        at: Option<At>,
        expected_seq: Option<u64>,
    ) -> Reply<'_, Written<InstanceId>> {
        self.write(move |tx| operate::retry(tx, &namespace, &target, at.as_ref(), expected_seq))
    }

    fn pause(
        &self,
        namespace: String,
        target: Target,
        brake: Brake,
        expected_seq: Option<u64>,
    ) -> Reply<'_, Written<InstanceId>> {
        self.write(move |tx| operate::pause(tx, &namespace, &target, brake, expected_seq))
    }

    fn amend(
        &self,
        namespace: String,
        target: Target,
        request: AmendRequest,
    ) -> Reply<'_, Written<InstanceId>> {
        self.write(move |tx| amend::amend(tx, &namespace, &target, &request))
    }

    fn edit(
        &self,
        namespace: String,
        target: Target,
        state: Json,
        expected_seq: Option<u64>,
    ) -> Reply<'_, InstanceId> {
        quiet(self.write(move |tx| amend::edit(tx, &namespace, &target, state.clone(), expected_seq)))
    }

    fn tag(&self, namespace: String, target: Target, change: TagChange) -> Reply<'_, Vec<String>> {
        quiet(self.write(move |tx| operate::tag(tx, &namespace, &target, &change)))
    }

    fn pause_queue(&self, namespace: String, queue: String, brake: Brake) -> Reply<'_, Written<()>> {
        self.write(move |tx| operate::pause_queue(tx, &namespace, &queue, brake))
    }

    fn weigh(&self, namespace: String, share: String, weight: u32) -> Reply<'_, ()> {
        quiet(self.write(move |tx| operate::weigh(tx, &namespace, &share, weight)))
    }

    fn server(self: Arc<Self>) -> Option<Arc<dyn ServerStore>> {
        Some(self)
    }
}

impl LimitStore for SqliteStore {
    fn set_limit(&self, namespace: String, name: String, limit: Option<Limit>) -> Reply<'_, Written<bool>> {
        self.write(move |tx| lane::set_limit(tx, &namespace, &name, limit))
    }

    fn limit_of(&self, namespace: String, lane: String) -> Reply<'_, Option<Limit>> {
        self.read(move |conn| lane::limit_of(conn, &namespace, &lane))
    }

    fn settle_limits(&self) -> Reply<'_, Written<bool>> {
        self.sweep(lane::settle_limits)
    }

    fn limits(&self, namespace: String, after: Option<String>, rows_max: usize) -> Reply<'_, Vec<LimitView>> {
        self.read(move |conn| lane::limits(conn, &namespace, after.as_deref(), rows_max))
    }
}

/// The answer alone, of a verb that has no effects.
fn quiet<'a, T: Send + 'a>(written: Reply<'a, Written<T>>) -> Reply<'a, T> {
    Box::pin(async move { Ok(written.await?.value) })
}

/// Runs blocking work off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| crate::Error::Storage(Box::new(error)))?
}
