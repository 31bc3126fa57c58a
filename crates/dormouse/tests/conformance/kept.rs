//! Signals that are kept for instances to come.

use std::time::Duration;

use dormouse::store::{Bounds, Commit, KeptFilter, MailBounds, Post, Posted, Posting};
use dormouse::{
    Accepts, Delivered, Error, EventKind, InstanceId, Json, KEEP_FOR_MAX, KeptSignal, KeyScope, Limits, Mail,
    NewSignal, Outcome, Signal, Status, Target, Wake,
};
use serde_json::{Value, json};

use crate::kit::*;

suite![
    a_kept_signal_is_in_the_inbox_when_its_instance_starts,
    without_keep_for_a_signal_to_nobody_is_refused,
    a_kept_signal_goes_to_a_live_instance_if_there_is_one,
    kept_signals_keep_their_order_and_count_a_dedup_key_once,
    a_kept_signal_wakes_an_instance_that_starts_waiting_for_it,
    kept_signals_come_before_those_that_a_start_brings,
    a_kept_signal_expires_by_the_clock,
    the_engine_lets_kept_signals_expire_at_their_moment,
    what_has_expired_is_not_delivered_even_if_no_clock_came_by,
    a_dedup_key_is_free_again_when_its_signal_has_expired,
    kept_signals_are_listed_counted_and_dropped,
    a_namespace_keeps_so_many_signals_and_bytes_and_no_more,
    kept_signals_stay_in_their_namespace,
    a_key_that_an_ended_instance_holds_keeps_nothing,
    a_signal_for_an_ended_instance_is_kept_for_the_next,
    a_retried_instance_gets_what_was_kept_for_its_key,
    children_and_mail_start_with_what_was_kept_for_them,
    mail_may_be_kept,
    mail_that_finds_no_room_is_undelivered,
    a_batch_keeps_some_and_delivers_others,
    an_instance_with_a_key_of_any_scope_gets_what_was_kept,
    a_signal_that_its_machine_refuses_is_unreadable_and_bricks_nothing,
    what_cannot_be_kept_is_refused,
    a_key_with_kept_signals_and_no_instance_is_explained,
    signals_and_starts_that_race_lose_and_double_nothing,
];

const HOUR: Duration = Duration::from_secs(3600);
const PAID: Signal<u64> = Signal::named("paid");

fn paid(amount: u64) -> NewSignal {
    NewSignal::of(PAID, &amount).expect("a signal").keep_for(HOUR)
}

async fn keep(kit: &Kit, key: &str, signal: NewSignal) -> Delivered {
    kit.client().signal_raw(key, signal).await.expect("a signal")
}

fn is_kept(delivered: Delivered) -> bool {
    matches!(delivered, Delivered::Kept { .. })
}

async fn kept(kit: &Kit) -> Vec<KeptSignal> {
    kit.client().kept_signals(KeptFilter::default()).await.expect("a read").items
}

async fn payloads(kit: &Kit, id: InstanceId) -> Vec<Value> {
    let inbox = kit.client().inbox(id).await.expect("a read");
    inbox.into_iter().map(|signal| signal.payload.decode("payload").expect("JSON")).collect()
}

async fn a_kept_signal_is_in_the_inbox_when_its_instance_starts(kit: Kit) {
    let sent = kit.client().signal("order:1", PAID, 7).keep_for(HOUR).await.expect("it is kept");
    let Delivered::Kept { until, .. } = sent else { panic!("{sent:?}") };
    assert_eq!(until, kit.now() + HOUR);
    assert!(kit.client().get("order:1").await.expect("a read").is_none(), "a kept signal is no instance");
    assert_eq!(kit.client().count_kept().await.expect("a read").signals, 1);

    let other = kit.insert(m().key("order:2")).await;
    assert_eq!(payloads(&kit, other).await, [] as [Value; 0]);
    let id = kit.insert(m().key("order:1")).await;
    assert_eq!(payloads(&kit, id).await, [json!(7)]);
    assert_eq!(kit.get(id).await.inbox, 1);
    assert_eq!(kept(&kit).await, []);
    assert_eq!(kit.client().count_kept().await.expect("a read").signals, 0);

    let worker = kit.worker("w").await;
    assert_eq!(kit.claim_one(worker).await.id, other);
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    let instance = kit.get(id).await;
    assert_eq!((instance.status, instance.wake), (Status::Runnable, Some(Wake::Signal)));
    kit.check_counts("kept").await;
}

async fn without_keep_for_a_signal_to_nobody_is_refused(kit: Kit) {
    let refused = kit.client().signal("order:1", PAID, 7).await;
    assert!(matches!(refused, Err(Error::NoTarget(_))), "{refused:?}");
    assert_eq!(kept(&kit).await, []);
}

async fn a_kept_signal_goes_to_a_live_instance_if_there_is_one(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().key("order:1")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    let sent = keep(&kit, "order:1", paid(7)).await;
    assert!(matches!(sent, Delivered::Accepted { woke: true, .. }), "{sent:?}");
    assert_eq!(payloads(&kit, id).await, [json!(7)]);
    assert_eq!(kept(&kit).await, []);
}

async fn kept_signals_keep_their_order_and_count_a_dedup_key_once(kit: Kit) {
    for amount in 0..5 {
        assert!(is_kept(keep(&kit, "order:1", paid(amount)).await));
    }
    assert!(is_kept(keep(&kit, "order:1", paid(5).dedup("a")).await));
    assert_eq!(keep(&kit, "order:1", paid(6).dedup("a")).await, Delivered::Duplicate);
    assert!(is_kept(keep(&kit, "order:2", paid(6).dedup("a")).await), "a dedup key is of one key");
    let id = kit.insert(m().key("order:1")).await;
    assert_eq!(payloads(&kit, id).await, [0, 1, 2, 3, 4, 5].map(|amount| json!(amount)));
    assert_eq!(keep(&kit, "order:1", paid(7).dedup("a")).await, Delivered::Duplicate, "it is remembered");
}

async fn a_kept_signal_wakes_an_instance_that_starts_waiting_for_it(kit: Kit) {
    keep(&kit, "order:1", NewSignal::new("news", Json::null()).keep_for(HOUR)).await;
    keep(&kit, "order:1", paid(7)).await;
    let mut waits = m().key("order:1");
    waits.awaits = Some((vec!["paid".to_owned()], None));
    let id = kit.insert(waits).await;
    let instance = kit.get(id).await;
    assert_eq!((instance.status, instance.wake, instance.inbox), (Status::Runnable, Some(Wake::Signal), 2));
    assert_eq!(
        kit.story(id).await,
        [EventKind::Created, EventKind::SignalWaiting, EventKind::SignalReceived]
    );
    kit.check_counts("a wake").await;
}

async fn kept_signals_come_before_those_that_a_start_brings(kit: Kit) {
    keep(&kit, "order:1", paid(1).dedup("a")).await;
    keep(&kit, "order:1", paid(2)).await;
    let new = m().key("order:1").signal(NewSignal::of(PAID, &3).expect("a signal"));
    let new = new.signal(NewSignal::of(PAID, &4).expect("a signal").dedup("a"));
    let few = kit.engine().limits(Limits { inbox_max: 2, inbox_bytes_max: 2, ..Limits::default() }).client();
    let started = few.start_many([new.even_if_unknown()]).await.expect("it starts");
    let id = started[0].id();
    assert_eq!(payloads(&kit, id).await, [json!(1), json!(2), json!(3)], "and take no room from them");
    assert_eq!(kit.get(id).await.inbox, 3);
}

async fn a_kept_signal_expires_by_the_clock(kit: Kit) {
    keep(&kit, "order:1", paid(1)).await;
    keep(&kit, "order:1", paid(2).keep_for(2 * HOUR)).await;
    keep(&kit, "order:2", paid(3)).await;
    let due = kit.store.due(1000).await.expect("a sweep").value;
    assert_eq!(
        (due.expired, due.next),
        (0, Some(kit.now() + HOUR)),
        "the clock knows when it is next needed"
    );
    kit.advance(HOUR);
    let due = kit.store.due(1).await.expect("a sweep").value;
    assert_eq!(due.expired, 1, "some at a time");
    assert!(due.next <= Some(kit.now()), "and then the others: {due:?}");
    let due = kit.store.due(1000).await.expect("a sweep").value;
    assert_eq!((due.expired, due.next), (1, Some(kit.now() + HOUR)));
    assert_eq!(kept(&kit).await.len(), 1);
    assert_eq!(kit.client().count_kept().await.expect("a read").signals, 1);
    let id = kit.insert(m().key("order:1")).await;
    assert_eq!(payloads(&kit, id).await, [json!(2)]);
    assert_eq!(kit.store.due(1000).await.expect("a sweep").value.next, None);
}

async fn the_engine_lets_kept_signals_expire_at_their_moment(kit: Kit) {
    let engine = kit.run(|_, _| Ok(done())).await;
    engine.client().signal("order:1", PAID, 7).keep_for(HOUR).await.expect("it is kept");
    kit.advance(HOUR);
    let deadline = tokio::time::Instant::now() + SOON;
    while engine.client().count_kept().await.expect("a read").signals > 0 {
        assert!(tokio::time::Instant::now() < deadline, "it does not expire");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.shutdown().await;
}

async fn what_has_expired_is_not_delivered_even_if_no_clock_came_by(kit: Kit) {
    keep(&kit, "order:1", paid(1)).await;
    kit.advance(HOUR);
    let id = kit.insert(m().key("order:1")).await;
    assert_eq!(payloads(&kit, id).await, [] as [Value; 0]);
    assert_eq!(kit.store.due(1000).await.expect("a sweep").value.expired, 1);
}

async fn a_dedup_key_is_free_again_when_its_signal_has_expired(kit: Kit) {
    keep(&kit, "order:1", paid(1).dedup("a")).await;
    kit.advance(HOUR);
    assert!(is_kept(keep(&kit, "order:1", paid(2).dedup("a")).await));
    assert_eq!(kit.client().count_kept().await.expect("a read").signals, 1);
    let id = kit.insert(m().key("order:1")).await;
    assert_eq!(payloads(&kit, id).await, [json!(2)]);
}

async fn kept_signals_are_listed_counted_and_dropped(kit: Kit) {
    for (key, amount) in [("a", 1), ("b", 22), ("a", 333)] {
        keep(&kit, key, paid(amount).dedup(amount.to_string())).await;
    }
    let all = kept(&kit).await;
    let told = all.iter().map(|kept| (&*kept.key, kept.payload.as_str(), kept.until)).collect::<Vec<_>>();
    let until = kit.now() + HOUR;
    assert_eq!(told, [("a", "1", until), ("b", "22", until), ("a", "333", until)]);
    assert_eq!((&*all[0].name, all[0].dedup_key.as_deref(), all[0].at), ("paid", Some("1"), kit.now()));
    let of = |key: &str, after| KeptFilter { key: Some(key.to_owned()), after };
    let of_a = kit.client().kept_signals(of("a", None)).await.expect("a read");
    assert_eq!((of_a.items, of_a.more), (vec![all[0].clone(), all[2].clone()], false));
    let of_a = kit.client().kept_signals(of("a", Some(all[0].id))).await.expect("a read").items;
    assert_eq!(of_a, [all[2].clone()]);
    let first =
        kit.store.kept("default".into(), KeptFilter::default(), Bounds::rows(2)).await.expect("a read");
    assert_eq!((first.items.len(), first.more), (2, true));

    let count = kit.client().count_kept().await.expect("a read");
    assert_eq!((count.signals, count.bytes), (3, 6));
    assert!(kit.client().drop_kept(all[0].id).await.expect("a drop"));
    assert!(!kit.client().drop_kept(all[0].id).await.expect("a drop"), "it is gone");
    let other = kit.client().in_namespace("other").expect("a name");
    assert!(!other.drop_kept(all[1].id).await.expect("a drop"), "another tenant's is not there");
    assert_eq!(kept(&kit).await, all[1..]);
    let counts = kit.store.kept_counts(None).await.expect("a read");
    assert_eq!(counts.iter().map(|count| (count.signals, count.bytes)).collect::<Vec<_>>(), [(2, 5)]);
    assert!(is_kept(keep(&kit, "a", paid(1).dedup("1")).await), "what was dropped may come again");
}

async fn a_namespace_keeps_so_many_signals_and_bytes_and_no_more(kit: Kit) {
    let few = kit.engine().limits(Limits { kept_max: 3, kept_bytes_max: 8, ..Limits::default() }).client();
    let keep = async |key: &str, payload: &str| {
        let payload = Json::parse("payload", payload).expect("JSON");
        few.signal_raw(key, NewSignal::new("paid", payload).keep_for(HOUR)).await
    };
    keep("a", "12345").await.expect("there is room");
    let full = keep("b", "1234").await;
    assert!(matches!(&full, Err(Error::KeptFull(namespace)) if namespace == "default"), "{full:?}");
    assert!(full.expect_err("full").to_string().contains("no more signals can be kept"), "it says so");
    keep("b", "1").await.expect("a smaller one fits");
    keep("c", "1").await.expect("there is room");
    assert!(matches!(keep("c", "1").await, Err(Error::KeptFull(_))), "three are enough");
    let batch = [(Target::from("d"), paid(1))];
    assert_eq!(few.signal_many(batch).await.expect("answers"), [Delivered::KeptFull]);
    let elsewhere = few.in_namespace("other").expect("a name");
    elsewhere.signal_raw("c", paid(1)).await.expect("another tenant has room of its own");
    kit.insert(m().key("a")).await;
    keep("c", "1234").await.expect("a start makes room");
    assert_eq!(few.count_kept().await.expect("a read").bytes, 6);
}

async fn kept_signals_stay_in_their_namespace(kit: Kit) {
    let other = kit.client().in_namespace("other").expect("a name");
    other.signal_raw("order:1", paid(1)).await.expect("it is kept");
    let here = kit.insert(m().key("order:1")).await;
    assert_eq!(payloads(&kit, here).await, [] as [Value; 0]);
    assert_eq!(kept(&kit).await, []);
    let there = {
        let mut there = m().key("order:1");
        there.namespace = "other".to_owned();
        kit.insert(there).await
    };
    assert_eq!(other.inbox(there).await.expect("a read").len(), 1);
}

async fn a_key_that_an_ended_instance_holds_keeps_nothing(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert(m().key("order:1").key_scope(KeyScope::Always)).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, done())).await;
    let refused = kit.client().signal_raw("order:1", paid(1)).await;
    assert!(matches!(refused, Err(Error::NoTarget(_))), "no other instance can start: {refused:?}");
    assert_eq!(kept(&kit).await, []);
}

async fn a_signal_for_an_ended_instance_is_kept_for_the_next(kit: Kit) {
    let worker = kit.worker("w").await;
    let first = kit.insert(m().key("order:1")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, done())).await;
    assert!(is_kept(keep(&kit, "order:1", paid(1)).await));
    let next = kit.insert(m().key("order:1")).await;
    assert_eq!(payloads(&kit, first).await, [] as [Value; 0]);
    assert_eq!(payloads(&kit, next).await, [json!(1)]);
}

async fn a_retried_instance_gets_what_was_kept_for_its_key(kit: Kit) {
    let worker = kit.worker("w").await;
    let id = kit.insert(m().key("order:1")).await;
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, fail("no"))).await;
    assert!(is_kept(keep(&kit, "order:1", paid(1)).await));
    kit.client().retry(id).await.expect("it runs again");
    assert_eq!(payloads(&kit, id).await, [json!(1)]);
    assert_eq!(kept(&kit).await, []);

    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, commit(&claimed, wait_for(&["news"], "on"))).await;
    kit.client().cancel(id).await.expect("a cancel");
    assert!(is_kept(keep(&kit, "order:1", NewSignal::new("news", Json::null()).keep_for(HOUR)).await));
    kit.client().retry(id).await.expect("it waits again");
    assert_eq!(kit.status(id).await, Status::Runnable, "and what was kept wakes it");
    kit.check_counts("retries").await;
}

async fn children_and_mail_start_with_what_was_kept_for_them(kit: Kit) {
    let worker = kit.worker("w").await;
    keep(&kit, "child", paid(1)).await;
    keep(&kit, "sent", paid(2)).await;
    kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let spawns = dormouse::Transition::Spawn(spawn(vec![m().key("child").queue("elsewhere")], "joined"));
    let mail = vec![Mail::start(m().key("sent").queue("elsewhere"))];
    kit.commit(worker, Commit { mail, ..commit(&claimed, spawns) }).await;
    assert_eq!(post(&kit).await, [Posted::Delivered]);
    for (key, amount) in [("child", 1), ("sent", 2)] {
        let started = kit.client().get(key).await.expect("a read").expect("it started").id;
        assert_eq!(payloads(&kit, started).await, [json!(amount)], "{key}");
    }
}

/// Delivers what is due, and returns what became of each piece.
async fn post(kit: &Kit) -> Vec<Posted> {
    let due = kit.store.mail_due(1000).await.expect("a read").mail;
    let batch = due.iter().map(|piece| Post { id: piece.id, how: Posting::Deliver }).collect();
    let limits = Limits { kept_max: 3, ..Limits::default() };
    kit.store.post(batch, MailBounds::from(&limits)).await.expect("a delivery").value
}

async fn mail_may_be_kept(kit: Kit) {
    let worker = kit.worker("w").await;
    let waits = kit.insert(m().key("there").queue("elsewhere")).await;
    kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let paid = |to: &str, amount: u64| Mail::signal(to, PAID, &amount).expect("mail").keep_for(HOUR);
    let mail = vec![paid("later", 1), paid("there", 2), paid("later", 3)];
    kit.commit(worker, Commit { mail, ..commit(&claimed, done()) }).await;
    assert_eq!(post(&kit).await, [Posted::Delivered; 3]);
    assert_eq!(payloads(&kit, waits).await, [json!(2)]);
    let told = kept(&kit).await.into_iter().map(|kept| kept.until).collect::<Vec<_>>();
    assert_eq!(told, [kit.now() + HOUR; 2]);
    let later = kit.insert(m().key("later")).await;
    assert_eq!(payloads(&kit, later).await, [json!(1), json!(3)]);
}

async fn mail_that_finds_no_room_is_undelivered(kit: Kit) {
    let worker = kit.worker("w").await;
    let sender = kit.insert(m()).await;
    let claimed = kit.claim_one(worker).await;
    let mail = (0..4).map(|amount| Mail::signal("later", PAID, &amount).expect("mail").keep_for(HOUR));
    kit.commit(worker, Commit { mail: mail.collect(), ..commit(&claimed, done()) }).await;
    let [first @ .., last] = &post(&kit).await[..] else { panic!("four answers") };
    assert_eq!((first, last), (&[Posted::Delivered; 3][..], &Posted::Undelivered));
    let event = kit.history(sender).await.pop().expect("an event");
    assert_eq!(event.kind, EventKind::MailUndelivered);
    let data: Value = event.data.expect("a reason").decode("data").expect("JSON");
    assert_eq!(data["reason"], "no more signals can be kept in this namespace");
}

async fn a_batch_keeps_some_and_delivers_others(kit: Kit) {
    let id = kit.insert(m().key("there")).await;
    let plain = NewSignal::of(PAID, &9).expect("a signal");
    let batch = [
        (Target::from("later"), paid(1).dedup("a")),
        (Target::from("there"), paid(2)),
        (Target::from("later"), plain.clone()),
        (Target::from("later"), paid(3).dedup("a")),
        (Target::from("earlier"), paid(4)),
        (Target::from(id), plain),
    ];
    let answers = kit.client().signal_many(batch).await.expect("answers");
    assert!(is_kept(answers[0]) && is_kept(answers[4]), "{answers:?}");
    assert!(
        matches!(answers[1], Delivered::Accepted { .. }) && matches!(answers[5], Delivered::Accepted { .. })
    );
    assert_eq!((answers[2], answers[3]), (Delivered::NoTarget, Delivered::Duplicate));
    assert_eq!(kept(&kit).await.len(), 2);
}

async fn an_instance_with_a_key_of_any_scope_gets_what_was_kept(kit: Kit) {
    for (number, scope) in
        [KeyScope::Live, KeyScope::Always, KeyScope::In(vec![Status::Done])].into_iter().enumerate()
    {
        let key = format!("order:{number}");
        keep(&kit, &key, paid(1)).await;
        let id = kit.insert(m().key(&key).key_scope(scope.clone())).await;
        assert_eq!(payloads(&kit, id).await, [json!(1)], "{scope:?}");
        let sent = keep(&kit, &key, paid(2)).await;
        assert!(matches!(sent, Delivered::Accepted { .. }), "{scope:?}: {sent:?}");
    }
}

struct Order;

impl dormouse::Machine for Order {
    const NAME: &'static str = "order";
    type State = OrderState;
    type Output = u64;

    fn accepts() -> Vec<Accepts> {
        vec![PAID.into()]
    }

    async fn step(&self, state: OrderState, cx: &dormouse::Context) -> dormouse::StepResult<Self> {
        Ok(match state {
            OrderState::Placed => Outcome::await_signal(PAID, OrderState::Paid),
            OrderState::Paid => match cx.received(PAID)?.first() {
                Some(amount) => Outcome::done(*amount),
                None => Outcome::stop("nothing came"),
            },
        })
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
enum OrderState {
    Placed,
    Paid,
}

async fn a_signal_that_its_machine_refuses_is_unreadable_and_bricks_nothing(kit: Kit) {
    let engine = kit.engine().machine(Order).start().await.expect("the engine starts");
    let client = engine.client();
    // Nobody knows yet which machine it is for, so nobody refuses it.
    let odd = NewSignal::new("paid", Json::from(json!({ "cents": "oops" }))).keep_for(HOUR);
    assert!(is_kept(client.signal_raw("order:1", odd.clone()).await.expect("it is kept")));
    let unknown = NewSignal::new("paiment", Json::null()).keep_for(HOUR);
    assert!(is_kept(client.signal_raw("order:1", unknown.clone()).await.expect("it is kept")));
    let id = client.start::<Order>(OrderState::Placed).key("order:1").await.expect("it starts");
    let waits = kit.until(id, Status::AwaitingSignal).await;
    assert_eq!(waits.inbox, 2);
    // Now it is known.
    let refused = client.signal_raw("order:1", odd).await;
    assert!(matches!(refused, Err(Error::PayloadRefused { .. })), "{refused:?}");
    let refused = client.signal_raw("order:1", unknown).await;
    assert!(matches!(refused, Err(Error::UndeclaredSignal { .. })), "{refused:?}");
    client.signal("order:1", PAID, 7).keep_for(HOUR).await.expect("a payment");
    let receipt = client.wait::<Order>(id, SOON).await.expect("it is done with the payment that it can read");
    assert_eq!(receipt, 7);
    engine.shutdown().await;
}

async fn what_cannot_be_kept_is_refused(kit: Kit) {
    let client = kit.client();
    for duration in [Duration::ZERO, KEEP_FOR_MAX + Duration::from_secs(1), Duration::MAX] {
        let refused = client.signal("order:1", PAID, 1).keep_for(duration).await;
        assert!(matches!(&refused, Err(Error::NotKept(why)) if why.contains("366 days")), "{refused:?}");
    }
    let refused = client.signal(InstanceId(7), PAID, 1).keep_for(HOUR).await;
    assert!(matches!(&refused, Err(Error::NotKept(why)) if why.contains("send it to a key")), "{refused:?}");
    let refused = client.start_many([m().key("order:1").even_if_unknown().signal(paid(1))]).await;
    assert!(matches!(&refused, Err(Error::NotKept(_))), "{refused:?}");
    let large = Json::from(json!("x".repeat(2 * 1024 * 1024)));
    let refused = client.signal_raw("order:1", NewSignal::new("paid", large).keep_for(HOUR)).await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    let deep = Json::parse("payload", format!("{}{}", "[".repeat(100), "]".repeat(100))).expect("JSON");
    let refused = client.signal_raw("order:1", NewSignal::new("paid", deep).keep_for(HOUR)).await;
    assert!(matches!(refused, Err(Error::TooDeep { .. })), "{refused:?}");
    let refused = client.signal_raw("bad\nkey", paid(1)).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(kept(&kit).await, []);
    client.signal("order:1", PAID, 1).keep_for(KEEP_FOR_MAX).await.expect("a year is not too long");
}

async fn a_key_with_kept_signals_and_no_instance_is_explained(kit: Kit) {
    let unknown = kit.client().explain("order:1").await;
    assert!(matches!(unknown, Err(Error::NotFound(_))), "{unknown:?}");
    keep(&kit, "order:1", paid(1)).await;
    keep(&kit, "order:1", paid(2)).await;
    let told = kit.client().explain("order:1").await.expect("a sentence");
    let until = kit.now() + HOUR;
    assert_eq!(
        told,
        format!(
            "no instance has the key \"order:1\" yet; 2 signals are kept for it, the first (\"paid\") until {until}"
        )
    );
}

async fn signals_and_starts_that_race_lose_and_double_nothing(kit: Kit) {
    const KEYS: usize = 24;
    const SIGNALS: u64 = 4;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..KEYS {
        let key = format!("order:{number}");
        for amount in 0..SIGNALS {
            let (client, key) = (kit.client(), key.clone());
            tasks.spawn(async move {
                // Twice each, as a sender does who hears no answer.
                for _ in 0..2 {
                    let sent = paid(amount).dedup(amount.to_string());
                    client.signal_raw(&*key, sent).await.expect("it is kept or delivered");
                }
            });
        }
        let store = kit.store.clone();
        tasks.spawn(async move {
            store.insert(vec![m().key(key)]).await.expect("a start");
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    for number in 0..KEYS {
        let id = kit.client().get(format!("order:{number}")).await.expect("a read").expect("it started").id;
        let mut inbox = payloads(&kit, id).await;
        inbox.sort_by_key(Value::as_u64);
        assert_eq!(inbox, (0..SIGNALS).map(|amount| json!(amount)).collect::<Vec<_>>(), "order:{number}");
    }
    assert_eq!(kept(&kit).await, []);
    assert_eq!(kit.store.kept_counts(None).await.expect("a read"), []);
}
