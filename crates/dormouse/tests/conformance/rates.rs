//! Limits by rate: no more steps of a lane start in any stretch of time than its bucket holds and is filled with meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::store::{Claim, Claimed, Namespaces, Starts, Tried, Turns};
use dormouse::{Error, InstanceId, Limit, RATE_MAX, Rate, Status, WorkerId};
use jiff::Timestamp;

use crate::kit::*;

suite![
    no_more_start_than_the_bucket_holds,
    those_that_wait_are_woken_at_their_moment_and_not_before,
    a_rate_alone_lets_any_number_run_at_a_time,
    a_lane_of_width_one_with_a_rate_keeps_its_order,
    a_rate_of_a_family_holds_for_each_of_its_lanes_by_itself,
    a_backlog_that_piled_up_while_workers_were_away_starts_at_the_rate,
    what_could_be_claimed_while_workers_were_away_is_no_more_than_the_bucket,
    workers_that_claim_at_random_never_start_too_many,
    a_start_may_cost_more_than_one,
    a_cost_over_the_burst_is_refused_and_takes_all_if_the_burst_was_made_smaller,
    a_claim_that_is_given_back_has_cost_its_start,
    a_claim_that_a_dead_worker_held_has_cost_its_start,
    a_step_that_goes_on_in_its_lane_is_another_start,
    one_that_wakes_waits_for_its_turn,
    a_faster_rate_lets_the_next_start_sooner,
    a_slower_rate_counts_what_was_started_before,
    a_rate_that_is_set_while_rows_wait_holds_at_once,
    without_its_limit_a_lane_runs_one_at_a_time_and_at_any_rate,
    a_clock_that_was_turned_back_holds_nobody_up_for_longer_than_one_start,
    a_clock_that_jumped_ahead_fills_the_bucket_and_no_more,
    rows_without_a_place_are_held_back_unless_the_bucket_is_large,
    a_throttled_lane_does_not_keep_others_from_being_claimed,
    one_that_is_throttled_says_when_its_turn_is,
    limits_are_listed_with_their_rates,
    a_rate_that_lets_nothing_start_or_is_beyond_its_bounds_is_refused,
    engines_never_start_more_than_the_rate_at_the_partner,
    a_paused_one_takes_nobodys_turn,
];

const TENTH: Duration = Duration::from_millis(100);

async fn no_more_start_than_the_bucket_holds(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(3))).await;
    let lane = lane_of(&kit, "l", 6).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[..3], "the burst");
    assert!(claim_ids(&kit, worker).await.is_empty());
    assert!(kit.get(lane[3]).await.lane_blocked, "it is not in the index that claims walk");
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[3]]);
    assert_eq!(next_at(&kit, worker, TENTH / 2).await, []);
    assert_eq!(next_at(&kit, worker, TENTH / 2).await, [lane[4]]);
    assert_eq!(next_at(&kit, worker, 5 * TENTH).await, [lane[5]]);
    let late = lane_of(&kit, "l", 5).await;
    assert_eq!(claim_ids(&kit, worker).await, late[..2], "the bucket has filled meanwhile");
}

async fn those_that_wait_are_woken_at_their_moment_and_not_before(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_minute(1))).await;
    let lane = lane_of(&kit, "l", 3).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[..1]);
    let minute = Duration::from_secs(60);
    let moment = kit.now() + minute;
    let due = kit.store.due(10).await.expect("a sweep");
    assert_eq!(due.value.next, Some(moment), "nobody polls for it");
    assert_eq!(kit.store.stats(None).await.expect("a read").next_wake_at, Some(moment));
    kit.advance(minute - Duration::from_micros(1));
    assert_eq!(kit.store.due(10).await.expect("a sweep").value.next, Some(moment));
    assert!(claim_ids(&kit, worker).await.is_empty());
    kit.advance(Duration::from_micros(1));
    let due = kit.store.due(10).await.expect("a sweep");
    assert!(due.effects.queues.contains("default"), "its workers are poked");
    assert_eq!(claim_ids(&kit, worker).await, lane[1..2]);
    assert_eq!(kit.story(lane[1]).await.len(), 1, "to wait for a turn is no transition");
}

async fn a_rate_alone_lets_any_number_run_at_a_time(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(2))).await;
    let lane = lane_of(&kit, "l", 30).await;
    let mut running = claim_ids(&kit, worker).await;
    for _ in 0..28 {
        running.extend(next_at(&kit, worker, TENTH).await);
    }
    assert_eq!(running, lane, "none of them has ended");
}

async fn a_lane_of_width_one_with_a_rate_keeps_its_order(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::width(1).and_rate(Rate::per_second(10).burst(2))).await;
    let lane = lane_of(&kit, "l", 5).await;
    let mut ran = Vec::new();
    let mut starts = Vec::new();
    while ran.len() < 5 {
        for row in kit.claim(worker, 10).await {
            starts.push((kit.now(), 1));
            assert!(kit.claim(worker, 10).await.is_empty(), "one at a time");
            ran.push(row.id);
            kit.commit(worker, commit(&row, done())).await;
        }
        kit.advance(TENTH / 4);
        kit.due().await;
    }
    assert_eq!(ran, lane);
    assert_allowed(&starts, Rate::per_second(10).burst(2));
}

async fn a_rate_of_a_family_holds_for_each_of_its_lanes_by_itself(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "partner", Limit::rate(Rate::per_second(10).burst(2))).await;
    limit(&kit, "partner/slow", Limit::rate(Rate::per_second(1))).await;
    let (acme, globex) = (lane_of(&kit, "partner/acme", 5).await, lane_of(&kit, "partner/globex", 5).await);
    let slow = lane_of(&kit, "partner/slow", 5).await;
    assert_eq!(claim_ids(&kit, worker).await, [&acme[..2], &globex[..2], &slow[..1]].concat());
    assert_eq!(next_at(&kit, worker, TENTH).await, [acme[2], globex[2]]);
    assert_eq!(next_at(&kit, worker, 9 * TENTH).await, [&acme[3..], &globex[3..], &slow[1..2]].concat());
}

async fn a_backlog_that_piled_up_while_workers_were_away_starts_at_the_rate(kit: Kit) {
    let worker = kit.worker("w").await;
    let rate = Rate::per_second(10).burst(5);
    limit(&kit, "l", Limit::rate(rate)).await;
    let mut starts = Vec::new();
    start_all(&kit, worker, &mut starts).await;
    for _ in 0..20 {
        lane_of(&kit, "l", 5).await;
        kit.advance(Duration::from_secs(3));
    }
    while starts.len() < 100 {
        start_all(&kit, worker, &mut starts).await;
        kit.due().await;
        start_all(&kit, worker, &mut starts).await;
        kit.advance(Duration::from_millis(33));
    }
    assert_allowed(&starts, rate);
    let took = starts[99].0.duration_since(starts[0].0);
    let least = Duration::from_millis(9_500);
    assert!(took.unsigned_abs() < least + Duration::from_millis(500), "nor does it start fewer: {took:?}");
}

async fn what_could_be_claimed_while_workers_were_away_is_no_more_than_the_bucket(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(4))).await;
    let lane = lane_of(&kit, "l", 50).await;
    // Timers of others go on.
    let mut wakes = 0;
    for _ in 0..100 {
        kit.advance(TENTH);
        wakes += usize::from(kit.store.due(10).await.expect("a sweep").value.next.is_some());
    }
    assert_eq!(wakes, 0, "nobody claims, so nobody looks at the lane again and again");
    assert_eq!(claim_ids(&kit, worker).await, lane[..4]);
    assert_eq!(next_at(&kit, worker, TENTH).await, lane[4..5]);
    assert_eq!(next_at(&kit, worker, TENTH).await, lane[5..6]);
}

async fn workers_that_claim_at_random_never_start_too_many(kit: Kit) {
    let rate = Rate::per_second(20).burst(3);
    for (round, seed) in (0..2).enumerate() {
        let lane = format!("l{round}");
        let width = if round % 2 == 0 { 10_000 } else { 3 };
        limit(&kit, &lane, Limit::width(width).and_rate(rate)).await;
        let workers = [kit.worker("one").await, kit.worker("two").await];
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut starts, mut running) = (Vec::new(), Vec::new());
        lane_of(&kit, &lane, 40).await;
        for _ in 0..700 {
            match random.u8(0..8) {
                0 => drop(kit.due().await),
                1 => kit.advance(Duration::from_millis(random.u64(0..80))),
                2 | 3 => {
                    let worker = workers[random.usize(..2)];
                    let claimed = kit.claim(worker, random.usize(1..5)).await;
                    starts.extend(claimed.iter().map(|_| (kit.now(), 1)));
                    running.extend(claimed.into_iter().map(|row| (worker, row)));
                }
                4 if !running.is_empty() => {
                    let (worker, row) = running.swap_remove(random.usize(..running.len()));
                    kit.store.release(worker, vec![(row.id, row.seq)], Tried::No).await.expect("given back");
                }
                _ if !running.is_empty() => {
                    let (worker, row) = running.swap_remove(random.usize(..running.len()));
                    let outcome = if random.u8(0..4) == 0 { next("again") } else { done() };
                    kit.commit(worker, commit(&row, outcome)).await;
                }
                _ => {}
            }
        }
        for (worker, row) in running {
            kit.commit(worker, commit(&row, done())).await;
        }
        assert_allowed(&starts, rate);
        assert!(starts.len() > 20, "{} of seed {seed}", starts.len());
        // Nothing is left behind.
        let mut drained = Vec::new();
        for _ in 0..120 {
            kit.advance(Duration::from_millis(50));
            kit.due().await;
            for row in kit.claim(workers[0], 10).await {
                drained.push((kit.now(), 1));
                kit.commit(workers[0], commit(&row, done())).await;
            }
        }
        assert_eq!(kit.store.stats(None).await.expect("a read").count(Status::Runnable), 0, "seed {seed}");
    }
}

async fn a_start_may_cost_more_than_one(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(5))).await;
    let mut lane = Vec::new();
    for cost in [3, 3, 1, 1] {
        lane.push(kit.insert(m().lane("l").cost(cost)).await);
    }
    assert_eq!(kit.get(lane[0]).await.cost, 3);
    assert_eq!(claim_ids(&kit, worker).await, lane[..1], "two are left, and the next costs three");
    assert_eq!(next_at(&kit, worker, TENTH / 2).await, [], "the lane keeps its order: those behind it wait");
    assert_eq!(next_at(&kit, worker, TENTH / 2).await, [lane[1]]);
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[2]]);
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[3]]);
}

async fn a_cost_over_the_burst_is_refused_and_takes_all_if_the_burst_was_made_smaller(kit: Kit) {
    let worker = kit.worker("w").await;
    let client = kit.client();
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(5))).await;
    for (cost, told) in
        [(0, "a cost of 0"), (RATE_MAX + 1, "a cost of 1000001"), (6, "more than the burst of 5")]
    {
        let new = m().lane("l/eu").cost(cost).even_if_unknown();
        let refused = client.start_many([new]).await.expect_err("it is refused");
        assert!(
            matches!(refused, Error::InvalidLimit { .. }) && refused.to_string().contains(told),
            "{refused}"
        );
    }
    assert_eq!(kit.store.stats(None).await.expect("a read").instances.len(), 0, "nothing was stored");
    client
        .start_many([m().lane("other").cost(6).even_if_unknown()])
        .await
        .expect("a lane without a rate takes any");
    kit.claim(worker, 1).await;
    let dear = kit.insert(m().lane("l").cost(5)).await;
    let cheap = kit.insert(m().lane("l")).await;
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(2))).await;
    assert_eq!(claim_ids(&kit, worker).await, [dear], "it takes all that the bucket holds");
    assert_eq!(next_at(&kit, worker, TENTH).await, [cheap]);
}

async fn a_claim_that_is_given_back_has_cost_its_start(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(2))).await;
    let lane = lane_of(&kit, "l", 3).await;
    let claimed = kit.claim(worker, 10).await;
    assert_eq!(ids(&claimed), lane[..2]);
    let given_back = vec![(claimed[0].id, claimed[0].seq)];
    kit.store.release(worker, given_back, Tried::No).await.expect("it is given back");
    assert!(claim_ids(&kit, worker).await.is_empty(), "its start is spent: nobody knows whether it ran");
    assert!(kit.get(lane[0]).await.lane_blocked, "it waits for another");
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[0]], "in its old place");
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[2]]);
}

async fn a_claim_that_a_dead_worker_held_has_cost_its_start(kit: Kit) {
    let worker = kit.worker_with_lease("dies", Duration::from_secs(10)).await;
    let rate = Rate::new(1, Duration::from_secs(30));
    limit(&kit, "l", Limit::rate(rate)).await;
    let lane = lane_of(&kit, "l", 2).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[..1]);
    kit.advance(Duration::from_secs(11));
    assert_eq!(kit.reap().await, 1);
    let other = kit.worker("other").await;
    assert!(claim_ids(&kit, other).await.is_empty());
    assert_eq!(next_at(&kit, other, Duration::from_secs(19)).await, lane[..1]);
    assert_eq!(next_at(&kit, other, Duration::from_secs(30)).await, lane[1..]);
}

async fn a_step_that_goes_on_in_its_lane_is_another_start(kit: Kit) {
    let starts = Arc::new(Mutex::new(Vec::new()));
    let (rate, noted) = (Rate::per_second(10).burst(2), starts.clone());
    limit(&kit, "l", Limit::rate(rate)).await;
    let engine = kit
        .run(move |at, cx| {
            noted.lock().expect("no panic").push((cx.now(), 1));
            Ok(match at.step.as_ref() {
                "start" => next("second"),
                "second" => next("third"),
                _ => done(),
            })
        })
        .await;
    let id = kit.insert(m().lane("l")).await;
    tick_until(&kit, &[id]).await;
    engine.shutdown().await;
    let starts = starts.lock().expect("no panic").clone();
    assert_eq!(starts.len(), 3);
    assert_allowed(&starts, rate);
}

async fn one_that_wakes_waits_for_its_turn(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_second(1).burst(2))).await;
    let lane = lane_of(&kit, "l", 2).await;
    for row in kit.claim(worker, 10).await {
        kit.commit(worker, commit(&row, wait_for(&["go"], "later"))).await;
    }
    for id in &lane {
        kit.deliver(*id, signal("go")).await;
    }
    assert!(claim_ids(&kit, worker).await.is_empty());
    assert_eq!(next_at(&kit, worker, 10 * TENTH).await, lane[..1]);
    assert_eq!(next_at(&kit, worker, 10 * TENTH).await, lane[1..]);
}

async fn a_faster_rate_lets_the_next_start_sooner(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_minute(1).burst(2))).await;
    let lane = lane_of(&kit, "l", 8).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[..2]);
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(2))).await;
    assert!(claim_ids(&kit, worker).await.is_empty(), "the bucket is as empty as before");
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[2]]);
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(4))).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[3..5], "a larger bucket has room for two more");
    limit(&kit, "l", Limit::width(10_000)).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[5..], "at any rate");
}

async fn a_slower_rate_counts_what_was_started_before(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(3))).await;
    let lane = lane_of(&kit, "l", 4).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[..3]);
    limit(&kit, "l", Limit::rate(Rate::per_second(1).burst(3))).await;
    assert_eq!(next_at(&kit, worker, 9 * TENTH).await, []);
    assert_eq!(next_at(&kit, worker, TENTH).await, lane[3..]);
}

async fn a_rate_that_is_set_while_rows_wait_holds_at_once(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::width(10)).await;
    let lane = lane_of(&kit, "l", 20).await;
    limit(&kit, "l", Limit::width(10).and_rate(Rate::per_second(10).burst(3))).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[..3], "ten could have been claimed");
    assert!(claim_ids(&kit, worker).await.is_empty());
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[3]]);
}

async fn without_its_limit_a_lane_runs_one_at_a_time_and_at_any_rate(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_minute(1))).await;
    let lane = lane_of(&kit, "l", 3).await;
    let first = kit.claim_one(worker).await;
    assert!(kit.client().remove_limit("l").await.expect("a write"));
    assert!(claim_ids(&kit, worker).await.is_empty(), "one runs");
    kit.commit(worker, commit(&first, done())).await;
    let second = kit.claim_one(worker).await;
    kit.commit(worker, commit(&second, done())).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[2..]);
}

async fn a_clock_that_was_turned_back_holds_nobody_up_for_longer_than_one_start(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(3))).await;
    let lane = lane_of(&kit, "l", 6).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[..3]);
    kit.turn_back(Duration::from_secs(3600));
    kit.due().await;
    assert!(claim_ids(&kit, worker).await.is_empty(), "what was started was started");
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[3]]);
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[4]]);
}

async fn a_clock_that_jumped_ahead_fills_the_bucket_and_no_more(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_second(10).burst(3))).await;
    let lane = lane_of(&kit, "l", 20).await;
    assert_eq!(claim_ids(&kit, worker).await, lane[..3]);
    assert_eq!(next_at(&kit, worker, Duration::from_secs(86_400)).await, lane[3..6]);
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[6]]);
}

async fn rows_without_a_place_are_held_back_unless_the_bucket_is_large(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "tight", Limit::rate(Rate::per_second(10).burst(3))).await;
    let tight = lane_of(&kit, "tight", 3).await;
    let free = kit.insert(m()).await;
    let claim = |places| Claim {
        worker,
        queue: "default".to_owned(),
        namespaces: Namespaces::All,
        machines: [("m".to_owned(), 1)].into(),
        after: Turns::default(),
        later_than: None,
        rows_max: 10,
        places,
    };
    let claimed = kit.store.claim(claim(0)).await.expect("a claim");
    assert_eq!(ids(&claimed.value), [free], "one that is not counted may wait for its place");
    assert!(claimed.effects.held_back, "the others are to be claimed when there are places");
    let claimed = kit.store.claim(claim(2)).await.expect("a claim");
    assert_eq!(ids(&claimed.value), tight[..2]);
    assert!(claimed.value.iter().all(|row| row.starts == Starts::Now) && claimed.effects.held_back);
    let claimed = kit.store.claim(claim(9)).await.expect("a claim");
    assert!(ids(&claimed.value) == tight[2..] && !claimed.effects.held_back);
    limit(&kit, "large", Limit::rate(Rate::per_second(1000).burst(2000))).await;
    let large = lane_of(&kit, "large", 8).await;
    let claimed = kit.store.claim(claim(3)).await.expect("a claim");
    assert!(ids(&claimed.value) == large && !claimed.effects.held_back);
    let ahead = claimed.value.iter().filter(|row| row.starts == Starts::Ahead).count();
    assert_eq!(ahead, 5, "they may start a little later");
}

async fn a_throttled_lane_does_not_keep_others_from_being_claimed(kit: Kit) {
    let worker = kit.worker("w").await;
    limit(&kit, "l", Limit::rate(Rate::per_minute(1))).await;
    let lane = lane_of(&kit, "l", 300).await;
    let others = lane_of(&kit, "other", 1).await;
    assert_eq!(ids(&kit.claim(worker, 2).await), [lane[0], others[0]]);
    assert!(claim_ids(&kit, worker).await.is_empty());
}

async fn one_that_is_throttled_says_when_its_turn_is(kit: Kit) {
    let (worker, client) = (kit.worker("w").await, kit.client());
    limit(&kit, "stripe", Limit::width(3).and_rate(Rate::per_second(5).burst(2))).await;
    let lane = lane_of(&kit, "stripe", 5).await;
    let claimed = kit.claim(worker, 10).await;
    assert_eq!(ids(&claimed), lane[..2]);
    let explain = async |id| client.explain(id).await.expect("a read");
    for (id, wait_ms) in [(lane[2], 200), (lane[3], 400), (lane[4], 600)] {
        let at = kit.now() + Duration::from_millis(wait_ms);
        let at = at.round(jiff::Unit::Millisecond).expect("a moment");
        let told = explain(id).await;
        assert!(told.contains("its turn in limit \"stripe\" is at "), "{told}");
        let stands = told.split([' ', ';']).find_map(|word| word.parse::<Timestamp>().ok());
        let stands = stands.unwrap_or_else(|| panic!("a moment: {told}"));
        let off = stands.duration_since(at).unsigned_abs();
        assert!(off <= Duration::from_millis(50), "{told}, but {at}");
    }
    kit.advance(2 * TENTH);
    kit.due().await;
    let told = explain(lane[3]).await;
    assert!(told.contains("waits for a place in limit \"stripe\" (3 of 3: "), "{told}");
}

async fn limits_are_listed_with_their_rates(kit: Kit) {
    let client = kit.client();
    let limits = [
        ("a", Limit::width(3)),
        ("b", Limit::rate(Rate::per_minute(7).burst(3))),
        ("c", Limit::width(1).and_rate(Rate::new(RATE_MAX, Duration::from_millis(1)).burst(RATE_MAX))),
    ];
    for (name, set) in limits {
        limit(&kit, name, set).await;
    }
    let listed = client.list_limits().await.expect("a read");
    let listed: Vec<_> = listed.iter().map(|view| (view.name.as_str(), view.limit)).collect();
    assert_eq!(listed, limits);
    limit(&kit, "b", Limit::width(2)).await;
    assert_eq!(client.list_limits().await.expect("a read")[1].limit, Limit::width(2), "its rate is gone");
}

async fn a_rate_that_lets_nothing_start_or_is_beyond_its_bounds_is_refused(kit: Kit) {
    let client = kit.client();
    let second = Duration::from_secs(1);
    for rate in [
        Rate::per_second(0),
        Rate::per_second(RATE_MAX + 1),
        Rate::new(1, Duration::ZERO),
        Rate::new(1, Duration::MAX),
        Rate::new(1, second).burst(0),
        Rate::new(1, second).burst(RATE_MAX + 1),
    ] {
        let refused = client.set_limit("l", Limit::rate(rate)).await.expect_err("it is refused");
        assert!(matches!(refused, Error::InvalidLimit { .. }), "{refused}");
    }
    let refused = client.set_limit("a\u{7}b", Limit::rate(Rate::per_second(1))).await;
    assert!(matches!(refused, Err(Error::InvalidName { what: "limit", .. })), "{refused:?}");
    assert!(client.list_limits().await.expect("a read").is_empty(), "nothing was stored");
}

async fn engines_never_start_more_than_the_rate_at_the_partner(kit: Kit) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let rate = Rate::per_second(10).burst(4);
    limit(&kit, "partner", Limit::rate(rate)).await;
    let engine = async |name: &str| {
        let calls = calls.clone();
        let step = move |_: &dormouse::At, cx: &dormouse::Context| {
            calls.lock().expect("no panic").push((cx.id(), cx.now()));
            Ok(done())
        };
        let machine = Script::named("m", step);
        kit.engine()
            .worker_name(name)
            .queue("default", 2)
            .dyn_machine(machine)
            .start()
            .await
            .expect("it starts")
    };
    let first = engine("one").await;
    let mut ids: Vec<_> = lane_of(&kit, "partner/acme", 12).await;
    tick_until(&kit, &ids[..2]).await;
    first.shutdown().await;
    let (one, two) = (engine("one").await, engine("two").await);
    ids.extend(lane_of(&kit, "partner/acme", 12).await);
    kit.insert_many(vec![m(); 50]).await;
    tick_until(&kit, &ids).await;
    one.shutdown().await;
    two.shutdown().await;
    let calls = calls.lock().expect("no panic").clone();
    assert_eq!(calls.len(), 24 + 50);
    let mut limited: Vec<_> =
        calls.iter().filter(|(id, _)| ids.contains(id)).map(|(_, at)| (*at, 1)).collect();
    limited.sort_unstable();
    assert_allowed(&limited, rate);
}

async fn a_paused_one_takes_nobodys_turn(kit: Kit) {
    let (worker, client) = (kit.worker("w").await, kit.client());
    limit(&kit, "l", Limit::rate(Rate::per_second(10))).await;
    let lane = lane_of(&kit, "l", 3).await;
    client.pause(lane[0]).await.expect("a brake");
    client.pause(lane[1]).await.expect("a brake");
    assert_eq!(claim_ids(&kit, worker).await, [lane[2]]);
    client.resume(lane[0]).await.expect("no brake");
    assert_eq!(next_at(&kit, worker, TENTH).await, [lane[0]]);
    client.cancel(lane[1]).await.expect("a cancel");
    assert_eq!(next_at(&kit, worker, TENTH).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_holds_in_virtual_time_and_over_a_crash() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let job = Calls(calls.clone());
    let mut test =
        dormouse::testing::TestEngine::start(move |engine| engine.job(job.clone())).await.expect("a kit");
    let (client, rate) = (test.client(), Rate::per_minute(2).burst(3));
    client.set_limit("partner", Limit::rate(rate)).await.expect("a limit");
    for n in 0..9 {
        client.start_job::<Calls>(n).lane("partner/acme").await.expect("a start");
    }
    assert_eq!(test.drain().await.expect("it rests").done, 3, "the burst");
    assert_eq!(test.advance(Duration::from_secs(60)).await.expect("it rests").done, 5);
    test.crash().await.expect("it starts again");
    assert_eq!(test.drain().await.expect("it rests").done, 5, "a restart fills no bucket");
    assert_eq!(test.advance(Duration::from_secs(120)).await.expect("it rests").done, 9);
    assert_allowed(&calls.lock().expect("no panic"), rate);
}

#[derive(Clone)]
struct Calls(Arc<Mutex<Vec<(Timestamp, u32)>>>);

impl dormouse::Job for Calls {
    const NAME: &'static str = "call";
    type Input = u32;
    type Output = ();

    async fn run(&self, _: u32, cx: &dormouse::Context) -> Result<(), dormouse::BoxError> {
        self.0.lock().expect("no panic").push((cx.now(), 1));
        Ok(())
    }
}

async fn limit(kit: &Kit, name: &str, limit: Limit) {
    kit.client().set_limit(name, limit).await.expect("a limit");
}

async fn lane_of(kit: &Kit, lane: &str, rows: usize) -> Vec<InstanceId> {
    kit.insert_many(vec![m().lane(lane); rows]).await.iter().map(dormouse::Inserted::id).collect()
}

fn ids(claimed: &[Claimed]) -> Vec<InstanceId> {
    claimed.iter().map(|row| row.id).collect()
}

async fn claim_ids(kit: &Kit, worker: WorkerId) -> Vec<InstanceId> {
    ids(&kit.claim(worker, 100).await)
}

/// What can be claimed after so long.
async fn next_at(kit: &Kit, worker: WorkerId, after: Duration) -> Vec<InstanceId> {
    kit.advance(after);
    kit.due().await;
    claim_ids(kit, worker).await
}

/// Starts and ends all that can be claimed.
async fn start_all(kit: &Kit, worker: WorkerId, starts: &mut Vec<(Timestamp, u32)>) {
    for row in kit.claim(worker, 100).await {
        starts.push((kit.now(), 1));
        kit.commit(worker, commit(&row, done())).await;
    }
}

/// Moves the clock on in small steps until these are done.
async fn tick_until(kit: &Kit, ids: &[InstanceId]) {
    let all = async {
        for id in ids {
            while kit.status(*id).await != Status::Done {
                kit.advance(Duration::from_millis(7));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    tokio::time::timeout(SOON, all).await.expect("they are done");
}

/// In every stretch of time, what started is no more than the bucket allows.
fn assert_allowed(starts: &[(Timestamp, u32)], rate: Rate) {
    let interval = rate.period.as_nanos() / u128::from(rate.count);
    for (first, (from, _)) in starts.iter().enumerate() {
        let mut count = 0;
        for (to, cost) in &starts[first..] {
            count += u128::from(*cost);
            let filled = to.duration_since(*from).unsigned_abs().as_nanos() / interval;
            let allowed = u128::from(rate.burst) + filled;
            assert!(count <= allowed, "{count} from {from} to {to}, allowed are {allowed}");
        }
    }
}
