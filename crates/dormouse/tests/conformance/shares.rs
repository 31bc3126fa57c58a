//! Shares: no tenant starves another. Work of one queue and priority is served by turns of its shares.

use std::sync::{Arc, Mutex};

use dormouse::store::{Brake, Claim, Filter, Namespaces, Turns};
use dormouse::testing::TestEngine;
use dormouse::{Error, Instance, InstanceId, NewInstance, ShareWeight, Status, Transition, WorkerId};
use tokio::sync::Semaphore;

use crate::kit::*;
use crate::slow::Slow;

suite![
    a_single_row_beside_a_flood_is_claimed_within_one_round,
    within_a_share_rows_are_claimed_in_order,
    a_claim_goes_on_where_the_one_before_stopped,
    the_namespace_is_the_share_unless_another_is_named,
    shares_of_one_name_in_two_namespaces_are_two,
    a_share_is_served_as_many_rows_as_it_weighs_in_each_turn,
    a_weight_that_is_changed_counts_for_rows_that_wait_already,
    a_turn_that_a_claim_cut_short_is_completed_by_the_next,
    a_more_urgent_priority_goes_first_whatever_its_share,
    turns_are_kept_for_each_priority,
    an_engine_whose_priorities_age_serves_later_ones_beside_a_flood_of_urgent_work,
    priorities_that_leave_urgent_work_nothing_are_refused,
    a_share_counts_its_rows_of_all_machines_together,
    a_worker_of_some_namespaces_serves_their_shares_by_turns,
    a_paused_queue_is_passed_over_with_all_its_shares,
    rows_that_cannot_run_take_no_turns,
    a_row_that_wakes_waits_for_the_turn_of_its_share,
    claims_at_the_same_time_leave_nothing_behind,
    children_are_in_the_share_of_their_parent_unless_they_name_another,
    a_fork_and_a_retry_keep_the_share,
    an_engine_starts_a_strangers_job_beside_a_flood_after_one_turn_of_it,
    names_and_weights_that_cannot_be_used_are_refused_and_nothing_is_stored,
    weights_are_listed_and_a_weight_of_one_is_forgotten,
    explain_says_how_many_turns_a_share_has_before_a_row,
];

fn of(share: &str) -> NewInstance {
    m().share(share)
}

fn within(namespace: &str, mut new: NewInstance) -> NewInstance {
    namespace.clone_into(&mut new.namespace);
    new
}

/// A worker that claims again and again.
struct Claimer<'a> {
    kit: &'a Kit,
    worker: WorkerId,
    namespaces: Namespaces,
    machines: Arc<[(String, u32)]>,
    turns: Turns,
}

impl<'a> Claimer<'a> {
    async fn new(kit: &'a Kit) -> Self {
        let machines = [("m".to_owned(), 1)].into();
        let worker = kit.worker("w").await;
        Self { kit, worker, namespaces: Namespaces::All, machines, turns: Turns::default() }
    }

    async fn claim(&mut self, rows_max: usize) -> Vec<InstanceId> {
        let Self { worker, namespaces, machines, turns, .. } = self;
        let (queue, after) = ("default".to_owned(), turns.clone());
        let (namespaces, machines) = (namespaces.clone(), machines.clone());
        let claim = Claim {
            worker: *worker,
            queue,
            namespaces,
            machines,
            after,
            later_than: None,
            places: usize::MAX,
            rows_max,
        };
        let claimed = self.kit.take(claim).await;
        claimed.iter().for_each(|row| self.turns.served(&row.turn));
        claimed.iter().map(|row| row.id).collect()
    }

    /// Whose rows the next claims take, one letter for each: the last one of its share, or of its namespace.
    async fn served(&mut self, claims: &[usize]) -> String {
        let mut served = Vec::new();
        for rows_max in claims {
            let mut letters = String::new();
            for id in self.claim(*rows_max).await {
                let Instance { share, namespace, .. } = self.kit.get(id).await;
                letters.extend(share.unwrap_or(namespace).chars().last());
            }
            served.push(letters);
        }
        served.join(" ")
    }
}

async fn a_single_row_beside_a_flood_is_claimed_within_one_round(kit: Kit) {
    kit.insert_many(vec![of("flood"); 500]).await;
    let mut claimer = Claimer::new(&kit).await;
    claimer.claim(16).await;
    let stranger = kit.insert(of("stranger")).await;
    assert!(claimer.claim(2).await.contains(&stranger), "the flood has one turn before it");
}

async fn within_a_share_rows_are_claimed_in_order(kit: Kit) {
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.push(kit.insert(of("a")).await);
        kit.insert_many(vec![of("b"); 3]).await;
    }
    let mut claimer = Claimer::new(&kit).await;
    let claimed = claimer.claim(20).await;
    let of_a: Vec<_> = claimed.into_iter().filter(|id| expected.contains(id)).collect();
    assert_eq!(of_a, expected);
}

async fn a_claim_goes_on_where_the_one_before_stopped(kit: Kit) {
    for share in ["a", "b", "c"] {
        kit.insert_many(vec![of(share); 4]).await;
    }
    let mut claimer = Claimer::new(&kit).await;
    assert_eq!(claimer.served(&[1, 1, 1, 1, 2, 2, 3, 5]).await, "a b c a bc ab cab c");
}

async fn the_namespace_is_the_share_unless_another_is_named(kit: Kit) {
    let (acme, b) = (vec![within("a", m()); 4], vec![within("b", m()); 2]);
    let c = vec![within("b", of("c")); 2];
    // Its own share may be named.
    kit.insert_many([acme, b, c, vec![within("b", of("b"))]].concat()).await;
    let mut claimer = Claimer::new(&kit).await;
    assert_eq!(claimer.served(&[9]).await, "abcabcaba");
    let named = kit.insert(within("b", of("b"))).await;
    assert_eq!(kit.get(named).await.share, None);
}

async fn shares_of_one_name_in_two_namespaces_are_two(kit: Kit) {
    let first = kit.insert_many(vec![within("a", of("x")); 3]).await;
    let second = kit.insert_many(vec![within("b", of("x")); 3]).await;
    let mut claimer = Claimer::new(&kit).await;
    assert_eq!(claimer.claim(2).await, [first[0].id(), second[0].id()]);
}

async fn a_share_is_served_as_many_rows_as_it_weighs_in_each_turn(kit: Kit) {
    kit.client().weigh_share("b", 3).await.expect("a weight");
    for share in ["a", "b", "c"] {
        kit.insert_many(vec![of(share); 7]).await;
    }
    let mut claimer = Claimer::new(&kit).await;
    assert_eq!(claimer.served(&[10, 100]).await, "abbbcabbbc abcacacacac");
}

async fn a_weight_that_is_changed_counts_for_rows_that_wait_already(kit: Kit) {
    let default = kit.client();
    for share in ["a", "b"] {
        kit.insert_many(vec![of(share); 10]).await;
    }
    let mut claimer = Claimer::new(&kit).await;
    assert_eq!(claimer.served(&[4]).await, "abab");
    default.weigh_share("a", 4).await.expect("a weight");
    assert_eq!(claimer.served(&[5]).await, "aaaab");
    default.weigh_share("a", 1).await.expect("a weight");
    assert_eq!(claimer.served(&[4]).await, "abab");
}

async fn a_turn_that_a_claim_cut_short_is_completed_by_the_next(kit: Kit) {
    kit.client().weigh_share("a", 3).await.expect("a weight");
    for share in ["a", "b"] {
        kit.insert_many(vec![of(share); 6]).await;
    }
    let mut claimer = Claimer::new(&kit).await;
    assert_eq!(claimer.served(&[1, 1, 3, 1, 1, 1, 9]).await, "a a aba a a b bbbb");
}

async fn a_more_urgent_priority_goes_first_whatever_its_share(kit: Kit) {
    kit.insert_many(vec![of("a"); 3]).await;
    kit.insert_many(vec![of("b").priority(-1); 2]).await;
    kit.insert_many(vec![of("c").priority(1)]).await;
    let mut claimer = Claimer::new(&kit).await;
    assert_eq!(claimer.served(&[6]).await, "bbaaac");
}

async fn turns_are_kept_for_each_priority(kit: Kit) {
    for share in ["a", "b", "c"] {
        kit.insert_many(vec![of(share).priority(5); 3]).await;
    }
    let mut claimer = Claimer::new(&kit).await;
    // Each claim first takes an urgent row: that must not set the others back to the first share.
    for expected in ["xa", "xb", "xc", "xa"] {
        kit.insert(of("x")).await;
        assert_eq!(claimer.served(&[2]).await, expected);
    }
}

async fn an_engine_whose_priorities_age_serves_later_ones_beside_a_flood_of_urgent_work(kit: Kit) {
    let new = |priority: i32, rows: usize| vec![m().priority(priority); rows];
    let inserted = kit.insert_many([new(0, 100), new(5, 3), new(9, 3)].concat()).await;
    let ran = Arc::new(Mutex::new(Vec::new()));
    let log = ran.clone();
    let machine = Script::named("m", move |_, cx| {
        log.lock().expect("no panic").push(cx.id());
        Ok(done())
    });
    let builder = kit.engine().dyn_machine(machine).queue("default", 1).priority_ages(10);
    let engine = builder.start().await.expect("the engine starts");
    for new in &inserted {
        kit.until(new.id(), Status::Done).await;
    }
    engine.shutdown().await;
    let priority =
        |id: &InstanceId| match inserted.iter().position(|new| new.id() == *id).expect("it is ours") {
            0..100 => 0,
            100..103 => 5,
            _ => 9,
        };
    let ran: Vec<i32> = ran.lock().expect("no panic").iter().map(priority).collect();
    let later: Vec<_> =
        ran.iter().copied().enumerate().filter(|(_, priority)| *priority > 0).take(4).collect();
    assert_eq!(later, [(9, 5), (19, 9), (29, 5), (39, 9)], "one in ten, by turns: {ran:?}");
}

async fn priorities_that_leave_urgent_work_nothing_are_refused(kit: Kit) {
    for every_rows in [0, 1] {
        let refused = kit.engine().priority_ages(every_rows).start().await.map(drop);
        assert!(matches!(refused, Err(Error::InvalidConfig(_))), "{refused:?}");
    }
}

async fn a_share_counts_its_rows_of_all_machines_together(kit: Kit) {
    let n = || NewInstance::named("n", 1, at("start"));
    let v2 = || NewInstance::named("m", 2, at("start"));
    let new = |new: NewInstance, share: &str| new.share(share);
    let mut expected = Vec::new();
    for _ in 0..4 {
        for new in [new(n(), "a"), new(m(), "a"), new(v2(), "a"), new(v2(), "b")] {
            expected.push(kit.insert(new).await);
        }
    }
    let mut claimer = Claimer::new(&kit).await;
    claimer.machines = [("m".to_owned(), 1), ("m".to_owned(), 2), ("n".to_owned(), 1)].into();
    // Twelve rows of one share and four of the other.
    assert_eq!(claimer.served(&[1, 1, 1, 13]).await, "a b a bababaaaaaaaa");
}

async fn a_worker_of_some_namespaces_serves_their_shares_by_turns(kit: Kit) {
    for namespace in ["a", "b", "c"] {
        kit.insert_many(vec![within(namespace, m()); 2]).await;
        kit.insert_many(vec![within(namespace, of("x")); 2]).await;
    }
    let mut claimer = Claimer::new(&kit).await;
    claimer.namespaces = Namespaces::Only(vec!["c".to_owned(), "a".to_owned(), "c".to_owned()]);
    assert_eq!(claimer.served(&[3, 3, 10]).await, "axc xax cx");
}

async fn a_paused_queue_is_passed_over_with_all_its_shares(kit: Kit) {
    for namespace in ["a", "b", "c"] {
        for share in ["s", "t", namespace] {
            kit.insert_many(vec![within(namespace, of(share)); 2]).await;
        }
    }
    let brake = |brake| kit.store.pause_queue("b".to_owned(), "default".to_owned(), brake);
    brake(Brake::On).await.expect("a write");
    let mut claimer = Claimer::new(&kit).await;
    assert_eq!(claimer.served(&[4, 100]).await, "astc stastcst");
    brake(Brake::Off).await.expect("a write");
    assert_eq!(claimer.served(&[100]).await, "bstbst");
}

async fn rows_that_cannot_run_take_no_turns(kit: Kit) {
    let paused = kit.insert_many(vec![of("a"); 3]).await;
    for new in paused {
        let target = dormouse::Target::Id(new.id());
        kit.store.pause("default".to_owned(), target, Brake::On, None).await.expect("a pause");
    }
    kit.insert_many(vec![of("b").lane("l"); 3]).await;
    kit.insert_many(vec![of("c"); 3]).await;
    let mut claimer = Claimer::new(&kit).await;
    assert_eq!(claimer.served(&[10]).await, "bccc", "one of the lane can run, and none of the paused");
}

async fn a_row_that_wakes_waits_for_the_turn_of_its_share(kit: Kit) {
    let mut claimer = Claimer::new(&kit).await;
    let id = kit.insert(of("b")).await;
    let claimed = kit.claim_one(claimer.worker).await;
    kit.commit(claimer.worker, commit(&claimed, wait_for(&["go"], "second"))).await;
    for share in ["a", "b", "c"] {
        kit.insert_many(vec![of(share); 2]).await;
    }
    kit.advance(std::time::Duration::from_secs(1));
    kit.deliver(id, signal("go")).await;
    assert_eq!(claimer.served(&[3]).await, "abc");
    let rest = claimer.claim(10).await;
    assert_eq!(rest.last(), Some(&id), "it is the last of its share");
}

async fn claims_at_the_same_time_leave_nothing_behind(kit: Kit) {
    const SHARES: usize = 120;
    kit.insert_many((0..SHARES).map(|n| of(&format!("s{n}"))).collect()).await;
    let mut claims = Vec::new();
    for name in 0..8 {
        let worker = kit.worker(&format!("w{name}")).await;
        let (queue, machines) = ("default".to_owned(), [("m".to_owned(), 1)].into());
        let (namespaces, after) = (Namespaces::All, Turns::default());
        let claim = Claim {
            worker,
            queue,
            namespaces,
            machines,
            after,
            later_than: None,
            places: usize::MAX,
            rows_max: SHARES / 8,
        };
        let store = kit.store.clone();
        claims.push(tokio::spawn(async move { store.claim(claim).await.expect("a claim").value.len() }));
    }
    let mut claimed = 0;
    for claim in claims {
        claimed += claim.await.expect("no panic");
    }
    // A worker whose claim is not full waits for a poke: it must not have missed a row.
    assert_eq!(claimed, SHARES);
}

async fn children_are_in_the_share_of_their_parent_unless_they_name_another(kit: Kit) {
    let engine = kit
        .run(|from, _| match from.step.as_ref() {
            "start" => {
                Ok(Transition::Spawn(spawn(vec![m_at(at("end")), m_at(at("end")).share("other")], "end")))
            }
            _ => Ok(done()),
        })
        .await;
    let parent = engine.client().start_many([of("tenant-7")]).await.expect("a start")[0].id();
    kit.until(parent, Status::Done).await;
    let children = kit.list(Filter { parent: Some(parent), ..Filter::default() }).await;
    let shares: Vec<_> = children.into_iter().map(|child| child.share).collect();
    assert_eq!(shares.len(), 2);
    assert!(shares.contains(&Some("tenant-7".to_owned())) && shares.contains(&Some("other".to_owned())));
    engine.shutdown().await;
}

async fn a_fork_and_a_retry_keep_the_share(kit: Kit) {
    let mut claimer = Claimer::new(&kit).await;
    let id = kit.insert(of("b")).await;
    let claimed = kit.claim_one(claimer.worker).await;
    kit.commit(claimer.worker, commit(&claimed, fail("no"))).await;
    kit.insert_many(vec![of("a"); 2]).await;
    kit.client().retry(id).await.expect("a retry");
    kit.client().fork(id, 1, |new| new).await.expect("a fork");
    assert_eq!(claimer.served(&[4]).await, "abab");
}

async fn an_engine_starts_a_strangers_job_beside_a_flood_after_one_turn_of_it(kit: Kit) {
    let (may_end, ran) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (held, log) = (may_end.clone(), ran.clone());
    let machine = Slow::new(move |_, cx| {
        log.lock().expect("no panic").push(cx.id());
        let held = held.clone();
        async move {
            held.acquire().await.expect("it is never closed").forget();
            Ok(done())
        }
    });
    let builder = kit.engine().dyn_machine(machine.machine()).queue("default", 2);
    let engine = builder.start().await.expect("the engine starts");
    let flood = engine.client().start_many(vec![of("flood"); 60]).await.expect("a start");
    while ran.lock().expect("no panic").len() < 2 {
        tokio::task::yield_now().await;
    }
    let stranger = engine.client().start_many([of("stranger")]).await.expect("a start")[0].id();
    may_end.add_permits(1000);
    kit.until(stranger, Status::Done).await;
    let place = ran.lock().expect("no panic").iter().position(|id| *id == stranger).expect("it ran");
    // Two ran before it came; each place may have claimed one more of the flood.
    assert!(place <= 4, "it ran as number {place}");
    for new in flood {
        kit.until(new.id(), Status::Done).await;
    }
    engine.shutdown().await;
}

async fn names_and_weights_that_cannot_be_used_are_refused_and_nothing_is_stored(kit: Kit) {
    let engine = kit.run(|_, _| Ok(done())).await;
    let client = engine.client();
    for share in ["", "tab\there", "bell\u{1}", &"x".repeat(256)] {
        let refused = client.start_many([of(share)]).await;
        assert!(matches!(refused, Err(Error::InvalidName { what: "share", .. })), "{share:?}: {refused:?}");
        let refused = client.weigh_share(share, 2).await;
        assert!(matches!(refused, Err(Error::InvalidName { what: "share", .. })), "{share:?}: {refused:?}");
    }
    for weight in [0, 1001, u32::MAX] {
        let refused = client.weigh_share("a", weight).await.expect_err("it is refused").to_string();
        assert!(refused.contains("1 to 1000"), "{refused}");
    }
    assert!(client.shares().await.expect("weights").is_empty());
    assert_eq!(kit.stats().await.instances.len(), 0);
    engine.shutdown().await;
}

async fn weights_are_listed_and_a_weight_of_one_is_forgotten(kit: Kit) {
    let (acme, other) = (kit.client().in_namespace("acme").expect("a name"), kit.client());
    acme.weigh_share("b", 2).await.expect("a weight");
    acme.weigh_share("acme", 5).await.expect("a weight");
    acme.weigh_share("b", 3).await.expect("a weight");
    other.weigh_share("acme", 7).await.expect("a weight");
    let weight = |namespace: &str, share: &str, weight| ShareWeight {
        namespace: namespace.to_owned(),
        share: share.to_owned(),
        weight,
    };
    assert_eq!(acme.shares().await.expect("weights"), [weight("acme", "acme", 5), weight("acme", "b", 3)]);
    acme.weigh_share("acme", 1).await.expect("a weight");
    acme.weigh_share("never", 1).await.expect("a weight");
    assert_eq!(acme.shares().await.expect("weights"), [weight("acme", "b", 3)]);
    assert_eq!(other.shares().await.expect("weights"), [weight("default", "acme", 7)]);
    assert_eq!(kit.store.shares(None).await.expect("weights").len(), 2);
}

async fn explain_says_how_many_turns_a_share_has_before_a_row(kit: Kit) {
    kit.worker("w").await;
    kit.insert_many(vec![of("other"); 50]).await;
    kit.insert_many(vec![of("tenant-7"); 3]).await;
    let id = kit.insert(of("tenant-7")).await;
    let says = async |told: &str| {
        let explained = kit.client().explain(id).await.expect("an instance");
        assert_eq!(explained, format!("instance {id} (m at \"start\"): {told}"));
    };
    says(r#"it waits its turn in queue "default": its share "tenant-7" has 3 turns before it"#).await;
    kit.client().weigh_share("tenant-7", 2).await.expect("a weight");
    says(r#"it waits its turn in queue "default": its share "tenant-7" has 1 turn before it"#).await;
    kit.client().weigh_share("tenant-7", 4).await.expect("a weight");
    says(r#"it waits its turn in queue "default": it is served in the next turn of its share "tenant-7""#)
        .await;
    kit.client().weigh_share("tenant-7", 1).await.expect("a weight");
    kit.insert(of("x").priority(-1)).await;
    says(
        r#"it waits its turn in queue "default": 1 row of more urgent priorities go first, and its share "tenant-7" has 3 turns before it"#,
    )
    .await;
    let first = kit.insert(of("first")).await;
    let explained = kit.client().explain(first).await.expect("an instance");
    assert!(
        explained
            .ends_with(r#"1 row of more urgent priorities go first, and it is next in its share "first""#),
        "{explained}"
    );
}

#[tokio::test]
async fn the_testing_kit_serves_shares_by_turns_in_virtual_time() {
    let hour = std::time::Duration::from_secs(3600);
    let ran = Arc::new(Mutex::new(Vec::new()));
    let log = ran.clone();
    let machine = Script::named("m", move |_, cx| {
        log.lock().expect("no panic").push(cx.share().map(str::to_owned));
        Ok(done())
    });
    let test = TestEngine::start(move |engine| engine.dyn_machine(machine.clone()).queue("default", 1));
    let test = test.await.expect("an engine");
    // They become runnable in one moment, so that it does not matter who was first.
    let new = [vec![of("flood").start_at(hour); 30], vec![of("single").start_at(hour)]].concat();
    test.client().start_many(new).await.expect("a start");
    test.advance(hour).await.expect("they run");
    let ran = ran.lock().expect("no panic");
    let place = ran.iter().position(|share| share.as_deref() == Some("single"));
    assert!(ran.len() == 31 && place.is_some_and(|place| place <= 2), "{ran:?}");
}
