//! The PostgreSQL store: many processes on many machines, one truth.
//!
//! Each verb is one statement, a function in the schema `dormouse`, so that nothing depends on a transaction that
//! stays open while we wait for anything. The functions are beside this file, one for each verb; what must hold
//! between rows is kept in one place, `apply.sql`.

mod access;
mod backlog;
#[cfg(feature = "bench")]
mod bench;
mod changes;
mod claim;
mod collect;
mod commit;
mod connect;
mod db;
mod decided;
mod deliver;
mod fault;
mod gather;
mod insert;
mod kept;
mod lease;
mod limits;
mod mail;
mod marks;
mod operate;
mod pokes;
mod pool;
mod progress;
mod query;
mod rider;
mod schema;
mod search;
mod transports;
mod types;
mod units;
mod views;
mod within;

/// The driver whose connections and transactions callers pass in.
pub use sqlx;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;

#[cfg(feature = "bench")]
#[doc(hidden)]
pub use self::bench::Bench;
use self::connect::{Address, Open};
use self::db::Db;
use self::gather::Gather;
use self::marks::Memory;
use self::pokes::Pokes;
pub use self::rider::StepTransaction;
pub use self::schema::{Migrated, roles_script, script as schema_script};
use self::types::Columns;
pub use self::views::View;
pub(crate) use self::within::{addressee_in, deliver_in, insert_in};
use crate::poke::Hub;
use crate::store::{
    AmendRequest, Brake, Cancel, CancelRequest, Claim, Claimed, Collect, Collected, Commit, Delivery, Due,
    Effects, Lease, NewProgress, NewWorker, Reading, Receipt, Reply, Rider, ServerStore, Store, TagChange,
    Tried, Written,
};
use crate::{
    At, Clock, Delivered, Inserted, InstanceId, Json, NewInstance, Result, SystemClock, Target, When,
    WorkerId,
};

/// A caller's own transaction.
pub type Connection = sqlx::PgConnection;

/// Groups of outcomes that are committed at a time.
const GROUPS_MAX: usize = 2;

/// A PostgreSQL database.
pub struct PostgresStore {
    /// For the calls of callers.
    db: Db,
    /// For the engine itself: its heartbeat, claims, commits and timers.
    engine: Db,
    hub: Arc<Hub>,
    pokes: Arc<Pokes>,
    memory: Memory,
    inserts: Gather<NewInstance, Inserted>,
    deliveries: Gather<Delivery, Delivered>,
    /// The database's time, and the local instant at which it was read.
    time: Mutex<Option<(Timestamp, Instant)>>,
}

/// How long to wait before a database is tried again that could not be opened.
const OPEN_PAUSES: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(300)];

impl PostgresStore {
    /// Connects to a database whose schema is up to date.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connected(url).await
    }

    /// Boxed, so that it is compiled here: what an async function does is compiled in each program that awaits it.
    fn connected(url: &str) -> Reply<'_, Self> {
        Box::pin(Self::open(url))
    }

    /// A fault that may pass is tried again. Behind a pooler, one such is a notification for a client that has died: the
    /// server connection it had listened on is given to the next one.
    async fn open(url: &str) -> Result<Self> {
        for pause in OPEN_PAUSES {
            match Self::open_once(url).await {
                Err(error) if error.is_transient() => tokio::time::sleep(pause).await,
                opened => return opened,
            }
        }
        Self::open_once(url).await
    }

    async fn open_once(url: &str) -> Result<Self> {
        let address = Address::parse(url)?;
        schema::check(&mut address.connect().await?).await.map_err(|error| address.unusable(error))?;
        let Open { callers: db, engine, hears } = address.open().await?;
        let hub = Arc::new(Hub::default());
        let pokes = Pokes::start(engine.clone(), &hub, hears.then_some(address));
        Ok(Self {
            inserts: Gather::new(db.clone(), insert::gathered(&db)),
            deliveries: Gather::new(db.clone(), deliver::gathered(&db)),
            db,
            engine,
            hub,
            pokes,
            memory: Memory::default(),
            time: Mutex::default(),
        })
    }

    /// Brings a database's schema up to date.
    pub async fn migrate(url: &str) -> Result<Migrated> {
        Self::migrated(url).await
    }

    fn migrated(url: &str) -> Reply<'_, Migrated> {
        Box::pin(async move { schema::migrate(&mut Address::parse(url)?.connect().await?).await })
    }

    /// Makes the typed views of machines in the schema `dormouse_views`, and says what became of each. Workers do so when
    /// they register; call it where theirs was kept or busy.
    pub async fn make_views(url: &str) -> Result<Vec<View>> {
        let mut conn = Address::parse(url)?.connect().await?;
        schema::check(&mut conn).await?;
        views::make(&mut conn).await
    }

    /// Closes every connection, after what is under way.
    pub async fn close(&self) {
        self.db.pool.close().await;
        self.engine.pool.close().await;
        self.engine.steps.close().await;
    }

    /// Notes what time it is in the database.
    fn note_time(&self, now: Timestamp) {
        *self.time.lock().expect("no code panics while it holds this lock") = Some((now, Instant::now()));
    }

    /// How long it is until a moment of the database's time, whatever the clock here shows.
    fn until(&self, at: Timestamp) -> Duration {
        let noted = *self.time.lock().expect("no code panics while it holds this lock");
        let (then, noted_at) = noted.unwrap_or_else(|| (SystemClock.now(), Instant::now()));
        Duration::try_from(at.duration_since(then)).unwrap_or_default().saturating_sub(noted_at.elapsed())
    }

    async fn sweep(&self, rows_max: usize) -> Result<Written<Due>> {
        let sql = "select v.woken, v.expired, v.next, v.at, (v.effects).* from dormouse.due($1) v";
        let row = self.engine.one(|| sqlx::query(sql).bind(rows_max as i32)).await?;
        self.note_time(row.moment("at")?);
        let value = Due {
            woken: row.number("woken")?,
            expired: row.number("expired")?,
            next: row.moment_or_none("next")?,
        };
        Ok(Written { value, effects: row.effects()? })
    }
}

impl Store for PostgresStore {
    fn hub(&self) -> &Hub {
        &self.hub
    }

    fn poke(&self, effects: &Effects) {
        self.hub.apply(effects);
        self.pokes.add(effects);
    }

    fn sleep(&self, until: When) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let left = match until {
            When::In(duration) => duration,
            When::At(at) => self.until(at),
        };
        Box::pin(tokio::time::sleep(left))
    }

    fn insert(&self, batch: Vec<NewInstance>) -> Reply<'_, Written<Vec<Inserted>>> {
        Box::pin(self.inserts.call(batch))
    }

    fn deliver(&self, batch: Vec<Delivery>) -> Reply<'_, Written<Vec<Delivered>>> {
        Box::pin(kept::deliver(&self.db, &self.deliveries, batch))
    }

    fn claim(&self, claim: Claim) -> Reply<'_, Written<Vec<Claimed>>> {
        Box::pin(async move { claim::claim(&self.engine, &claim).await })
    }

    fn reading(&self, id: InstanceId, bytes_max: usize) -> Reply<'_, Reading> {
        Box::pin(claim::reading(&self.db, id, bytes_max))
    }

    fn groups_max(&self) -> usize {
        // While the server writes one, the next is put together here.
        GROUPS_MAX
    }

    fn commit(&self, worker: WorkerId, batch: Arc<[Commit]>) -> Reply<'_, Written<Vec<Receipt>>> {
        Box::pin(async move { commit::commit(&self.engine, &self.memory, worker, &batch).await })
    }

    fn begin(&self) -> Reply<'_, Rider> {
        Box::pin(rider::begin(&self.engine))
    }

    fn commit_with(&self, worker: WorkerId, commit: Commit, rider: Rider) -> Reply<'_, Written<Receipt>> {
        Box::pin(async move { rider::commit_with(&self.engine, worker, &commit, rider).await })
    }

    fn due(&self, rows_max: usize) -> Reply<'_, Written<Due>> {
        Box::pin(self.sweep(rows_max))
    }

    fn register(&self, worker: NewWorker) -> Reply<'_, WorkerId> {
        Box::pin(async move { lease::register(&self.engine, &worker).await })
    }

    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> Reply<'_, Lease> {
        Box::pin(lease::heartbeat(&self.engine, worker, lease))
    }

    fn deregister(&self, worker: WorkerId) -> Reply<'_, ()> {
        Box::pin(lease::deregister(&self.engine, worker))
    }

    fn report(&self, worker: WorkerId, batch: Vec<NewProgress>) -> Reply<'_, Written<()>> {
        Box::pin(async move { progress::report(&self.db, worker, &batch).await })
    }

    fn release(
        &self,
        worker: WorkerId,
        claims: Vec<(InstanceId, u64)>,
        tried: Tried,
    ) -> Reply<'_, Written<Vec<InstanceId>>> {
        Box::pin(async move { lease::release(&self.engine, worker, &claims, tried).await })
    }

    fn reap(&self, rows_max: usize, crashes_max: u32) -> Reply<'_, Written<usize>> {
        Box::pin(lease::reap(&self.engine, rows_max, crashes_max))
    }

    fn collect(&self, collect: Collect) -> Reply<'_, Collected> {
        Box::pin(collect::collect(&self.engine, collect))
    }

    fn cancel(
        &self,
        namespace: String,
        target: Target,
        request: CancelRequest,
    ) -> Reply<'_, Written<Cancel>> {
        Box::pin(async move { operate::cancel(&self.db, &namespace, &target, &request).await })
    }

    fn retry(
        &self,
        namespace: String,
        target: Target,
        at: Option<At>,
        expected_seq: Option<u64>,
    ) -> Reply<'_, Written<InstanceId>> {
        Box::pin(
            async move { operate::retry(&self.db, &namespace, &target, at.as_ref(), expected_seq).await },
        )
    }

    fn pause(
        &self,
        namespace: String,
        target: Target,
        brake: Brake,
        expected_seq: Option<u64>,
    ) -> Reply<'_, Written<InstanceId>> {
        Box::pin(async move { operate::pause(&self.db, &namespace, &target, brake, expected_seq).await })
    }

    fn amend(
        &self,
        namespace: String,
        target: Target,
        request: AmendRequest,
    ) -> Reply<'_, Written<InstanceId>> {
        Box::pin(async move { operate::amend(&self.db, &namespace, &target, &request).await })
    }

    fn edit(
        &self,
        namespace: String,
        target: Target,
        state: Json,
        expected_seq: Option<u64>,
    ) -> Reply<'_, InstanceId> {
        Box::pin(async move { operate::edit(&self.db, &namespace, &target, &state, expected_seq).await })
    }

    fn tag(&self, namespace: String, target: Target, change: TagChange) -> Reply<'_, Vec<String>> {
        Box::pin(async move { operate::tag(&self.db, &namespace, &target, &change).await })
    }

    fn pause_queue(&self, namespace: String, queue: String, brake: Brake) -> Reply<'_, Written<()>> {
        Box::pin(async move { operate::pause_queue(&self.db, &namespace, &queue, brake).await })
    }

    fn weigh(&self, namespace: String, share: String, weight: u32) -> Reply<'_, ()> {
        Box::pin(async move { operate::weigh(&self.db, &namespace, &share, weight).await })
    }

    fn server(self: Arc<Self>) -> Option<Arc<dyn ServerStore>> {
        Some(self)
    }
}
