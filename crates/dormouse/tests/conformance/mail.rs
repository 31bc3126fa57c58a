//! Mail: what an outcome sends to others is committed with it, and delivered once.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Commit, Filter, Hold, MailBounds, Post, Posted, Posting, Receipt};
use dormouse::{
    Accepts, At, EventKind, InstanceId, Json, Limits, Mail, NewSignal, Status, Target, Transition, WorkerId,
};
use serde_json::{Value, json};

use crate::kit::*;

suite![
    starts_signals_and_cancels_are_delivered_once_after_the_commit,
    every_outcome_may_carry_mail,
    an_outcome_that_is_stale_or_discarded_sends_nothing,
    mail_to_one_address_keeps_its_order,
    mail_stays_in_its_namespace,
    what_cannot_be_delivered_is_an_event_of_its_sender,
    an_undelivered_event_waits_until_no_step_of_the_sender_runs,
    mail_of_an_instance_that_is_gone_is_dropped_with_a_reason_nobody_reads,
    a_chain_of_starts_has_an_end,
    a_start_after_a_while_counts_from_the_commit,
    a_put_off_piece_holds_up_later_ones_to_its_address_only,
    the_engine_delivers_what_steps_send,
    jobs_and_machines_send_alike,
    mail_of_a_failed_step_is_dropped_and_its_handler_sends_its_own,
    a_crash_between_commit_and_delivery_loses_nothing,
    bad_mail_is_an_error_of_the_step_and_stores_nothing,
    a_payload_that_the_target_refuses_is_refused_at_the_door_or_on_delivery,
    mail_that_waits_is_explained,
    a_piece_that_the_store_fails_to_deliver_is_tried_again,
    a_store_that_fails_while_mail_is_checked_is_no_fault_of_the_step,
];

const PAID: Signal<u64> = Signal::named("paid");

fn with(commit: Commit, mail: impl IntoIterator<Item = Mail>) -> Commit {
    Commit { mail: mail.into_iter().collect(), ..commit }
}

fn paid(to: impl Into<Target>, amount: u64) -> Mail {
    Mail::signal(to, PAID, &amount).expect("mail")
}

/// Delivers what is due, and returns what became of each piece.
async fn post(kit: &Kit) -> Vec<Posted> {
    let due = kit.store.mail_due(1000).await.expect("a read").mail;
    let batch = due.iter().map(|piece| Post { id: piece.id, how: Posting::Deliver }).collect();
    let bounds = MailBounds::from(&Limits::default());
    kit.store.post(batch, bounds).await.expect("a delivery").value
}

/// The data of an instance's events of a kind.
async fn told(kit: &Kit, id: InstanceId, kind: EventKind) -> Vec<Value> {
    let events = kit.history(id).await.into_iter().filter(|event| event.kind == kind);
    events.map(|event| event.data.map_or(Value::Null, |data| data.decode("data").expect("JSON"))).collect()
}

/// A claimed sender.
async fn sender(kit: &Kit, worker: WorkerId) -> dormouse::store::Claimed {
    kit.insert(m()).await;
    kit.claim_one(worker).await
}

async fn parked(kit: &Kit, worker: WorkerId, key: &str) -> InstanceId {
    let id = kit.insert(m().key(key)).await;
    let claimed = kit.claim_one(worker).await;
    assert_eq!(claimed.id, id);
    kit.commit(worker, commit(&claimed, wait_for(&["paid"], "ship"))).await;
    id
}

async fn by_key(kit: &Kit, key: &str) -> Option<dormouse::Instance> {
    kit.client().get(key).await.expect("a read")
}

async fn starts_signals_and_cancels_are_delivered_once_after_the_commit(kit: Kit) {
    let worker = kit.worker("w").await;
    let (waits, doomed) = (parked(&kit, worker, "waits").await, parked(&kit, worker, "doomed").await);
    let claimed = sender(&kit, worker).await;
    let mail = [
        Mail::start(m_at(at_with("begin", json!({ "of": 1 }))).key("new").tag("sent")),
        paid("waits", 100),
        Mail::cancel(doomed),
    ];
    let receipt = kit.commit(worker, with(commit(&claimed, done()), mail)).await;
    assert_eq!(receipt, Receipt::Released);
    assert_eq!(kit.status(waits).await, Status::AwaitingSignal, "nothing is delivered in the commit");
    assert!(by_key(&kit, "new").await.is_none());
    assert_eq!(kit.client().mail(claimed.id).await.expect("a read").len(), 3);

    assert_eq!(post(&kit).await, [Posted::Delivered; 3]);
    assert_eq!(kit.status(waits).await, Status::Runnable);
    assert_eq!(kit.status(doomed).await, Status::Cancelled);
    let new = by_key(&kit, "new").await.expect("it is started");
    assert_eq!((&*new.step, new.parent, &new.tags[..]), ("begin", None, &["sent".to_owned()][..]));
    let created = told(&kit, new.id, EventKind::Created).await;
    assert_eq!(created, [json!({ "sent_by": claimed.id, "seq": 2 })]);
    let sent = told(&kit, claimed.id, EventKind::Done).await;
    let named =
        json!([{ "start": "m", "key": "new" }, { "signal": "paid", "to": "waits" }, { "cancel": doomed }]);
    assert_eq!(sent, [json!({ "mail": named, "mail_total": 3 })]);

    assert_eq!(post(&kit).await, [], "what is delivered is gone");
    assert_eq!(kit.client().inbox(waits).await.expect("a read").len(), 1);
    assert_eq!(kit.client().mail(claimed.id).await.expect("a read"), []);
    kit.check_counts("mail").await;
}

async fn every_outcome_may_carry_mail(kit: Kit) {
    let worker = kit.worker("w").await;
    let waits = kit.insert(m().key("waits").queue("elsewhere")).await;
    let spawn = spawn(vec![m().queue("elsewhere")], "joined");
    let outcomes = [
        next("on"),
        replay("start", Duration::from_secs(1)),
        sleep("awake", Duration::from_secs(1)),
        wait_for(&["news"], "heard"),
        Transition::Spawn(spawn),
        done(),
        fail("enough"),
    ];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let claimed = sender(&kit, worker).await;
        let hold = if number == 0 { Hold::Keep } else { Hold::Release };
        let sent = Commit { hold, ..with(commit(&claimed, outcome.clone()), [paid("waits", number as u64)]) };
        kit.commit(worker, sent).await;
        assert_eq!(post(&kit).await, [Posted::Delivered], "{outcome:?}");
        let inbox = kit.client().inbox(waits).await.expect("a read");
        assert_eq!(inbox.len(), number + 1, "{outcome:?}");
        let event = kit.history(claimed.id).await.pop().expect("an event");
        let data: Value = event.data.expect("it names its mail").decode("data").expect("JSON");
        assert_eq!(data["mail"], json!([{ "signal": "paid", "to": "waits" }]), "{outcome:?}");
        assert_eq!(data["mail_total"], 1);
    }
}

async fn an_outcome_that_is_stale_or_discarded_sends_nothing(kit: Kit) {
    let worker = kit.worker("w").await;
    let stale = sender(&kit, worker).await;
    let mut late = with(commit(&stale, done()), [Mail::start(m().key("late"))]);
    late.head.seq += 1;
    assert_eq!(kit.commit(worker, late).await, Receipt::Stale);
    kit.client().cancel(stale.id).await.expect("a cancel");
    let cancelled = with(commit(&stale, done()), [Mail::start(m().key("late"))]);
    assert_eq!(kit.commit(worker, cancelled).await, Receipt::Cancelled);
    assert_eq!(post(&kit).await, []);
    assert!(by_key(&kit, "late").await.is_none());
}

async fn mail_to_one_address_keeps_its_order(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert(m().key("old").queue("elsewhere")).await;
    let claimed = sender(&kit, worker).await;
    // It is replaced: the key is free once the old one is cancelled, and the new one gets all signals.
    let start = Mail::start(m().key("old").queue("elsewhere"));
    let mail = [Mail::cancel("old"), start].into_iter().chain((0..20).map(|number| paid("old", number)));
    kit.commit(worker, with(commit(&claimed, done()), mail)).await;
    assert_eq!(post(&kit).await, [Posted::Delivered; 22]);
    let new = by_key(&kit, "old").await.expect("it is there");
    assert_eq!(new.status, Status::Runnable);
    let inbox = kit.client().inbox(new.id).await.expect("a read");
    let payloads: Vec<u64> =
        inbox.iter().map(|signal| signal.payload.decode("payload").expect("a number")).collect();
    assert_eq!(payloads, (0..20).collect::<Vec<_>>());
}

async fn mail_stays_in_its_namespace(kit: Kit) {
    let worker = kit.worker("w").await;
    let mut elsewhere = m().key("here");
    elsewhere.namespace = "other".to_owned();
    let other = kit.insert(elsewhere.clone().queue("elsewhere")).await;
    let claimed = sender(&kit, worker).await;
    kit.commit(worker, with(commit(&claimed, done()), [paid(other, 1), paid("here", 2)])).await;
    assert_eq!(post(&kit).await, [Posted::Undelivered; 2]);
    assert_eq!(kit.get(other).await.inbox, 0);
}

async fn what_cannot_be_delivered_is_an_event_of_its_sender(kit: Kit) {
    let worker = kit.worker("w").await;
    let holder = kit.insert(m().key("taken").queue("elsewhere")).await;
    let claimed = sender(&kit, worker).await;
    let mail = [
        paid("nobody", 1),
        Mail::start(m().key("taken")),
        Mail::cancel(InstanceId(999_999)),
        // The holder gets the signal of a start whose key is taken.
        Mail::start(m().key("taken").signal(signal("hello"))),
    ];
    kit.commit(worker, with(commit(&claimed, wait_for(&["news"], "heard")), mail)).await;
    let posted = post(&kit).await;
    assert_eq!(posted, [Posted::Undelivered, Posted::Undelivered, Posted::Undelivered, Posted::Delivered]);
    let told = told(&kit, claimed.id, EventKind::MailUndelivered).await;
    let gone = "the target is unknown or has ended";
    let expected = [
        json!({ "seq": 2, "mail": { "signal": "paid", "to": "nobody" }, "reason": gone }),
        json!({ "seq": 2, "mail": { "start": "m", "key": "taken" },
            "reason": format!("its key is taken by instance {holder}") }),
        json!({ "seq": 2, "mail": { "cancel": 999_999 }, "reason": gone }),
    ];
    assert_eq!(told.len(), 3);
    assert!(expected.iter().all(|event| told.contains(event)), "{told:?}");
    assert_eq!(kit.get(holder).await.inbox, 1);
    use EventKind::*;
    let story = kit.story(claimed.id).await;
    assert_eq!(story, [Created, SignalWaiting, MailUndelivered, MailUndelivered, MailUndelivered]);
    // It goes on as if nothing had happened.
    let after = kit.get(claimed.id).await;
    assert_eq!(
        (after.status, after.attempt, &after.awaits[..]),
        (Status::AwaitingSignal, 0, &["news".to_owned()][..])
    );
    kit.deliver(claimed.id, signal("news")).await;
    assert_eq!(kit.status(claimed.id).await, Status::Runnable);
}

async fn an_undelivered_event_waits_until_no_step_of_the_sender_runs(kit: Kit) {
    let worker = kit.worker("w").await;
    let claimed = sender(&kit, worker).await;
    let sent = Commit { hold: Hold::Keep, ..with(commit(&claimed, next("on")), [paid("nobody", 1)]) };
    let Receipt::Held { seq, .. } = kit.commit(worker, sent).await else { panic!("it runs on") };
    assert_eq!(post(&kit).await, [Posted::PutOff]);
    let waiting = kit.client().mail(claimed.id).await.expect("a read");
    assert_eq!(waiting[0].undelivered.as_deref(), Some("the target is unknown or has ended"));
    assert_eq!(post(&kit).await, [], "it is put off");
    // The step's commit finds the claim as it was.
    let mut end = commit(&claimed, done());
    end.head.seq = seq;
    assert_eq!(kit.commit(worker, end).await, Receipt::Released);
    kit.advance(Duration::from_secs(10));
    assert_eq!(post(&kit).await, [Posted::Undelivered]);
    use EventKind::*;
    assert_eq!(kit.story(claimed.id).await, [Created, StepCompleted, Done, MailUndelivered]);
    let ended = kit.get(claimed.id).await;
    assert_eq!((ended.status, ended.output), (Status::Done, Some(Json::null())), "its end stays as it was");
}

async fn mail_of_an_instance_that_is_gone_is_dropped_with_a_reason_nobody_reads(kit: Kit) {
    let worker = kit.worker("w").await;
    let waits = parked(&kit, worker, "waits").await;
    let claimed = sender(&kit, worker).await;
    kit.commit(worker, with(commit(&claimed, done()), [paid("nobody", 1), paid("waits", 2)])).await;
    kit.advance(Duration::from_secs(60));
    let collect = dormouse::store::Collect {
        namespace: None,
        ended_for: Some(Duration::from_secs(1)),
        events_for: None,
        events_after: 0,
        rows_max: 100,
    };
    assert_eq!(kit.store.collect(collect).await.expect("a collection").instances, 1);
    let mut posted = post(&kit).await;
    posted.sort_by_key(|posted| *posted == Posted::Undelivered);
    assert_eq!(posted, [Posted::Delivered, Posted::Undelivered], "mail outlives its sender");
    assert_eq!(kit.status(waits).await, Status::Runnable);
    assert_eq!(post(&kit).await, []);
}

async fn a_chain_of_starts_has_an_end(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert(m()).await;
    let bounds = MailBounds { depth_max: 3, ..MailBounds::from(&Limits::default()) };
    for depth in 1..=4 {
        let claimed = kit.claim_one(worker).await;
        // A child counts as its parent does.
        let outcome = if depth == 2 { Transition::Spawn(spawn(vec![m()], "joined")) } else { done() };
        let mail = if depth == 2 { vec![] } else { vec![Mail::start(m())] };
        kit.commit(worker, with(commit(&claimed, outcome), mail)).await;
        if depth == 3 {
            let parent = kit.claim_one(worker).await;
            kit.commit(worker, commit(&parent, done())).await;
        }
        let due = kit.store.mail_due(10).await.expect("a read").mail;
        let batch = due.iter().map(|piece| Post { id: piece.id, how: Posting::Deliver }).collect();
        let posted = kit.store.post(batch, bounds).await.expect("a delivery").value;
        assert!(posted.iter().all(|posted| *posted == Posted::Delivered), "{depth}: {posted:?}");
    }
    let claimed = kit.claim_one(worker).await;
    kit.commit(worker, with(commit(&claimed, done()), [Mail::start(m())])).await;
    let due = kit.store.mail_due(10).await.expect("a read").mail;
    let batch = due.iter().map(|piece| Post { id: piece.id, how: Posting::Deliver }).collect();
    assert_eq!(kit.store.post(batch, bounds).await.expect("a delivery").value, [Posted::Undelivered]);
    let told = told(&kit, claimed.id, EventKind::MailUndelivered).await;
    assert_eq!(told[0]["reason"], "the chain of starts by mail is at its limit");
    assert_eq!(kit.claim(worker, 10).await, []);
}

async fn a_start_after_a_while_counts_from_the_commit(kit: Kit) {
    let worker = kit.worker("w").await;
    let claimed = sender(&kit, worker).await;
    let sent_at = kit.now();
    let mail = Mail::start(m().key("later").start_at(Duration::from_secs(60)));
    kit.commit(worker, with(commit(&claimed, done()), [mail])).await;
    kit.advance(Duration::from_secs(20));
    assert_eq!(post(&kit).await, [Posted::Delivered]);
    let later = by_key(&kit, "later").await.expect("it is there");
    assert_eq!((later.status, later.wake_at), (Status::Scheduled, Some(sent_at + Duration::from_secs(60))));
}

async fn a_put_off_piece_holds_up_later_ones_to_its_address_only(kit: Kit) {
    let worker = kit.worker("w").await;
    let (one, other) = (parked(&kit, worker, "one").await, parked(&kit, worker, "other").await);
    let claimed = sender(&kit, worker).await;
    let mail = [paid("one", 1), paid("one", 2), paid("other", 3)];
    kit.commit(worker, with(commit(&claimed, done()), mail)).await;
    let due = kit.store.mail_due(10).await.expect("a read").mail;
    let bounds = MailBounds::from(&Limits::default());
    let how = |place| if place == 0 { Posting::PutOff } else { Posting::Deliver };
    let batch = due.iter().enumerate().map(|(place, piece)| Post { id: piece.id, how: how(place) }).collect();
    let posted = kit.store.post(batch, bounds).await.expect("a delivery").value;
    assert_eq!(posted, [Posted::PutOff, Posted::PutOff, Posted::Delivered]);
    assert_eq!((kit.get(one).await.inbox, kit.get(other).await.inbox), (0, 1));
    // A piece that is sent meanwhile stays behind them, too.
    let claimed = kit.claim(worker, 10).await;
    assert_eq!(claimed.len(), 1, "the other one is woken");
    kit.advance(Duration::from_secs(10));
    assert_eq!(post(&kit).await, [Posted::Delivered; 2]);
    let inbox = kit.client().inbox(one).await.expect("a read");
    let payloads: Vec<u64> =
        inbox.iter().map(|signal| signal.payload.decode("payload").expect("a number")).collect();
    assert_eq!(payloads, [1, 2]);
}

/// A machine that sends one of each, and one that is started, signalled and cancelled.
struct Desk;

#[derive(Serialize, Deserialize)]
enum Writing {
    Send { to: String },
    Sent,
}

impl Machine for Desk {
    const NAME: &'static str = "desk";
    type State = Writing;
    type Output = ();

    async fn step(&self, state: Writing, _cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Writing::Send { to } => Outcome::next(Writing::Sent)
                .start(NewInstance::of::<Reader>(Reading::Wait).key(&*to))
                .signal(&*to, PAID, 7)
                .cancel("doomed"),
            Writing::Sent => Outcome::done(()),
        })
    }
}

struct Reader;

#[derive(Serialize, Deserialize)]
enum Reading {
    Wait,
    Read,
}

impl Machine for Reader {
    const NAME: &'static str = "reader";
    type State = Reading;
    type Output = Vec<u64>;

    async fn step(&self, state: Reading, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Reading::Wait => Outcome::await_signal(PAID, Reading::Read),
            Reading::Read => Outcome::done(cx.received(PAID)?),
        })
    }

    fn accepts() -> Vec<Accepts> {
        vec![PAID.into()]
    }
}

struct Note;

impl Job for Note {
    const NAME: &'static str = "note";
    type Input = String;
    type Output = ();

    async fn run(&self, to: String, cx: &Context) -> Result<(), BoxError> {
        cx.mail(NewInstance::of::<Reader>(Reading::Wait).key(&*to));
        cx.mail(Mail::signal(&*to, PAID, &8)?);
        Ok(())
    }
}

/// What the reader of a key read. The clock moves on: on PostgreSQL a piece of mail whose target is locked at that moment,
/// as one that parks is, waits for a moment on it.
async fn read_by(kit: &Kit, key: &str) -> Vec<u64> {
    let client = kit.client();
    let read = async {
        loop {
            if let Some(reader) = client.get(key).await.expect("a read") {
                return client.wait::<Reader>(reader.id, SOON).await.expect("it reads");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let clock = async {
        let deadline = tokio::time::Instant::now() + SOON;
        while tokio::time::Instant::now() < deadline {
            kit.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{key} is never started");
    };
    tokio::select! { read = read => read, () = clock => unreachable!("it panics") }
}

async fn the_engine_delivers_what_steps_send(kit: Kit) {
    let doomed = kit.insert(m().key("doomed")).await;
    let engine = kit.engine().machine(Desk).machine(Reader).start().await.expect("it starts");
    let client = engine.client();
    let id = client.start::<Desk>(Writing::Send { to: "reader".to_owned() }).await.expect("a start");
    assert_eq!(read_by(&kit, "reader").await, [7]);
    kit.until(doomed, Status::Cancelled).await;
    kit.until(id, Status::Done).await;
    use EventKind::*;
    assert_eq!(kit.story(id).await, [Created, StepCompleted, Done], "all of it was delivered");
    engine.shutdown().await;
}

async fn jobs_and_machines_send_alike(kit: Kit) {
    let engine = kit.engine().job(Note).machine(Reader).start().await.expect("it starts");
    let client = engine.client();
    client.start_job::<Note>("reader".to_owned()).await.expect("a start");
    assert_eq!(read_by(&kit, "reader").await, [8]);
    engine.shutdown().await;
}

async fn mail_of_a_failed_step_is_dropped_and_its_handler_sends_its_own(kit: Kit) {
    struct Fails;
    #[derive(Serialize, Deserialize)]
    enum Only {
        Step,
    }
    impl Machine for Fails {
        const NAME: &'static str = "fails";
        type State = Only;
        type Output = ();
        async fn step(&self, _state: Only, cx: &Context) -> StepResult<Self> {
            cx.mail(NewInstance::of::<Reader>(Reading::Wait).key("of the step"));
            Err("no".into())
        }
        async fn handle(&self, error: StepError, _state: Only, _cx: &Context) -> StepResult<Self> {
            Ok(Outcome::stop(error).start(NewInstance::of::<Reader>(Reading::Wait).key("of the handler")))
        }
    }
    let engine = kit.engine().machine(Fails).start().await.expect("it starts");
    let id = engine.client().start::<Fails>(Only::Step).await.expect("a start");
    kit.until(id, Status::Failed).await;
    while by_key(&kit, "of the handler").await.is_none() {
        kit.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(by_key(&kit, "of the step").await.is_none());
    engine.shutdown().await;
}

async fn a_crash_between_commit_and_delivery_loses_nothing(kit: Kit) {
    let worker = kit.worker("w").await;
    let claimed = sender(&kit, worker).await;
    let mail = Mail::start(NewInstance::of::<Reader>(Reading::Wait).key("reader"));
    kit.commit(worker, with(commit(&claimed, done()), [mail, paid("reader", 9)])).await;
    // Nobody is poked: an engine that starts later finds it.
    let engine = kit.engine().machine(Reader).start().await.expect("it starts");
    assert_eq!(read_by(&kit, "reader").await, [9]);
    engine.shutdown().await;
}

async fn bad_mail_is_an_error_of_the_step_and_stores_nothing(kit: Kit) {
    let limits = Limits { mail_max: 3, mail_bytes_max: 100, ..Limits::default() };
    let run = |at: &At, cx: &Context| {
        match at.step.as_ref() {
            "to its id" => cx.mail(paid(cx.id(), 1)),
            "to its key" => cx.mail(Mail::cancel("self")),
            "too many" => (0..4).for_each(|_| cx.mail(paid("other", 1))),
            "too large" => {
                cx.mail(Mail::signal_raw("other", NewSignal::new("paid", "x".repeat(200).into_json())));
            }
            "unknown machine" => cx.mail(NewInstance::named("nowhere", 1, at.clone())),
            "no name" => cx.mail(paid("", 1)),
            other => panic!("{other}"),
        }
        Ok(done())
    };
    let builder = kit.engine().limits(limits).dyn_machine(Script::named("m", run));
    let engine = builder.start().await.expect("it starts");
    for (step, why) in [
        ("to its id", "to its own instance"),
        ("to its key", "to its own instance"),
        ("too many", "4 pieces of mail and the limit is 3"),
        ("too large", "bytes of mail and the limit is 100"),
        ("unknown machine", "nowhere"),
        ("no name", "it is empty"),
    ] {
        let id = kit.insert(m_at(at(step)).key("self")).await;
        kit.store.poke(&dormouse::store::Effects {
            queues: ["default".to_owned()].into(),
            ..dormouse::store::Effects::default()
        });
        let failed = kit.until(id, Status::Failed).await;
        let error = failed.last_error.expect("an error");
        assert!(error.contains(why), "{step}: {error}");
    }
    assert_eq!(post(&kit).await, []);
    engine.shutdown().await;
}

trait IntoJson {
    fn into_json(self) -> Json;
}

impl IntoJson for String {
    fn into_json(self) -> Json {
        Json::from(json!(self))
    }
}

async fn a_payload_that_the_target_refuses_is_refused_at_the_door_or_on_delivery(kit: Kit) {
    let run = |at: &At, cx: &Context| {
        let payload = NewSignal::new("paid", Json::from(json!("lots")));
        match at.step.as_ref() {
            "bad payload" => cx.mail(Mail::signal_raw("reader", payload)),
            "bad name" => cx.mail(Mail::signal_raw("reader", signal("payed"))),
            // Nobody has the key when it is sent.
            _ => {
                cx.mail(NewInstance::of::<Reader>(Reading::Wait).key("later"));
                cx.mail(Mail::signal_raw("later", payload));
            }
        }
        Ok(done())
    };
    let builder = kit.engine().machine(Reader).dyn_machine(Script::named("m", run));
    let engine = builder.start().await.expect("it starts");
    let client = engine.client();
    client.start::<Reader>(Reading::Wait).key("reader").await.expect("a start");
    let start =
        async |step: &'static str| client.start_many([m_at(at(step))]).await.expect("a start")[0].id();
    for (step, why) in [("bad payload", "lots"), ("bad name", "payed")] {
        let error = kit.until(start(step).await, Status::Failed).await.last_error.expect("an error");
        assert!(error.contains(why) || error.contains("paid"), "{step}: {error}");
    }
    let id = start("later").await;
    kit.until(id, Status::Done).await;
    let deadline = tokio::time::Instant::now() + SOON;
    let undelivered = loop {
        if let Some(told) = told(&kit, id, EventKind::MailUndelivered).await.pop() {
            break told;
        }
        assert!(tokio::time::Instant::now() < deadline, "{:?}", kit.client().explain(id).await);
        // On PostgreSQL the event waits for a moment if another transaction holds the sender.
        kit.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(undelivered["reason"].as_str().expect("a reason").contains("paid"), "{undelivered}");
    let later = by_key(&kit, "later").await.expect("it is there");
    assert_eq!(later.inbox, 0, "nothing of it is stored");
    engine.shutdown().await;
}

async fn mail_that_waits_is_explained(kit: Kit) {
    let worker = kit.worker("w").await;
    let claimed = sender(&kit, worker).await;
    kit.commit(
        worker,
        with(commit(&claimed, wait_for(&["news"], "heard")), [paid("other", 1), paid("third", 2)]),
    )
    .await;
    let why = kit.client().explain(claimed.id).await.expect("a read");
    assert!(
        why.ends_with(
            "; 2 pieces of its mail wait, the first (signal \"paid\" to the instance with key \"other\") is about to be delivered"
        ),
        "{why}"
    );
}

async fn a_piece_that_the_store_fails_to_deliver_is_tried_again(mut kit: Kit) {
    let faulty = std::sync::Arc::new(crate::faulty::Faulty::on(kit.store.clone()));
    faulty.refuse_next("post", 3);
    kit.store = faulty.clone();
    let worker = kit.worker("w").await;
    let claimed = sender(&kit, worker).await;
    let mail = Mail::start(NewInstance::of::<Reader>(Reading::Wait).key("reader"));
    kit.commit(worker, with(commit(&claimed, done()), [mail, paid("reader", 9)])).await;
    let builder = kit.engine().machine(Reader).poll(Duration::from_millis(20));
    let engine = builder.start().await.expect("it starts");
    assert_eq!(read_by(&kit, "reader").await, [9]);
    assert!(faulty.calls("post") > 3);
    let rows = kit.list(Filter { machine: Some("reader".to_owned()), ..Filter::default() }).await;
    assert_eq!(rows.len(), 1);
    engine.shutdown().await;
}

async fn a_store_that_fails_while_mail_is_checked_is_no_fault_of_the_step(mut kit: Kit) {
    let faulty = std::sync::Arc::new(crate::faulty::Faulty::on(kit.store.clone()));
    kit.store = faulty.clone();
    let run = |_: &At, cx: &Context| {
        // One that the reader would refuse is looked up, and nobody is there.
        cx.mail(Mail::signal_raw("nobody", NewSignal::new("paid", Json::from(json!("lots")))));
        Ok(done())
    };
    let builder = kit.engine().machine(Reader).dyn_machine(Script::named("m", run));
    let engine = builder.start().await.expect("it starts");
    faulty.refuse_next("addressees", 3);
    let id = engine.client().start_many([m_at(at("start"))]).await.expect("a start")[0].id();
    kit.until(id, Status::Done).await;
    assert!(faulty.calls("addressees") > 3);
    engine.shutdown().await;
}
