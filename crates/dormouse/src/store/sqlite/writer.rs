//! The one writer: the calls that gather while one group is written are the next group.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::counts::{Counts, KnownPlaces};
use super::open;
use super::readers::Gate;
use super::tx::Tx;
use crate::poke::Hub;
use crate::store::Written;
use crate::{Clock, Error, Result};

/// Writes that may wait for the writer; more callers wait for a place.
const WAITING_MAX: usize = 4096;
/// Writes in one transaction; a bound on how long the first of them waits for its answer.
const GROUP_MAX: usize = 1024;
/// The WAL is copied into the database when it holds this many pages.
const CHECKPOINT_PAGES: i64 = 4000;
/// Reads that overlap keep the WAL from starting over. When it holds this many pages, new ones wait for a moment.
const LONG_PAGES: i64 = 4 * CHECKPOINT_PAGES;
/// That moment.
const READS_WAIT_MAX: Duration = Duration::from_millis(200);
/// How often another process's writes are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether a write's answer waits for the disk. **Claims wait for no fsync**: see [`Sync::Later`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// It must survive a power loss.
    Full,
    /// It may be lost in a power loss, and only then, as if it had not happened yet: a claim, a heartbeat, a sweep. The
    /// next full write syncs it, too.
    Later,
    /// It writes nothing: a query, if there is only one connection.
    Never,
}

/// A handle on the writer thread, which ends when the last handle is dropped.
pub(super) struct Writer {
    /// `None` only while it is being dropped.
    jobs: Option<mpsc::Sender<Asks>>,
    fsyncs: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        conn: Connection,
        clock: Arc<dyn Clock>,
        hub: Arc<Hub>,
        reads: Arc<Gate>,
    ) -> Result<Self> {
        let (jobs, waiting) = mpsc::channel(WAITING_MAX);
        let fsyncs = Arc::new(AtomicU64::new(0));
        let file = File { conn, clock, hub, reads, fsyncs: fsyncs.clone(), known: RefCell::default() };
        let thread = std::thread::Builder::new()
            .name("dormouse-writer".to_owned())
            .spawn(move || run(&file, waiting))
            .map_err(|error| Error::Storage(Box::new(error)))?;
        Ok(Self { jobs: Some(jobs), fsyncs, thread: Some(thread) })
    }

    /// Makes the writer check regularly whether another process has written; if so, listeners here are poked.
    pub(super) fn watch_others(&self, hub: Arc<Hub>) -> Result<()> {
        let jobs = self.jobs.as_ref().ok_or(Error::Closed)?.downgrade();
        let watch = move || {
            while let Some(jobs) = jobs.upgrade() {
                // A writer that is busy looks after its group anyway.
                if hub.is_listened_to() {
                    let _ = jobs.try_send(Asks::Look);
                }
                drop(jobs);
                std::thread::sleep(LOOK_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("dormouse-watch".to_owned()).spawn(watch);
        thread.map(drop).map_err(|error| Error::Storage(Box::new(error)))
    }

    /// Runs a verb in the next group, and returns once the group is on disk.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        sync: Sync,
        verb: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<Written<T>> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Asked { verb, sync, answer: None, reply });
        let jobs = self.jobs.as_ref().ok_or(Error::Closed)?;
        jobs.send(Asks::Job(job)).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    pub(super) fn fsyncs(&self) -> u64 {
        self.fsyncs.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    /// Waits for the last group and for SQLite to close, so that a process that ends in good order leaves one
    /// file behind and not half of its data in a log beside it.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has already reported it.
            let _ = thread.join();
        }
    }
}

/// A request to the writer.
enum Asks {
    Job(Box<dyn Job>),
    /// To look whether another process has written.
    Look,
}

/// What the writer thread works with.
struct File {
    conn: Connection,
    clock: Arc<dyn Clock>,
    hub: Arc<Hub>,
    reads: Arc<Gate>,
    fsyncs: Arc<AtomicU64>,
    known: RefCell<KnownPlaces>,
}

/// A write that can be run, perhaps more than once, and answered after the commit.
trait Job: Send {
    fn sync(&self) -> Sync;
    fn run(&mut self, conn: &Connection, clock: &dyn Clock, counts: &mut Counts) -> Result<()>;
    fn answer(self: Box<Self>, committed: Result<()>);
}

struct Asked<V, T> {
    verb: V,
    sync: Sync,
    answer: Option<Result<Written<T>>>,
    reply: oneshot::Sender<Result<Written<T>>>,
}

impl<V, T> Job for Asked<V, T>
where
    V: FnMut(&mut Tx<'_>) -> Result<T> + Send,
    T: Send,
{
    fn sync(&self) -> Sync {
        self.sync
    }

    fn run(&mut self, conn: &Connection, clock: &dyn Clock, counts: &mut Counts) -> Result<()> {
        let changes_before = conn.total_changes();
        let mut tx = Tx::new(conn, clock.now());
        let written = (self.verb)(&mut tx).and_then(|value| tx.settle_lanes().map(|()| value));
        self.answer = Some(match written {
            Ok(value) => {
                let (effects, moved) = tx.into_parts();
                counts.merge(moved);
                Ok(Written { value, effects })
            }
            // A refusal that wrote nothing is an answer like any other: the group goes on.
            Err(refusal) if !refusal.is_transient() && conn.total_changes() == changes_before => Err(refusal),
            Err(fault) => return Err(fault),
        });
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let Self { answer, reply, .. } = *self;
        let answer = committed.and_then(|()| answer.expect("a committed job has run"));
        // A caller that went away does not need its answer.
        let _ = reply.send(answer);
    }
}

fn run(file: &File, mut waiting: mpsc::Receiver<Asks>) {
    let File { conn, hub, reads, fsyncs, .. } = file;
    let mut asked = Vec::with_capacity(GROUP_MAX);
    let mut version = data_version(conn);
    let mut long_pages = LONG_PAGES;
    while waiting.blocking_recv_many(&mut asked, GROUP_MAX) > 0 {
        let mut look = false;
        let mut group = Vec::with_capacity(asked.len());
        for asks in asked.drain(..) {
            match asks {
                Asks::Job(job) => group.push(job),
                Asks::Look => look = true,
            }
        }
        if look {
            let found = data_version(conn);
            if found != version {
                hub.poke_all();
            }
            version = found;
        }
        if group.is_empty() {
            continue;
        }
        metrics::histogram!("dormouse_sqlite_group_writes").record(group.len() as f64);
        write_group(file, group);
        if let Err(error) = checkpoint(conn, reads, fsyncs, &mut long_pages) {
            tracing::warn!(%error, "the WAL could not be checkpointed; trying again after the next group");
        }
    }
}

/// A number that changes with every write of another connection, and with none of this one's.
fn data_version(conn: &Connection) -> Option<i64> {
    conn.prepare_cached("pragma data_version").ok()?.query_row([], |row| row.get(0)).ok()
}

/// Writes a group in one transaction; if any of it fails, each write in one of its own.
fn write_group(file: &File, mut group: Vec<Box<dyn Job>>) {
    match write_once(file, &mut group) {
        Ok(()) => group.into_iter().for_each(|job| job.answer(Ok(()))),
        // Another process holds the file: each part alone would wait for it as long again.
        Err(Error::Busy(reason)) => {
            group.into_iter().for_each(|job| job.answer(Err(Error::Busy(reason.to_string().into()))));
        }
        Err(error) => {
            if group.len() == 1 {
                return group.remove(0).answer(Err(error));
            }
            tracing::debug!(%error, writes = group.len(), "a group failed: writing its parts one by one");
            for mut job in group {
                let alone = write_once(file, std::slice::from_mut(&mut job));
                job.answer(alone);
            }
        }
    }
}

fn write_once(file: &File, group: &mut [Box<dyn Job>]) -> Result<()> {
    let File { conn, clock, fsyncs, known, .. } = file;
    let mut known = known.borrow_mut();
    let sync = sync_of(group.iter().map(|job| job.sync()));
    set_sync(conn, sync)?;
    conn.prepare_cached("begin immediate")?.execute([])?;
    let changes_before = conn.total_changes();
    let mut counts = Counts::default();
    let written = open::check_not_upgraded(conn)
        .and_then(|()| {
            group.iter_mut().try_for_each(|job| {
                // A query of the same group sees what the writes before it moved.
                if job.sync() == Sync::Never {
                    std::mem::take(&mut counts).save(conn, &mut known)?;
                }
                guarded(|| job.run(conn, &**clock, &mut counts))
            })
        })
        .and_then(|()| counts.save(conn, &mut known))
        .and_then(|()| Ok(conn.prepare_cached("commit")?.execute([])?));
    match written {
        Ok(_) => {
            // A transaction that changed nothing writes nothing.
            let synced = sync == Sync::Full && conn.total_changes() > changes_before;
            fsyncs.fetch_add(u64::from(synced), Ordering::Relaxed);
            Ok(())
        }
        Err(error) => {
            known.forget();
            // SQLite has rolled back by itself after some faults; only an open transaction needs it.
            if !conn.is_autocommit() {
                conn.execute_batch("rollback")?;
            }
            Err(error)
        }
    }
}

/// A group waits for the disk if any of its writes does.
fn sync_of(mut group: impl Iterator<Item = Sync>) -> Sync {
    if group.any(|sync| sync == Sync::Full) { Sync::Full } else { Sync::Later }
}

/// Turns a broken invariant into an error of the one write that broke it: the other writes, and the thread, go on.
fn guarded(write: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|panic| {
        let reason = panic.downcast_ref::<&str>().map(ToString::to_string);
        let reason = reason.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!(reason, "a write broke an invariant and is rolled back");
        Err(Error::Storage(format!("a write broke an invariant: {reason}").into()))
    })
}

/// In WAL mode, FULL syncs the log at every commit, and NORMAL leaves that to the next one that does.
fn set_sync(conn: &Connection, sync: Sync) -> Result<()> {
    let pragma = match sync {
        Sync::Full => "pragma synchronous = full",
        Sync::Later | Sync::Never => "pragma synchronous = normal",
    };
    // SQLite obeys this pragma when it compiles it, so a cached statement would do nothing.
    Ok(conn.execute_batch(pragma)?)
}

/// Copies the WAL into the database once it is long, so that it can start over. Where reads that overlap keep it from
/// that, new ones wait until those that are under way have ended.
fn checkpoint(conn: &Connection, reads: &Gate, fsyncs: &AtomicU64, long_pages: &mut i64) -> Result<()> {
    let wal_pages: i64 =
        conn.prepare_cached("pragma wal_checkpoint(noop)")?.query_row([], |row| row.get(1))?;
    if wal_pages >= CHECKPOINT_PAGES {
        conn.prepare_cached("pragma wal_checkpoint(passive)")?.query_row([], |_| Ok(()))?;
        fsyncs.fetch_add(2, Ordering::Relaxed);
    }
    if wal_pages < *long_pages {
        return Ok(());
    }
    let closed = reads.close();
    let started = Instant::now();
    // A read of another process cannot be kept from starting: it is not waited for either.
    conn.busy_timeout(Duration::ZERO)?;
    let mut held_up = true;
    while held_up && started.elapsed() < READS_WAIT_MAX {
        let truncated =
            conn.prepare_cached("pragma wal_checkpoint(truncate)")?.query_row([], |row| row.get(0));
        held_up = truncated.unwrap_or(true);
        if held_up {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(closed);
    conn.busy_timeout(open::BUSY_TIMEOUT)?;
    *long_pages = if held_up { wal_pages + CHECKPOINT_PAGES } else { LONG_PAGES };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_the_disk_is_set_anew_for_every_group() {
        let conn = Connection::open_in_memory().expect("it opens");
        for (sync, level) in [Sync::Full, Sync::Later].into_iter().zip([2, 1]).cycle().take(6) {
            set_sync(&conn, sync).expect("a pragma");
            let in_force: i64 =
                conn.pragma_query_value(None, "synchronous", |row| row.get(0)).expect("a pragma");
            assert_eq!(in_force, level);
        }
    }

    #[tokio::test]
    async fn claims_wait_for_no_fsync() {
        use crate::store::sqlite::SqliteStore;
        use crate::store::{Claim, Namespaces, NewWorker, Store, Turns};

        assert!(sync_of([Sync::Later, Sync::Never].into_iter()) == Sync::Later);
        assert!(
            sync_of([Sync::Later, Sync::Full].into_iter()) == Sync::Full,
            "it goes along with one that waits"
        );

        let store = SqliteStore::in_memory(Arc::new(crate::SystemClock)).expect("it opens");
        let at = crate::At { step: "start".into(), state: crate::Json::null() };
        store.insert(vec![crate::NewInstance::named("m", 1, at)]).await.expect("an insert");
        let (lease, machines) = (Duration::from_secs(60), vec![("m".to_owned(), 1)]);
        let worker = NewWorker {
            name: "w".to_owned(),
            process: crate::Process::current(),
            lease,
            namespaces: Namespaces::All,
            queues: vec!["default".to_owned()],
            machines: machines.clone(),
            transports: vec![],
            declares: vec![],
        };
        let worker = store.register(worker).await.expect("a worker");
        let before = store.fsyncs();
        assert!(before > 0, "an insert waits");
        let (queue, machines) = ("default".to_owned(), machines.into());
        let claim = Claim {
            worker,
            queue,
            namespaces: Namespaces::All,
            machines,
            after: Turns::default(),
            later_than: None,
            places: usize::MAX,
            rows_max: 1,
        };
        let claimed = store.claim(claim).await.expect("a claim").value;
        assert_eq!(claimed.len(), 1);
        store.heartbeat(worker, lease).await.expect("a heartbeat");
        store.due(10).await.expect("a sweep");
        store.reap(10, 3).await.expect("a sweep");
        assert_eq!(store.fsyncs(), before);
    }

    #[tokio::test]
    async fn a_broken_invariant_fails_its_own_write_and_the_writer_goes_on() {
        let conn = Connection::open_in_memory().expect("it opens");
        let writer = Writer::start(conn, Arc::new(crate::SystemClock), Arc::default(), Arc::default())
            .expect("a thread");
        let broken =
            writer.write(Sync::Full, |_| -> Result<()> { panic!("the barrier fell below zero") }).await;
        assert!(broken.is_err_and(|error| error.to_string().contains("the barrier fell below zero")));
        assert_eq!(writer.write(Sync::Full, |_| Ok(7)).await.expect("a write").value, 7);
    }
}
