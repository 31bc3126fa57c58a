//! Every hold against every verb.

use std::future::Future;
use std::time::Duration;

use dormouse::store::{
    Brake, Claimed, Commit, Completed, Completion, Lease, MailStore, Namespaces, Post, Posting, Queries,
    Receipt, SendOutcome, SendReport, Store, UnitStore, Which,
};
use dormouse::{
    Delivered, INTERACTION_API, Interaction, Json, Limits, Mail, NewInstance, NewSignal, Status, Target,
};
use tokio::task::JoinSet;

use crate::scene::{Hold, Scene};
use crate::verbs::{LONG, commit, dispatch, m, sleep, spawn, wait_for};

/// How soon a verb goes on for others.
const SOON: Duration = Duration::from_secs(2);
/// How soon everything goes on once nothing is held. Only a failure takes that long.
const AFTER: Duration = Duration::from_secs(30);
/// Calls that wait for what is held, at a time: more than there are connections.
const WAITING: usize = 40;

macro_rules! table {
    ($($name:ident: $hold:expr;)+) => { $(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn a_timer_fires_for_others() {
                super::timer($hold).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn others_claims_are_taken_back() {
                super::reaper($hold).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn others_outcomes_are_committed() {
                super::outcomes($hold).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn others_are_signalled() {
                super::signal($hold).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn others_are_started() {
                super::start($hold).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn others_get_their_mail() {
                super::mail($hold).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn others_are_claimed() {
                super::claim($hold).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn others_sends_are_noted() {
                super::send($hold).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn others_answers_are_admitted() {
                super::answer($hold).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn the_heart_beats_on() {
                super::heartbeat($hold).await;
            }
        }
    )+ };
}

table! {
    while_a_lane_is_held: Hold::Lane;
    while_a_key_is_held: Hold::Key;
    while_an_instance_is_held: Hold::Instance;
    while_six_hundred_instances_are_held: Hold::Instances;
}

async fn soon<T>(what: &str, hold: Hold, call: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(SOON, call).await;
    done.unwrap_or_else(|_| panic!("{what} has nothing to do with what is held: {hold:?}"))
}

/// Repeats a sweep until those that have nothing to do with what is held are in a status.
async fn sweep(scene: &Scene, status: Status, what: &str, once: impl AsyncFn()) {
    soon(what, scene.hold, async {
        while !scene.free_are(status).await {
            once().await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

async fn timer(hold: Hold) {
    let scene = Scene::new(hold, Status::Runnable).await;
    scene.park(&sleep(Duration::from_millis(300))).await;
    let held = scene.take_hold().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let due = async || drop(scene.verbs.store.due(512).await.expect("a sweep"));
    sweep(&scene, Status::Runnable, "a timer", due).await;
    Scene::let_go(held).await;
    tokio::time::timeout(AFTER, async {
        while scene.status(*scene.held.last().expect("one")).await != Status::Runnable {
            due().await;
        }
    })
    .await
    .expect("the others' timers fire, too");
}

async fn reaper(hold: Hold) {
    let scene = Scene::new(hold, Status::Runnable).await;
    let lost = scene.verbs.worker("lost").await;
    scene.claim_all(lost).await;
    scene.verbs.store.deregister(lost).await.expect("a lease ends");
    let held = scene.take_hold().await;
    let reap = async || drop(scene.verbs.store.reap(512, 10).await.expect("a sweep"));
    sweep(&scene, Status::Runnable, "a claim of a dead worker", reap).await;
    Scene::let_go(held).await;
    tokio::time::timeout(AFTER, async {
        while scene.status(*scene.held.last().expect("one")).await != Status::Runnable {
            reap().await;
        }
    })
    .await
    .expect("the others' claims are taken back, too");
}

async fn outcomes(hold: Hold) {
    let scene = Scene::new(hold, Status::AwaitingChildren).await;
    let rows = scene.claim_all(scene.worker).await;
    let held = scene.take_hold().await;
    let outcome = |row: &Claimed| -> Commit {
        let is_free = scene.free.contains(&row.id);
        let spawns = hold == Hold::Key && !is_free;
        let outcome = if spawns { spawn(vec![m().key("held")]) } else { wait_for("go") };
        commit(row, outcome)
    };
    let commits: Vec<_> = rows.iter().map(outcome).collect();
    let receipts = soon("an outcome", hold, scene.verbs.commit(scene.worker, commits.clone())).await;
    let is_free = |commit: &Commit| scene.free.contains(&commit.head.id);
    for (commit, receipt) in commits.iter().zip(&receipts) {
        let expected = if is_free(commit) { "Released" } else { "Busy" };
        assert_eq!(format!("{receipt:?}"), expected, "{commit:?}");
    }
    Scene::let_go(held).await;
    let busy: Vec<_> = commits.into_iter().filter(|commit| !is_free(commit)).collect();
    let receipts = scene.verbs.commit(scene.worker, busy).await;
    assert!(receipts.iter().all(|receipt| matches!(receipt, Receipt::Released)), "{receipts:?}");
}

async fn signal(hold: Hold) {
    let scene = Scene::new(hold, Status::Runnable).await;
    scene.park(&wait_for("go")).await;
    let held = scene.take_hold().await;
    let mut waiting = JoinSet::new();
    for place in 0..WAITING {
        let (verbs, to) = (scene.verbs.clone(), scene.held[place % scene.held.len()]);
        waiting.spawn(async move { verbs.deliver(vec![Target::Id(to)], "go").await });
    }
    for id in &scene.free {
        let answer = soon("a signal", hold, scene.verbs.deliver(vec![Target::Id(*id)], "go")).await;
        assert!(matches!(answer[0], Delivered::Accepted { woke: true, .. }), "{answer:?}");
    }
    Scene::let_go(held).await;
    all_go_on(waiting).await;
}

async fn start(hold: Hold) {
    let scene = Scene::new(hold, Status::Executing).await;
    let held = scene.take_hold().await;
    let go = || NewSignal::new("go", Json::null());
    let wanted = move |place: usize| -> NewInstance {
        match hold {
            Hold::Lane => m().lane("held"),
            Hold::Key => m().key("held"),
            Hold::Instance => m().key("held:0").signal(go()),
            Hold::Instances => m().key(format!("held:{place}")).signal(go()),
        }
    };
    let mut waiting = JoinSet::new();
    for place in 0..WAITING {
        let verbs = scene.verbs.clone();
        waiting.spawn(async move { verbs.insert(vec![wanted(place)]).await });
    }
    for new in [m(), m().lane("another"), m().key("another"), m().key("free").signal(go())] {
        soon("a start", hold, scene.verbs.insert(vec![new])).await;
    }
    Scene::let_go(held).await;
    all_go_on(waiting).await;
}

/// Signals, starts and cancels for what is held, and behind them for others.
async fn mail(hold: Hold) {
    let scene = Scene::new(hold, Status::Runnable).await;
    scene.park(&wait_for("go")).await;
    let store = &scene.verbs.store;
    scene.verbs.insert(vec![m()]).await;
    let sender = scene.verbs.claim(scene.worker, 1).await.remove(0);
    let go = |to: Target| Mail::signal_raw(to, NewSignal::new("go", Json::null()));
    let mut mail: Vec<Mail> = scene.held.iter().map(|id| go(Target::Id(*id))).collect();
    match hold {
        Hold::Lane => mail.push(Mail::start(m().lane("held"))),
        Hold::Key => mail.push(Mail::start(m().key("held"))),
        Hold::Instance | Hold::Instances => mail.push(Mail::cancel("held:0")),
    }
    let for_held = mail.len();
    mail.extend(scene.free.iter().map(|id| go(Target::Id(*id))));
    mail.push(Mail::start(m().key("new").lane("new")));
    let sent = Commit { mail, ..commit(&sender, wait_for("nothing")) };
    scene.verbs.commit(scene.worker, vec![sent]).await;
    let held = scene.take_hold().await;
    let post = async || {
        let due = store.mail_due(128).await.expect("a read").mail;
        let batch = due.iter().map(|piece| Post { id: piece.id, how: Posting::Deliver }).collect();
        drop(store.post(batch, (&Limits::default()).into()).await.expect("a delivery"));
    };
    let is_new = async || store.get("default".to_owned(), "new".into()).await.expect("a read").is_some();
    soon("mail", hold, async {
        while !scene.free_are(Status::Runnable).await || !is_new().await {
            post().await;
        }
    })
    .await;
    let waiting = async || store.mail_of(sender.id, 1_000).await.expect("a read").len();
    assert_eq!(waiting().await, for_held, "what is for those that are held stays");
    Scene::let_go(held).await;
    tokio::time::timeout(AFTER, async {
        while waiting().await > 0 {
            post().await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("they get their mail, too");
    for id in &scene.held {
        assert_ne!(scene.status(*id).await, Status::AwaitingSignal);
    }
}

async fn claim(hold: Hold) {
    let scene = Scene::new(hold, Status::Executing).await;
    let held = scene.take_hold().await;
    let claimed = soon("a claim", hold, scene.verbs.claim(scene.worker, 1_000)).await;
    let claimed: Vec<_> = claimed.iter().map(|row| row.id).collect();
    assert!(scene.free.iter().all(|id| claimed.contains(id)), "{claimed:?}");
    Scene::let_go(held).await;
    let rest = scene.verbs.claim(scene.worker, 1_000).await;
    assert_eq!(claimed.len() + rest.len(), scene.held.len() + scene.free.len());
}

async fn send(hold: Hold) {
    let scene = Scene::new(hold, Status::Runnable).await;
    scene.park(&dispatch("bank", None)).await;
    let taken = scene.verbs.store.outbox("bank".to_owned(), Namespaces::All, 1_000, LONG).await;
    let taken: Vec<Interaction> = taken.expect("an outbox").taken;
    assert_eq!(taken.len(), scene.held.len() + scene.free.len());
    let held = scene.take_hold().await;
    let report = |item: &Interaction| SendReport {
        id: item.id,
        sends: item.sends,
        outcome: SendOutcome::Rejected("no".to_owned()),
    };
    let reports: Vec<_> = taken.iter().map(report).collect();
    let busy =
        soon("what became of a send", hold, scene.verbs.store.sent(reports)).await.expect("notes").value;
    assert_eq!(busy.len(), scene.held.len());
    assert!(scene.free_are(Status::Runnable).await, "each was rejected");
    Scene::let_go(held).await;
    let busy = scene.verbs.store.sent(busy).await.expect("notes").value;
    assert!(busy.is_empty(), "{busy:?}");
}

async fn answer(hold: Hold) {
    let scene = Scene::new(hold, Status::Runnable).await;
    scene.park(&dispatch(INTERACTION_API, None)).await;
    let mut answers = Vec::new();
    for id in scene.held.iter().chain(&scene.free) {
        let unit = scene.verbs.store.unit(*id).await.expect("a read").expect("a unit");
        let item = scene.verbs.store.items(unit.id, 0, 1).await.expect("a read").remove(0);
        let namespace = "default".to_owned();
        let (to, result) = (Which::Id(item.id), Ok(Json::null()));
        answers.push(Completion { namespace, to, result, assignee: None, by: None, proof: None });
    }
    let held = scene.take_hold().await;
    let completed =
        soon("an answer", hold, scene.verbs.store.complete(answers.clone())).await.expect("answers");
    let busy = completed.value.iter().filter(|answer| **answer != Completed::Admitted { woke: true }).count();
    assert_eq!(busy, scene.held.len(), "{completed:?}");
    assert!(scene.free_are(Status::Runnable).await);
    Scene::let_go(held).await;
    let completed = scene.verbs.store.complete(answers).await.expect("answers").value;
    let is_answered =
        |answer: &Completed| matches!(answer, Completed::Admitted { .. } | Completed::Repeat(_));
    assert!(completed.iter().all(is_answered), "{completed:?}");
}

/// As many calls as there are connections, and more, wait for what is held.
async fn heartbeat(hold: Hold) {
    let scene = Scene::new(hold, Status::Executing).await;
    let held = scene.take_hold().await;
    let mut waiting = JoinSet::new();
    for place in 0..WAITING {
        let (verbs, target) = (scene.verbs.clone(), scene.held[place % scene.held.len()].into());
        waiting.spawn(async move {
            match hold {
                Hold::Key => drop(verbs.insert(vec![m().key("held")]).await),
                _ => {
                    let paused = verbs.store.pause("default".to_owned(), target, Brake::On, None).await;
                    paused.map(drop).expect("it is paused in the end");
                }
            }
            Vec::<()>::new()
        });
    }
    for _ in 0..5 {
        let lease = scene.verbs.store.heartbeat(scene.worker, Duration::from_millis(1_500));
        let lease = soon("a heartbeat", hold, lease).await.expect("a heartbeat");
        assert!(matches!(lease, Lease::Held { .. }), "{lease:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let read = scene.verbs.store.get("default".to_owned(), scene.free[0].into());
    soon("a read", hold, read).await.expect("a read");
    Scene::let_go(held).await;
    all_go_on(waiting).await;
}

/// Once nothing is held, whoever waited goes on, too.
async fn all_go_on<T: 'static>(mut waiting: JoinSet<Vec<T>>) {
    let all = async {
        while let Some(done) = waiting.join_next().await {
            done.expect("a call that waited is done");
        }
    };
    tokio::time::timeout(AFTER, all).await.expect("nobody waits any more");
}
