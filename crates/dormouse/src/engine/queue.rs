//! Claim: rows are claimed for free places in a queue, and a little ahead of them, and started in that order.
//!
//! Places bound how many steps run. A step that has run gives its place back before its outcome is committed, and rows
//! are claimed ahead of places while steps are short, so that claims and commits stay in large groups however few
//! places there are ([0028](../../../../docs/decisions/0028-claims-ahead-of-places.md)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ages::Ages;
use super::lease::{Registered, give_back};
use super::{FAULT_PAUSE, Shared, effects, step};
use crate::InstanceId;
use crate::store::{Claim, Claimed, STARTS_AHEAD_MAX, Starts, Tried, Turns, Written};

/// The most rows in one claim, however much room there is.
const CLAIM_ROWS_MAX: usize = 512;
/// The most rows claimed ahead of places, however short the steps are.
const AHEAD_MAX: usize = 512;
/// A row is claimed ahead if, at the present pace of steps, it will get its place within this time.
const AHEAD_FOR: Duration = Duration::from_millis(25);
/// A row that has waited this long for its place is given back, with all rows behind it.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// A start that is counted for a rate is given back if its claim took longer than this: it would come too late.
const CLAIM_MAX: Duration = Duration::from_secs(1);

/// Claims and starts steps until the engine stops.
pub(super) async fn run(shared: Arc<Shared>, name: String, steps_max: usize, steps: TaskTracker) {
    // Waiting for the steps to end includes the claim under way: if it were dropped, the store would take its rows and
    // nobody would run them.
    let claiming = steps.token();
    let queue = Arc::new(Queue::new(&name, steps_max));
    let (ahead, rows) = mpsc::channel(steps_max + AHEAD_MAX);
    tokio::join!(claim_rows(&shared, &name, &queue, ahead), start_rows(&shared, &queue, rows, &steps));
    drop(claiming);
    std::future::pending::<()>().await;
}

/// The state of one queue in this process: what runs, waits and is being committed.
pub(super) struct Queue {
    steps_max: usize,
    /// Bounds how many steps run.
    places: Arc<Semaphore>,
    /// Rows claimed here whose claims are not over.
    in_hand: AtomicUsize,
    let_go: Notify,
    /// Those of them that wait for their places.
    waiting: AtomicUsize,
    /// A place became free, or a row does not wait for one any more.
    freed: Notify,
    /// How long a step holds its place, as a moving mean; 0 before any has.
    held_us: AtomicU64,
    in_use: metrics::Gauge,
    /// How many places there are, as a metric: those of several engines in one process add up.
    all: metrics::Gauge,
}

/// A row's share of the claims that a queue may hold, until its claim ends.
pub(super) struct Hand(Arc<Queue>);

/// A place to run a step in.
pub(super) struct RunningPlace {
    queue: Arc<Queue>,
    since: Instant,
    permit: Option<OwnedSemaphorePermit>,
}

impl Queue {
    fn new(name: &str, steps_max: usize) -> Self {
        let all = metrics::gauge!("dormouse_places", "queue" => name.to_owned());
        all.increment(steps_max as f64);
        Self {
            in_use: metrics::gauge!("dormouse_places_in_use", "queue" => name.to_owned()),
            all,
            steps_max,
            places: Arc::new(Semaphore::new(steps_max)),
            in_hand: AtomicUsize::new(0),
            let_go: Notify::new(),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            held_us: AtomicU64::new(0),
        }
    }

    /// How many rows may be claimed now. None while the claimed rows fill all places and claiming more would gain
    /// little.
    fn room(&self) -> usize {
        let (in_hand, rows_max) = (self.in_hand.load(Ordering::Relaxed), self.steps_max + self.ahead());
        let room = rows_max.saturating_sub(in_hand);
        if in_hand < self.steps_max || room >= rows_max / 4 { room } else { 0 }
    }

    /// How many rows will get a place within [`AHEAD_FOR`], at the present pace of steps.
    fn ahead(&self) -> usize {
        match self.held_us.load(Ordering::Relaxed) {
            // Nothing is known of its steps yet.
            0 => 0,
            held_us => {
                let turns = AHEAD_FOR.as_micros() as u64 / held_us;
                AHEAD_MAX.min((turns as usize).saturating_mul(self.steps_max))
            }
        }
    }

    /// Waits for room, and returns for how many rows.
    async fn wait_for_room(&self) -> usize {
        loop {
            let let_go = self.let_go.notified();
            match self.room() {
                0 => let_go.await,
                room => return room.min(CLAIM_ROWS_MAX),
            }
        }
    }

    /// How many rows would start at once.
    fn free(&self) -> usize {
        self.places.available_permits().saturating_sub(self.waiting.load(Ordering::Relaxed))
    }

    /// Waits until a row would start at once.
    async fn wait_for_place(&self) {
        loop {
            let freed = self.freed.notified();
            if self.free() > 0 {
                return;
            }
            freed.await;
        }
    }

    fn take(self: &Arc<Self>) -> Hand {
        self.in_hand.fetch_add(1, Ordering::Relaxed);
        Hand(self.clone())
    }

    /// Notes how long a place was held.
    fn held(&self, held: Duration) {
        let held_us = u64::try_from(held.as_micros()).unwrap_or(u64::MAX).max(1);
        let mean_us = self.held_us.load(Ordering::Relaxed);
        // A longer time counts at once: no row should wait here behind such steps.
        let mean_us =
            if held_us > mean_us { held_us.midpoint(mean_us) } else { (mean_us * 15 + held_us) / 16 };
        self.held_us.store(mean_us.max(1), Ordering::Relaxed);
    }

    /// Claims nothing ahead until short steps have ended again.
    fn claim_nothing_ahead(&self) {
        self.held_us.store(WAIT_MAX.as_micros() as u64, Ordering::Relaxed);
    }

    async fn place(self: &Arc<Self>) -> RunningPlace {
        let permit = self.places.clone().acquire_owned().await.expect("a queue's places are never closed");
        self.in_use.increment(1.0);
        RunningPlace { queue: self.clone(), since: Instant::now(), permit: Some(permit) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.all.decrement(self.steps_max as f64);
    }
}

impl Hand {
    /// Waits for a place to run another step in.
    pub(super) async fn place(&self) -> RunningPlace {
        self.0.place().await
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.0.in_hand.fetch_sub(1, Ordering::Relaxed);
        self.0.let_go.notify_one();
    }
}

impl Drop for RunningPlace {
    fn drop(&mut self) {
        self.queue.held(self.since.elapsed());
        self.queue.in_use.decrement(1.0);
        drop(self.permit.take());
        self.queue.freed.notify_one();
    }
}

/// A claimed row that waits for its place.
struct Waiting {
    _seen: Seen,
    row: Claimed,
    registered: Registered,
    cancel: CancellationToken,
    hand: Hand,
    since: Instant,
    claim_took: Duration,
    /// How many pauses were known here when it was claimed.
    brakes: u64,
}

impl Waiting {
    /// How long it may wait for its place.
    fn wait_max(&self) -> Duration {
        if self.is_counted() { STARTS_AHEAD_MAX } else { WAIT_MAX }
    }

    /// Whether its start is counted for a rate.
    fn is_counted(&self) -> bool {
        self.row.starts != Starts::Anytime
    }

    /// Whether it would start later than it is counted.
    fn is_late(&self) -> bool {
        self.is_counted() && (self.since.elapsed() > STARTS_AHEAD_MAX || self.claim_took > CLAIM_MAX)
    }
}

/// While it exists, `explain` says that the instance waits for a place.
struct Seen {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    id: InstanceId,
}

impl Seen {
    fn new(shared: &Arc<Shared>, queue: &Arc<Queue>, id: InstanceId) -> Self {
        shared.store.hub().claimed_ahead(id);
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        Self { shared: shared.clone(), queue: queue.clone(), id }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.shared.store.hub().starts(self.id);
        self.queue.waiting.fetch_sub(1, Ordering::Relaxed);
        self.queue.freed.notify_one();
    }
}

/// Claims whenever there is room and there may be a row for it.
async fn claim_rows(shared: &Arc<Shared>, name: &str, queue: &Arc<Queue>, ahead: mpsc::Sender<Waiting>) {
    let hub = shared.store.hub();
    let mut pokes = hub.queue(name);
    let (mut turns, mut ages) = (Turns::default(), Ages::new(shared.config.priority_ages));
    while let Some(asked) = shared.stop.run_until_cancelled(queue.wait_for_room()).await {
        // A poke that comes while we claim is seen by the wait below.
        pokes.borrow_and_update();
        let brakes = hub.brakes();
        let (asked, later_than) = match ages.later_than() {
            Some(later_than) => (1, Some(later_than)),
            None => (asked.min(ages.rows_max()), None),
        };
        let asked_at = Instant::now();
        let request = Asked { turns: &turns, later_than, rows_max: asked, places: queue.free() };
        let (claimed, held_back) = claim(shared, name, request).await;
        let claim_took = asked_at.elapsed();
        ages.claimed(later_than, &claimed);
        let took = claimed.len();
        for row in claimed {
            turns.served(&row.turn);
            let cancel = CancellationToken::new();
            // It already runs here, so its claim is in use again.
            let Some(registered) = shared.running.add(row.id, row.seq, cancel.clone()) else { continue };
            let hand = queue.take();
            let (since, _seen) = (Instant::now(), Seen::new(shared, queue, row.id));
            let waiting = Waiting { _seen, row, registered, cancel, hand, since, claim_took, brakes };
            assert!(ahead.try_send(waiting).is_ok(), "there is room for every row in hand");
        }
        if held_back {
            // Rows must start at once whose rate is tight: nothing is claimed ahead of them.
            shared.stop.run_until_cancelled(queue.wait_for_place()).await;
        } else if took < asked && later_than.is_none() {
            // The backlog is empty: only something new, or another process, can change that.
            let news = tokio::time::timeout(shared.config.poll, pokes.changed());
            let _ = shared.stop.run_until_cancelled(news).await;
        }
        if shared.stop.is_cancelled() {
            break;
        }
    }
}

/// What a claim asks for.
struct Asked<'a> {
    turns: &'a Turns,
    later_than: Option<i32>,
    rows_max: usize,
    places: usize,
}

/// Claims rows. Returns them, and whether others were left that must start at once.
async fn claim(shared: &Shared, queue: &str, asked: Asked<'_>) -> (Vec<Claimed>, bool) {
    while !shared.stop.is_cancelled() {
        let claim = Claim {
            worker: shared.worker,
            queue: queue.to_owned(),
            namespaces: shared.config.namespaces.clone(),
            machines: shared.machines.clone(),
            after: asked.turns.clone(),
            later_than: asked.later_than,
            rows_max: asked.rows_max,
            places: asked.places,
        };
        match shared.store.claim(claim).await {
            Ok(Written { value: claimed, effects }) => {
                shared.store.poke(&effects);
                shared.outage.succeeded("claim");
                // A row that its key forbids to run, or that cannot be read, has failed.
                effects::report_ends(shared, &effects.ended).await;
                metrics::counter!("dormouse_claims_total").increment(claimed.len() as u64);
                let waits = metrics::histogram!("dormouse_claim_wait_seconds", "queue" => queue.to_owned());
                for row in &claimed {
                    waits.record(row.now.duration_since(row.runnable_at).as_secs_f64().max(0.0));
                }
                if !claimed.is_empty() {
                    tracing::trace!(queue, rows = claimed.len(), "claimed");
                }
                return (claimed, effects.held_back);
            }
            Err(error) => {
                shared.outage.failed("claim", &error);
                tokio::time::sleep(FAULT_PAUSE).await;
            }
        }
    }
    (Vec::new(), false)
}

/// Starts rows in the order of their claims, each in a place. Gives back rows that must not start: all of them once the
/// engine stops, rows claimed before a pause, rows of cancelled instances, and rows that have waited too long, which for
/// those that are counted for a rate is sooner.
async fn start_rows(
    shared: &Arc<Shared>,
    queue: &Arc<Queue>,
    mut rows: mpsc::Receiver<Waiting>,
    steps: &TaskTracker,
) {
    while let Some(waiting) = rows.recv().await {
        let place = tokio::select! {
            biased;
            () = shared.stop.cancelled() => None,
            place = queue.place() => Some(place),
            () = tokio::time::sleep_until(waiting.since + waiting.wait_max()) => {
                queue.claim_nothing_ahead();
                None
            }
        };
        if waiting.is_late() && !shared.stop.is_cancelled() {
            return_rows(shared, vec![waiting], steps).await;
            continue;
        }
        match place.filter(|_| waiting.brakes == shared.store.hub().brakes()) {
            Some(_) if waiting.cancel.is_cancelled() => return_rows(shared, vec![waiting], steps).await,
            Some(place) => start(shared, steps, waiting, place),
            None => {
                let mut all = vec![waiting];
                while let Ok(waiting) = rows.try_recv() {
                    all.push(waiting);
                }
                return_rows(shared, all, steps).await;
            }
        }
    }
}

/// Gives rows back as if they had not been claimed. Rows that another transaction locks are tried again, without
/// holding up the rows behind them.
async fn return_rows(shared: &Arc<Shared>, mut rows: Vec<Waiting>, steps: &TaskTracker) {
    tracing::debug!(rows = rows.len(), "giving back rows that were claimed ahead");
    rows.iter().for_each(|waiting| waiting.registered.give_back());
    return_some(shared, &mut rows).await;
    if !rows.is_empty() {
        let shared = shared.clone();
        steps.spawn(async move {
            let returned = async {
                while !rows.is_empty() {
                    tokio::time::sleep(FAULT_PAUSE).await;
                    return_some(&shared, &mut rows).await;
                }
            };
            shared.abandon.run_until_cancelled(returned).await;
        });
    }
}

/// Gives rows back, but for those that are busy.
async fn return_some(shared: &Shared, rows: &mut Vec<Waiting>) {
    let claims = rows.iter().map(|waiting| (waiting.row.id, waiting.row.seq)).collect();
    let busy = give_back(shared, claims, Tried::No).await;
    rows.retain(|waiting| busy.contains(&waiting.row.id));
}

fn start(shared: &Arc<Shared>, steps: &TaskTracker, waiting: Waiting, place: RunningPlace) {
    let shared = shared.clone();
    let abandon = shared.abandon.clone();
    // A panic in our own code leaves its row claimed: only ending the registration frees it.
    let broken = shared.broken.clone().drop_guard();
    let Waiting { row, registered, cancel, hand, since, .. } = waiting;
    steps.spawn(async move {
        let starting = step::Starting { row, registered, cancel, hand, handed_out: since.into_std() };
        abandon.run_until_cancelled(step::run(&shared, starting, place)).await;
        broken.disarm();
    });
}
