//! Setting an engine up.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Config, Engine, Setup, Unreadable, described, dry_run, registration};
use crate::flow::{FlowMachine, FlowState};
use crate::limits::check_name;
use crate::machine::Typed;
use crate::store::{Namespaces, Store};
use crate::transport::NamedTransport;
use crate::{
    Client, DEFAULT_NAMESPACE, DynMachine, Error, History, INTERACTION_API, Job, JobMachine, Limits, Machine,
    Process, Registry, Result, Retention, Sending, Transport,
};

/// An engine that is being set up. [`EngineBuilder::start`] reports mistakes.
#[must_use = "nothing runs before `start`"]
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    registry: Registry,
    config: Config,
    #[cfg(feature = "schedules")]
    pub(super) schedules: Vec<crate::Schedule>,
    mistake: Option<Error>,
}

impl EngineBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let config = Config {
            queues: Vec::new(),
            namespaces: Namespaces::Only(vec![DEFAULT_NAMESPACE.to_owned()]),
            worker: {
                let Process { host, pid, .. } = Process::current();
                format!("{host}-{pid}-{:08x}", fastrand::u32(..))
            },
            lease: Duration::from_secs(15),
            poll: Duration::from_secs(1),
            drain: Duration::from_secs(10),
            crashes_max: 10,
            run_ahead_steps: 64,
            run_ahead: Duration::from_millis(100),
            priority_ages: None,
            limits: Limits::default(),
            history: History::On,
            retention: Retention::default(),
            collect_every: Duration::from_secs(60),
            watch_every: Duration::from_secs(15),
            transports: Vec::new(),
        };
        Self {
            store,
            registry: Registry::default(),
            config,
            #[cfg(feature = "schedules")]
            schedules: Vec::new(),
            mistake: None,
        }
    }

    /// Registers a machine.
    pub fn machine<M: Machine>(self, machine: M) -> Self {
        match Typed::new(machine) {
            Ok(typed) => self.dyn_machine(Arc::new(typed)),
            Err(error) => self.mistaken(error),
        }
    }

    /// Registers a job.
    pub fn job<J: Job>(self, job: J) -> Self {
        self.machine(JobMachine(job))
    }

    /// Registers a flow.
    pub fn flow<S: FlowState, D: Send + Sync + 'static>(self, flow: &FlowMachine<S, D>) -> Self {
        self.dyn_machine(Arc::new(flow.clone()))
    }

    /// Registers a machine over step names and JSON.
    pub fn dyn_machine(mut self, machine: Arc<dyn DynMachine>) -> Self {
        match self.registry.add(machine) {
            Ok(()) => self,
            Err(error) => self.mistaken(error),
        }
    }

    /// Serves a queue and runs at most this many of its steps at once. If no queue is named, `default` is served with
    /// 64.
    pub fn queue(mut self, name: impl Into<String>, steps_max: usize) -> Self {
        self.config.queues.push((name.into(), steps_max));
        self
    }

    /// Serves exactly these queues, each with so many places, instead of those named before. For settings that override
    /// a program's own.
    pub fn queues(mut self, queues: impl IntoIterator<Item = (String, usize)>) -> Self {
        self.config.queues = queues.into_iter().collect();
        self
    }

    /// Serves these namespaces instead of `default`.
    pub fn namespaces(mut self, namespaces: Namespaces) -> Self {
        self.config.namespaces = namespaces;
        self
    }

    /// Names this worker. A worker that registers under the same name takes over its claims at once, so give a
    /// restarted program the same name.
    pub fn worker_name(mut self, name: impl Into<String>) -> Self {
        self.config.worker = name.into();
        self
    }

    /// How long claims are safe without a heartbeat (15 s by default). A heartbeat is sent three times as often.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self
    }

    /// How often to poll for work that no poke announced, such as another process's (1 s by default).
    pub fn poll(mut self, every: Duration) -> Self {
        self.config.poll = every;
        self
    }

    /// How long running steps may go on after a shutdown was requested (10 s by default).
    pub fn drain(mut self, within: Duration) -> Self {
        self.config.drain = within;
        self
    }

    /// How often in a row a step may be lost with its worker, by a crash or a lost lease, before its instance fails (10
    /// by default; with `u32::MAX` it never does). A commit or a retry resets the count. It applies to claims that this
    /// engine takes back.
    pub fn crashes_max(mut self, crashes_max: u32) -> Self {
        self.config.crashes_max = crashes_max;
        self
    }

    /// How many steps, and for how long, an instance may run ahead before others get its place (64 and 100 ms by
    /// default).
    pub fn run_ahead(mut self, steps_max: u32, within: Duration) -> Self {
        self.config.run_ahead_steps = steps_max;
        self.config.run_ahead = within;
        self
    }

    /// Lets priorities age: of every so many rows that a queue claims, one is of a later priority than the most urgent, if
    /// there is one, and later priorities take turns. Without it priorities are strict, and a steady stream of urgent work
    /// keeps the rest waiting.
    pub fn priority_ages(mut self, every_rows: usize) -> Self {
        self.config.priority_ages = Some(every_rows);
        self
    }

    /// Sets the limits on states, payloads and outputs.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// Whether transitions are recorded, for machines that do not set this themselves.
    pub fn history(mut self, history: History) -> Self {
        self.config.history = history;
        self
    }

    /// How long ended instances and old events are kept, and how often they are collected.
    pub fn retention(mut self, retention: Retention, every: Duration) -> Self {
        self.config.retention = retention;
        self.config.collect_every = every;
        self
    }

    /// How often to look for machines, queues and transports that no live worker serves (15 s by default). One that is
    /// found twice in a row is logged, and logged again when it is over.
    pub fn watch_every(mut self, every: Duration) -> Self {
        self.config.watch_every = every;
        self
    }

    /// Sends the requests of units that name this transport, with the defaults of [`Sending`].
    pub fn transport(self, name: impl Into<String>, transport: impl Transport) -> Self {
        self.transport_with(name, transport, Sending::default())
    }

    /// Sends the requests of units that name this transport.
    pub fn transport_with(
        mut self,
        name: impl Into<String>,
        transport: impl Transport,
        sending: Sending,
    ) -> Self {
        let (name, transport) = (name.into(), Arc::new(transport));
        self.config.transports.push(NamedTransport { name, transport, sending });
        self
    }

    /// A client of the store, before anything runs here. It knows the machines registered so far.
    pub fn client(&self) -> Client {
        let registry = Arc::new(self.registry.clone());
        Client::new(self.store.clone(), registry, self.config.limits, self.config.history)
    }

    /// Lists live instances of every namespace that the code registered so far cannot read, up to `rows_max`. Use it as
    /// a dry run before a deploy: it runs nothing and changes nothing.
    pub async fn unreadable(&self, rows_max: usize) -> Result<Vec<Unreadable>> {
        dry_run::unreadable(&*self.store, &self.registry, rows_max).await
    }

    /// Checks the setup, registers as a worker and starts to run.
    pub async fn start(mut self) -> Result<Engine> {
        self.check()?;
        described::describe();
        if self.registry.machines().next().is_none() {
            tracing::warn!(
                "no machine is registered: this engine wakes and reaps instances, but runs no steps of yours"
            );
        }
        #[cfg(feature = "schedules")]
        self.add_schedules().await?;
        let Self { store, registry, config, .. } = self;
        let worker = store.register(registration(&config, &registry)).await?;
        announce(&config, &registry);
        let registry = Arc::new(registry);
        let client = Client::new(store.clone(), registry.clone(), config.limits, config.history);
        let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
        let outage = Arc::default();
        let setup = Setup { store, registry: registry.clone(), config, outage, stop: stop.clone() };
        let supervisor = setup.spawn(worker, kill.clone());
        Ok(Engine { client, registry, stop, kill, supervisor: Some(supervisor) })
    }

    fn check(&mut self) -> Result<()> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        if self.config.queues.is_empty() {
            self.config.queues.push(("default".to_owned(), 64));
        }
        let refuse = |reason: String| Err(Error::InvalidConfig(reason));
        for (index, (name, steps_max)) in self.config.queues.iter().enumerate() {
            check_name("queue", name)?;
            if *steps_max == 0 {
                return refuse(format!("the queue {name:?} runs 0 steps at once; give it at least 1"));
            }
            if self.config.queues[..index].iter().any(|(other, _)| other == name) {
                return refuse(format!("the queue {name:?} is named twice"));
            }
        }
        for (index, NamedTransport { name, sending, .. }) in self.config.transports.iter().enumerate() {
            check_name("transport", name)?;
            if name == INTERACTION_API {
                return refuse(format!(
                    "the transport {name:?} is the built-in interaction API, which sends nothing; choose another name"
                ));
            }
            if self.config.transports[..index].iter().any(|other| other.name == *name) {
                return refuse(format!("the transport {name:?} is named twice"));
            }
            if sending.concurrency_max == 0 {
                return refuse(format!(
                    "the transport {name:?} may send 0 requests at once; allow at least 1"
                ));
            }
            sending.limits().check(name)?;
        }
        check_name("worker name", &self.config.worker)?;
        match &self.config.namespaces {
            Namespaces::Only(names) if names.is_empty() => {
                refuse("it serves no namespace; name at least one, or serve all".to_owned())
            }
            Namespaces::Only(names) => names.iter().try_for_each(|name| check_name("namespace", name)),
            Namespaces::All => Ok(()),
        }?;
        if self.config.priority_ages.is_some_and(|every_rows| every_rows < 2) {
            return refuse(
                "priorities that age leave urgent work at least every second row; name 2 or more".to_owned(),
            );
        }
        if self.config.crashes_max == 0 {
            return refuse("with no crash allowed nothing could be taken back; allow at least 1".to_owned());
        }
        if self.config.lease < Duration::from_millis(30) {
            return refuse("a lease under 30 ms cannot be renewed in time; choose a longer one".to_owned());
        }
        Ok(())
    }

    /// Registers the machine of schedules, and brings the schedules that are declared here in step with the database.
    #[cfg(feature = "schedules")]
    async fn add_schedules(&mut self) -> Result<()> {
        let client = self.client();
        super::schedule::register(&mut self.registry, client.clone())?;
        for schedule in std::mem::take(&mut self.schedules) {
            let client = client.in_namespace(schedule.declared_in())?;
            client.schedules().declare(schedule).await?;
        }
        Ok(())
    }

    pub(super) fn mistaken(mut self, error: Error) -> Self {
        self.mistake.get_or_insert(error);
        self
    }
}

/// Makes counters visible before they first count: an alert on an increase needs a value from before it.
fn announce(config: &Config, registry: &Registry) {
    for name in [
        "dormouse_claims_total",
        "dormouse_commits_total",
        "dormouse_stale_total",
        "dormouse_woken_total",
        "dormouse_reaped_total",
        "dormouse_collected_total",
    ] {
        metrics::counter!(name).increment(0);
    }
    for machine in registry.machines() {
        metrics::counter!("dormouse_step_errors_total", "machine" => machine.name().to_owned()).increment(0);
    }
    for NamedTransport { name, .. } in &config.transports {
        for outcome in ["sent", "retry"] {
            metrics::counter!("dormouse_sends_total", "transport" => name.clone(), "outcome" => outcome)
                .increment(0);
        }
        for change in ["opened", "closed"] {
            metrics::counter!("dormouse_breaker_changes_total", "transport" => name.clone(), "change" => change)
                .increment(0);
        }
        for outcome in ["admitted", "refused"] {
            metrics::counter!("dormouse_answers_total", "transport" => name.clone(), "outcome" => outcome)
                .increment(0);
        }
    }
}
