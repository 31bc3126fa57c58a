//! Signals that cannot be read, once they are in an inbox: they are passed over, and people repair them.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Amend, AmendRequest, Delivery};
use dormouse::{Accepts, Error, EventKind, InstanceId, Json, NewSignal, SignalId, Status, Target};
use serde_json::{Value, json};

use crate::kit::*;

suite![
    a_signal_that_cannot_be_read_wakes_nobody_for_long_and_a_good_one_is_taken,
    a_wait_that_an_unreadable_signal_interrupted_keeps_its_deadline,
    a_step_that_declares_nothing_takes_what_it_can_read_and_is_told_of_the_rest,
    a_failed_instance_waits_again_after_the_signal_that_failed_it_was_dropped,
    an_edited_signal_wakes_who_is_parked_on_it,
    a_failed_instance_runs_with_its_edited_signal,
    an_edit_is_checked_like_a_signal_that_is_sent,
    a_signal_is_left_alone_while_its_step_runs_or_if_the_instance_moved,
    a_dropped_signal_can_be_sent_again_under_its_dedup_key,
    the_end_tells_which_signals_were_never_read,
    a_flow_takes_the_first_signal_that_it_can_read,
];

struct Order<const DECLARES: bool>;

#[derive(Serialize, Deserialize)]
enum Place {
    Placed,
    Paid,
}

#[derive(Serialize, Deserialize)]
struct Payment {
    cents: u64,
}

const PAYMENT: Signal<Payment> = Signal::named("payment");

impl<const DECLARES: bool> Machine for Order<DECLARES> {
    const NAME: &'static str = if DECLARES { "declared" } else { "silent" };
    type State = Place;
    type Output = Vec<u64>;

    async fn step(&self, state: Place, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Place::Placed => Outcome::await_signal(PAYMENT.timeout(Duration::from_secs(3600)), Place::Paid),
            Place::Paid if cx.timed_out() => Outcome::done(vec![]),
            Place::Paid => {
                let paid = cx.received(PAYMENT)?;
                let unread = cx.unreadable().len() as u64;
                Outcome::done(paid.iter().map(|payment| payment.cents).chain([unread]).collect())
            }
        })
    }

    fn accepts() -> Vec<Accepts> {
        if DECLARES { vec![PAYMENT.into()] } else { vec![] }
    }
}

fn payment(payload: Value) -> NewSignal {
    NewSignal::new("payment", Json::from(payload))
}

/// Past the doors, as SQL or an older version would send it.
async fn smuggle(kit: &Kit, id: InstanceId, signal: NewSignal) {
    let delivery = Delivery {
        namespace: "default".to_owned(),
        target: Target::Id(id),
        signal,
        inbox_max: dormouse::InboxMax::default(),
        kept_max: dormouse::KeptMax::default(),
    };
    let written = kit.store.deliver(vec![delivery]).await.expect("a delivery");
    kit.store.poke(&written.effects);
}

async fn kinds(kit: &Kit, id: InstanceId) -> Vec<EventKind> {
    kit.history(id).await.into_iter().map(|event| event.kind).collect()
}

/// Waits until an instance has come to this transition, and is not being run.
async fn until_seq(kit: &Kit, id: InstanceId, seq: u64) {
    let deadline = tokio::time::Instant::now() + SOON;
    let mut changes = kit.store.hub().changes();
    while kit.get(id).await.seq < seq {
        let moved = tokio::time::timeout_at(deadline, changes.changed()).await;
        assert!(moved.is_ok(), "{:?}", kit.history(id).await);
    }
}

async fn first(kit: &Kit, id: InstanceId) -> SignalId {
    kit.client().inbox(id).await.expect("a read").first().expect("a signal").id
}

async fn a_signal_that_cannot_be_read_wakes_nobody_for_long_and_a_good_one_is_taken(kit: Kit) {
    let engine = kit.engine().machine(Order::<true>).start().await.expect("it starts");
    let client = engine.client();
    let id = client.start::<Order<true>>(Place::Placed).await.expect("a start");
    kit.until(id, Status::AwaitingSignal).await;
    smuggle(&kit, id, payment(json!({ "cents": "oops" }))).await;
    // Woken, looked at, and parked again.
    until_seq(&kit, id, 4).await;
    kit.until(id, Status::AwaitingSignal).await;
    for client in [client.clone(), kit.client()] {
        let told = client.explain(id).await.expect("an explanation");
        assert!(
            told.contains("in its inbox cannot be read, drop or edit it: ") && told.contains("(at cents)"),
            "{told}"
        );
        let instance = kit.get(id).await;
        let inbox = client.inbox(id).await.expect("a read");
        let unreadable = client.unreadable(&instance, &inbox).await.expect("a look");
        assert!(unreadable[0].as_deref().is_some_and(|why| why.contains("cents")), "{unreadable:?}");
    }
    client.signal(id, PAYMENT, Payment { cents: 5 }).await.expect("a good one");
    assert_eq!(client.wait::<Order<true>>(id, SOON).await.expect("an output"), [5, 1]);
    engine.shutdown().await;
}

async fn a_wait_that_an_unreadable_signal_interrupted_keeps_its_deadline(kit: Kit) {
    let engine = kit.engine().machine(Order::<true>).start().await.expect("it starts");
    let client = engine.client();
    let id = client.start::<Order<true>>(Place::Placed).await.expect("a start");
    let until = kit.until(id, Status::AwaitingSignal).await.wake_at.expect("a deadline");
    smuggle(&kit, id, payment(json!(null))).await;
    until_seq(&kit, id, 4).await;
    let again = kit.until(id, Status::AwaitingSignal).await.wake_at.expect("a deadline");
    assert_eq!(again, until);
    engine.shutdown().await;
}

async fn a_step_that_declares_nothing_takes_what_it_can_read_and_is_told_of_the_rest(kit: Kit) {
    let engine = kit.engine().machine(Order::<false>).start().await.expect("it starts");
    let client = engine.client();
    let new = NewInstance::of::<Order<false>>(Place::Placed);
    let both = [payment(json!("oops")), payment(json!({ "cents": 5 }))];
    let new = both.into_iter().fold(new, NewInstance::signal);
    let id = client.start_many([new]).await.expect("it declares nothing, so nothing is known")[0].id();
    assert_eq!(client.wait::<Order<false>>(id, SOON).await.expect("an output"), [5, 1]);
    engine.shutdown().await;
}

/// One that failed by a signal that it could not read.
async fn failed(kit: &Kit, client: &dormouse::Client) -> InstanceId {
    let new = NewInstance::of::<Order<false>>(Place::Placed).signal(payment(json!({ "cents": "oops" })));
    let id = client.start_many([new]).await.expect("a start")[0].id();
    let failed = kit.until(id, Status::Failed).await;
    assert!(failed.last_error.expect("why").contains("(at cents)"));
    id
}

async fn a_failed_instance_waits_again_after_the_signal_that_failed_it_was_dropped(kit: Kit) {
    let engine = kit.engine().machine(Order::<false>).start().await.expect("it starts");
    let client = engine.client();
    let id = failed(&kit, &client).await;
    client.drop_signal(id, first(&kit, id).await).await.expect("it is in the inbox");
    let instance = kit.get(id).await;
    assert_eq!((instance.status, instance.inbox), (Status::Failed, 0), "its end stays as it was");
    assert_eq!(kinds(&kit, id).await.last(), Some(&EventKind::SignalDropped));
    client.retry(id).await.expect("it failed");
    assert!(kit.until(id, Status::AwaitingSignal).await.wake_at.is_some(), "until its old deadline");
    client.signal(id, PAYMENT, Payment { cents: 7 }).await.expect("a good one");
    assert_eq!(client.wait::<Order<false>>(id, SOON).await.expect("an output"), [7, 0]);
    engine.shutdown().await;
}

async fn an_edited_signal_wakes_who_is_parked_on_it(kit: Kit) {
    let engine = kit.engine().machine(Order::<true>).start().await.expect("it starts");
    let client = engine.client();
    let id = client.start::<Order<true>>(Place::Placed).await.expect("a start");
    kit.until(id, Status::AwaitingSignal).await;
    smuggle(&kit, id, payment(json!({ "cents": "oops" }))).await;
    until_seq(&kit, id, 4).await;
    kit.until(id, Status::AwaitingSignal).await;
    let edit = client.edit_signal(id, first(&kit, id).await, Json::from(json!({ "cents": 9 })));
    edit.await.expect("it is in the inbox");
    assert_eq!(client.wait::<Order<true>>(id, SOON).await.expect("an output"), [9, 0]);
    let story = kit.history(id).await;
    let edited = story.iter().find(|event| event.kind == EventKind::SignalEdited).expect("it is told");
    let told: Value = edited.data.as_ref().expect("data").decode("data").expect("JSON");
    assert_eq!((&told["payload"], &told["was"]), (&json!({ "cents": 9 }), &json!({ "cents": "oops" })));
    engine.shutdown().await;
}

async fn a_failed_instance_runs_with_its_edited_signal(kit: Kit) {
    let engine = kit.engine().machine(Order::<false>).start().await.expect("it starts");
    let client = engine.client();
    let id = failed(&kit, &client).await;
    let signal = first(&kit, id).await;
    client.edit_signal(id, signal, Json::from(json!({ "cents": 3 }))).await.expect("it is in the inbox");
    client.retry(id).await.expect("it failed");
    assert_eq!(client.wait::<Order<false>>(id, SOON).await.expect("an output"), [3, 0]);
    engine.shutdown().await;
}

async fn an_edit_is_checked_like_a_signal_that_is_sent(kit: Kit) {
    let engine = kit.engine().machine(Order::<true>).start().await.expect("it starts");
    let id = engine.client().start::<Order<true>>(Place::Placed).await.expect("a start");
    kit.until(id, Status::AwaitingSignal).await;
    smuggle(&kit, id, payment(json!({ "cents": "oops" }))).await;
    until_seq(&kit, id, 4).await;
    kit.until(id, Status::AwaitingSignal).await;
    let (before, signal) = (kit.get(id).await, first(&kit, id).await);
    for client in [engine.client(), kit.client()] {
        let refused = client.edit_signal(id, signal, Json::from(json!({ "cents": -1 }))).await;
        assert!(matches!(refused, Err(Error::PayloadRefused { .. })), "{refused:?}");
    }
    assert_eq!(kit.get(id).await, before, "nothing was changed");
    engine.shutdown().await;
}

async fn a_signal_is_left_alone_while_its_step_runs_or_if_the_instance_moved(kit: Kit) {
    let id = kit.insert(m().signal(NewSignal::new("s", Json::null()))).await;
    let client = kit.client();
    let signal = first(&kit, id).await;
    let stale = client.drop_signal(id, signal).expected_seq(99).await;
    assert!(matches!(stale, Err(Error::StaleSeq { actual: 1, .. })), "{stale:?}");
    let nobody = client.drop_signal(id, SignalId(signal.0 + 1000)).await;
    assert!(matches!(nobody, Err(Error::NoSignal { .. })), "{nobody:?}");
    let elsewhere = kit.store.amend(
        "other".to_owned(),
        Target::Id(id),
        AmendRequest { signal, amend: Amend::Drop, expected_seq: None },
    );
    assert!(matches!(elsewhere.await, Err(Error::NotFound(_))), "it is of another namespace");
    let worker = kit.worker("w").await;
    kit.claim(worker, 1).await;
    let running = client.drop_signal(id, signal).await;
    assert!(matches!(running, Err(Error::WrongStatus { status: Status::Executing, .. })), "{running:?}");
    assert_eq!(client.inbox(id).await.expect("a read").len(), 1);
}

async fn a_dropped_signal_can_be_sent_again_under_its_dedup_key(kit: Kit) {
    let id = kit.insert(m().signal(NewSignal::new("s", Json::null()).dedup("once"))).await;
    let client = kit.client();
    client.drop_signal(id, first(&kit, id).await).expected_seq(1).await.expect("it is in the inbox");
    assert_eq!((kit.get(id).await.inbox, kit.get(id).await.seq), (0, 2));
    let again =
        client.signal_raw(id, NewSignal::new("s", Json::null()).dedup("once")).await.expect("a signal");
    assert!(matches!(again, dormouse::Delivered::Accepted { .. }), "{again:?}");
}

async fn the_end_tells_which_signals_were_never_read(kit: Kit) {
    let engine = kit.engine().machine(Order::<false>).start().await.expect("it starts");
    let client = engine.client();
    let others = ["note", "note", "recept"].map(|name| NewSignal::new(name, Json::null()));
    let new = NewInstance::of::<Order<false>>(Place::Placed);
    let new = others.into_iter().chain([payment(json!({ "cents": 5 }))]).fold(new, NewInstance::signal);
    let id = client.start_many([new]).await.expect("a start")[0].id();
    kit.until(id, Status::Done).await;
    let story = kit.history(id).await;
    let told: Value =
        story.last().expect("an end").data.as_ref().expect("data").decode("data").expect("JSON");
    assert_eq!(told["unread"], json!([{ "name": "note", "count": 2 }, { "name": "recept", "count": 1 }]));
    assert_eq!(told["unread_total"], 3);
    let plain = NewInstance::of::<Order<false>>(Place::Placed).signal(payment(json!({ "cents": 5 })));
    let id = client.start_many([plain]).await.expect("a start")[0].id();
    kit.until(id, Status::Done).await;
    assert_eq!(
        kit.history(id).await.last().expect("an end").data,
        None,
        "one that read all of it tells nothing"
    );
    engine.shutdown().await;
}

async fn a_flow_takes_the_first_signal_that_it_can_read(kit: Kit) {
    use dormouse::flow::{Flow, signal};
    let paid = |_: Payment, payment: Payment| Ok(payment);
    let flow = Flow::new("flow").then(signal(PAYMENT, paid).sent_by("a shop")).build(()).expect("a flow");
    let new = flow.instance(&Payment { cents: 0 }).expect("a state");
    let id = kit.insert(new).await;
    smuggle(&kit, id, payment(json!("oops"))).await;
    smuggle(&kit, id, payment(json!({ "cents": 4 }))).await;
    let engine = kit.engine().dyn_machine(std::sync::Arc::new(flow)).start().await.expect("it starts");
    assert_eq!(kit.until(id, Status::Done).await.output, Some(Json::from(json!({ "cents": 4 }))));
    engine.shutdown().await;
}
