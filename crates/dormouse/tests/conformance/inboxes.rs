//! How much waits in an inbox, and how a step gets at what is large.

use dormouse::store::Delivery;
use dormouse::{
    Client, Delivered, Error, InboxMax, InstanceId, Json, Limits, NewInstance, NewSignal, Spawn, Started,
    Status, Target, Transition,
};
use serde_json::json;

use crate::kit::*;

suite![
    an_inbox_takes_no_more_signals_than_its_bound,
    an_inbox_takes_no_more_bytes_than_its_bound,
    a_batch_fills_an_inbox_and_says_which_found_no_room,
    what_a_step_consumes_makes_room_again,
    a_start_into_a_taken_key_finds_the_holders_inbox_full,
    a_request_to_undo_is_heard_by_whose_inbox_is_full,
    a_large_inbox_is_read_for_its_step_alone,
    a_run_ahead_step_gets_at_a_large_inbox,
    many_large_children_are_read_for_their_parent_alone,
    an_instance_with_more_than_a_step_is_handed_is_set_aside_alone,
    a_parent_with_more_than_a_step_is_handed_is_set_aside_alone,
];

/// A payload of so many bytes.
fn payload(bytes: usize) -> Json {
    Json::from(json!("x".repeat(bytes - 2)))
}

fn of_bytes(bytes: usize) -> NewSignal {
    NewSignal::new("note", payload(bytes))
}

async fn deliver(kit: &Kit, inbox_max: InboxMax, batch: Vec<(InstanceId, NewSignal)>) -> Vec<Delivered> {
    let delivery = |(id, signal): (InstanceId, NewSignal)| Delivery {
        namespace: "default".to_owned(),
        target: Target::Id(id),
        signal,
        inbox_max,
        kept_max: dormouse::KeptMax::default(),
    };
    kit.store.deliver(batch.into_iter().map(delivery).collect()).await.expect("a delivery").value
}

/// How many signals an inbox holds.
async fn waiting(kit: &Kit, id: InstanceId) -> usize {
    kit.client().inbox(id).await.expect("a read").len()
}

fn client(kit: &Kit, limits: Limits) -> Client {
    kit.engine().limits(limits).client()
}

async fn an_inbox_takes_no_more_signals_than_its_bound(kit: Kit) {
    let id = kit.insert(m()).await;
    let client = client(&kit, Limits { inbox_max: 2, ..Limits::default() });
    client.signal_raw(id, signal("a").dedup("one")).await.expect("there is room");
    client.signal_raw(id, signal("b")).await.expect("there is room");
    let refused = client.signal_raw(id, signal("c")).await.err();
    assert!(matches!(refused, Some(Error::InboxFull(Target::Id(of))) if of == id), "{refused:?}");
    let repeat = client.signal_raw(id, signal("a").dedup("one")).await.expect("no news");
    assert_eq!(repeat, Delivered::Duplicate, "what was delivered before needs no room");
    assert_eq!((kit.get(id).await.inbox, waiting(&kit, id).await), (2, 2), "nothing was stored");
    // Others have theirs.
    let other = kit.insert(m()).await;
    client.signal_raw(other, signal("a")).await.expect("there is room");
    // Under the bound that is there unless another is set.
    let many = (0..10_001).map(|_| (Target::Id(other), signal("d"))).collect::<Vec<_>>();
    let delivered = kit.client().signal_many(many).await.expect("signals");
    assert_eq!(delivered.iter().filter(|told| **told == Delivered::InboxFull).count(), 2);
    assert_eq!(kit.get(other).await.inbox, 10_000);
}

async fn an_inbox_takes_no_more_bytes_than_its_bound(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m()).await;
    let inbox_max = InboxMax { signals: 100, bytes: 100 };
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["note"], "read"))).await;
    let one = |bytes| deliver(&kit, inbox_max, vec![(id, of_bytes(bytes))]);
    assert_eq!(one(101).await, [Delivered::InboxFull], "it would wake, and yet there is no room");
    assert_eq!(kit.status(id).await, Status::AwaitingSignal);
    assert!(matches!(one(60).await[..], [Delivered::Accepted { woke: true, .. }]));
    assert_eq!(one(41).await, [Delivered::InboxFull]);
    assert!(matches!(one(40).await[..], [Delivered::Accepted { woke: false, .. }]), "to the byte");
    assert_eq!(one(2).await, [Delivered::InboxFull]);
    assert_eq!(waiting(&kit, id).await, 2);
}

async fn a_batch_fills_an_inbox_and_says_which_found_no_room(kit: Kit) {
    let inbox_max = InboxMax { signals: 3, bytes: 100 };
    let (id, other) = (kit.insert(m()).await, kit.insert(m()).await);
    let batch = vec![
        (id, of_bytes(50).dedup("first")),
        (other, of_bytes(90)),
        (id, of_bytes(60).dedup("large")),
        (id, of_bytes(10)),
        (id, of_bytes(60).dedup("large")),
        (id, of_bytes(50).dedup("first")),
        (id, of_bytes(30).dedup("large")),
        (id, of_bytes(2)),
        (other, of_bytes(20)),
    ];
    let delivered = deliver(&kit, inbox_max, batch).await;
    let words: Vec<_> = delivered
        .iter()
        .map(|told| match told {
            Delivered::Accepted { .. } => "accepted",
            Delivered::Duplicate => "duplicate",
            Delivered::InboxFull => "full",
            Delivered::NoTarget => "no target",
            Delivered::Kept { .. } | Delivered::KeptFull => "kept",
        })
        .collect();
    let expected =
        ["accepted", "accepted", "full", "accepted", "full", "duplicate", "accepted", "full", "full"];
    assert_eq!(words, expected, "each as if it came alone");
    assert_eq!((kit.get(id).await.inbox, waiting(&kit, id).await), (3, 3));
    assert_eq!((kit.get(other).await.inbox, waiting(&kit, other).await), (1, 1));
}

async fn what_a_step_consumes_makes_room_again(kit: Kit) {
    let worker = kit.worker("w").await;
    let inbox_max = InboxMax { signals: 3, bytes: 1000 };
    let id = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["note"], "read"))).await;
    let other = NewSignal::new("other", payload(300));
    let batch = vec![(id, of_bytes(400)), (id, of_bytes(300).dedup("kept")), (id, other)];
    assert!(
        deliver(&kit, inbox_max, batch).await.iter().all(|told| matches!(told, Delivered::Accepted { .. }))
    );
    assert_eq!(deliver(&kit, inbox_max, vec![(id, of_bytes(2))]).await, [Delivered::InboxFull]);
    // Some of it, and then all of it.
    for (step, room) in [("again", 700), ("more", 700)] {
        let woken = kit.claim_one(worker).await;
        kit.commit(worker, commit(&woken, next(step))).await;
        let next = kit.claim_one(worker).await;
        assert_eq!(next.inbox.iter().map(|signal| signal.name.as_str()).collect::<Vec<_>>(), ["other"]);
        kit.commit(worker, commit(&next, wait_for(&["note"], "read"))).await;
        let too_much = vec![(id, of_bytes(room + 1))];
        assert_eq!(deliver(&kit, inbox_max, too_much).await, [Delivered::InboxFull], "{step}");
        let told = deliver(&kit, inbox_max, vec![(id, of_bytes(room))]).await;
        assert!(matches!(told[..], [Delivered::Accepted { woke: true, .. }]), "{step}: {told:?}");
    }
}

async fn a_start_into_a_taken_key_finds_the_holders_inbox_full(kit: Kit) {
    let client = client(&kit, Limits { inbox_max: 1, ..Limits::default() });
    let new = || m().key("k");
    let started = client.start_and_signal(new(), signal("a")).await.expect("a start");
    let Started::New(id) = started else { panic!("{started:?}") };
    let refused = client.start_and_signal(new(), signal("b")).await.err();
    assert!(matches!(refused, Some(Error::InboxFull(Target::Id(of))) if of == id), "{refused:?}");
    // One that comes with more than its inbox holds would lose some of it.
    let refused = client.start_many([m().signal(signal("a")).signal(signal("b"))]).await.err();
    assert!(matches!(refused, Some(Error::InvalidState(_))), "{refused:?}");
    assert_eq!(waiting(&kit, id).await, 1);
    assert_eq!(
        kit.client().stats().await.expect("a read").instances.iter().map(|row| row.count).sum::<u64>(),
        1
    );
}

async fn a_request_to_undo_is_heard_by_whose_inbox_is_full(kit: Kit) {
    let client = client(&kit, Limits { inbox_max: 1, ..Limits::default() });
    let id = kit.insert(m()).await;
    client.signal_raw(id, signal("a")).await.expect("there is room");
    client.cancel(id).await.expect("a cancel needs no room");
    assert_eq!(kit.status(id).await, Status::Cancelled);
    kit.client().retry(id).await.expect("a retry");
    assert_eq!(
        client.signal_raw(id, signal("b")).await.err().map(|error| error.to_string().contains("full")),
        Some(true)
    );
}

async fn a_large_inbox_is_read_for_its_step_alone(kit: Kit) {
    let worker = kit.worker("w").await;
    let (large, small) = (kit.insert(m()).await, kit.insert(m()).await);
    for _ in 0..5 {
        kit.deliver(large, of_bytes(200_000)).await;
    }
    kit.deliver(small, of_bytes(20)).await;
    let claim = dormouse::store::Claim {
        worker,
        queue: "default".to_owned(),
        namespaces: dormouse::store::Namespaces::All,
        machines: [("m".to_owned(), 1)].into(),
        after: dormouse::store::Turns::default(),
        later_than: None,
        places: usize::MAX,
        rows_max: 10,
    };
    let claimed = kit.store.claim(claim).await.expect("a claim").value;
    let bytes = |row: &dormouse::store::Claimed| -> usize {
        row.inbox.iter().map(|signal| signal.payload.as_str().len()).sum()
    };
    let told: Vec<_> = claimed.iter().map(|row| (row.id, row.is_apart, bytes(row))).collect();
    assert_eq!(told, [(large, true, 0), (small, false, 20)], "a claim brings what is small");
    let read = kit.store.reading(large, 1_000_000).await.expect("a read");
    assert_eq!(read.inbox.iter().map(|signal| signal.payload.as_str().len()).sum::<usize>(), 1_000_000);
    let refused = kit.store.reading(large, 999_999).await.err();
    let told = matches!(refused, Some(Error::TooMuchToRead { bytes: 1_000_000, limit_bytes: 999_999, .. }));
    assert!(told, "{refused:?}");
}

async fn a_run_ahead_step_gets_at_a_large_inbox(kit: Kit) {
    let engine = kit
        .run(|at, cx| {
            Ok(match &*at.step {
                "start" => next("count"),
                _ => Transition::Done { output: Json::from(json!(cx.inbox().len())) },
            })
        })
        .await;
    let new = (0..3).fold(m(), |new, _| new.signal(of_bytes(100_000)));
    let id = engine.client().start_many([new]).await.expect("a start")[0].id();
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!(ended.output.expect("an output").as_str(), "3");
    engine.shutdown().await;
}

/// A parent of so many children, each of which is done with so many bytes.
async fn family(kit: &Kit, limits: Limits, children: usize, bytes: usize) -> (dormouse::Engine, InstanceId) {
    let script = Script::named("m", move |at, cx| {
        Ok(match &*at.step {
            "start" => {
                let child = NewInstance::named("m", 1, crate::kit::at("child"));
                Transition::Spawn(Spawn { ..spawn(vec![child; children], "join") })
            }
            "join" => {
                Transition::Done { output: Json::from(json!(cx.outputs::<String>().expect("texts").len())) }
            }
            _ => Transition::Done { output: payload(bytes) },
        })
    });
    let engine = kit.engine().limits(limits).dyn_machine(script).start().await.expect("it starts");
    let id = engine.client().start_many([m()]).await.expect("a start")[0].id();
    (engine, id)
}

async fn many_large_children_are_read_for_their_parent_alone(kit: Kit) {
    for (children, bytes) in [(40, 10), (8, 20_000), (3, 10)] {
        let (engine, id) = family(&kit, Limits::default(), children, bytes).await;
        let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
        assert_eq!(ended.output.expect("an output").as_str(), children.to_string());
        engine.shutdown().await;
    }
}

async fn an_instance_with_more_than_a_step_is_handed_is_set_aside_alone(kit: Kit) {
    let limits = Limits { reading_bytes_max: 300_000, ..Limits::default() };
    let script =
        || Script::named("m", |_, cx| Ok(Transition::Done { output: Json::from(json!(cx.inbox().len())) }));
    let large = (0..4).fold(m(), |new, _| new.signal(of_bytes(100_000)));
    let fits = (0..2).fold(m(), |new, _| new.signal(of_bytes(100_000)));
    let ids = kit.insert_many(vec![large, fits, m()]).await;
    let engine = kit.engine().limits(limits).dyn_machine(script()).start().await.expect("it starts");
    for (place, signals) in [(1, "2"), (2, "0")] {
        let ended = engine.client().wait_end(ids[place].id(), SOON).await.expect("it ends");
        assert_eq!(ended.output.expect("an output").as_str(), signals, "the others run");
    }
    let id = ids[0].id();
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    let told = ended.last_error.expect("a reason");
    assert!(
        ended.status == Status::Failed && told.contains("set aside") && told.contains("400000"),
        "{told}"
    );
    assert!(engine.client().explain(id).await.expect("a sentence").contains("set aside"));
    assert_eq!(kit.story(id).await.last(), Some(&dormouse::EventKind::Failed));
    engine.shutdown().await;
    // The cause is gone, and what it was sent is still there.
    let engine = kit.engine().dyn_machine(script()).start().await.expect("it starts");
    engine.client().retry(id).await.expect("a retry");
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    assert_eq!(ended.output.expect("an output").as_str(), "4");
    engine.shutdown().await;
}

async fn a_parent_with_more_than_a_step_is_handed_is_set_aside_alone(kit: Kit) {
    let limits = Limits { reading_bytes_max: 100_000, ..Limits::default() };
    let (engine, id) = family(&kit, limits, 8, 20_000).await;
    let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
    let told = ended.last_error.expect("a reason");
    assert!(ended.status == Status::Failed && told.contains("the children of instance"), "{told}");
    engine.shutdown().await;
    let (engine, other) = family(&kit, Limits::default(), 8, 20_000).await;
    engine.client().retry(id).await.expect("a retry");
    for id in [id, other] {
        let ended = engine.client().wait_end(id, SOON).await.expect("it ends");
        assert_eq!(ended.output.expect("an output").as_str(), "8");
    }
    engine.shutdown().await;
}
