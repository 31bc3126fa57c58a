//! Routes for an overview: where instances are, what they wait for and since when, which workers run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use dormouse::jiff::Timestamp;
use dormouse::store::{AWAITING_MAX, Awaited, Count, Filter, QueueDepth, Stats, WorkerView as Worker};
use dormouse::{Client, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InFlight;
use super::instances::{limit, page};
use super::operate::ShareView;
use crate::cursor;
use crate::problem::Problem;
use crate::route::{Answer, Call};
use crate::view::{InstanceSummary, Page, StatusWord};

/// What to list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitingQuery {
    /// List the instances that await this signal; without it, the signals that are awaited.
    signal: Option<String>,
    machine: Option<String>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// At most this many; 50 by default, up to 500.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

/// The instances that await a signal, or the signals that are awaited.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Waiting")]
pub(super) enum WaitingView {
    Who(Page<InstanceSummary>),
    What { awaiting: Vec<AwaitedView> },
}

/// A set of signal names that instances await.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Awaited")]
pub(super) struct AwaitedView {
    names: Vec<String>,
    /// How many instances await it; a lower bound if `more` is set.
    count: u64,
    /// Whether there are more instances than were counted.
    is_capped: bool,
    /// The instance that has waited longest.
    oldest: i64,
    /// Since when that one is parked.
    since: Timestamp,
}

impl From<Awaited> for AwaitedView {
    fn from(Awaited { names, count, oldest, since }: Awaited) -> Self {
        Self { names, count, is_capped: count >= AWAITING_MAX, oldest: oldest.0, since }
    }
}

pub(super) async fn waiting(call: Call<WaitingQuery>) -> Result<Answer<WaitingView>, Problem> {
    let WaitingQuery { signal, machine, cursor, limit: asked } = call.query;
    let Some(signal) = signal else {
        if machine.is_some() || cursor.is_some() || asked.is_some() {
            return Err(Problem::invalid("`machine`, `cursor` and `limit` are only allowed with `signal`"));
        }
        let backlog = call.client.store().backlog(Some(call.caller.namespace)).await?;
        let awaiting = backlog.awaiting.into_iter().map(AwaitedView::from).collect();
        return Answer::ok(WaitingView::What { awaiting });
    };
    let ((after, after_at), limit) = (cursor::after(cursor.as_deref())?, limit(asked)?);
    let awaiting = Some(signal);
    let filter = Filter { awaiting, machine, after, after_at, limit, heads_only: true, ..Filter::default() };
    let found = page(call.client.list(filter).await?)?;
    Ok(found.map(WaitingView::Who))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Machines")]
pub(super) struct MachinesView {
    machines: Vec<MachineView>,
    /// Whether there are more places, and perhaps machines, than these: only the first 5,000 places are listed.
    more: bool,
}

/// A machine: its instances, and the workers that can run them.
#[derive(Serialize, JsonSchema, Default)]
#[schemars(rename = "Machine")]
struct MachineView {
    name: String,
    /// The versions that live workers run.
    versions: BTreeSet<u32>,
    /// How many live workers run it.
    workers: usize,
    /// The versions that have live instances, oldest first.
    in_flight: Vec<InFlight>,
    /// Its steps, as its newest version declares them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<String>,
    /// The signals whose payloads it checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accepts: Vec<String>,
    /// Where its instances are.
    places: Vec<PlaceView>,
}

/// How many instances of one version are at one place.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Place")]
struct PlaceView {
    version: u32,
    step: String,
    #[schemars(with = "StatusWord")]
    status: Status,
    count: u64,
}

pub(super) async fn machines(call: Call) -> Result<Answer<MachinesView>, Problem> {
    let overview = Overview::of(&call.client).await?;
    let mut machines = BTreeMap::<String, MachineView>::new();
    if !call.caller.is_tenant() {
        for code in call.client.registry().machines() {
            machines.entry(code.name().to_owned()).or_default();
        }
    }
    for worker in overview.live_workers() {
        for name in worker.machines.iter().map(|(name, _)| name).collect::<BTreeSet<_>>() {
            machines.entry(name.clone()).or_default().workers += 1;
        }
        for (name, version) in &worker.machines {
            machines.entry(name.clone()).or_default().versions.insert(*version);
        }
    }
    for Count { machine, version, step, status, count, .. } in overview.counts.iter().cloned() {
        machines.entry(machine).or_default().places.push(PlaceView { version, step, status, count });
    }
    for declared in call.client.declarations().await? {
        if let Some(machine) = machines.get_mut(&declared.name) {
            machine.steps.clone_from(&declared.steps);
            machine.accepts = declared.accepts.iter().map(|accepted| accepted.signal.clone()).collect();
        }
    }
    let named =
        |(name, machine): (String, _)| MachineView { in_flight: overview.in_flight(&name), name, ..machine };
    Answer::ok(MachinesView { machines: machines.into_iter().map(named).collect(), more: overview.more })
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Queues")]
pub(super) struct QueuesView {
    queues: Vec<QueueView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Queue")]
pub(crate) struct QueueView {
    pub(crate) name: String,
    /// How many of its instances are runnable.
    pub(crate) runnable: u64,
    /// Since when the oldest claimable instance waits.
    pub(crate) oldest_runnable_at: Option<Timestamp>,
    /// Whether it is paused.
    pub(crate) paused: bool,
    /// How many live workers serve it.
    pub(crate) workers: usize,
}

pub(super) async fn queues(call: Call) -> Result<Answer<QueuesView>, Problem> {
    let overview = Overview::of(&call.client).await?;
    Answer::ok(QueuesView { queues: overview.queues() })
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Shares")]
pub(super) struct SharesView {
    /// Those whose weight is not 1, in order, up to 1,000.
    shares: Vec<ShareView>,
}

pub(super) async fn shares(call: Call) -> Result<Answer<SharesView>, Problem> {
    let shares = call.client.shares().await?.into_iter();
    let shares = shares.map(|weighed| ShareView { share: weighed.share, weight: weighed.weight }).collect();
    Answer::ok(SharesView { shares })
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Workers")]
pub(super) struct WorkersView {
    workers: Vec<WorkerView>,
}

/// A running engine.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Worker")]
struct WorkerView {
    id: i64,
    name: String,
    host: String,
    pid: u32,
    started_at: Timestamp,
    lease_until: Timestamp,
    /// Whether its lease is valid.
    is_live: bool,
    queues: Vec<String>,
    machines: Vec<MachineVersion>,
    /// How many instances it holds, across all namespaces that it serves.
    claims: usize,
}

#[derive(Serialize, JsonSchema)]
struct MachineVersion {
    name: String,
    version: u32,
}

pub(super) async fn workers(call: Call) -> Result<Answer<WorkersView>, Problem> {
    let store = call.client.store();
    let (stats, about) = (store.stats(Some(call.caller.namespace)).await?, store.about().await?);
    let serves = |worker: &Worker| worker.namespaces.contains(call.client.namespace());
    let workers = stats.workers.into_iter().filter(serves).map(|worker| WorkerView {
        id: worker.id.0,
        name: worker.name,
        host: worker.process.host,
        pid: worker.process.pid,
        started_at: worker.started_at,
        lease_until: worker.lease_until,
        is_live: worker.lease_until >= about.now,
        queues: worker.queues,
        machines: worker
            .machines
            .into_iter()
            .map(|(name, version)| MachineVersion { name, version })
            .collect(),
        claims: worker.claims,
    });
    Answer::ok(WorkersView { workers: workers.collect() })
}

/// A summary of the namespace.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Stats")]
pub(super) struct StatsView {
    /// The store's time.
    now: Timestamp,
    /// Instances by status.
    statuses: BTreeMap<&'static str, u64>,
    /// Instances by machine, version, step and status: the first 5,000 places.
    places: Vec<MachinePlace>,
    /// Whether there are more places than these. `statuses` counts all of them.
    more: bool,
    queues: Vec<QueueView>,
    awaiting: Vec<AwaitedView>,
    /// Live workers that serve this namespace.
    workers: usize,
}

#[derive(Serialize, JsonSchema)]
struct MachinePlace {
    machine: String,
    #[serde(flatten)]
    place: PlaceView,
}

pub(super) async fn stats(call: Call) -> Result<Answer<StatsView>, Problem> {
    let overview = Overview::of(&call.client).await?;
    let mut statuses: BTreeMap<_, u64> = Status::ALL.iter().map(|status| (status.as_str(), 0)).collect();
    statuses.extend(overview.stats.statuses.iter().map(|(status, count)| (status.as_str(), *count)));
    let queues = overview.queues();
    let workers = overview.live_workers().count();
    let Overview { counts, more, awaiting, now, .. } = overview;
    let place = |Count { machine, version, step, status, count, .. }| MachinePlace {
        machine,
        place: PlaceView { version, step, status, count },
    };
    Answer::ok(StatsView {
        now,
        statuses,
        places: counts.into_iter().map(place).collect(),
        more,
        queues,
        awaiting: awaiting.into_iter().map(Into::into).collect(),
        workers,
    })
}

/// The counts of one namespace.
pub(crate) struct Overview {
    namespace: String,
    pub(crate) now: Timestamp,
    pub(crate) stats: Stats,
    /// In the order of machine, version, step and status.
    pub(crate) counts: Vec<Count>,
    /// Whether there are more places than those.
    pub(crate) more: bool,
    /// How many live workers run each version of each machine.
    pub(super) runs: HashMap<String, HashMap<u32, usize>>,
    depths: Vec<QueueDepth>,
    pub(crate) awaiting: Vec<Awaited>,
}

impl Overview {
    pub(crate) async fn of(client: &Client) -> Result<Self, Problem> {
        let namespace = client.namespace().to_owned();
        let store = client.store();
        let mut stats = store.stats(Some(namespace.clone())).await?;
        let (about, backlog) = (store.about().await?, store.backlog(Some(namespace.clone())).await?);
        let mut counts = std::mem::take(&mut stats.instances);
        fn place(count: &Count) -> (&str, u32, &str, &str) {
            (&count.machine, count.version, &count.step, count.status.as_str())
        }
        counts.sort_by(|one, other| place(one).cmp(&place(other)));
        let mut overview = Self {
            namespace,
            now: about.now,
            more: stats.more_places,
            stats,
            counts,
            runs: HashMap::new(),
            depths: backlog.queues,
            awaiting: backlog.awaiting,
        };
        let mut runs = HashMap::<String, HashMap<u32, usize>>::new();
        for (name, version) in overview.live_workers().flat_map(|worker| &worker.machines) {
            *runs.entry(name.clone()).or_default().entry(*version).or_default() += 1;
        }
        overview.runs = runs;
        Ok(overview)
    }

    /// How many instances are in statuses of this kind.
    pub(crate) fn count(&self, is_it: impl Fn(Status) -> bool) -> u64 {
        self.stats.statuses.iter().filter(|(status, _)| is_it(**status)).map(|(_, count)| count).sum()
    }

    pub(crate) fn live_workers(&self) -> impl Iterator<Item = &Worker> {
        let serves =
            |worker: &&Worker| worker.lease_until >= self.now && worker.namespaces.contains(&self.namespace);
        self.stats.workers.iter().filter(serves)
    }

    /// Lists queues that have runnable instances, are paused, or are served by a worker.
    pub(crate) fn queues(&self) -> Vec<QueueView> {
        let mut queues: BTreeMap<&str, QueueView> = BTreeMap::new();
        let new = |name: &str| QueueView {
            name: name.to_owned(),
            runnable: 0,
            oldest_runnable_at: None,
            paused: false,
            workers: 0,
        };
        for depth in &self.depths {
            let queue = queues.entry(&depth.name).or_insert_with(|| new(&depth.name));
            queue.runnable = depth.runnable;
            queue.oldest_runnable_at = depth.oldest_runnable_at;
            queue.paused = depth.paused;
        }
        for name in self.live_workers().flat_map(|worker| &worker.queues) {
            queues.entry(name).or_insert_with(|| new(name)).workers += 1;
        }
        queues.into_values().collect()
    }
}

/// This server, its store, and the caller.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "About")]
pub(super) struct AboutView {
    /// The version of dormouse.
    version: &'static str,
    store: &'static str,
    /// The version of the database.
    store_version: String,
    /// The version of the schema.
    schema: i64,
    /// The version of the schema when this process opened the database: 0 if it was new.
    schema_found: i64,
    /// The store's time.
    now: Timestamp,
    /// This process's time.
    server_now: Timestamp,
    /// The caller, as the server sees it.
    who: String,
    namespace: String,
    scope: &'static str,
}

pub(super) async fn about(call: Call) -> Result<Answer<AboutView>, Problem> {
    let about = call.client.store().about().await?;
    Answer::ok(AboutView {
        version: env!("CARGO_PKG_VERSION"),
        store: about.store,
        store_version: about.version,
        schema: about.schema,
        schema_found: about.schema_found,
        now: about.now,
        server_now: Timestamp::now(),
        who: call.caller.who,
        namespace: call.caller.namespace,
        scope: call.caller.scope.as_str(),
    })
}
