//! What is refused at the door.

use std::time::Duration;

use dormouse::jiff::SignedDuration;
use dormouse::{CatchUp, Error, Schedule};

use super::{create, engine, minutely, moment};
use crate::kit::*;

suite![
    a_name_is_taken_once_in_its_namespace,
    what_could_never_happen_is_refused_and_nothing_is_stored,
    what_would_start_too_many_is_refused_with_the_count,
    what_could_not_run_is_refused,
];

async fn a_name_is_taken_once_in_its_namespace(kit: Kit) {
    let engine = engine(&kit).await;
    let client = engine.client();
    let id = create(&client, minutely()).await;
    match client.schedules().create(minutely()).await {
        Err(Error::KeyTaken { holder, .. }) => assert_eq!(holder, id),
        other => panic!("it is refused: {other:?}"),
    }
    create(&client.in_namespace("other").expect("a namespace"), minutely()).await;
    engine.shutdown().await;
}

async fn what_could_never_happen_is_refused_and_nothing_is_stored(kit: Kit) {
    let engine = engine(&kit).await;
    let client = engine.client();
    let cron = |expression: &str| Schedule::cron("tick", expression).start_named("m", at("start"));
    let refused = [
        (cron("61 * * * *"), "cannot be read"),
        (cron("0 0 30 2 *"), "never happens"),
        (cron("0 0 0 1 1 * 2020"), "in the future"),
        (minutely().zone("Mars/Olympus"), "there is no time zone"),
        (minutely().from(kit.now()).until(kit.now() - Duration::from_secs(1)), "before it begins"),
        (minutely().until(kit.now()), "in the future"),
        (minutely().runs_max(0), "0 runs"),
        (Schedule::every("tick", Duration::from_millis(10)).start_named("m", at("start")), "once a second"),
        (minutely().jitter(Duration::MAX), "jitter"),
        (Schedule::cron("tick", "* * * * *"), "starts nothing"),
        (Schedule { name: "a\nb".to_owned(), ..minutely() }, "control characters"),
        (Schedule { name: String::new(), ..minutely() }, "empty"),
        (Schedule { name: "x".repeat(201), ..minutely() }, "over 200 bytes"),
        (minutely().key_prefix("a\0"), "control characters"),
        (minutely().queue(""), "empty"),
        (minutely().share("a\u{7}"), "control characters"),
        (minutely().tag("x".repeat(65)), "over 64 bytes"),
    ];
    for (schedule, reason) in refused {
        let told = client.schedules().create(schedule.clone()).await.expect_err("it is refused").to_string();
        assert!(told.contains(reason), "{schedule:?}: {told}");
    }
    assert!(kit.list(dormouse::store::Filter::default()).await.is_empty(), "nothing was stored");
    engine.shutdown().await;
}

async fn what_would_start_too_many_is_refused_with_the_count(kit: Kit) {
    let engine = engine(&kit).await;
    let client = engine.client();
    let secondly = Schedule::every("tick", Duration::from_secs(1)).start_named("m", at("start"));
    let wide = secondly.clone().catch_up(CatchUp::Within(SignedDuration::from_secs(1_000_000)));
    let told = client.schedules().create(wide).await.expect_err("it is refused").to_string();
    assert!(told.contains("1000000 runs") && told.contains("10000"), "{told}");
    let by_cron = Schedule::cron("tick", "* * * * * *").start_named("m", at("start"));
    let wide = by_cron.catch_up(CatchUp::Within(SignedDuration::from_hours(24 * 365)));
    let told = client.schedules().create(wide).await.expect_err("it is refused").to_string();
    assert!(told.contains("100000 or more runs"), "{told}");
    create(&client, secondly).await;
    let (from, to) = (moment("2029-01-01T00:00:00Z"), moment("2029-01-12T13:46:39Z"));
    let told = client.schedules().backfill("tick", from, to).await.expect_err("it is refused").to_string();
    assert!(told.contains("1000000 runs"), "{told}");
    let told = client.schedules().backfill("tick", to, from).await.expect_err("it is refused").to_string();
    assert!(told.contains("before it begins"), "{told}");
    let future = kit.now() + Duration::from_secs(60);
    let told =
        client.schedules().backfill("tick", from, future).await.expect_err("it is refused").to_string();
    assert!(told.contains("not past"), "{told}");
    engine.shutdown().await;
}

async fn what_could_not_run_is_refused(kit: Kit) {
    let engine = engine(&kit).await;
    let client = engine.client();
    let unknown = Schedule::cron("tick", "* * * * *").start_named("nobody", at("start"));
    let refused = client.schedules().create(unknown).await;
    assert!(matches!(refused, Err(Error::UnknownMachine { .. })), "{refused:?}");
    let nowhere = Schedule::cron("tick", "* * * * *").start_named("m", at(""));
    let refused = client.schedules().create(nowhere).await;
    assert!(matches!(refused, Err(Error::InvalidName { what: "step name", .. })), "{refused:?}");
    let deep = (0..100).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    let deep = Schedule::cron("tick", "* * * * *").start_named("m", at_with("start", deep));
    let refused = client.schedules().create(deep).await;
    assert!(matches!(refused, Err(Error::TooDeep { .. })), "{refused:?}");
    assert!(kit.list(dormouse::store::Filter::default()).await.is_empty(), "nothing was stored");
    engine.shutdown().await;
}
