//! Bad input is refused with a clear error and loses nothing; good input survives unchanged.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::Filter;
use dormouse::{Accepts, Error, Fault, Json, NewSignal, Status, Transition};

use crate::kit::*;

suite![
    names_that_cannot_be_used_are_refused_everywhere,
    documents_over_the_limit_are_refused_everywhere,
    documents_with_nul_are_refused_everywhere,
    an_outcome_with_nul_goes_to_the_error_handler,
    an_error_with_nul_ends_its_instance_and_can_be_read,
    a_name_with_nul_names_nobody,
    any_json_survives_every_path_unchanged,
    text_that_is_not_json_is_refused,
    a_payload_that_its_machine_does_not_accept_is_refused_at_the_door,
    a_batch_with_one_malformed_entry_stores_nothing,
    an_engine_that_makes_no_sense_does_not_start,
    a_version_that_no_store_can_hold_is_refused_and_the_largest_runs,
    durations_without_an_end_are_as_long_as_time_is,
    a_state_that_cannot_be_encoded_is_told_at_the_start,
    verbs_on_what_is_not_there_say_so,
    waiting_tells_how_it_ended_or_why_it_has_not,
];

async fn names_that_cannot_be_used_are_refused_everywhere(kit: Kit) {
    let client = kit.client();
    let long = "x".repeat(256);
    for bad in ["", &long, "a\nb", "nul\0"] {
        for new in [
            m().key(bad),
            m().queue(bad),
            m().lane(bad),
            NewInstance::named(bad, 1, at("start")),
            m().signal(signal(bad)),
            m().signal(signal("ok").dedup(bad)),
        ] {
            let error = client.start_many([new]).await.expect_err("it is refused");
            assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        }
        let error = client.signal_raw("k", signal(bad)).await.expect_err("it is refused");
        assert!(matches!(error, Error::InvalidName { what: "signal name", .. }), "{error}");
        assert!(client.signal_raw(bad, signal("ok")).await.is_err());
        assert!(client.in_namespace(bad).is_err());
        assert!(client.pause_queue(bad).await.is_err());
    }
    let mut never_woken = m();
    never_woken.awaits = Some((Vec::new(), None));
    let error = client.start_many([never_woken]).await.expect_err("nothing could wake it");
    assert!(error.to_string().contains("it awaits no signals"), "{error}");
    assert!(client.start_many([m().key("é".repeat(127))]).await.is_ok(), "254 bytes are enough for anyone");
    assert_eq!(kit.stats().await.count(Status::Runnable), 1, "nothing else was stored");
}

async fn documents_over_the_limit_are_refused_everywhere(kit: Kit) {
    let client = kit.client();
    let big = serde_json::json!("x".repeat(1024 * 1024));
    let state = m_at(at_with("start", big.clone()));
    let error = client.start_many([state]).await.expect_err("it is refused");
    assert!(matches!(error, Error::TooLarge { what: "state", limit_bytes: 1_048_576, .. }), "{error}");
    let id = kit.insert(m()).await;
    let error = client.signal_raw(id, NewSignal::new("s", Json::from(big))).await.expect_err("it is refused");
    assert!(matches!(error, Error::TooLarge { what: "signal payload", .. }), "{error}");
    assert_eq!(kit.get(id).await.inbox, 0);
    let fits = serde_json::json!("x".repeat(1024 * 1024 - 2));
    assert!(client.start_many([m_at(at_with("start", fits))]).await.is_ok());
}

async fn documents_with_nul_are_refused_everywhere(kit: Kit) {
    let client = kit.client();
    let id = kit.insert(m()).await;
    for text in [r#""\u0000""#, r#"{"a":["b\u0000"]}"#, r#"{"a\u0000":1}"#, r#""\\\u0000""#] {
        let json = Json::parse("test", text).expect("it is JSON");
        let place = dormouse::At { step: "start".into(), state: json.clone() };
        let elsewhere = |mut new: NewInstance| {
            new.at = place.clone();
            new
        };
        let with_signal = m().signal(NewSignal::new("s", json.clone()));
        for (what, refused) in [
            ("state", client.start_many([m_at(place.clone())]).await.err()),
            ("state", client.retry_raw(id, place.clone()).await.err()),
            ("state", client.fork(id, 1, elsewhere).await.err()),
            ("signal payload", client.start_many([with_signal]).await.err()),
            ("signal payload", client.signal_raw(id, NewSignal::new("s", json.clone())).await.err()),
        ] {
            let error = refused.expect("it is refused");
            assert!(matches!(error, Error::HoldsNul { what: kind } if kind == what), "{error}");
            assert!(error.to_string().contains("U+0000") && !error.is_transient(), "{error}");
        }
    }
    assert_eq!((kit.get(id).await.inbox, kit.stats().await.count(Status::Runnable)), (0, 1));
    let escaped = Json::parse("test", r#""\\u0000""#).expect("it is JSON");
    client
        .signal_raw(id, NewSignal::new("s", escaped.clone()))
        .await
        .expect("a backslash and letters are text");
    assert_eq!(client.inbox(id).await.expect("a read")[0].payload, escaped);
}

async fn an_outcome_with_nul_goes_to_the_error_handler(kit: Kit) {
    let nul = || Json::from(serde_json::json!({ "text": "\0" }));
    let engine = kit
        .run(move |at, _| {
            let to = dormouse::At { step: "next".into(), state: nul() };
            let child = || m_at(dormouse::At { step: "done".into(), state: nul() });
            Ok(match at.step.as_ref() {
                "next" => Transition::Next { at: to, ahead: true },
                "done" => Transition::Done { output: nul() },
                "spawn" => Transition::Spawn(spawn(vec![child()], "never")),
                _ => Transition::Spawn(spawn(vec![m().signal(NewSignal::new("s", nul()))], "never")),
            })
        })
        .await;
    for (step, what) in
        [("next", "state"), ("done", "output"), ("spawn", "state"), ("spawn with a signal", "signal payload")]
    {
        let id = kit.insert(m_at(at(step))).await;
        let ended = kit.until(id, Status::Failed).await;
        let error = ended.last_error.expect("an error");
        assert!(error.contains(&format!("the {what} holds the character U+0000")), "{error}");
    }
    assert_eq!(kit.stats().await.count(Status::Failed), 4, "no child was inserted");
    engine.shutdown().await;
}

async fn an_error_with_nul_ends_its_instance_and_can_be_read(kit: Kit) {
    let engine = kit
        .run(|at, cx| match at.step.as_ref() {
            "error" => Err(Fault::Failed("bytes: \0\u{1}".into())),
            "stop" => Ok(fail("bytes: \0\u{1}")),
            "panic" => panic!("bytes: \0\u{1}"),
            _ if cx.attempt() == 0 => Ok(Transition::Replay {
                at: crate::kit::at("replay"),
                delay: Duration::from_secs(60),
                error: Some("bytes: \0\u{1}".to_owned()),
            }),
            _ => Ok(done()),
        })
        .await;
    for step in ["error", "stop", "panic", "replay"] {
        let id = kit.insert(m_at(at(step))).await;
        let status = if step == "replay" { Status::Scheduled } else { Status::Failed };
        let error = kit.until(id, status).await.last_error.expect("an error");
        assert!(error.ends_with("bytes: \u{FFFD}\u{1}"), "{step}: {error:?}");
        let told = kit.history(id).await.pop().and_then(|event| event.data).expect("its data");
        let told: serde_json::Value = told.decode("event's data").expect("JSON");
        assert_eq!(told["error"], error, "{step}");
    }
    engine.shutdown().await;
}

async fn a_name_with_nul_names_nobody(kit: Kit) {
    let client = kit.client();
    kit.insert(m().key("k")).await;
    assert_eq!(client.get("k\0").await.expect("a read"), None);
    assert!(matches!(client.cancel("k\0").await, Err(Error::NotFound(_))));
    assert!(matches!(client.retry("\0").await, Err(Error::NotFound(_))));
    assert!(matches!(client.pause("\0").await, Err(Error::NotFound(_))));
    let text = || Some("\0".to_owned());
    for filter in [
        Filter { namespace: text(), ..Filter::default() },
        Filter { machine: text(), ..Filter::default() },
        Filter { queue: text(), ..Filter::default() },
        Filter { awaiting: text(), ..Filter::default() },
        Filter { namespace: Some("default".to_owned()), key_prefix: text(), ..Filter::default() },
    ] {
        assert_eq!(kit.list(filter).await, []);
    }
}

async fn any_json_survives_every_path_unchanged(kit: Kit) {
    let deep = format!("{}{}", "[".repeat(64), "]".repeat(64));
    let documents = [
        "null",
        "0",
        "-0.0",
        "1e308",
        "1e-400",
        "123456789012345678901234567890.000000000000000000001",
        r#"{"b":1,"a":2,"b":3}"#,
        "  [ 1 ,\t2 ]  ",
        r#""\ud83d\ude00 é \u00e9 \\ \" ' ; -- \u2028""#,
        r#"{"":{"":[]},"a.b":"'; drop table instances; --"}"#,
        &deep,
    ];
    let engine = kit
        .run(|at, cx| {
            Ok(match at.step.as_ref() {
                "start" => Transition::Await {
                    at: dormouse::At { step: "got".into(), state: at.state.clone() },
                    names: vec!["s".to_owned()],
                    timeout: None,
                },
                _ => {
                    let received = cx.received_all().next().expect("a signal");
                    assert_eq!(received.payload, at.state);
                    Transition::Done { output: received.payload.clone() }
                }
            })
        })
        .await;
    let client = engine.client();
    for text in documents {
        let json = Json::parse("test", text).expect("it is JSON");
        let at = dormouse::At { step: "start".into(), state: json.clone() };
        let id = client.start_many([m_at(at)]).await.expect("a start")[0].id();
        kit.until(id, Status::AwaitingSignal).await;
        client.signal_raw(id, NewSignal::new("s", json.clone())).await.expect("a live target");
        let ended = client.wait_end(id, SOON).await.expect("it ends");
        assert_eq!((ended.status, ended.last_error.as_deref()), (Status::Done, None), "{text}");
        assert_eq!(ended.output.expect("an output").as_str(), text);
        assert_eq!(ended.state.as_str(), text);
        for event in client.history(id).await.expect("a history") {
            assert_eq!(event.state.as_str(), text, "{}", event.kind);
        }
        let fork = client.fork(id, 1, |new| new).await.expect("a fork");
        assert_eq!(kit.get(fork).await.state.as_str(), text);
    }
    engine.shutdown().await;
}

async fn text_that_is_not_json_is_refused(_kit: Kit) {
    for text in ["", "{", "nul", "[1,]", "'a'", "1 2", "\"\u{1}\""] {
        let error = Json::parse("signal payload", text).expect_err("it is refused");
        assert!(error.to_string().starts_with("the signal payload is not valid JSON"), "{error}");
    }
}

async fn a_payload_that_its_machine_does_not_accept_is_refused_at_the_door(kit: Kit) {
    #[derive(Serialize, Deserialize)]
    struct Payment {
        amount: u64,
    }
    const PAID: Signal<Payment> = Signal::named("paid");
    struct Shop;
    #[derive(Serialize, Deserialize)]
    enum Place {
        Start,
        Ship,
    }
    impl Machine for Shop {
        const NAME: &'static str = "shop";
        type State = Place;
        type Output = u64;
        async fn step(&self, place: Place, cx: &Context) -> StepResult<Self> {
            Ok(match place {
                Place::Start => Outcome::await_signal(PAID, Place::Ship),
                Place::Ship => Outcome::done(cx.received(PAID)?.iter().map(|paid| paid.amount).sum()),
            })
        }
        fn accepts() -> Vec<Accepts> {
            vec![PAID.into()]
        }
    }
    let engine = kit.engine().machine(Shop).start().await.expect("the engine starts");
    let client = engine.client();
    let id = client.start::<Shop>(Place::Start).key("order:1").await.expect("a start");
    let bad = || NewSignal::new("paid", Json::from(serde_json::json!({ "amount": "lots" })));
    let refusals = [
        client.signal_raw("order:1", bad()).await.expect_err("it is refused"),
        client.signal_many([(id.into(), bad())]).await.expect_err("it is refused"),
        client
            .start_and_signal(NewInstance::of::<Shop>(Place::Start), bad())
            .await
            .expect_err("it is refused"),
    ];
    for refused in refusals {
        let text = refused.to_string();
        assert!(text.contains("\"paid\"") && text.contains("amount") && text.contains("shop"), "{text}");
    }
    const OTHER_TYPE: Signal<String> = Signal::named("paid");
    assert!(client.signal(id, OTHER_TYPE, "lots".to_owned()).await.is_err(), "a constant of another type");
    assert!(client.start_many([NewInstance::of::<Shop>(Place::Start).signal(bad())]).await.is_err());
    assert_eq!(kit.get(id).await.inbox, 0);
    assert_eq!(kit.list(dormouse::store::Filter::default()).await.len(), 1, "nothing was started");
    let other = NewSignal::new("undeclared", Json::from(serde_json::json!("anything")));
    let refused = client.signal_raw(id, other).await.expect_err("it names the signals it takes");
    assert!(matches!(refused, dormouse::Error::UndeclaredSignal { .. }), "{refused}");
    client.signal(id, PAID, Payment { amount: 7 }).await.expect("a live target");
    assert_eq!(client.wait::<Shop>(id, SOON).await.expect("an output"), 7);
    engine.shutdown().await;
}

async fn a_batch_with_one_malformed_entry_stores_nothing(kit: Kit) {
    assert!(kit.client().start_many([m(), m().key("")]).await.is_err());
    assert_eq!(kit.stats().await.count(Status::Runnable), 0);
    let id = kit.insert(m()).await;
    assert!(kit.client().signal_many([(id.into(), signal("ok")), (id.into(), signal(""))]).await.is_err());
    assert_eq!(kit.get(id).await.inbox, 0);
}

async fn a_version_that_no_store_can_hold_is_refused_and_the_largest_runs(kit: Kit) {
    const LARGEST: u32 = i32::MAX as u32;
    let named = |version| NewInstance::named("m", version, at("start")).even_if_unknown();
    let engine = kit.engine().dyn_machine(Script::version("m", LARGEST + 1, |_, _| Ok(done()))).start().await;
    assert!(engine.is_err());
    let engine = kit.engine().dyn_machine(Script::version("m", LARGEST, |_, _| Ok(done()))).start().await;
    let engine = engine.expect("it starts");
    let client = engine.client();
    let error = client.start_many([named(LARGEST + 1)]).await.expect_err("no store can hold it");
    assert!(matches!(error, Error::InvalidState(_)), "{error}");
    let started = client.start_many([named(LARGEST)]).await.expect("it is the largest there is");
    assert_eq!(client.wait_end(started[0].id(), SOON).await.expect("it ends").status, Status::Done);
    engine.shutdown().await;
}

async fn durations_without_an_end_are_as_long_as_time_is(kit: Kit) {
    let script = Script::named("m", |at, _| Ok(if at.step == "start" { next("end") } else { done() }));
    let engine = kit.engine().dyn_machine(script).run_ahead(64, Duration::MAX).start().await;
    let engine = engine.expect("it starts");
    let started = engine.client().start_many([m()]).await.expect("a start");
    let ended = tokio::time::timeout(SOON, engine.client().wait_end(started[0].id(), Duration::MAX)).await;
    assert_eq!(ended.expect("it ends soon").expect("a read").status, Status::Done);
    engine.shutdown().await;
}

async fn an_engine_that_makes_no_sense_does_not_start(kit: Kit) {
    #[derive(Serialize, Deserialize)]
    struct NotAnEnum {
        step: String,
    }
    struct Odd;
    impl Machine for Odd {
        const NAME: &'static str = "odd";
        type State = NotAnEnum;
        type Output = ();
        async fn step(&self, _state: NotAnEnum, _cx: &Context) -> StepResult<Self> {
            Ok(Outcome::done(()))
        }
    }
    struct Dated;
    impl Machine for Dated {
        const NAME: &'static str = "dated";
        const VERSION: u32 = 20_260_101;
        const MIGRATES_FROM: u32 = 20_200_101;
        type State = Ping;
        type Output = ();
        async fn step(&self, _state: Ping, _cx: &Context) -> StepResult<Self> {
            Ok(Outcome::done(()))
        }
    }
    #[derive(Serialize, Deserialize)]
    enum Ping {
        Start,
    }
    let script = || Script::named("m", |_, _| Ok(done()));
    for (builder, what) in [
        (kit.engine().machine(Odd), "must be an enum"),
        (kit.engine().machine(Dated), "number versions one after the other"),
        (kit.engine().dyn_machine(script()).dyn_machine(script()), "registered already"),
        (kit.engine().queue("q", 0), "at least 1"),
        (kit.engine().queue("q", 1).queue("q", 2), "named twice"),
        (kit.engine().lease(Duration::from_millis(1)), "lease"),
        (kit.engine().namespaces(dormouse::store::Namespaces::Only(vec![])), "no namespace"),
        (kit.engine().worker_name(""), "worker name"),
    ] {
        let error = builder.start().await.err().expect("it does not start");
        assert!(error.to_string().contains(what), "{error}");
    }
    let error = dormouse::Engine::open("mysql://x").await.err().expect("no such store");
    assert!(error.to_string().contains("sqlite:"), "{error}");
    for (url, what) in [
        ("sqlite:", "a file is missing"),
        ("sqlite:shop.db?mode=rwc", "a query string"),
        ("sqlite:no/such/directory/shop.db", "there is no directory no/such/directory"),
    ] {
        let error = dormouse::Engine::open(url).await.err().expect("it does not open");
        assert!(error.to_string().contains(what) && !error.is_transient(), "{error}");
    }
}

async fn a_state_that_cannot_be_encoded_is_told_at_the_start(kit: Kit) {
    struct Odd;
    #[derive(Serialize, Deserialize)]
    enum Place {
        Start(std::collections::BTreeMap<(u8, u8), u8>),
    }
    impl Machine for Odd {
        const NAME: &'static str = "odd";
        type State = Place;
        type Output = ();
        async fn step(&self, _state: Place, _cx: &Context) -> StepResult<Self> {
            Ok(Outcome::done(()))
        }
    }
    let pairs = std::collections::BTreeMap::from([((1, 2), 3)]);
    let error = kit.client().start::<Odd>(Place::Start(pairs)).await.expect_err("JSON has no such keys");
    assert!(error.to_string().contains("key must be a string"), "{error}");
}

async fn verbs_on_what_is_not_there_say_so(kit: Kit) {
    let client = kit.client();
    let nobody = dormouse::InstanceId(404);
    assert_eq!(client.get(nobody).await.expect("a read"), None);
    for error in [
        client.cancel(nobody).await.err(),
        client.retry("nobody").await.err(),
        client.pause(nobody).await.err(),
        client.resume(nobody).await.err(),
        client.fork(nobody, 1, |new| new).await.err(),
        client.history(nobody).await.err(),
        client.inbox(nobody).await.err(),
        client.explain(nobody).await.err(),
        client.waiting(nobody).await.err(),
        client.wait_end(nobody, Duration::ZERO).await.err(),
    ] {
        assert!(matches!(error, Some(Error::NotFound(_))), "{error:?}");
    }
}

async fn waiting_tells_how_it_ended_or_why_it_has_not(kit: Kit) {
    let client = kit.client();
    let id = kit.insert(m()).await;
    let error = client.wait_end(id, Duration::from_millis(1)).await.expect_err("nothing runs it");
    assert!(error.to_string().contains("no worker is live"), "{error}");
    client.cancel(id).await.expect("a cancel");
    struct Any;
    #[derive(Serialize, Deserialize)]
    enum Place {}
    impl Machine for Any {
        const NAME: &'static str = "m";
        type State = Place;
        type Output = u8;
        async fn step(&self, state: Place, _cx: &Context) -> StepResult<Self> {
            match state {}
        }
    }
    let error = client.wait::<Any>(id, SOON).await.expect_err("it has no output");
    assert!(matches!(error, Error::Ended { status: Status::Cancelled, .. }), "{error}");
    let other = kit.insert(NewInstance::named("other", 1, at("start"))).await;
    client.cancel(other).await.expect("a cancel");
    let error = client.wait::<Any>(other, SOON).await.expect_err("it is of another machine");
    assert!(error.to_string().contains("is of machine \"other\", not of \"m\""), "{error}");
}
