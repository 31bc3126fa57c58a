//! A kit for testing machines: an engine in memory, a virtual clock, and crashes on demand.
//!
//! ```
//! use std::time::Duration;
//! use dormouse::prelude::*;
//! use dormouse::{Status, testing::TestEngine};
//!
//! struct Nap;
//!
//! #[derive(Serialize, Deserialize)]
//! enum Napping { Start, Awake }
//!
//! impl Machine for Nap {
//!     const NAME: &'static str = "nap";
//!     type State = Napping;
//!     type Output = ();
//!     async fn step(&self, state: Napping, _cx: &Context) -> StepResult<Self> {
//!         Ok(match state {
//!             Napping::Start => Outcome::sleep(Duration::from_secs(3600), Napping::Awake),
//!             Napping::Awake => Outcome::done(()),
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> dormouse::Result<()> {
//! let mut test = TestEngine::start(|engine| engine.machine(Nap)).await?;
//! let id = test.client().start::<Nap>(Napping::Start).await?;
//! assert_eq!(test.drain().await?.scheduled, 1);
//! test.crash().await?;
//! test.advance(Duration::from_secs(3600)).await?;
//! test.assert_status(id, Status::Done).await;
//! # Ok(()) }
//! ```

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::later;
use crate::engine::EngineBuilder;
use crate::store::sqlite::SqliteStore;
use crate::store::{Filter, Queries, Stats, Store};
use crate::{Client, Clock, Engine, Instance, InstanceId, Json, Result, Status, Target, VirtualClock};

/// How long things may keep moving, in real time, before [`TestEngine::drain`] gives up.
const DRAIN_MAX: Duration = Duration::from_secs(60);

type Setup = Box<dyn Fn(EngineBuilder) -> EngineBuilder + Send + Sync>;

/// An engine on SQLite in memory with a virtual clock.
pub struct TestEngine {
    store: Arc<SqliteStore>,
    clock: VirtualClock,
    setup: Setup,
    engine: Option<Engine>,
}

/// How many instances are in each status, at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Runnable, but paused, blocked by its lane, or of a machine unknown here.
    pub runnable: u64,
    /// Parked on the clock.
    pub scheduled: u64,
    /// Parked on signals.
    pub awaiting_signal: u64,
    /// Parked on children.
    pub awaiting_children: u64,
    /// Parked on a unit.
    pub awaiting_completion: u64,
    /// Ended with an output.
    pub done: u64,
    /// Ended with an error.
    pub failed: u64,
    /// Ended from outside.
    pub cancelled: u64,
}

impl TestEngine {
    /// Starts an engine that `setup` gives its machines; a restart calls it again.
    pub async fn start(
        setup: impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync + 'static,
    ) -> Result<Self> {
        let clock = VirtualClock::new("2030-01-01T00:00:00Z".parse().expect("a moment"));
        let store = Arc::new(SqliteStore::in_memory(Arc::new(clock.clone()))?);
        let mut test = Self { store, clock, setup: Box::new(setup), engine: None };
        test.run().await?;
        Ok(test)
    }

    /// A client of the engine.
    pub fn client(&self) -> Client {
        self.engine().client()
    }

    /// The running engine.
    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("an engine runs between `start` and the end of the test")
    }

    /// The moment it is.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Waits until nothing can run and nothing is due, and returns how many instances are in each status.
    ///
    /// Panics if that takes a minute of real time; the message says what still moves.
    pub async fn drain(&self) -> Result<Tally> {
        self.drain_within(DRAIN_MAX).await
    }

    async fn drain_within(&self, max: Duration) -> Result<Tally> {
        let mut changes = self.store.hub().changes();
        let deadline = tokio::time::Instant::now() + max;
        loop {
            changes.borrow_and_update();
            let stats = self.store.stats(None).await?;
            if self.is_at_rest(&stats).await? {
                return Ok(tally(&stats));
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                panic!("still moving after {max:?}: {}", self.explain_live().await);
            }
        }
    }

    /// Moves the clock forward, stops at every moment at which it wakes something, and drains each time.
    pub async fn advance(&self, duration: Duration) -> Result<Tally> {
        let target = later(self.clock.now(), duration);
        loop {
            let tally = self.drain().await?;
            let Stats { next_wake_at, next_mail_at, .. } = self.store.stats(None).await?;
            let next = next_wake_at.into_iter().chain(next_mail_at).min().filter(|at| *at <= target);
            match next {
                Some(at) => self.clock.set(at),
                None if self.clock.now() < target => self.clock.set(target),
                None => return Ok(tally),
            }
        }
    }

    /// Drops the engine as `kill -9` would, with everything that was not committed, and starts it again.
    pub async fn crash(&mut self) -> Result<()> {
        self.kill().await;
        self.run().await
    }

    /// Crashes, and starts again with other code: a deploy.
    pub async fn crash_and_deploy(
        &mut self,
        setup: impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync + 'static,
    ) -> Result<()> {
        self.kill().await;
        self.setup = Box::new(setup);
        self.run().await
    }

    /// Panics unless the instance is in this status at rest; the message says what it is doing.
    pub async fn assert_status(&self, target: impl Into<Target>, status: Status) {
        let instance = self.settled(target.into()).await;
        if instance.status != status {
            panic!("expected {status}, but {}", self.story(&instance).await);
        }
    }

    /// Panics unless the instance is done with this output; the message says what it is doing.
    pub async fn assert_output(&self, target: impl Into<Target>, output: impl serde::Serialize) {
        let instance = self.settled(target.into()).await;
        let expected = Json::encode("expected output", &output).expect("an output that can be JSON");
        if instance.output.as_ref() != Some(&expected) {
            panic!("expected the output {expected}, but {}", self.story(&instance).await);
        }
    }

    async fn run(&mut self) -> Result<()> {
        // One name: a restart takes its own claims back at once. No lease runs out when time is moved by years.
        let builder =
            Engine::on(self.store.clone()).worker_name("test").lease(Duration::from_secs(u32::MAX.into()));
        self.engine = Some((self.setup)(builder).start().await?);
        Ok(())
    }

    async fn kill(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.kill().await;
        }
    }

    async fn is_at_rest(&self, stats: &Stats) -> Result<bool> {
        let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= self.clock.now());
        if is_due(stats.next_wake_at) || is_due(stats.next_mail_at) || stats.count(Status::Executing) > 0 {
            return Ok(false);
        }
        if stats.count(Status::Runnable) == 0 {
            return Ok(true);
        }
        let mut filter =
            Filter { status: Some(Status::Runnable), limit: 1000, heads_only: true, ..Filter::default() };
        let mut listed = 0;
        loop {
            let page = self.store.list(filter.clone()).await?;
            if page.instances.iter().any(|instance| self.can_run(instance, stats)) {
                return Ok(false);
            }
            listed += page.instances.len() as u64;
            match page.next {
                Some(next) => filter.after = Some(next),
                // One that was counted and is not listed was claimed in between.
                None => return Ok(listed == stats.count(Status::Runnable)),
            }
        }
    }

    fn can_run(&self, instance: &Instance, stats: &Stats) -> bool {
        let queue_paused =
            stats.paused_queues.iter().any(|q| q.namespace == instance.namespace && q.name == instance.queue);
        let served = stats.workers.iter().any(|worker| {
            worker.queues.contains(&instance.queue)
                && worker.namespaces.contains(&instance.namespace)
                && worker.machines.contains(&(instance.machine.clone(), instance.version))
        });
        !instance.paused && !instance.lane_blocked && !queue_paused && served
    }

    async fn settled(&self, target: Target) -> Instance {
        self.drain().await.expect("the store answers");
        let found = self.client().get(target.clone()).await.expect("the store answers");
        found.unwrap_or_else(|| panic!("there is no instance {target}"))
    }

    async fn story(&self, instance: &Instance) -> String {
        let explanation = self.client().explain(instance.id).await.expect("the store answers");
        let history = self.client().history(instance.id).await.expect("the store answers");
        let events: Vec<_> = history
            .iter()
            .map(|e| {
                let data = e.data.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("  {:>3} {} {} {} {data}", e.seq, e.kind, e.step, e.state)
            })
            .collect();
        format!("{explanation}\nits history:\n{}", events.join("\n"))
    }

    async fn explain_live(&self) -> String {
        let page = self
            .client()
            .list(Filter { limit: 20, heads_only: true, ..Filter::default() })
            .await
            .expect("the store answers");
        let live: Vec<InstanceId> =
            page.instances.iter().filter(|instance| !instance.status.is_terminal()).map(|i| i.id).collect();
        let mut sentences = Vec::new();
        for id in live {
            sentences.push(self.client().explain(id).await.expect("the store answers"));
        }
        sentences.join("; ")
    }
}

fn tally(stats: &Stats) -> Tally {
    Tally {
        runnable: stats.count(Status::Runnable),
        scheduled: stats.count(Status::Scheduled),
        awaiting_signal: stats.count(Status::AwaitingSignal),
        awaiting_children: stats.count(Status::AwaitingChildren),
        awaiting_completion: stats.count(Status::AwaitingCompletion),
        done: stats.count(Status::Done),
        failed: stats.count(Status::Failed),
        cancelled: stats.count(Status::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    struct Once;

    #[derive(Serialize, Deserialize)]
    enum Only {
        Step,
    }

    impl Machine for Once {
        const NAME: &'static str = "once";
        type State = Only;
        type Output = ();

        async fn step(&self, _state: Only, _cx: &Context) -> StepResult<Self> {
            tokio::task::yield_now().await;
            Ok(Outcome::done(()))
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_row_that_is_claimed_while_the_drain_looks_is_not_at_rest() {
        let test = TestEngine::start(|engine| engine.machine(Once)).await.expect("it starts");
        for started in 1..=1000 {
            test.client().start::<Once>(Only::Step).await.expect("a start");
            assert_eq!(test.drain().await.expect("a tally"), Tally { done: started, ..Tally::default() });
        }
    }

    struct Stuck;

    impl Machine for Stuck {
        const NAME: &'static str = "stuck";
        type State = Only;
        type Output = ();

        async fn step(&self, _state: Only, _cx: &Context) -> StepResult<Self> {
            std::future::pending().await
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[should_panic(
        expected = "still moving after 50ms: instance 1 (stuck at \"Step\"): its step runs on worker \"test\""
    )]
    async fn a_drain_gives_up_and_tells_what_still_moves() {
        let test = TestEngine::start(|engine| engine.machine(Stuck)).await.expect("it starts");
        test.client().start::<Stuck>(Only::Step).await.expect("a start");
        let runs =
            async { while test.store.stats(None).await.expect("a read").count(Status::Executing) == 0 {} };
        tokio::time::timeout(Duration::from_secs(30), runs).await.expect("it is claimed");
        test.drain_within(Duration::from_millis(50)).await.expect("it panics before");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[should_panic(expected = "there is no instance 7")]
    async fn the_status_of_a_missing_instance_cannot_be_asserted() {
        let test = TestEngine::start(|engine| engine.machine(Once)).await.expect("it starts");
        test.assert_status(InstanceId(7), Status::Done).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[should_panic(expected = "there is no instance with key \"nobody\"")]
    async fn the_output_of_a_missing_instance_cannot_be_asserted() {
        let test = TestEngine::start(|engine| engine.machine(Once)).await.expect("it starts");
        test.assert_output("nobody", ()).await;
    }
}
