//! A store that counts its verbs and fails when a test wants it to.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::store::{
    About, Addressee, AmendRequest, Assigned, Backlog, Bounds, Brake, Cancel, CancelRequest, Claim, Claimed,
    Collect, Collected, Commit, Completed, Completion, Declarations, Delivery, Due, Effects, Events, Filter,
    InteractionCount, InteractionFilter, Judged, KeptCount, KeptFilter, Lease, LimitStore, LimitView,
    MailBounds, MailDue, MailStore, MailView, Namespaces, NewProgress, NewWorker, Outbox, OutboxDepth, Page,
    Portion, Post, Posted, Progress, Queries, Reading, Receipt, Reply, Reports, Rider, SendReport, SendTally,
    ServerStore, Situation, Stats, Store, TagChange, TransportStore, TransportView, Tried, UnitStore, Which,
    Written,
};
use dormouse::{
    At, Clock, Delivered, Error, Event, Hub, InboxSignal, Inserted, Instance, InstanceId, Interaction,
    InteractionId, Json, KeptId, KeptSignal, Limit, NewInstance, ShareWeight, SignalId, Target,
    TransportChange, TransportLimits, UnitId, UnitView, VirtualClock, When, WorkerId,
};

type CommitFault = Box<dyn Fn(&[Commit]) -> Option<Error> + Send + Sync>;

/// Passes everything on, counts it, and asks the test before it does.
pub struct Faulty {
    inner: Arc<dyn Store>,
    calls: Mutex<HashMap<&'static str, usize>>,
    refuse: Mutex<HashMap<&'static str, usize>>,
    refuse_commit: CommitFault,
    clock: Option<VirtualClock>,
}

impl Faulty {
    pub fn on(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            calls: Mutex::default(),
            refuse: Mutex::default(),
            refuse_commit: Box::new(|_| None),
            clock: None,
        }
    }

    /// Sleeps by a clock that the test moves, as the store's own time is moved.
    pub fn sleep_by(mut self, clock: VirtualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Fails commits for which the closure gives an error; nothing of them is written.
    pub fn refuse_commit(
        mut self,
        refuse: impl Fn(&[Commit]) -> Option<Error> + Send + Sync + 'static,
    ) -> Self {
        self.refuse_commit = Box::new(refuse);
        self
    }

    /// Fails the next calls of a verb.
    pub fn refuse_next(&self, verb: &'static str, calls: usize) {
        self.refuse.lock().expect("no panic").insert(verb, calls);
    }

    /// How often a verb was called; `answers_most` is the most answers that one call of `complete` brought.
    pub fn calls(&self, verb: &'static str) -> usize {
        self.calls.lock().expect("no panic").get(verb).copied().unwrap_or(0)
    }

    fn pass<'a, T: Send + 'a>(&'a self, verb: &'static str, reply: Reply<'a, T>) -> Reply<'a, T> {
        *self.calls.lock().expect("no panic").entry(verb).or_default() += 1;
        let refused = match self.refuse.lock().expect("no panic").get_mut(verb) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        };
        if refused {
            return Box::pin(async move { Err(Error::Busy(format!("{verb} was told to fail").into())) });
        }
        reply
    }
}

macro_rules! pass_on {
    ($($verb:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {
        $(fn $verb(&self, $($argument: $kind),*) -> Reply<'_, $answer> {
            self.pass(stringify!($verb), self.inner.$verb($($argument),*))
        })+
    };
}

impl Store for Faulty {
    fn hub(&self) -> &Hub {
        self.inner.hub()
    }

    fn poke(&self, effects: &Effects) {
        self.inner.poke(effects);
    }

    fn sleep(&self, until: When) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        match &self.clock {
            Some(clock) => {
                let at = match until {
                    When::At(at) => at,
                    When::In(duration) => clock.now() + duration,
                };
                clock.sleep_until(at)
            }
            None => self.inner.sleep(until),
        }
    }

    fn commit(&self, worker: WorkerId, batch: Arc<[Commit]>) -> Reply<'_, Written<Vec<Receipt>>> {
        if let Some(error) = (self.refuse_commit)(&batch) {
            return Box::pin(async move { Err(error) });
        }
        self.pass("commit", self.inner.commit(worker, batch))
    }

    fn server(self: Arc<Self>) -> Option<Arc<dyn ServerStore>> {
        self.inner.clone().server()
    }

    fn groups_max(&self) -> usize {
        self.inner.groups_max()
    }

    fn runs_closures(&self) -> bool {
        self.inner.runs_closures()
    }

    pass_on! {
        insert(batch: Vec<NewInstance>) -> Written<Vec<Inserted>>;
        deliver(batch: Vec<Delivery>) -> Written<Vec<Delivered>>;
        claim(claim: Claim) -> Written<Vec<Claimed>>;
        begin() -> Rider;
        commit_with(worker: WorkerId, commit: Commit, rider: Rider) -> Written<Receipt>;
        due(rows_max: usize) -> Written<Due>;
        register(worker: NewWorker) -> WorkerId;
        heartbeat(worker: WorkerId, lease: Duration) -> Lease;
        deregister(worker: WorkerId) -> ();
        report(worker: WorkerId, batch: Vec<NewProgress>) -> Written<()>;
        release(worker: WorkerId, claims: Vec<(InstanceId, u64)>, tried: Tried) -> Written<Vec<InstanceId>>;
        reap(rows_max: usize, crashes_max: u32) -> Written<usize>;
        collect(collect: Collect) -> Collected;
        cancel(namespace: String, target: Target, request: CancelRequest) -> Written<Cancel>;
        retry(namespace: String, target: Target, at: Option<At>, expected_seq: Option<u64>) -> Written<InstanceId>;
        pause(namespace: String, target: Target, brake: Brake, expected_seq: Option<u64>) -> Written<InstanceId>;
        amend(namespace: String, target: Target, request: AmendRequest) -> Written<InstanceId>;
        edit(namespace: String, target: Target, state: Json, expected_seq: Option<u64>) -> InstanceId;
        tag(namespace: String, target: Target, change: TagChange) -> Vec<String>;
        pause_queue(namespace: String, queue: String, brake: Brake) -> Written<()>;
        weigh(namespace: String, share: String, weight: u32) -> ();
        reading(id: InstanceId, bytes_max: usize) -> Reading;
    }
}

impl Queries for Faulty {
    pass_on! {
        declared(known: Option<String>) -> Option<Declarations>;
        reports(which: Reports, rows_max: usize) -> Vec<Progress>;
        get(namespace: String, target: Target) -> Option<Instance>;
        addressees(namespace: String, targets: Vec<Target>) -> Vec<Option<Addressee>>;
        list(filter: Filter) -> Page;
        history(id: InstanceId, events: Events, bounds: Bounds) -> Portion<Event>;
        inbox(id: InstanceId, after: Option<SignalId>, bounds: Bounds) -> Portion<InboxSignal>;
        head(namespace: String, target: Target) -> Option<Instance>;
        situation(namespace: String, target: Target) -> Option<Situation>;
        stats(namespace: Option<String>) -> Stats;
        about() -> About;
        shares(namespace: Option<String>) -> Vec<ShareWeight>;
        backlog(namespace: Option<String>) -> Backlog;
    }
}

impl LimitStore for Faulty {
    pass_on! {
        set_limit(namespace: String, name: String, limit: Option<Limit>) -> Written<bool>;
        settle_limits() -> Written<bool>;
        limit_of(namespace: String, lane: String) -> Option<Limit>;
        limits(namespace: String, after: Option<String>, rows_max: usize) -> Vec<LimitView>;
    }
}

impl TransportStore for Faulty {
    pass_on! {
        declare_transport(name: String, limits: TransportLimits) -> Written<()>;
        set_transport(name: String, change: TransportChange) -> Written<()>;
        close_breaker(name: String) -> Written<bool>;
        judge(name: String, tally: SendTally) -> Written<Judged>;
        transports(after: Option<String>, rows_max: usize) -> Vec<TransportView>;
        transport(name: String) -> Option<TransportView>;
    }
}

impl MailStore for Faulty {
    pass_on! {
        mail_due(rows_max: usize) -> MailDue;
        post(batch: Vec<Post>, bounds: MailBounds) -> Written<Vec<Posted>>;
        mail_of(sender: InstanceId, rows_max: usize) -> Vec<MailView>;
        kept(namespace: String, filter: KeptFilter, bounds: Bounds) -> Portion<KeptSignal>;
        kept_counts(namespace: Option<String>) -> Vec<KeptCount>;
        drop_kept(namespace: String, id: KeptId) -> bool;
    }
}

impl UnitStore for Faulty {
    fn complete(&self, batch: Vec<Completion>) -> Reply<'_, Written<Vec<Completed>>> {
        let mut calls = self.calls.lock().expect("no panic");
        let most = calls.entry("answers_most").or_default();
        *most = batch.len().max(*most);
        drop(calls);
        self.pass("complete", self.inner.complete(batch))
    }

    pass_on! {
        outbox(transport: String, namespaces: Namespaces, rows_max: usize, lease: Duration) -> Outbox;
        sent(batch: Vec<SendReport>) -> Written<Vec<SendReport>>;
        assign(namespace: String, id: InteractionId, assignee: String, lease: Duration) -> Assigned;
        unit(instance: InstanceId) -> Option<UnitView>;
        items(unit: UnitId, from_item: u32, items_max: usize) -> Vec<Interaction>;
        interaction(namespace: String, which: Which) -> Option<Interaction>;
        interactions(filter: InteractionFilter) -> Portion<Interaction>;
        outboxes(namespace: Option<String>) -> Vec<OutboxDepth>;
        count_interactions(filter: InteractionFilter) -> Vec<InteractionCount>;
    }
}
