//! Everything locks in one order: batches that touch the same rows, parents, lanes and keys in any order wait for
//! each other, and never in a circle.

use std::sync::Arc;
use std::time::Duration;

use dormouse::store::{Brake, CancelRequest, Claimed, Commit, Store};
use dormouse::{Error, NewInstance, NewSignal, Target, Transition, WorkerId};
use tokio::task::JoinSet;

use crate::private::{closed, connect, migrated, number, server};
use crate::verbs::{Verbs, ahead, commit, done, m, next, sleep, spawn, wait_for};

const CONNECTIONS: usize = 8;
/// Of each connection; a round is some ten verbs.
const ROUNDS: usize = 150;
const KEYS: usize = 12;
const LANES: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_touch_the_same_rows_in_any_order_never_wait_in_a_circle() {
    // A circle is found after the first, and a wait that is none must not look like one.
    let server = server(&[("deadlock_timeout", "50ms"), ("log_lock_waits", "off")]);
    let url = migrated(&server, "locks").await;
    let verbs = Arc::new(Verbs::on(&format!("{url}?connections={}", CONNECTIONS + 2)).await);
    let mut bustle = JoinSet::new();
    for seed in 0..CONNECTIONS {
        bustle.spawn(Mixer::new(verbs.clone(), seed).go());
    }
    let done: Vec<Done> = bustle.join_all().await;
    let mut conn = connect(&url).await;
    check_lanes(&mut conn).await;
    // What was due or lost its worker was found under load, and not only once nobody was there any more.
    let (woken, reaped) = done.iter().fold((0, 0), |sum, done| (sum.0 + done.woken, sum.1 + done.reaped));
    assert!(woken > 0 && reaped > 0, "{woken} timers fired and {reaped} claims were taken back under load");
    let left = verbs.store.due(10_000).await.expect("a sweep").value.woken;
    assert_eq!(number(&mut conn, "select count(*) from dormouse.instances where wake_at <= now()").await, 0);
    assert!(
        left <= woken,
        "{left} timers were left for when nobody was there any more, {woken} fired before"
    );
    check_lanes(&mut conn).await;
    verbs.store.close().await;
    closed(&mut conn).await;
    let log = server.log();
    let circles: Vec<_> = log.match_indices("deadlock detected").map(|(at, _)| excerpt(&log[at..])).collect();
    assert!(circles.is_empty(), "{} deadlocks, such as:\n{}", circles.len(), circles[0]);
    let sql = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(number(&mut conn, sql).await, 0);
    // What found out too late that it needs more, and what waited long enough, lost a race and was sent again.
    let lost = [
        "the instances changed while their locks were waited for",
        "canceling statement due to lock timeout",
    ];
    let mut errors = log.lines().filter(|line| line.contains("ERROR:"));
    assert_eq!(errors.find(|line| !lost.iter().any(|words| line.contains(words))), None);
}

/// Each lane has one holder, or none because nobody is in line.
async fn check_lanes(conn: &mut sqlx::PgConnection) {
    let holds = "status = 'executing' or (status = 'runnable' and not blocked and not paused)";
    let two = format!(
        "select count(*) from (
            select from dormouse.instances where lane is not null and ({holds}) group by namespace, lane
            having count(*) > 1
        ) lanes"
    );
    assert_eq!(number(conn, &two).await, 0, "a lane has two holders");
    let none = format!(
        "select count(*) from dormouse.instances i where i.lane is not null and i.status = 'runnable' and i.blocked
            and not i.paused and not exists (
                select from dormouse.instances h
                where h.namespace = i.namespace and h.lane = i.lane and ({})
            )",
        holds.replace("status", "h.status").replace("not blocked and not paused", "not h.blocked and not h.paused")
    );
    assert_eq!(number(conn, &none).await, 0, "a lane is blocked, and nobody holds it");
}

/// What one connection's sweeps did.
#[derive(Default)]
struct Done {
    woken: usize,
    reaped: usize,
}

fn excerpt(log: &str) -> String {
    log.lines().take(40).collect::<Vec<_>>().join("\n")
}

/// One connection's worth of bustle.
struct Mixer {
    verbs: Arc<Verbs>,
    random: fastrand::Rng,
    worker: WorkerId,
    name: String,
    done: Done,
}

impl Mixer {
    fn new(verbs: Arc<Verbs>, seed: usize) -> Self {
        let random = fastrand::Rng::with_seed(seed as u64);
        Self { verbs, random, worker: WorkerId(0), name: format!("w{seed}"), done: Done::default() }
    }

    async fn go(mut self) -> Done {
        self.worker = self.verbs.worker(&self.name).await;
        for round in 0..ROUNDS {
            self.insert().await;
            self.commit().await;
            self.deliver().await;
            self.operate().await;
            if round % 10 == 9 {
                self.verbs.store.deregister(self.worker).await.expect("a lease ends");
                self.done.reaped += self.verbs.store.reap(20, 10).await.expect("a sweep").value;
                self.worker = self.verbs.worker(&self.name).await;
            }
        }
        self.done
    }

    async fn insert(&mut self) {
        let new = self.arrivals(6);
        let signal = || NewSignal::new("go", dormouse::Json::null());
        let new = new.into_iter().map(|new| if self.random.bool() { new.signal(signal()) } else { new });
        let new = new.collect();
        self.verbs.insert(new).await;
    }

    /// Two groups of every outcome, with all that they run ahead.
    async fn commit(&mut self) {
        let rows = self.verbs.claim(self.worker, 12).await;
        let (now, later) = rows.split_at(rows.len() / 2);
        for rows in [now, later] {
            let mut commits: Vec<_> = rows.iter().map(|row| self.outcome(row)).collect();
            self.random.shuffle(&mut commits);
            self.verbs.commit(self.worker, commits).await;
        }
        self.done.woken += self.verbs.store.due(20).await.expect("a sweep").value.woken;
    }

    fn outcome(&mut self, row: &Claimed) -> Commit {
        let transition: Transition = match self.random.u8(0..10) {
            0..4 => done(),
            4 => wait_for("go"),
            5 => sleep(Duration::from_micros(10)),
            6 => next(),
            7 => return ahead(row.id, row.seq),
            _ => spawn(self.arrivals(4)),
        };
        commit(row, transition)
    }

    async fn deliver(&mut self) {
        let mut targets = self.keys(6);
        self.random.shuffle(&mut targets);
        self.verbs.deliver(targets.into_iter().map(Target::Key).collect(), "go").await;
    }

    async fn operate(&mut self) {
        let target = || Target::Key(format!("k{}", fastrand::usize(..KEYS)));
        let (namespace, store) = (|| "default".to_owned(), &self.verbs.store);
        let refused = |error: Error| assert!(!error.is_transient(), "{error}");
        store.cancel(namespace(), target(), CancelRequest::default()).await.map_or_else(refused, drop);
        let brake = if self.random.bool() { Brake::On } else { Brake::Off };
        store.pause(namespace(), target(), brake, None).await.map_or_else(refused, drop);
        store.pause(namespace(), target(), Brake::Off, None).await.map_or_else(refused, drop);
    }

    /// New instances that want the same few keys and lanes as all others.
    fn arrivals(&mut self, count: usize) -> Vec<NewInstance> {
        let keys = self.keys(count);
        let new = keys.into_iter().map(|key| {
            let new = m().lane(format!("l{}", self.random.usize(..LANES)));
            if self.random.u8(..4) == 0 { new } else { new.key(key) }
        });
        new.collect()
    }

    fn keys(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| format!("k{}", self.random.usize(..KEYS))).collect()
    }
}
