//! A tour of the hot verbs, each called on a few rows of its own; what each did is noted.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use dormouse::store::{Claimed, Collect, Filter, Lease, Receipt, Store, TagChange};
use dormouse::{Delivered, Inserted, NewInstance, NewSignal, Status, Target, WorkerId};
use private_postgres::Server;

use crate::explain::{self, Plan};
use crate::verbs::{LONG, Verbs, ahead, commit, done, m, next, sleep, spawn, wait_for};

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
            self.lose_a_worker().await;
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
        note(&mut self.notes, self.server, "history", store.history(id, 0, 10)).await.expect("a history");
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
