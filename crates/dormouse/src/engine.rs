//! The engine: what runs here. It starts and stops the loops below.
//!
//! An instance goes through four hand-offs with no way back: a queue **claims** it, its step **runs**, the
//! committer **commits** the outcome, and the **effects** of that commit poke the loops that can go on.

mod ages;
mod behind;
mod builder;
mod collector;
mod committer;
mod described;
mod dispatcher;
mod dry_run;
mod effects;
mod lease;
mod mail;
mod outage;
mod progress;
mod queue;
mod receiver;
#[cfg(feature = "schedules")]
mod schedule;
mod step;
mod timer;
mod unanswered;
mod unread;
mod watch;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::behind::BehindSteps;
pub use self::builder::EngineBuilder;
use self::committer::{Committer, Pending};
pub use self::dry_run::Unreadable;
use self::lease::Running;
use self::outage::Outage;
use self::progress::Reported;
use crate::context::Behind;
use crate::store::{Namespaces, NewWorker, Store};
use crate::transport::NamedTransport;
use crate::{Client, History, Limits, Process, Registry, Result, Retention, WorkerId};

/// How long to wait before trying again what the store could not do.
const FAULT_PAUSE: Duration = Duration::from_millis(200);

/// A running engine. Dropping it stops everything at once, as a crash would; [`Engine::shutdown`] drains.
pub struct Engine {
    client: Client,
    registry: Arc<Registry>,
    stop: CancellationToken,
    supervisor: Option<JoinHandle<()>>,
    kill: CancellationToken,
}

/// How an engine behaves.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) queues: Vec<(String, usize)>,
    pub(crate) namespaces: Namespaces,
    pub(crate) worker: String,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    pub(crate) drain: Duration,
    pub(crate) crashes_max: u32,
    pub(crate) run_ahead_steps: u32,
    pub(crate) run_ahead: Duration,
    pub(crate) priority_ages: Option<usize>,
    pub(crate) limits: Limits,
    pub(crate) history: History,
    pub(crate) retention: Retention,
    pub(crate) collect_every: Duration,
    pub(crate) watch_every: Duration,
    pub(crate) transports: Vec<NamedTransport>,
}

impl Engine {
    /// Builds an engine on a store that is already open, such as one that several engines share. To open a store by its
    /// address, use [`Engine::open`].
    pub fn on(store: Arc<dyn Store>) -> EngineBuilder {
        EngineBuilder::new(store)
    }

    /// A client of this engine's store. It knows the machines that are registered here.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Stops claiming, lets running steps commit within the drain time, and releases the rest.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        if let Some(supervisor) = self.supervisor.take()
            && let Err(error) = supervisor.await
        {
            tracing::error!(%error, "the engine did not stop cleanly");
        }
    }

    /// Stops everything at once, as a crash would, and waits until it has stopped.
    pub(crate) async fn kill(mut self) {
        self.kill.cancel();
        if let Some(supervisor) = self.supervisor.take() {
            // It ends by being dropped, so there is no result to look at.
            let _ = supervisor.await;
        }
    }

    /// Lists live instances of every namespace that the code registered here cannot read, up to `rows_max`.
    /// Before a deploy, ask [`EngineBuilder::unreadable`], which runs nothing.
    pub async fn unreadable(&self, rows_max: usize) -> Result<Vec<Unreadable>> {
        dry_run::unreadable(&**self.client.store(), &self.registry, rows_max).await
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.supervisor.is_some() {
            self.kill.cancel();
        }
    }
}

/// What an engine keeps from one registration to the next.
#[derive(Clone)]
struct Setup {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    config: Config,
    outage: Arc<Outage>,
    /// Stop claiming and let running steps end.
    stop: CancellationToken,
}

/// What the loops of one registration share.
struct Shared {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    client: Client,
    machines: Arc<[(String, u32)]>,
    config: Config,
    worker: WorkerId,
    committer: Committer,
    /// The steps that a label may hold, by machine.
    steps: HashMap<String, HashSet<String>>,
    running: Arc<Running>,
    reported: Arc<Reported>,
    behind: Arc<dyn Behind>,
    outage: Arc<Outage>,
    /// Signals that could not be read and are in the log already.
    unread: unread::Told,
    /// Stop claiming and let running steps end.
    stop: CancellationToken,
    /// Drop everything, because this registration has ended.
    abandon: CancellationToken,
    /// A loop or a step ended that must not: this registration cannot be relied on.
    broken: CancellationToken,
}

impl Setup {
    /// Runs until stopped, or until `kill` drops everything at once. Not async itself: an async function is compiled in
    /// each program that awaits it, and this is the engine.
    fn spawn(self, first: WorkerId, kill: CancellationToken) -> JoinHandle<()> {
        tokio::spawn(async move {
            kill.run_until_cancelled(self.supervise(first)).await;
        })
    }

    /// Registers and runs until it is stopped. A worker that lost its lease registers again.
    async fn supervise(self, first: WorkerId) {
        let mut worker = first;
        loop {
            match serve(Shared::new(self.clone(), worker)).await {
                Ended::Stopped => return,
                Ended::LeaseLost => tracing::warn!(%worker, "the lease was lost: registering again"),
                Ended::Broken => tracing::error!(%worker, "a part of the engine panicked: registering again"),
            }
            worker = loop {
                match self.store.register(registration(&self.config, &self.registry)).await {
                    Ok(worker) => break worker,
                    Err(error) => self.outage.failed("register", &error),
                }
                if self.stop.run_until_cancelled(tokio::time::sleep(FAULT_PAUSE)).await.is_none() {
                    return;
                }
            };
            self.outage.registered();
        }
    }
}

impl Shared {
    /// What one registration shares, and the outcomes that its committer will write.
    fn new(setup: Setup, worker: WorkerId) -> (Self, mpsc::Receiver<Pending>) {
        let Setup { store, registry, config, outage, stop } = setup;
        let (committer, commits) = Committer::new();
        let reported = Arc::<Reported>::default();
        let mut steps = HashMap::<String, HashSet<String>>::new();
        for code in registry.machines() {
            steps.entry(code.name().to_owned()).or_default().extend(code.steps());
        }
        let shared = Self {
            steps,
            machines: registry.runs().into(),
            client: Client::new(store.clone(), registry.clone(), config.limits, config.history),
            behind: Arc::new(BehindSteps { store: store.clone(), reported: reported.clone() }),
            store,
            registry,
            config,
            worker,
            committer,
            running: Arc::default(),
            reported,
            outage,
            unread: unread::Told::default(),
            stop,
            abandon: CancellationToken::new(),
            broken: CancellationToken::new(),
        };
        (shared, commits)
    }
}

impl Shared {
    /// A machine as a label: only names that are registered here, so that labels stay few.
    fn machine_label(&self, machine: &str) -> String {
        if self.steps.contains_key(machine) { machine.to_owned() } else { described::OTHER.to_owned() }
    }

    /// A step as a label: only steps that its machine declares.
    fn step_label(&self, machine: &str, step: &str) -> String {
        let is_declared = self.steps.get(machine).is_some_and(|steps| steps.contains(step));
        if is_declared { step.to_owned() } else { described::OTHER.to_owned() }
    }
}

/// How one registration ended.
enum Ended {
    Stopped,
    LeaseLost,
    Broken,
}

async fn serve((shared, commits): (Shared, mpsc::Receiver<Pending>)) -> Ended {
    let _abandon_on_every_way_out = shared.abandon.clone().drop_guard();
    let shared = Arc::new(shared);
    let loops = TaskTracker::new();
    let background = |task| spawn_loop(&loops, &shared, task);
    background(Box::pin(committer::run(shared.clone(), commits)));
    background(Box::pin(timer::run(shared.clone())));
    background(Box::pin(lease::pass_on_cancels(shared.clone())));
    background(Box::pin(mail::run(shared.clone())));
    background(Box::pin(collector::run(shared.clone())));
    background(Box::pin(watch::run(shared.clone())));
    background(Box::pin(progress::run(shared.clone())));
    let steps = TaskTracker::new();
    for (name, slots) in shared.config.queues.clone() {
        background(Box::pin(queue::run(shared.clone(), name, slots, steps.clone())));
    }
    for transport in shared.config.transports.clone() {
        background(Box::pin(unanswered::run(shared.clone(), transport.clone())));
        background(Box::pin(receiver::run(shared.clone(), transport.clone(), steps.clone())));
        background(Box::pin(dispatcher::run(shared.clone(), transport, steps.clone())));
    }
    tokio::select! {
        () = lease::keep(&shared) => Ended::LeaseLost,
        () = broken(&shared) => Ended::Broken,
        cut_short = drained(&shared, &steps) => {
            lease::give_up(&shared, cut_short).await;
            Ended::Stopped
        }
    }
}

/// Resolves when a loop or a step has ended that must not. When they are abandoned they all end, which is not a fault:
/// then this never resolves.
async fn broken(shared: &Shared) {
    shared.broken.cancelled().await;
    if shared.abandon.is_cancelled() {
        std::future::pending::<()>().await;
    }
}

/// Resolves once asked to stop, when running steps have committed or used up their time. Returns the claims cut short.
async fn drained(shared: &Shared, steps: &TaskTracker) -> Vec<lease::Claim> {
    shared.stop.cancelled().await;
    steps.close();
    if tokio::time::timeout(shared.config.drain, steps.wait()).await.is_err() {
        tracing::warn!(left = steps.len(), "the drain time is over: releasing the steps that still run");
    }
    let cut_short = shared.running.all();
    shared.abandon.cancel();
    steps.wait().await;
    cut_short
}

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Spawns a loop that runs as long as the registration. If it ends earlier, for example by a panic, the registration
/// ends too.
fn spawn_loop(tracker: &TaskTracker, shared: &Shared, task: Task) {
    let (abandon, broken) = (shared.abandon.clone(), shared.broken.clone().drop_guard());
    tracker.spawn(async move {
        let _broken_when_dropped = broken;
        abandon.run_until_cancelled(task).await
    });
}

fn registration(config: &Config, registry: &Registry) -> NewWorker {
    NewWorker {
        name: config.worker.clone(),
        process: Process::current(),
        namespaces: config.namespaces.clone(),
        lease: config.lease,
        queues: config.queues.iter().map(|(name, _)| name.clone()).collect(),
        machines: registry.runs(),
        transports: config.transports.iter().map(|transport| transport.name.clone()).collect(),
        declares: registry.declarations(config.history).iter().map(|told| (**told).clone()).collect(),
    }
}
