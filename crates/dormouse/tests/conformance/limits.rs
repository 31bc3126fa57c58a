//! Limits: as many of a lane run at a time as its limit lets, whatever happens and whoever asks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::store::{Claim, LimitView, Namespaces, Receipt, Turns};
use dormouse::{Error, InstanceId, LaneChange, Limit, NewInstance, Status, Transition, WIDTH_MAX, WorkerId};

use crate::kit::*;

suite![
    as_many_of_a_lane_run_as_its_limit_lets,
    those_that_go_first_are_the_first_in_line,
    every_outcome_that_lets_go_of_a_place_gives_it_to_the_next,
    one_that_wakes_waits_for_a_place,
    a_limit_of_a_family_holds_for_each_of_its_lanes_by_itself,
    a_lane_with_a_limit_of_its_own_does_not_go_by_its_familys,
    a_limit_is_of_its_namespace,
    a_wider_limit_lets_the_next_run_at_once,
    a_wider_limit_of_a_family_wakes_each_of_many_lanes,
    a_narrower_limit_lets_those_that_run_go_on_to_their_end,
    a_narrower_limit_takes_the_turn_back_from_those_that_are_not_claimed,
    what_a_worker_gives_back_after_a_limit_was_narrowed_waits_in_its_place,
    without_its_limit_a_lane_runs_one_at_a_time,
    a_paused_one_holds_no_place,
    a_place_whose_holder_died_goes_on_with_it,
    a_limit_that_was_there_before_the_lane_counts,
    setting_the_same_limit_again_changes_nothing,
    eight_workers_never_run_more_than_the_limit_and_drain_the_lane,
    engines_never_run_more_than_the_limit_while_it_is_changed,
    limits_are_listed_with_what_is_in_use,
    a_limit_that_lets_nothing_run_or_has_no_name_is_refused,
    one_that_waits_for_a_place_says_for_which_and_who_has_them,
    a_step_goes_to_another_lane_with_its_outcome,
    a_step_leaves_its_lane_with_its_outcome,
    one_that_parks_wakes_in_its_new_lane,
    an_outcome_that_leads_to_its_own_lane_keeps_its_place,
    one_that_changes_its_lane_waits_for_a_place_and_gives_its_own_away,
    steps_of_a_machine_name_their_lanes,
];

async fn as_many_of_a_lane_run_as_its_limit_lets(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", 3).await;
    let lane = lane_of(&kit, "l", 5).await;
    let claimed = kit.claim(worker, 10).await;
    assert_eq!(ids(&claimed), lane[..3]);
    assert!(claim_ids(&kit, worker).await.is_empty());
    assert!(kit.get(lane[3]).await.lane_blocked && !kit.get(lane[2]).await.lane_blocked);
    kit.commit(worker, commit(&claimed[1], done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[3]]);
    kit.commit_many(worker, vec![commit(&claimed[0], done()), commit(&claimed[2], done())]).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[4]], "one that is left of two places");
    let late = kit.insert(m().lane("l")).await;
    assert_eq!(claim_ids(&kit, worker).await, [late], "there is room for one more");
}

async fn those_that_go_first_are_the_first_in_line(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", 2).await;
    let batch = vec![m().lane("l").priority(5), m().lane("l"), m().lane("l").priority(-5), m().lane("l")];
    let lane: Vec<_> = kit.insert_many(batch).await.iter().map(dormouse::Inserted::id).collect();
    let claimed = kit.claim(worker, 10).await;
    assert_eq!(ids(&claimed), [lane[2], lane[1]], "by priority, then in order");
    kit.advance(Duration::from_secs(1));
    let urgent = kit.insert(m().lane("l").priority(-9)).await;
    kit.commit(worker, commit(&claimed[0], done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [urgent]);
    kit.commit(worker, commit(&claimed[1], done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[3]]);
}

async fn every_outcome_that_lets_go_of_a_place_gives_it_to_the_next(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", 2).await;
    let minute = Duration::from_secs(60);
    let outcomes = [
        done(),
        fail("boom"),
        sleep("later", minute),
        replay("start", minute),
        wait_for(&["go"], "later"),
        Transition::Spawn(spawn(vec![NewInstance::named("c", 1, at("start"))], "join")),
    ];
    let lane = lane_of(&kit, "l", outcomes.len() + 2).await;
    let mut holders = kit.claim(worker, 10).await;
    assert_eq!(ids(&holders), lane[..2]);
    for (outcome, next) in outcomes.into_iter().zip(&lane[2..]) {
        kit.commit(worker, commit(&holders.remove(0), outcome)).await;
        let opened = kit.claim(worker, 10).await;
        assert_eq!(ids(&opened), [*next]);
        holders.extend(opened);
    }
    let again = kit.commit(worker, commit(&holders.remove(0), next("second"))).await;
    assert!(matches!(again, Receipt::Released));
    assert_eq!(claim_ids(&kit, worker).await, [lane[lane.len() - 2]], "a next keeps its place");
}

async fn one_that_wakes_waits_for_a_place(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", 2).await;
    let lane = lane_of(&kit, "l", 4).await;
    let parked = kit.claim(worker, 10).await;
    let parks = [sleep("end", Duration::from_secs(60)), wait_for(&["go"], "end")];
    let parks = parked.iter().zip(parks).map(|(row, park)| commit(row, park));
    kit.commit_many(worker, parks.collect()).await;
    let others = kit.claim(worker, 10).await;
    assert_eq!(ids(&others), lane[2..]);
    kit.deliver(lane[1], signal("go")).await;
    kit.advance(Duration::from_secs(60));
    assert_eq!(kit.due().await, 1);
    assert!(claim_ids(&kit, worker).await.is_empty());
    kit.commit_many(worker, others.iter().map(|row| commit(row, done())).collect()).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[1], lane[0]], "in the order in which they woke");
}

async fn a_limit_of_a_family_holds_for_each_of_its_lanes_by_itself(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "partner", 2).await;
    let lanes = [
        "partner/acme",
        "partner/globex",
        "partner",
        "partner/",
        "partner/acme/eu",
        "partners",
        "partner0/x",
    ];
    let mut expected = Vec::new();
    for (lane, width) in lanes.into_iter().zip([2, 2, 2, 2, 2, 1, 1]) {
        expected.extend(lane_of(&kit, lane, 3).await.into_iter().take(width));
    }
    assert_eq!(claim_ids(&kit, worker).await, expected);
}

async fn a_lane_with_a_limit_of_its_own_does_not_go_by_its_familys(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "partner/acme", 1).await;
    limit(&kit, "partner/globex", 4).await;
    limit(&kit, "partner", 2).await;
    let (acme, globex) = (lane_of(&kit, "partner/acme", 5).await, lane_of(&kit, "partner/globex", 5).await);
    let other = lane_of(&kit, "partner/other", 5).await;
    assert_eq!(claim_ids(&kit, worker).await, [&acme[..1], &globex[..4], &other[..2]].concat());
    assert!(kit.client().remove_limit("partner/acme").await.expect("a write"));
    assert_eq!(claim_ids(&kit, worker).await, [acme[1]], "now it goes by its family's");
}

async fn a_limit_is_of_its_namespace(kit: Kit) {
    let worker = kit.worker("w").await;
    let elsewhere = kit.client().in_namespace("elsewhere").expect("a name");
    elsewhere.set_limit("l", Limit::width(5)).await.expect("a limit");
    let here = lane_of(&kit, "l", 3).await;
    let mut there = m().lane("l");
    there.namespace = "elsewhere".to_owned();
    let there: Vec<_> = kit.insert_many(vec![there; 3]).await.iter().map(dormouse::Inserted::id).collect();
    assert_eq!(claim_ids(&kit, worker).await, [&here[..1], &there[..]].concat());
    assert!(kit.client().list_limits().await.expect("a read").is_empty());
    assert!(!kit.client().remove_limit("l").await.expect("a write"), "it is another's");
    assert_eq!(elsewhere.list_limits().await.expect("a read").len(), 1);
}

async fn a_wider_limit_lets_the_next_run_at_once(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, "l", 6).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[..1]);
    let set = kit.store.set_limit("default".to_owned(), "l".to_owned(), Some(Limit::width(3)));
    let written = set.await.expect("a write");
    assert!(!written.value, "it had none before");
    assert!(written.effects.queues.contains("default"), "workers are poked");
    assert_eq!(claim_ids(&kit, worker).await, lane[1..3]);
    limit(&kit, "l", 100).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[3..]);
}

async fn a_wider_limit_of_a_family_wakes_each_of_many_lanes(kit: Kit) {
    const LANES: usize = 600;
    let worker = kit.worker("w").await;
    let pairs = (0..LANES).flat_map(|n| [m().lane(format!("partner/{n}")), m().lane(format!("partner/{n}"))]);
    kit.insert_many(pairs.collect()).await;
    assert_eq!(kit.claim(worker, 10_000).await.len(), LANES);
    limit(&kit, "partner", 2).await;
    assert_eq!(kit.claim(worker, 10_000).await.len(), LANES, "the second of each");
    let view = only(&kit).await;
    assert_eq!((view.lanes, view.more_lanes), (198, true), "the first two hundred names are looked at");
}

async fn a_narrower_limit_lets_those_that_run_go_on_to_their_end(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", 3).await;
    let lane = lane_of(&kit, "l", 6).await;
    let mut running = kit.claim(worker, 10).await;
    assert_eq!(ids(&running), lane[..3]);
    limit(&kit, "l", 1).await;
    let held = kit.commit(worker, hold(&running[0], next("second"))).await;
    assert!(matches!(held, Receipt::Held { .. }), "a step that runs on goes on");
    running.remove(0);
    for row in running {
        kit.commit(worker, commit(&row, done())).await;
        assert!(claim_ids(&kit, worker).await.is_empty(), "the lane is still as full as it may be");
    }
    kit.client().cancel(lane[0]).await.expect("a live instance");
    assert!(claim_ids(&kit, worker).await.is_empty(), "its step still runs");
    limit(&kit, "l", 2).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[3]]);
}

async fn a_narrower_limit_takes_the_turn_back_from_those_that_are_not_claimed(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", 4).await;
    let lane = lane_of(&kit, "l", 6).await;
    let first = kit.claim_one(worker).await;
    limit(&kit, "l", 2).await;
    let second = kit.claim(worker, 10).await;
    assert_eq!(ids(&second), [lane[1]], "one runs, one may");
    for row in [first, second.into_iter().next().expect("a row")] {
        kit.commit(worker, commit(&row, done())).await;
    }
    assert_eq!(drain(&kit).await, lane[2..], "nobody lost its place, and nothing is left behind");
}

async fn what_a_worker_gives_back_after_a_limit_was_narrowed_waits_in_its_place(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", 3).await;
    let lane = lane_of(&kit, "l", 4).await;
    let claimed = kit.claim(worker, 10).await;
    limit(&kit, "l", 1).await;
    let unused = claimed[1..].iter().map(|row| (row.id, row.seq)).collect();
    kit.store.release(worker, unused, dormouse::store::Tried::No).await.expect("they are given back");
    assert!(claim_ids(&kit, worker).await.is_empty(), "the first of them still runs");
    kit.commit(worker, commit(&claimed[0], done())).await;
    assert_eq!(drain(&kit).await, lane[1..]);
}

async fn without_its_limit_a_lane_runs_one_at_a_time(kit: Kit) {
    let worker = kit.worker("w").await;
    let client = kit.client();
    limit(&kit, "l", 3).await;
    let lane = lane_of(&kit, "l", 5).await;
    assert!(client.remove_limit("l").await.expect("a write"));
    assert!(client.list_limits().await.expect("a read").is_empty());
    assert!(!client.remove_limit("l").await.expect("a write"), "it is gone");
    assert_eq!(claim_ids(&kit, worker).await, lane[..1]);
    limit(&kit, "l", 2).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[1]], "it can come back");
}

async fn a_paused_one_holds_no_place(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", 2).await;
    let lane = lane_of(&kit, "l", 4).await;
    kit.client().pause(lane[0]).await.expect("a live instance");
    let claimed = kit.claim(worker, 10).await;
    assert_eq!(ids(&claimed), lane[1..3]);
    kit.client().resume(lane[0]).await.expect("a live instance");
    assert!(claim_ids(&kit, worker).await.is_empty());
    kit.commit(worker, commit(&claimed[0], done())).await;
    assert_eq!(claim_ids(&kit, worker).await, [lane[0]]);
}

async fn a_place_whose_holder_died_goes_on_with_it(kit: Kit) {
    let mortal = kit.worker_with_lease("mortal", Duration::from_secs(1)).await;
    let heir = kit.worker("heir").await;
    limit(&kit, "l", 2).await;
    let lane = lane_of(&kit, "l", 3).await;
    kit.claim(mortal, 10).await;
    kit.advance(Duration::from_secs(2));
    assert!(claim_ids(&kit, heir).await.is_empty(), "not before the reap");
    assert_eq!(kit.reap().await, 2);
    assert_eq!(claim_ids(&kit, heir).await, lane[..2]);
}

async fn a_limit_that_was_there_before_the_lane_counts(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "family", 2).await;
    let parent = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let children = vec![m().lane("family/a"); 3];
    kit.commit(worker, commit(&claimed, Transition::Spawn(spawn(children, "join")))).await;
    assert_eq!(kit.claim(worker, 10).await.len(), 2, "children of one spawn stand in line, too");
    assert_eq!(kit.status(parent).await, Status::AwaitingChildren);
}

async fn setting_the_same_limit_again_changes_nothing(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, "l", 5).await;
    for _ in 0..3 {
        limit(&kit, "l", 2).await;
    }
    assert_eq!(claim_ids(&kit, worker).await, lane[..2]);
    limit(&kit, "l", 2).await;
    assert!(claim_ids(&kit, worker).await.is_empty());
    assert_eq!(kit.client().list_limits().await.expect("a read").len(), 1);
}

async fn eight_workers_never_run_more_than_the_limit_and_drain_the_lane(kit: Kit) {
    const ROWS: usize = 120;
    const WIDTH: usize = 3;
    limit(&kit, "hot", WIDTH as u32).await;
    kit.insert_many(vec![m().lane("hot/x"); ROWS]).await;
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let mut loops = Vec::new();
    for name in 0..8 {
        let worker = kit.worker(&format!("w{name}")).await;
        let (store, running, most, ended) = (kit.store.clone(), running.clone(), most.clone(), ended.clone());
        loops.push(tokio::spawn(async move {
            while ended.load(Ordering::SeqCst) < ROWS {
                let claimed = store.claim(rows(worker, 2)).await.expect("a claim").value;
                if claimed.is_empty() {
                    tokio::task::yield_now().await;
                }
                // A claim may bring two at once, so that more than one runs whatever the workers' timing.
                let now = running.fetch_add(claimed.len(), Ordering::SeqCst) + claimed.len();
                assert!(now <= WIDTH, "{now} of a limit of {WIDTH} run at once");
                most.fetch_max(now, Ordering::SeqCst);
                for row in claimed {
                    tokio::task::yield_now().await;
                    let is_end = row.at.step == "second";
                    ended.fetch_add(usize::from(is_end), Ordering::SeqCst);
                    running.fetch_sub(1, Ordering::SeqCst);
                    let outcome = if is_end { done() } else { next("second") };
                    commit_until_done(&*store, worker, commit(&row, outcome)).await;
                }
            }
        }));
    }
    for claiming in loops {
        tokio::time::timeout(SOON, claiming).await.expect("the lane drains").expect("no panic");
    }
    assert_eq!(kit.stats().await.count(Status::Done), ROWS as u64, "nothing is left blocked");
    assert!(most.load(Ordering::SeqCst) > 1, "it is wider than one");
}

/// Many engines, while the limit is changed without a pause. Whoever runs knows the widest limit that was in force since it
/// was claimed, and at the end the narrow one holds.
async fn engines_never_run_more_than_the_limit_while_it_is_changed(kit: Kit) {
    const ROWS: usize = 200;
    const WIDEST: usize = 4;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let ran = Arc::new(Mutex::new(Vec::new()));
    limit(&kit, "hot", WIDEST as u32).await;
    let mut engines = Vec::new();
    for _ in 0..4 {
        let (running, most, ran) = (running.clone(), most.clone(), ran.clone());
        let machine = Script::named("m", move |_, cx| {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
            ran.lock().expect("no panic").push(cx.id());
            Ok(done())
        });
        engines.push(kit.engine().dyn_machine(machine).start().await.expect("it starts"));
    }
    let started = kit.client().start_many(vec![m().lane("hot/x"); ROWS]).await.expect("a start");
    let all: Vec<_> = started.iter().map(dormouse::Inserted::id).collect();
    while ran.lock().expect("no panic").len() < ROWS / 2 {
        limit(&kit, "hot", fastrand::u32(1..=WIDEST as u32)).await;
    }
    limit(&kit, "hot", 1).await;
    for id in &all {
        kit.until(*id, Status::Done).await;
    }
    for engine in engines {
        engine.shutdown().await;
    }
    assert!(most.load(Ordering::SeqCst) <= WIDEST, "never more than the widest");
    assert_eq!(ran.lock().expect("no panic").len(), ROWS, "each ran once");
}

async fn limits_are_listed_with_what_is_in_use(kit: Kit) {
    let worker = kit.worker("w").await;
    let client = kit.client();
    for (name, width) in [("partner", 2), ("other", 7), ("partner/acme", 1)] {
        limit(&kit, name, width).await;
    }
    kit.advance(Duration::from_secs(5));
    limit(&kit, "other", 8).await;
    for lane in ["partner/acme", "partner/globex", "partner/initech"] {
        lane_of(&kit, lane, 4).await;
    }
    kit.claim(worker, 3).await;
    let listed = client.list_limits().await.expect("a read");
    let told: Vec<_> =
        listed.iter().map(|one| (&*one.name, one.limit.width, one.lanes, one.held, one.waiting)).collect();
    assert_eq!(told, [("other", 8, 0, 0, 0), ("partner", 2, 2, 4, 4), ("partner/acme", 1, 1, 1, 3)]);
    assert!(listed.iter().all(|one| !one.more_lanes));
    assert_eq!(listed[0].changed_at.duration_since(listed[1].changed_at).as_secs(), 5);
    let page = kit.store.limits("default".to_owned(), Some("other".to_owned()), 1).await.expect("a read");
    assert_eq!(page.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["partner"]);
}

async fn a_limit_that_lets_nothing_run_or_has_no_name_is_refused(kit: Kit) {
    let client = kit.client();
    let long = "x".repeat(256);
    for bad in ["", &long, "a\nb", "nul\0"] {
        let refused = client.set_limit(bad, Limit::width(1)).await.expect_err("it is refused");
        assert!(matches!(refused, Error::InvalidName { what: "limit", .. }), "{refused}");
        assert!(client.remove_limit(bad).await.is_err());
    }
    for width in [0, WIDTH_MAX + 1, u32::MAX] {
        let refused = client.set_limit("l", Limit::width(width)).await.expect_err("it is refused");
        assert!(matches!(refused, Error::InvalidLimit { .. }), "{refused}");
    }
    assert!(client.list_limits().await.expect("a read").is_empty(), "nothing was stored");
    limit(&kit, "l", WIDTH_MAX).await;
}

async fn one_that_waits_for_a_place_says_for_which_and_who_has_them(kit: Kit) {
    let client = kit.client();
    limit(&kit, "partner", 3).await;
    let lane = lane_of(&kit, "partner/acme", 4).await;
    let [a, b, c, waits] = lane[..] else { panic!("four") };
    let told = client.explain(waits).await.expect("a read");
    let expected = format!("it waits for a place in limit \"partner/acme\" (3 of 3: #{a}, #{b}, #{c})");
    assert!(told.contains(&format!("{expected}; ")), "and what the first of them waits for: {told}");
    limit(&kit, "partner", 12).await;
    let lane = lane_of(&kit, "partner/acme", 9).await;
    let told = client.explain(lane[8]).await.expect("a read");
    assert!(told.contains("(12 of 12: #") && told.contains(" and 2 more); "), "{told}");
    let alone = client.explain(a).await.expect("a read");
    assert!(!alone.contains("limit"), "one that has its place does not wait for one: {alone}");
}

async fn a_step_goes_to_another_lane_with_its_outcome(kit: Kit) {
    let worker = kit.worker("w").await;
    let (a, b) = (lane_of(&kit, "a", 2).await, lane_of(&kit, "b", 2).await);
    let claimed = kit.claim(worker, 10).await;
    assert_eq!(ids(&claimed), [a[0], b[0]]);
    kit.advance(Duration::from_secs(1));
    let receipt = kit.commit(worker, to_lane(&claimed[0], next("second"), Some("b"))).await;
    assert!(matches!(receipt, Receipt::Released), "a next gives the claim back: {receipt:?}");
    let moved = kit.get(a[0]).await;
    assert_eq!((moved.lane.as_deref(), moved.lane_blocked), (Some("b"), true));
    assert_eq!(claim_ids(&kit, worker).await, [a[1]], "its old lane goes on");
    kit.commit(worker, commit(&claimed[1], done())).await;
    assert_eq!(drain(&kit).await, [b[1], a[0]], "it stands at the end of its new line");
}

async fn a_step_leaves_its_lane_with_its_outcome(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, "l", 2).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, to_lane(&claimed, next("second"), None)).await;
    let left = kit.get(lane[0]).await;
    assert_eq!((left.lane.as_deref(), left.lane_blocked), (None, false));
    let both = kit.claim(worker, 10).await;
    assert_eq!(both.len(), 2, "neither waits for the other");
    let first = both.iter().find(|row| row.id == lane[0]).expect("it runs");
    kit.commit(worker, to_lane(first, next("third"), Some("l"))).await;
    assert!(claim_ids(&kit, worker).await.is_empty(), "it comes back, to the end of the line");
}

async fn one_that_parks_wakes_in_its_new_lane(kit: Kit) {
    let worker = kit.worker("w").await;
    let minute = Duration::from_secs(60);
    let parks = [
        sleep("later", minute),
        replay("start", minute),
        wait_for(&["go"], "later"),
        Transition::Spawn(spawn(vec![], "join")),
    ];
    for (n, park) in parks.into_iter().enumerate() {
        let (from, to) = (format!("from {n}"), format!("to {n}"));
        let (moves, holds) = (kit.insert(m().lane(&from)).await, kit.insert(m().lane(&to)).await);
        let claimed = kit.claim(worker, 10).await;
        kit.commit(worker, to_lane(&claimed[0], park, Some(&to))).await;
        kit.deliver(moves, signal("go")).await;
        kit.advance(minute);
        kit.due().await;
        let woken = kit.get(moves).await;
        assert_eq!((woken.status, woken.lane_blocked), (Status::Runnable, true), "{n}");
        assert!(claim_ids(&kit, worker).await.is_empty(), "another holds its new lane: {n}");
        kit.commit(worker, commit(&claimed[1], done())).await;
        assert_eq!(drain(&kit).await, [moves], "{n}");
        assert_eq!(kit.status(holds).await, Status::Done);
    }
}

async fn an_outcome_that_leads_to_its_own_lane_keeps_its_place(kit: Kit) {
    let worker = kit.worker("w").await;
    let lane = lane_of(&kit, "l", 2).await;
    kit.advance(Duration::from_secs(1));
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, to_lane(&claimed, next("second"), Some("l"))).await;
    assert_eq!(drain(&kit).await, lane);
}

async fn one_that_changes_its_lane_waits_for_a_place_and_gives_its_own_away(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "a", 2).await;
    limit(&kit, "b", 2).await;
    let (a, b) = (lane_of(&kit, "a", 4).await, lane_of(&kit, "b", 1).await);
    let claimed = kit.claim(worker, 10).await;
    assert_eq!(ids(&claimed), [a[0], a[1], b[0]]);
    kit.advance(Duration::from_secs(1));
    let moves = [&claimed[0], &claimed[1]].map(|row| to_lane(row, next("second"), Some("b")));
    kit.commit_many(worker, moves.into()).await;
    let mut open = claim_ids(&kit, worker).await;
    open.sort_unstable();
    assert_eq!(open, [a[0], a[2], a[3]], "both places of a, and the one that was free in b");
    assert!(kit.get(a[1]).await.lane_blocked);
}

/// A machine that calls a partner in the partner's lane, and goes on without one.
struct Caller(Arc<Mutex<Vec<Option<String>>>>, dormouse::Client);

#[derive(serde::Serialize, serde::Deserialize)]
enum Calling {
    Start,
    Call,
    After,
    Bad,
}

impl dormouse::Machine for Caller {
    const NAME: &'static str = "caller";
    type State = Calling;
    type Output = ();

    async fn step(&self, state: Calling, cx: &dormouse::Context) -> dormouse::StepResult<Self> {
        use dormouse::Outcome;
        let lane = self.1.get(cx.id()).await?.expect("it is there").lane;
        self.0.lock().expect("no panic").push(lane);
        Ok(match state {
            Calling::Start => Outcome::next(Calling::Call).lane("partner/acme"),
            Calling::Call => Outcome::next(Calling::After).no_lane(),
            Calling::After => Outcome::done(()),
            Calling::Bad => Outcome::done(()).lane("l"),
        })
    }
}

async fn steps_of_a_machine_name_their_lanes(kit: Kit) {
    let lanes = Arc::new(Mutex::new(Vec::new()));
    let engine = kit.engine().machine(Caller(lanes.clone(), kit.client())).start().await.expect("it starts");
    let client = engine.client();
    let id = client.start::<Caller>(Calling::Start).await.expect("a start");
    kit.until(id, Status::Done).await;
    assert_eq!(*lanes.lock().expect("no panic"), [None, Some("partner/acme".to_owned()), None]);
    let bad = client.start::<Caller>(Calling::Bad).await.expect("a start");
    let failed = kit.until(bad, Status::Failed).await;
    assert!(failed.last_error.is_some_and(|error| error.contains("it ends, and so leaves its lane anyway")));
    engine.shutdown().await;
}

/// A partner that counts who calls it at the same time, and answers when it is let.
#[derive(Clone)]
struct Partner {
    calls: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    answers: Arc<tokio::sync::Semaphore>,
}

impl dormouse::Job for Partner {
    const NAME: &'static str = "call";
    type Input = u32;
    type Output = ();

    async fn run(&self, _: u32, _: &dormouse::Context) -> Result<(), dormouse::BoxError> {
        let now = Calls::begin(self);
        self.most.fetch_max(now.1, Ordering::SeqCst);
        drop(self.answers.acquire().await?);
        Ok(())
    }
}

/// A call under way; a crash hangs up.
struct Calls(Arc<AtomicUsize>, usize);

impl Calls {
    fn begin(partner: &Partner) -> Self {
        Self(partner.calls.clone(), partner.calls.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_holds_in_virtual_time_and_over_a_crash() {
    let partner = Partner {
        calls: Arc::default(),
        most: Arc::default(),
        answers: Arc::new(tokio::sync::Semaphore::new(0)),
    };
    let job = partner.clone();
    let mut test =
        dormouse::testing::TestEngine::start(move |engine| engine.job(job.clone())).await.expect("a kit");
    let client = test.client();
    client.set_limit("partner", Limit::width(3)).await.expect("a limit");
    for n in 0..10 {
        let hour = Duration::from_secs(3600);
        client.start_job::<Partner>(n).lane("partner/acme").start_at(hour).await.expect("a start");
    }
    let until = async |calls: usize| {
        let reached = async {
            while partner.calls.load(Ordering::SeqCst) != calls {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(SOON, reached).await.expect("they call");
    };
    // While somebody calls, the kit does not come to rest.
    let changing = async {
        until(3).await;
        client.set_limit("partner", Limit::width(5)).await.expect("a limit");
        until(5).await;
        client.set_limit("partner", Limit::width(2)).await.expect("a limit");
        partner.answers.add_permits(100);
    };
    let (tally, ()) = tokio::join!(test.advance(Duration::from_secs(3600)), changing);
    assert_eq!(tally.expect("it rests").done, 10);
    assert_eq!(partner.most.load(Ordering::SeqCst), 5, "never more than the widest limit");
    test.crash().await.expect("it starts again");
    assert_eq!(test.client().list_limits().await.expect("a read")[0].limit, Limit::width(2), "a limit stays");
}

async fn limit(kit: &Kit, name: &str, width: u32) {
    kit.client().set_limit(name, Limit::width(width)).await.expect("a limit");
}

/// The only limit.
async fn only(kit: &Kit) -> LimitView {
    let [one] = kit.client().list_limits().await.expect("a read").try_into().expect("one");
    one
}

async fn lane_of(kit: &Kit, lane: &str, rows: usize) -> Vec<InstanceId> {
    kit.insert_many(vec![m().lane(lane); rows]).await.iter().map(dormouse::Inserted::id).collect()
}

async fn claim_ids(kit: &Kit, worker: WorkerId) -> Vec<InstanceId> {
    ids(&kit.claim(worker, 100).await)
}

fn ids(claimed: &[dormouse::store::Claimed]) -> Vec<InstanceId> {
    claimed.iter().map(|row| row.id).collect()
}

fn rows(worker: WorkerId, rows_max: usize) -> Claim {
    let machines = [("m".to_owned(), 1)].into();
    Claim {
        worker,
        queue: "default".to_owned(),
        namespaces: Namespaces::All,
        machines,
        rows_max,
        later_than: None,
        places: usize::MAX,
        after: Turns::default(),
    }
}

/// Commits an outcome, again while another transaction holds its lane.
async fn commit_until_done(
    store: &dyn dormouse::store::Store,
    worker: WorkerId,
    outcome: dormouse::store::Commit,
) {
    loop {
        let receipts = store.commit(worker, [outcome.clone()].into()).await.expect("a commit").value;
        match receipts[..] {
            [Receipt::Busy] => tokio::task::yield_now().await,
            [Receipt::Released] => return,
            ref other => panic!("{other:?}"),
        }
    }
}

/// A commit that leads to another lane, or out of its lane.
fn to_lane(
    row: &dormouse::store::Claimed,
    outcome: Transition,
    lane: Option<&str>,
) -> dormouse::store::Commit {
    let lane = lane.map_or(LaneChange::Leave, |lane| LaneChange::To(lane.to_owned()));
    dormouse::store::Commit { lane: Some(lane), ..hold(row, outcome) }
}

/// A commit that keeps its claim.
fn hold(row: &dormouse::store::Claimed, outcome: Transition) -> dormouse::store::Commit {
    dormouse::store::Commit { hold: dormouse::store::Hold::Keep, ..commit(row, outcome) }
}

/// Runs whatever can run to its end, one after the other.
async fn drain(kit: &Kit) -> Vec<InstanceId> {
    let worker = kit.worker("drain").await;
    let mut ran = Vec::new();
    while let Some(claimed) = kit.claim(worker, 1).await.pop() {
        kit.commit(worker, commit(&claimed, done())).await;
        ran.push(claimed.id);
    }
    ran
}
