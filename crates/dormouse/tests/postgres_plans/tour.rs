//! A tour of the hot verbs, each called on a few rows of its own; what each did is noted.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use dormouse::store::{
    Bounds, Brake, CancelRequest, Claimed, Collect, Commit, Completion, Delivery, Events, Filter,
    InteractionFilter, Lease, LimitStore, MailStore, Namespaces, Post, Posted, Posting, Queries, Receipt,
    SendOutcome, SendReport, ServerStore, Store, TagChange, Tried, UnitStore, Which,
};
use dormouse::{
    Delivered, Inserted, Interaction, Json, Limit, Limits, Mail, NewInstance, NewSignal, Rate, Status,
    Target, WorkerId,
};
use private_postgres::Server;

use crate::explain::{self, Plan};
use crate::verbs::{LONG, Verbs, ahead, commit, dispatch, done, m, next, sleep, spawn, wait_for};

/// The plans of each verb's last call.
pub type Notes = BTreeMap<&'static str, Vec<Plan>>;

pub struct Tour<'a> {
    pub server: &'a Server,
    pub verbs: Verbs,
    worker: WorkerId,
    /// Holds the lane behind which the crowd stands.
    holder: Claimed,
    round: u32,
    notes: Notes,
}

impl<'a> Tour<'a> {
    pub async fn new(server: &'a Server, verbs: Verbs) -> Self {
        let worker = verbs.worker("tourist").await;
        verbs.insert(vec![m().lane("hot")]).await;
        let holder = verbs.claim(worker, 1).await.remove(0);
        Self { server, verbs, worker, holder, round: 0, notes: Notes::new() }
    }

    /// Calls every verb often enough for plans to be cached, and tells what the last calls did.
    pub async fn go(&mut self, rounds: u32) -> Notes {
        for _ in 0..rounds {
            self.round += 1;
            self.insert().await;
            self.run().await;
            self.park().await;
            self.spawn().await;
            self.hand_on().await;
            self.limit().await;
            self.rate().await;
            self.lose_a_worker().await;
            self.dispatch().await;
            self.mail().await;
            self.operate().await;
            self.look().await;
        }
        std::mem::take(&mut self.notes)
    }

    /// Takes ten rows, here and there, where a hundred thousand could be had.
    pub async fn take_a_few(&mut self) -> Notes {
        for _ in 0..2 {
            let verbs = &self.verbs;
            let claim = verbs.claim(self.worker, 10);
            assert_eq!(note(&mut self.notes, self.server, "claim of many", claim).await.len(), 10);
            let due = note(&mut self.notes, self.server, "due of many", verbs.store.due(10)).await;
            assert_eq!(due.expect("a sweep").value.woken, 10);
            let reaped = note(&mut self.notes, self.server, "reap of many", verbs.store.reap(10, 10)).await;
            assert_eq!(reaped.expect("a sweep").value, 10);
        }
        std::mem::take(&mut self.notes)
    }

    async fn insert(&mut self) {
        let keys: Vec<_> = (0..3).map(|n| format!("{}:{n}", self.round)).collect();
        let keyed = || keys.iter().map(|key| m().key(key)).collect::<Vec<NewInstance>>();
        let signalled =
            keyed().into_iter().map(|new| new.signal(NewSignal::new("go", dormouse::Json::null())));
        let signalled: Vec<_> = signalled.collect();
        let verbs = &self.verbs;
        note(&mut self.notes, self.server, "insert", verbs.insert(vec![m(); 3])).await;
        note(&mut self.notes, self.server, "insert with keys", verbs.insert(keyed())).await;
        let taken = note(&mut self.notes, self.server, "insert with taken keys", verbs.insert(keyed())).await;
        assert!(taken.iter().all(|answer| matches!(answer, Inserted::Taken { .. })), "{taken:?}");
        note(&mut self.notes, self.server, "insert or signal", verbs.insert(signalled)).await;
    }

    /// Three rows without a key run ahead, sleep, and end; three with a key and a signal end.
    async fn run(&mut self) {
        let (verbs, worker) = (&self.verbs, self.worker);
        let claimed = note(&mut self.notes, self.server, "claim", verbs.claim(worker, 10)).await;
        assert_eq!(claimed.len(), 6, "{claimed:?}");
        let (mut plain, keyed): (Vec<_>, Vec<_>) = claimed.into_iter().partition(|row| row.key.is_none());
        let lease = verbs.store.heartbeat(worker, LONG);
        let lease = note(&mut self.notes, self.server, "heartbeat", lease).await.expect("a heartbeat");
        assert!(matches!(lease, Lease::Held { holds, .. } if holds.len() == 7));
        let commits = plain.iter().map(|row| ahead(row.id, row.seq)).collect();
        let held = note(&mut self.notes, self.server, "commit_next", verbs.commit(worker, commits)).await;
        assert!(held.iter().all(|receipt| matches!(receipt, Receipt::Held { .. })), "{held:?}");
        plain.iter_mut().for_each(|row| row.seq += 1);
        let rest = sleep(Duration::from_millis(1));
        note(&mut self.notes, self.server, "commit sleep", verbs.commit_all(worker, &plain, &rest)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let due = note(&mut self.notes, self.server, "due", verbs.store.due(10)).await.expect("a sweep");
        assert_eq!(due.value.woken, 3);
        note(&mut self.notes, self.server, "commit next", verbs.commit_all(worker, &keyed, &next())).await;
        let all = verbs.claim(worker, 10).await;
        assert_eq!(all.len(), 6);
        note(&mut self.notes, self.server, "commit done", verbs.commit_all(worker, &all, &done())).await;
    }

    /// Rows park, are signalled by id and by key, and end.
    async fn park(&mut self) {
        let (verbs, worker) = (&self.verbs, self.worker);
        let keys: Vec<_> = (0..3).map(|n| format!("parked {}:{n}", self.round)).collect();
        let new = verbs.insert(keys.iter().map(|key| m().key(key)).collect()).await;
        let rows = verbs.claim(worker, 10).await;
        let wait = wait_for("go");
        note(&mut self.notes, self.server, "commit await", verbs.commit_all(worker, &rows, &wait)).await;
        let filter = Filter { awaiting: Some("go".to_owned()), limit: 10, ..Filter::default() };
        let list = note(&mut self.notes, self.server, "list_awaiting", verbs.store.list(filter)).await;
        assert_eq!(list.expect("a list").instances.len(), 3);
        let by_id = new.iter().map(|new| Target::Id(new.id())).collect();
        let woke = note(&mut self.notes, self.server, "deliver by id", verbs.deliver(by_id, "go")).await;
        assert!(woke.iter().all(|answer| matches!(answer, Delivered::Accepted { woke: true, .. })));
        let rows = verbs.claim(worker, 10).await;
        verbs.commit_all(worker, &rows, &wait).await;
        let by_key = keys.into_iter().map(Target::Key).collect();
        let woke = note(&mut self.notes, self.server, "deliver by key", verbs.deliver(by_key, "go")).await;
        assert!(woke.iter().all(|answer| matches!(answer, Delivered::Accepted { woke: true, .. })));
        let woken = note(&mut self.notes, self.server, "claim with an inbox", verbs.claim(worker, 10)).await;
        verbs.commit_all(worker, &woken, &done()).await;
    }

    /// A row sends mail of each kind, which is delivered: some of it comes back as undelivered.
    async fn mail(&mut self) {
        let (verbs, worker, round) = (&self.verbs, self.worker, self.round);
        let keys: Vec<_> = (0..3).map(|n| format!("mailed {round}:{n}")).collect();
        // In a queue of their own, where nobody claims them.
        let parked = |key: &String| {
            let mut new = m().key(key).queue("mailed");
            new.awaits = Some((vec!["go".to_owned()], None));
            new
        };
        let targets = verbs.insert(keys.iter().map(parked).collect()).await;
        verbs.insert(vec![m()]).await;
        let sender = verbs.claim(worker, 10).await.remove(0);
        let go = |to: Target| Mail::signal_raw(to, NewSignal::new("go", Json::null()));
        let mail = vec![
            go(Target::Id(targets[0].id())),
            go(Target::Key(keys[1].clone())),
            go(Target::Key("nobody".to_owned())),
            Mail::cancel(targets[2].id()),
            Mail::start(m().key(format!("started {round}")).queue("mailed")),
            Mail::start(m().key(format!("started {round}")).queue("mailed")),
        ];
        let sent = Commit { mail, ..commit(&sender, done()) };
        note(&mut self.notes, self.server, "commit with mail", verbs.commit(worker, vec![sent])).await;
        let due = note(&mut self.notes, self.server, "mail_due", verbs.store.mail_due(100)).await;
        let due = due.expect("a read").mail;
        let batch = due.iter().map(|piece| Post { id: piece.id, how: Posting::Deliver }).collect();
        let posted = verbs.store.post(batch, (&Limits::default()).into());
        let posted = note(&mut self.notes, self.server, "post", posted).await.expect("a delivery").value;
        let delivered = posted.iter().filter(|posted| **posted == Posted::Delivered).count();
        assert_eq!((posted.len(), delivered), (6, 4), "{posted:?}");
        let waiting = note(&mut self.notes, self.server, "mail_of", verbs.store.mail_of(sender.id, 10)).await;
        assert_eq!(waiting.expect("a read").len(), 0);
    }

    async fn spawn(&mut self) {
        let (verbs, worker, round) = (&self.verbs, self.worker, self.round);
        verbs.insert(vec![m()]).await;
        let parent = verbs.claim(worker, 10).await;
        let children = (0..3).map(|n| m().key(format!("child {round}:{n}")));
        let outcome = spawn(children.collect());
        note(&mut self.notes, self.server, "commit spawn", verbs.commit_all(worker, &parent, &outcome)).await;
        let children = verbs.claim(worker, 10).await;
        assert_eq!(children.len(), 3);
        let outcome = done();
        let ends = verbs.commit_all(worker, &children, &outcome);
        note(&mut self.notes, self.server, "commit done of children", ends).await;
        let filter = Filter { parent: Some(parent[0].id), limit: 10, ..Filter::default() };
        let list = note(&mut self.notes, self.server, "list_by_parent", verbs.store.list(filter)).await;
        assert_eq!(list.expect("a list").instances.len(), 3);
        let parent = note(&mut self.notes, self.server, "claim with children", verbs.claim(worker, 10)).await;
        assert_eq!(parent[0].children.len(), 3);
        verbs.commit_all(worker, &parent, &done()).await;
    }

    /// A limit is changed while its lanes are in use, and a lane of it runs empty.
    async fn limit(&mut self) {
        const ROWS: usize = 3;
        let (verbs, worker) = (&self.verbs, self.worker);
        verbs.insert(vec![m().lane("tour/1"); ROWS]).await;
        let width = 1 + self.round % 2;
        let limit = Some(Limit::width(width));
        let set = verbs.store.set_limit("default".to_owned(), "tour".to_owned(), limit);
        note(&mut self.notes, self.server, "set_limit", set).await.expect("a limit");
        let settled = verbs.store.settle_limits();
        note(&mut self.notes, self.server, "settle_limits", settled).await.expect("a sweep");
        let rows = verbs.claim(worker, 10).await;
        assert_eq!(rows.len(), width as usize);
        let listed = verbs.store.limits("default".to_owned(), None, 10);
        let listed = note(&mut self.notes, self.server, "limits", listed).await.expect("a list");
        assert_eq!((listed[0].held, listed[0].waiting), (width.into(), ROWS as u64 - u64::from(width)));
        let end = done();
        let ended = verbs.commit_all(worker, &rows, &end);
        note(&mut self.notes, self.server, "commit done in a limit", ended).await;
        loop {
            let rows = verbs.claim(worker, 10).await;
            if rows.is_empty() {
                break;
            }
            verbs.commit_all(worker, &rows, &done()).await;
        }
    }

    /// A lane with a rate is claimed from, and its next waits for its moment.
    async fn rate(&mut self) {
        let verbs = &self.verbs;
        // One of its own: each claim leaves a dead entry in the index by worker until a vacuum.
        let worker = verbs.worker("pace").await;
        let set = |limit| verbs.store.set_limit("default".to_owned(), "pace".to_owned(), limit);
        let rate = Rate::new(1, std::time::Duration::from_secs(3600));
        set(Some(Limit::width(3).and_rate(rate))).await.expect("a limit");
        let lane = format!("pace/{}", self.round);
        let inserted = verbs.insert(vec![m().lane(lane); 2]);
        note(&mut self.notes, self.server, "insert with a rate", inserted).await;
        let rows = note(&mut self.notes, self.server, "claim with a rate", verbs.claim(worker, 10)).await;
        assert_eq!(rows.len(), 1, "{rows:?}");
        note(&mut self.notes, self.server, "due with a rate", verbs.store.due(10)).await.expect("a sweep");
        let (end, rest) = (done(), done());
        let ended = verbs.commit_all(worker, &rows, &end);
        note(&mut self.notes, self.server, "commit done with a rate", ended).await;
        assert!(verbs.claim(worker, 10).await.is_empty(), "the other waits for its moment");
        set(None).await.expect("a limit");
        let other = verbs.claim(worker, 10).await;
        assert_eq!(other.len(), 1, "{other:?}");
        verbs.commit_all(worker, &other, &rest).await;
    }

    /// The lane with the long line goes to a row that is more urgent than all of it.
    async fn hand_on(&mut self) {
        let (verbs, worker) = (&self.verbs, self.worker);
        let urgent = verbs.insert(vec![m().lane("hot").priority(-10)]);
        note(&mut self.notes, self.server, "insert behind a lane", urgent).await;
        let commits = vec![commit(&self.holder, done())];
        note(&mut self.notes, self.server, "commit done in a lane", verbs.commit(worker, commits)).await;
        let mut rows = note(&mut self.notes, self.server, "claim in a lane", verbs.claim(worker, 10)).await;
        assert_eq!(rows.len(), 1, "{rows:?}");
        self.holder = rows.remove(0);
    }

    async fn lose_a_worker(&mut self) {
        let verbs = &self.verbs;
        let other = verbs.worker("lost").await;
        verbs.insert(vec![m(); 3]).await;
        assert_eq!(verbs.claim(other, 10).await.len(), 3);
        verbs.store.deregister(other).await.expect("a lease ends");
        let reaped =
            note(&mut self.notes, self.server, "reap", verbs.store.reap(10, 10)).await.expect("a sweep");
        assert_eq!(reaped.value, 3);
        verbs.commit_all(self.worker, &verbs.claim(self.worker, 10).await, &done()).await;
        assert!(
            note(&mut self.notes, self.server, "claim nothing", verbs.claim(self.worker, 10))
                .await
                .is_empty()
        );
    }

    /// Three of a machine that nobody runs, found by a tag of theirs.
    async fn tag(&mut self) {
        let place = || dormouse::At { step: "start".into(), state: dormouse::Json::null() };
        let new = |_| {
            NewInstance::named("tagged", 1, place())
                .even_if_unknown()
                .tag(format!("t{}", self.round))
                .tag("toured")
        };
        let verbs = &self.verbs;
        let tagged = verbs.insert((0..3).map(new).collect());
        let tagged = note(&mut self.notes, self.server, "insert with tags", tagged).await;
        let tags = vec![format!("t{}", self.round), "toured".to_owned()];
        let filter = Filter { namespace: Some("default".to_owned()), tags, limit: 10, ..Filter::default() };
        let list = note(&mut self.notes, self.server, "list_by_tag", verbs.store.list(filter)).await;
        assert_eq!(list.expect("a list").instances.len(), 3);
        let change = TagChange { add: vec!["more".to_owned()], remove: vec!["toured".to_owned()] };
        let change = verbs.store.tag("default".to_owned(), Target::Id(tagged[0].id()), change);
        note(&mut self.notes, self.server, "tag", change).await.expect("a change");
    }

    /// Rows ask, are answered, and end; others are late.
    async fn dispatch(&mut self) {
        let (verbs, worker) = (&self.verbs, self.worker);
        let store = &verbs.store;
        verbs.insert(vec![m(); 3]).await;
        let rows = verbs.claim(worker, 10).await;
        let ask = dispatch("bank", None);
        note(&mut self.notes, self.server, "commit dispatch", verbs.commit_all(worker, &rows, &ask)).await;
        let taken = store.outbox("bank".to_owned(), Namespaces::All, 10, LONG);
        let taken = note(&mut self.notes, self.server, "outbox", taken).await.expect("an outbox").taken;
        assert_eq!(taken.len(), 3);
        let assign = store.assign("default".to_owned(), taken[0].id, "me".to_owned(), Duration::ZERO);
        note(&mut self.notes, self.server, "assign", assign).await.expect("an assignment");
        let sent =
            |item: &Interaction| SendReport { id: item.id, sends: item.sends, outcome: SendOutcome::Sent };
        let sent = store.sent(taken.iter().map(sent).collect());
        note(&mut self.notes, self.server, "sent", sent).await.expect("notes");
        let unit = note(&mut self.notes, self.server, "unit", store.unit(rows[0].id)).await;
        let unit = unit.expect("a read").expect("a unit").id;
        note(&mut self.notes, self.server, "items", store.items(unit, 0, 10)).await.expect("a read");
        let filter =
            InteractionFilter { instance: Some(rows[0].id), limit: 10, ..InteractionFilter::default() };
        let list = store.interactions(filter);
        note(&mut self.notes, self.server, "interactions_by_instance", list).await.expect("a read");
        let answer = |item: &Interaction| Completion {
            namespace: "default".to_owned(),
            to: Which::Id(item.id),
            result: Ok(Json::null()),
            assignee: None,
            by: None,
            proof: None,
        };
        let answers = store.complete(taken.iter().map(answer).collect());
        note(&mut self.notes, self.server, "complete", answers).await.expect("answers");
        let rows = verbs.claim(worker, 10).await;
        assert_eq!(rows.len(), 3);
        verbs.commit_all(worker, &rows, &dispatch("bank", Some(Duration::from_millis(1)))).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let due = note(&mut self.notes, self.server, "due of units", store.due(10)).await.expect("a sweep");
        assert_eq!(due.value.woken, 3);
        let rows = verbs.claim(worker, 10).await;
        verbs.commit_all(worker, &rows, &done()).await;
    }

    /// Rows are signalled twice, paused, cancelled and retried; what they were sent is consumed.
    async fn operate(&mut self) {
        let (verbs, worker) = (&self.verbs, self.worker);
        let (store, namespace) = (&verbs.store, || "default".to_owned());
        let new = verbs.insert(vec![m(); 3]).await;
        let rows = verbs.claim(worker, 10).await;
        verbs.commit_all(worker, &rows, &wait_for("go")).await;
        let deliver = || {
            let delivery = |new: &Inserted| Delivery {
                namespace: namespace(),
                target: Target::Id(new.id()),
                signal: NewSignal::new("go", Json::null()).dedup("once"),
                inbox_max: dormouse::InboxMax::default(),
                kept_max: dormouse::KeptMax::default(),
            };
            store.deliver(new.iter().map(delivery).collect())
        };
        note(&mut self.notes, self.server, "deliver with a dedup key", deliver()).await.expect("signals");
        let again = note(&mut self.notes, self.server, "deliver again", deliver()).await.expect("signals");
        assert!(again.value.iter().all(|answer| *answer == Delivered::Duplicate), "{again:?}");
        let rows = verbs.claim(worker, 10).await;
        note(&mut self.notes, self.server, "commit and consume", verbs.commit_all(worker, &rows, &next()))
            .await;
        let target = || Target::Id(new[0].id());
        let pause = store.pause(namespace(), target(), Brake::On, None);
        note(&mut self.notes, self.server, "pause", pause).await.expect("a brake");
        store.pause(namespace(), target(), Brake::Off, None).await.expect("a brake");
        let cancel = store.cancel(namespace(), target(), CancelRequest::default());
        note(&mut self.notes, self.server, "cancel", cancel).await.expect("a cancel");
        let retry = store.retry(namespace(), target(), None, None);
        note(&mut self.notes, self.server, "retry", retry).await.expect("a retry");
        let rows = verbs.claim(worker, 10).await;
        assert_eq!(rows.len(), 3);
        let release = store.release(worker, rows.iter().map(|row| (row.id, row.seq)).collect(), Tried::Yes);
        note(&mut self.notes, self.server, "release", release).await.expect("claims are given back");
        let rows = verbs.claim(worker, 10).await;
        let outcome = done();
        let ends = verbs.commit_all(worker, &rows, &outcome);
        note(&mut self.notes, self.server, "commit done of signalled ones", ends).await;
    }

    async fn look(&mut self) {
        let store = &self.verbs.store;
        let namespace = || "default".to_owned();
        let key = format!("{}:1", self.round);
        let found = store.get(namespace(), Target::Key(key.clone()));
        let found = note(&mut self.notes, self.server, "get by key", found).await.expect("a read");
        let id = found.expect("the instance is there").id;
        let all = Filter { limit: 10, ..Filter::default() };
        note(&mut self.notes, self.server, "list", store.list(all)).await.expect("a list");
        let filter =
            Filter { namespace: Some(namespace()), key_prefix: Some(key), limit: 10, ..Filter::default() };
        note(&mut self.notes, self.server, "list_by_key", store.list(filter)).await.expect("a list");
        let failed = Filter { status: Some(Status::Failed), limit: 10, ..Filter::default() };
        note(&mut self.notes, self.server, "list_failed", store.list(failed)).await.expect("a list");
        self.tag().await;
        let store = &self.verbs.store;
        note(&mut self.notes, self.server, "history", store.history(id, Events::After(0), Bounds::rows(10)))
            .await
            .expect("a history");
        let back = store.history(id, Events::Before(u64::MAX), Bounds::rows(10));
        note(&mut self.notes, self.server, "history backwards", back).await.expect("a history");
        let head = store.head(namespace(), Target::Id(id));
        note(&mut self.notes, self.server, "head", head).await.expect("a head");
        let inbox = store.inbox(self.holder.id, None, Bounds::rows(10));
        note(&mut self.notes, self.server, "inbox", inbox).await.expect("an inbox");
        let changes = store.changes(None, Some(0), 10);
        note(&mut self.notes, self.server, "changes", changes).await.expect("what changed");
        let situation = store.situation(namespace(), Target::Id(self.holder.id));
        note(&mut self.notes, self.server, "situation", situation).await.expect("a situation");
        let collect = Collect {
            namespace: None,
            ended_for: Some(LONG),
            events_for: None,
            events_after: 0,
            rows_max: 10,
        };
        note(&mut self.notes, self.server, "collect", store.collect(collect)).await.expect("a collection");
    }
}

/// Notes the plans of the statements that a call sends.
async fn note<T>(notes: &mut Notes, server: &Server, verb: &'static str, call: impl Future<Output = T>) -> T {
    let before = server.log_bytes();
    let value = call.await;
    notes.insert(verb, explain::plans(&server.log_since(before)));
    value
}
