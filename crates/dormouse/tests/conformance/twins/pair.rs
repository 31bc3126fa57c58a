//! Two stores that are told the same, and asked whether they answer the same.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use dormouse::rules::{Handed, Head};
use dormouse::store::{
    self, Brake, Claimed, Collect, Commit, Completion, Delivery, Judged, Namespaces, NewWorker, Receipt,
    SendOutcome, SendReport, SendTally, Store, Turns, Which, Written,
};
use dormouse::{
    Declaration, Error, InboxMax, InboxSignal, Inserted, Instance, InstanceId, Interaction, InteractionId,
    Json, KeptId, KeptMax, Process, Run, SignalId, Status, Target, Transition, UnitId, UnitView, WorkerId,
};

use super::look::same;
use super::names::{Ids, Names, Told, told};
use super::op::*;
use crate::kit::Kit;

/// A unit and its items, as one side sees them.
type Asked = (Option<UnitView>, Vec<Interaction>);

/// How much an inbox may hold: so little that some signals find it full.
const INBOX_MAX: InboxMax = InboxMax { signals: 4, bytes: 100 };
const KEPT_MAX: KeptMax = KeptMax { signals: 2, bytes: 40 };

/// How they differ.
pub type Difference = String;

pub struct Pair {
    pub(super) left: Kit,
    pub(super) right: Kit,
    pub(super) names: Names,
    /// In SQLite's ids, like everything below.
    pub(super) instances: Vec<InstanceId>,
    pub(super) workers: Vec<WorkerId>,
    /// Steps under way, and those whose claim is over.
    steps: Vec<Step>,
    late: Vec<Step>,
    /// The instances as they were last seen.
    pub(super) seen: BTreeMap<InstanceId, Instance>,
    /// Both sides' instances and changed inboxes now.
    pub(super) lists: (Vec<Instance>, Vec<Instance>),
    pub(super) inboxes: Vec<(Vec<InboxSignal>, Vec<InboxSignal>)>,
    /// Both sides' units of what has changed, with their items.
    pub(super) units: Vec<(Asked, Asked)>,
    pub(super) interactions: Vec<InteractionId>,
    /// Those that a sender was handed, once for each time.
    taken: Vec<InteractionId>,
    /// The epoch of the transport's breaker, as a sender last heard of it.
    epoch: i64,
    /// The last turns served in each queue.
    turns: HashMap<&'static str, Turns>,
    /// Whether those are read since the last change.
    pub(super) learned: bool,
    /// Where the feeds of changes stood before anything had happened.
    pub(super) starts: [i64; 2],
    /// What was met on the way, and how often.
    pub met: BTreeMap<String, usize>,
}

/// A step that a worker runs.
#[derive(Clone)]
struct Step {
    worker: WorkerId,
    id: InstanceId,
    namespace: String,
    seq: u64,
    version: u32,
    received: Vec<SignalId>,
    /// As it was handed out on the left.
    head: Head,
    inbox: Vec<InboxSignal>,
}

impl Pair {
    pub async fn new() -> Self {
        let (left, right) = (Kit::sqlite_memory(), Kit::postgres().await);
        Self {
            starts: [left.feed_end().await, right.feed_end().await],
            left,
            right,
            names: Names::default(),
            instances: Vec::new(),
            workers: Vec::new(),
            steps: Vec::new(),
            late: Vec::new(),
            seen: BTreeMap::new(),
            lists: Default::default(),
            inboxes: Vec::new(),
            units: Vec::new(),
            interactions: Vec::new(),
            taken: Vec::new(),
            epoch: 0,
            turns: HashMap::new(),
            learned: false,
            met: BTreeMap::new(),
        }
    }

    /// Does the same to both, and compares all there is to see.
    pub async fn run(&mut self, op: &Op) -> Result<(), Difference> {
        self.learned = false;
        match op {
            Op::Insert(batch) => self.insert(batch).await?,
            Op::Deliver(batch) => {
                let [left, right] = [Side::Left, Side::Right].map(|side| {
                    let deliver = |(whom, signal): &(Whom, _)| {
                        let (namespace, target) = self.target(whom, side);
                        Delivery {
                            namespace,
                            target,
                            signal: Clone::clone(signal),
                            inbox_max: INBOX_MAX,
                            kept_max: KEPT_MAX,
                        }
                    };
                    batch.iter().map(deliver).collect::<Vec<_>>()
                });
                self.both(|store, side| store.deliver(side.of(&left, &right).clone())).await?;
            }
            Op::DropKept { namespace, place } => {
                let (left, right) = self.kept(namespace).await;
                let ids = left.get(*place).zip(right.get(*place)).map(|(left, right)| (left.id, right.id));
                let (left, right) = ids.unwrap_or((KeptId(1 << 40), KeptId(1 << 40)));
                self.both(|store, side| store.drop_kept((*namespace).to_owned(), *side.of(&left, &right)))
                    .await?;
            }
            Op::Claim(claim) => self.claim(claim).await?,
            Op::Commit(batch) => self.commit(batch).await?,
            Op::Due { rows_max } => drop(self.both(|store, _| store.due(*rows_max)).await?),
            Op::Advance(duration) => {
                self.left.advance(*duration);
                self.right.advance(*duration);
            }
            Op::Register { name, lease } => self.register(name, *lease).await?,
            Op::Heartbeat { worker, lease } => {
                let Some(worker) = worker.of(&self.workers).copied() else { return Ok(()) };
                let there = self.worker_there(worker);
                self.both(|store, side| store.heartbeat(*side.of(&worker, &there), *lease)).await?;
            }
            Op::Deregister { worker } => {
                let Some(worker) = worker.of(&self.workers).copied() else { return Ok(()) };
                let there = self.worker_there(worker);
                self.both(|store, side| store.deregister(*side.of(&worker, &there))).await?;
            }
            Op::Reap { rows_max } => drop(self.both(|store, _| store.reap(*rows_max, 3)).await?),
            Op::Release(picks, tried) => {
                let Some(first) = picks.first().and_then(|pick| pick.of(&self.steps)) else { return Ok(()) };
                let (worker, there) = (first.worker, self.worker_there(first.worker));
                let picked = picks.iter().filter_map(|pick| pick.of(&self.steps));
                // An instance may be picked by a step that it has moved on from.
                let claims: BTreeMap<_, _> = picked.map(|step| (step.id, step.seq)).collect();
                let claims: Vec<_> = claims.into_iter().collect();
                let claims_there: Vec<_> = claims.iter().map(|(id, seq)| (self.there(*id), *seq)).collect();
                self.both(|store, side| {
                    let claims = side.of(&claims, &claims_there).clone();
                    store.release(*side.of(&worker, &there), claims, *tried)
                })
                .await?;
            }
            Op::Cancel { whom, reason, seq } => {
                let expected_seq = self.expected(whom, *seq);
                let request = store::CancelRequest { reason: reason.map(str::to_owned), expected_seq };
                self.on(whom, |store, ns, target| store.cancel(ns, target, request.clone())).await?;
            }
            Op::Retry { whom, at, seq } => {
                let seq = self.expected(whom, *seq);
                self.on(whom, |store, ns, target| store.retry(ns, target, at.clone(), seq)).await?;
            }
            Op::Amend { whom, signal, payload, seq } => {
                let seq = self.expected(whom, *seq);
                let amend = payload.clone().map_or(store::Amend::Drop, store::Amend::Edit);
                self.on(whom, |store, ns, target| {
                    let (signal, amend) = (*signal, amend.clone());
                    Box::pin(async move {
                        let found = store.get(ns.clone(), target.clone()).await?;
                        let inbox = match &found {
                            Some(instance) => {
                                store.inbox(instance.id, None, store::Bounds::rows(1000)).await?.items
                            }
                            None => Vec::new(),
                        };
                        let signal = signal.of(&inbox).map_or(dormouse::SignalId(0), |signal| signal.id);
                        let request = store::AmendRequest { signal, amend, expected_seq: seq };
                        // Each store has its own ids of signals.
                        store.amend(ns, target, request).await.map_err(|error| match error {
                            Error::NoSignal { id, .. } => Error::NoSignal { id, signal: SignalId(0) },
                            other => other,
                        })
                    })
                })
                .await?;
            }
            Op::Edit { whom, state, seq } => {
                let seq = self.expected(whom, *seq);
                self.on(whom, |store, ns, target| store.edit(ns, target, state.clone(), seq)).await?;
            }
            Op::Tag { whom, add, remove } => {
                let change = store::TagChange { add: add.clone(), remove: remove.clone() };
                self.on(whom, |store, ns, target| store.tag(ns, target, change.clone())).await?;
            }
            Op::Pause(whom, seq) => {
                let seq = self.expected(whom, *seq);
                self.on(whom, |store, ns, target| store.pause(ns, target, Brake::On, seq)).await?;
            }
            Op::Resume(whom, seq) => {
                let seq = self.expected(whom, *seq);
                self.on(whom, |store, ns, target| store.pause(ns, target, Brake::Off, seq)).await?;
            }
            Op::Weigh { namespace, share, weight } => {
                let (namespace, share) = ((*namespace).to_owned(), (*share).to_owned());
                self.both(|store, _| store.weigh(namespace.clone(), share.clone(), *weight)).await?;
                self.both(|store, _| store.shares(None)).await?;
            }
            Op::PauseQueue { namespace, queue } => {
                let (namespace, queue) = (namespace.to_string(), queue.to_string());
                self.both(|store, _| store.pause_queue(namespace.clone(), queue.clone(), Brake::On)).await?;
            }
            Op::ResumeQueue { namespace, queue } => {
                let (namespace, queue) = (namespace.to_string(), queue.to_string());
                self.both(|store, _| store.pause_queue(namespace.clone(), queue.clone(), Brake::Off)).await?;
            }
            Op::SetLimit { namespace, name, limit } => {
                let (namespace, name) = (namespace.to_string(), name.to_string());
                let limit = *limit;
                self.both(|store, _| store.set_limit(namespace.clone(), name.clone(), limit)).await?;
                // How often that has something to do is a store's own matter.
                for kit in [&self.left, &self.right] {
                    kit.store.settle_limits().await.expect("a sweep");
                }
                self.both(|store, _| store.limits(namespace.clone(), None, 10)).await?;
            }
            Op::CollectEnded { namespace, age, rows_max } => {
                let batch = Collect {
                    namespace: namespace.map(str::to_owned),
                    ended_for: Some(*age),
                    events_for: None,
                    events_after: 0,
                    rows_max: *rows_max,
                };
                self.collect(batch).await?;
            }
            Op::CollectEvents { age, rows_max } => {
                let batch = Collect {
                    namespace: None,
                    ended_for: None,
                    events_for: Some(*age),
                    events_after: 0,
                    rows_max: *rows_max,
                };
                self.collect(batch).await?;
                self.seen.clear();
            }
            Op::Complete(batch) => self.complete(batch).await?,
            Op::Outbox { namespaces, rows_max, lease } => {
                let names = namespaces.as_ref().map(|names| names.iter().map(ToString::to_string).collect());
                let namespaces = names.map_or(Namespaces::All, Namespaces::Only);
                // What is no transition of an instance is seen by looking at all of them.
                self.seen.clear();
                let outbox = self
                    .both(|store, _| store.outbox("bank".to_owned(), namespaces.clone(), *rows_max, *lease))
                    .await?;
                self.epoch = outbox.as_ref().map_or(self.epoch, |outbox| outbox.gate.epoch);
                self.transport().await?;
                self.taken.extend(outbox.into_iter().flat_map(|outbox| outbox.taken).map(|item| item.id));
            }
            Op::Sent(reports) => self.sent(reports).await?,
            Op::SetTransport(change) => {
                self.both(|store, _| store.set_transport("bank".to_owned(), *change)).await?;
                self.transport().await?;
            }
            Op::Judge { is_old, responded, failures } => {
                let tally = SendTally {
                    epoch: self.epoch - i64::from(*is_old),
                    responded: *responded,
                    failures: *failures,
                    error: (*failures > 0).then(|| "it is \"down\"".to_owned()),
                };
                let judged = self.both(|store, _| store.judge("bank".to_owned(), tally.clone())).await?;
                if judged.is_some_and(|judged| judged.value != Judged::Nothing) {
                    self.epoch += 1;
                }
                self.transport().await?;
            }
            Op::CloseBreaker => {
                self.both(|store, _| store.close_breaker("bank".to_owned())).await?;
                self.transport().await?;
            }
            Op::Assign { item, who, lease } => {
                let Some(id) = item.of(&self.interactions).copied() else { return Ok(()) };
                let there = InteractionId(self.names.interactions.right(id.0));
                self.seen.clear();
                self.both(|store, side| {
                    store.assign("default".to_owned(), *side.of(&id, &there), who.to_string(), *lease)
                })
                .await?;
            }
            Op::Get(whom) => self.on(whom, |store, ns, target| store.get(ns, target)).await?,
            Op::Situation(whom) => self.on(whom, |store, ns, target| store.situation(ns, target)).await?,
            Op::List(filter) => {
                let [left, right] = [Side::Left, Side::Right].map(|side| self.filter(filter, side));
                self.both(|store, side| store.list(side.of(&left, &right).clone())).await?;
            }
            Op::Stats(namespace) => {
                drop(self.both(|store, _| store.stats(namespace.map(str::to_owned))).await?);
            }
            Op::Backlog { namespace } => {
                self.both(|store, _| store.backlog(namespace.map(str::to_owned))).await?;
            }
        }
        self.look().await
    }

    async fn insert(&mut self, batch: &[New]) -> Result<(), Difference> {
        let [left, right] = [Side::Left, Side::Right].map(|side| {
            let new = |new: &New| {
                let mut instance = new.instance.clone();
                let from = new.forked_from.and_then(|(pick, seq)| Some((pick.of(&self.instances)?, seq)));
                instance.forked_from = from.map(|(id, seq)| (self.id(*id, side), seq));
                instance
            };
            batch.iter().map(new).collect()
        });
        let inserted: Option<store::Written<Vec<Inserted>>> =
            self.both(|store, side| store.insert(Vec::clone(side.of(&left, &right)))).await?;
        drop(inserted);
        Ok(())
    }

    /// Compares what is stored of the transport.
    async fn transport(&mut self) -> Result<(), Difference> {
        self.both(|store, _| store.transport("bank".to_owned())).await.map(drop)
    }

    async fn complete(&mut self, batch: &[Answer]) -> Result<(), Difference> {
        let mut answers = Vec::new();
        for answer in batch {
            let to = match answer.to {
                Ok(pick) => pick.of(&self.interactions).copied().map(Which::Id),
                Err(correlation) => Some(Which::Correlation(correlation.to_owned())),
            };
            let Some(to) = to else { continue };
            let item = match &to {
                Which::Id(id) => self.item(*id).await,
                Which::Correlation(_) => None,
            };
            let hour = dormouse::jiff::SignedDuration::from_hours(1);
            let proof = answer.token.zip(item.as_ref()).map(|(is_good, item)| dormouse::store::Proof {
                instance: item.instance,
                unit: item.unit,
                sends: item.sends,
                expires_at: self.left.now() + if is_good { hour } else { -hour },
            });
            let own = item.map(|item| item.namespace);
            answers.push(Completion {
                namespace: answer
                    .namespace
                    .map(str::to_owned)
                    .or(own)
                    .unwrap_or_else(|| "default".to_owned()),
                to,
                result: answer.result.clone(),
                assignee: answer.who.map(str::to_owned),
                by: answer.by.map(str::to_owned),
                proof,
            });
        }
        let there = |answer: &Completion| Completion {
            proof: answer.proof.map(|proof| dormouse::store::Proof {
                instance: InstanceId(self.names.instances.right(proof.instance.0)),
                unit: UnitId(self.names.units.right(proof.unit.0)),
                ..proof
            }),
            to: match &answer.to {
                Which::Id(id) => Which::Id(InteractionId(self.names.interactions.right(id.0))),
                other => other.clone(),
            },
            ..answer.clone()
        };
        let answers_there: Vec<_> = answers.iter().map(there).collect();
        self.seen.clear();
        self.both(|store, side| store.complete(side.of(&answers, &answers_there).clone())).await.map(drop)
    }

    async fn sent(&mut self, reports: &[(Pick, SendOutcome)]) -> Result<(), Difference> {
        let mut sent = (Vec::new(), Vec::new());
        for (pick, outcome) in reports {
            // The last few: of the others, most have been told of.
            let last = &self.taken[self.taken.len().saturating_sub(4)..];
            let Some(id) = pick.of(last).copied() else { continue };
            let Some(item) = self.item(id).await else { continue };
            let report = SendReport { id, sends: item.sends, outcome: outcome.clone() };
            let there = InteractionId(self.names.interactions.right(id.0));
            sent.1.push(SendReport { id: there, ..report.clone() });
            sent.0.push(report);
        }
        self.seen.clear();
        self.both(|store, side| {
            let sending = store.sent(side.of(&sent.0, &sent.1).clone());
            Box::pin(async move {
                let Written { value: busy, effects } = sending.await?;
                assert!(busy.is_empty(), "nobody holds anything: {busy:?}");
                Ok(Written { value: (), effects })
            })
        })
        .await
        .map(drop)
    }

    /// An interaction, of whatever namespace.
    async fn item(&self, id: InteractionId) -> Option<Interaction> {
        for namespace in ["default", "other"] {
            let found = self.left.store.interaction(namespace.to_owned(), id.into()).await.expect("a read");
            if found.is_some() {
                return found;
            }
        }
        None
    }

    async fn register(&mut self, name: &str, lease: std::time::Duration) -> Result<(), Difference> {
        let worker = NewWorker {
            name: name.to_owned(),
            process: Process::current(),
            namespaces: Namespaces::All,
            lease,
            queues: vec!["default".to_owned()],
            machines: vec![("m".to_owned(), 1)],
            transports: vec![],
            declares: vec![undoing()],
        };
        let left = self.left.store.register(worker.clone()).await.expect("a worker registers");
        let right = self.right.store.register(worker).await.expect("a worker registers");
        self.names.workers.add(left.0, right.0);
        self.workers.push(left);
        // There are three names: of four workers, one has lost its lease to another.
        if self.workers.len() > 4 {
            self.workers.remove(0);
        }
        Ok(())
    }

    async fn claim(&mut self, claim: &Claim) -> Result<(), Difference> {
        let Some(worker) = claim.worker.of(&self.workers).copied() else { return Ok(()) };
        let there = self.worker_there(worker);
        let queue = claim.queue;
        let after = if claim.goes_on { self.turns.get(queue).cloned() } else { None };
        let namespaces = claim.namespaces.as_ref();
        let namespaces = namespaces.map(|names| names.iter().map(ToString::to_string).collect());
        let claim = store::Claim {
            worker,
            queue: claim.queue.to_owned(),
            namespaces: namespaces.map_or(Namespaces::All, Namespaces::Only),
            machines: claim.machines.iter().map(|(name, version)| (name.to_string(), *version)).collect(),
            after: after.unwrap_or_default(),
            later_than: claim.later_than,
            rows_max: claim.rows_max,
            places: claim.places,
        };
        let claimed = self
            .both(|store, side| {
                store.claim(store::Claim { worker: *side.of(&worker, &there), ..claim.clone() })
            })
            .await?;
        let claimed: Vec<_> = claimed.into_iter().flat_map(|claimed| claimed.value).collect();
        let turns = self.turns.entry(queue).or_default();
        claimed.iter().for_each(|claimed| turns.served(&claimed.turn));
        let steps = claimed.into_iter();
        self.steps.extend(steps.map(|claimed| Step::of(worker, &claimed)));
        Ok(())
    }

    async fn commit(&mut self, batch: &[Outcome]) -> Result<(), Difference> {
        let steps = |outcome: &Outcome| {
            if outcome.proof == Proof::Late { &self.late } else { &self.steps }
        };
        let Some(worker) = batch.iter().find_map(|o| o.step.of(steps(o))).map(|step| step.worker) else {
            return Ok(());
        };
        let mut met = HashSet::new();
        let mut group: Vec<(Step, Outcome)> = Vec::new();
        for outcome in batch {
            let step = outcome.step.of(steps(outcome)).filter(|step| step.worker == worker);
            if let Some(step) = step.filter(|step| met.insert(step.id)) {
                group.push((step.clone(), outcome.clone()));
            }
        }
        // What happens in which order inside one batch is not promised, so those that meet come one by one.
        if self.meet(&group) {
            for one in group {
                self.commit_group(vec![one]).await?;
                self.look().await?;
            }
            return Ok(());
        }
        self.commit_group(group).await
    }

    /// Whether it could make a difference which of these outcomes is committed first.
    fn meet(&self, group: &[(Step, Outcome)]) -> bool {
        let mut keys = HashSet::new();
        group.iter().any(|(step, outcome)| {
            let instance = self.seen.get(&step.id);
            let key = instance.and_then(|instance| Some((&instance.namespace, instance.key.as_ref()?)));
            let spawns_keys = matches!(&outcome.transition, Transition::Spawn(spawn)
                if spawn.children.iter().any(|child| child.key.is_some()));
            spawns_keys
                || instance.is_some_and(|instance| instance.cancel_requested)
                || key.is_some_and(|key| !keys.insert(key))
        })
    }

    async fn commit_group(&mut self, group: Vec<(Step, Outcome)>) -> Result<(), Difference> {
        let Some(worker) = group.first().map(|(step, _)| step.worker) else { return Ok(()) };
        let wrong = group.iter().any(|(_, outcome)| outcome.proof == Proof::WrongWorker);
        let by = match self.workers.iter().find(|other| wrong && **other != worker) {
            Some(other) => *other,
            None => worker,
        };
        let by_there = self.worker_there(by);
        let [left, right] = [Side::Left, Side::Right].map(|side| {
            let commit = |(step, outcome): &(Step, Outcome)| self.outcome(step, outcome, side);
            group.iter().map(commit).collect::<Arc<[Commit]>>()
        });
        let receipts = self
            .both(|store, side| store.commit(*side.of(&by, &by_there), side.of(&left, &right).clone()))
            .await?;
        for ((step, outcome), receipt) in
            group.iter().zip(receipts.into_iter().flat_map(|receipts| receipts.value))
        {
            let is_it =
                |other: &Step| (other.worker, other.id, other.seq) == (step.worker, step.id, step.seq);
            match receipt {
                Receipt::Held { seq, inbox, .. } => {
                    let at = outcome.transition.at().expect("only a `next` keeps its claim");
                    for held in self.steps.iter_mut().filter(|other| is_it(other)) {
                        let version = held.version + u32::from(outcome.lifts);
                        held.head.go_on(&at.step, version, seq, inbox.len());
                        (held.seq, held.received, held.inbox) = (seq, Vec::new(), inbox.clone());
                    }
                }
                _ => {
                    self.steps.retain(|other| !is_it(other));
                    self.late.push(step.clone());
                }
            }
        }
        Ok(())
    }

    fn outcome(&self, step: &Step, outcome: &Outcome, side: Side) -> Commit {
        let mut transition = outcome.transition.clone();
        if let Transition::Spawn(spawn) = &mut transition {
            spawn.children.iter_mut().for_each(|child| child.namespace.clone_from(&step.namespace));
        }
        let signal = |id: &SignalId| match side {
            Side::Left => *id,
            Side::Right => SignalId(self.names.signals.right(id.0)),
        };
        let received: Vec<SignalId> = step.received.iter().map(signal).collect();
        let handed = step.inbox.iter().map(|one| InboxSignal { id: signal(&one.id), ..one.clone() });
        let handed = Handed::of(&handed.collect::<Vec<_>>(), &transition, &received);
        let mut head = step.head.clone();
        head.id = self.id(step.id, side);
        head.seq = step.seq + u64::from(outcome.proof == Proof::WrongSeq);
        Commit {
            head,
            handed,
            version: step.version + u32::from(outcome.lifts),
            received,
            transition,
            hold: outcome.hold,
            lane: outcome.lane.clone(),
            run: (!step.seq.is_multiple_of(3)).then(|| Run {
                started_at: self.left.now(),
                took_us: step.seq * 1_000,
                progress: (step.seq % 3 == 1).then(|| Json::from(serde_json::json!({ "of": step.seq }))),
            }),
            mail: Vec::new(),
        }
    }

    /// Collects until there is nothing more to collect: which rows go in which batch is not promised.
    async fn collect(&mut self, batch: Collect) -> Result<(), Difference> {
        let mut gone = [0, 0];
        for (gone, kit) in gone.iter_mut().zip([&self.left, &self.right]) {
            let mut pass = 0;
            let mut next = batch.clone();
            loop {
                let collected = kit.store.collect(next.clone()).await.map_err(|error| error.to_string())?;
                pass += collected.instances + collected.events;
                next.events_after = collected.events_next.unwrap_or(0);
                if collected.events_next.is_some() || collected.instances > 0 {
                    continue;
                }
                *gone += pass;
                if pass == 0 || batch.events_for.is_none() {
                    break;
                }
                pass = 0;
            }
        }
        same("collected", &gone[0].to_string(), &gone[1].to_string())
    }

    fn filter(&self, filter: &Filter, side: Side) -> store::Filter {
        let id = |pick: Option<Pick>| Some(self.id(*pick?.of(&self.instances)?, side));
        store::Filter {
            namespace: filter.namespace.map(str::to_owned),
            machine: filter.machine.map(str::to_owned),
            status: filter.status,
            queue: filter.queue.map(str::to_owned),
            key_prefix: filter.key_prefix.map(str::to_owned),
            parent: id(filter.parent),
            roots: filter.roots,
            tags: filter.tags.clone(),
            awaiting: filter.awaiting.map(str::to_owned),
            created_from: filter.created_from,
            created_before: filter.created_before,
            heads_only: filter.heads_only,
            after: id(filter.after),
            after_at: None,
            limit: filter.limit,
            ..store::Filter::default()
        }
    }

    /// Calls a verb that addresses one instance.
    async fn on<T: Told + Clone>(
        &mut self,
        whom: &Whom,
        verb: impl for<'a> Fn(&'a dyn Store, String, Target) -> store::Reply<'a, T>,
    ) -> Result<(), Difference> {
        let [left, right] = [Side::Left, Side::Right].map(|side| self.target(whom, side));
        self.both(|store, side| {
            let (namespace, target) = side.of(&left, &right).clone();
            verb(store, namespace, target)
        })
        .await
        .map(drop)
    }

    /// Calls a verb on both, and compares the answers; SQLite's, unless both refused.
    async fn both<T: Told + Clone>(
        &mut self,
        verb: impl for<'a> Fn(&'a dyn Store, Side) -> store::Reply<'a, T>,
    ) -> Result<Option<T>, Difference> {
        let mut left: Result<T, Error> = verb(&*self.left.store, Side::Left).await;
        let right: Result<T, Error> = verb(&*self.right.store, Side::Right).await;
        if let (Ok(left), Ok(right)) = (&mut left, &right) {
            left.allow(right);
        }
        self.learn().await;
        self.learned = true;
        match &left {
            Ok(answer) => self.note_words(&format!("{answer:?}")),
            Err(error) => self.note_words(&format!("{error:?}")),
        }
        let answer = left.as_ref().ok().cloned();
        same("answer", &told(left, &Ids(None)), &told(right, &Ids(Some(&self.names))))?;
        Ok(answer)
    }

    /// The `seq` that an operator expects of whom it addresses.
    fn expected(&self, whom: &Whom, expected: Expected) -> Option<u64> {
        let seen = match self.target(whom, Side::Left) {
            (_, Target::Id(id)) => self.seen.get(&id),
            (namespace, Target::Key(key)) => self
                .seen
                .values()
                .find(|instance| instance.namespace == namespace && instance.key.as_ref() == Some(&key)),
        };
        let seq = seen.map_or(1, |instance| instance.seq);
        match expected {
            Expected::Any => None,
            Expected::Right => Some(seq),
            Expected::Wrong => Some(seq + 1),
        }
    }

    fn target(&self, whom: &Whom, side: Side) -> (String, Target) {
        let by_id = |id: Option<InstanceId>| {
            let seen = id.and_then(|id| self.seen.get(&id));
            let namespace = seen.map_or_else(|| "default".to_owned(), |instance| instance.namespace.clone());
            (namespace, Target::Id(id.map_or(InstanceId(0), |id| self.id(id, side))))
        };
        match whom {
            Whom::Any(pick) => {
                let (_, target) = by_id(pick.of(&self.instances).copied());
                ("default".to_owned(), target)
            }
            Whom::Live(pick) => by_id(self.one_of(*pick, |status| !status.is_terminal())),
            Whom::Waiting(pick) => by_id(self.one_of(*pick, |status| status == Status::AwaitingSignal)),
            Whom::Ended(pick) => {
                by_id(self.one_of(*pick, |status| matches!(status, Status::Failed | Status::Cancelled)))
            }
            Whom::Key(namespace, key) => (namespace.to_string(), Target::Key(key.to_string())),
            Whom::Nobody => by_id(None),
        }
    }

    fn one_of(&self, pick: Pick, is_one: impl Fn(Status) -> bool) -> Option<InstanceId> {
        let those: Vec<_> = self.seen.values().filter(|instance| is_one(instance.status)).collect();
        pick.of(&those).map(|instance| instance.id)
    }

    fn id(&self, id: InstanceId, side: Side) -> InstanceId {
        match side {
            Side::Left => id,
            Side::Right => self.there(id),
        }
    }

    fn there(&self, id: InstanceId) -> InstanceId {
        InstanceId(self.names.instances.right(id.0))
    }

    fn worker_there(&self, worker: WorkerId) -> WorkerId {
        WorkerId(self.names.workers.right(worker.0))
    }
}

/// A machine that undoes what it did when it is cancelled at one of its steps.
fn undoing() -> Declaration {
    Declaration {
        name: "m".to_owned(),
        version: 1,
        migrates_from: 1,
        steps: vec![],
        queue: "default".to_owned(),
        keeps_history: true,
        states: vec![],
        accepts_others: true,
        accepts: vec![],
        takes: vec![],
        undo_on_cancel: vec!["middle".to_owned()],
        indexes: Vec::new(),
        graph: None,
    }
}

impl Step {
    fn of(worker: WorkerId, claimed: &Claimed) -> Self {
        Self {
            worker,
            id: claimed.id,
            namespace: claimed.namespace.clone(),
            seq: claimed.seq,
            version: claimed.version,
            received: crate::kit::received(claimed),
            head: claimed.head(),
            inbox: claimed.inbox.clone(),
        }
    }
}

#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

impl Side {
    fn of<'a, T>(self, left: &'a T, right: &'a T) -> &'a T {
        match self {
            Self::Left => left,
            Self::Right => right,
        }
    }
}
