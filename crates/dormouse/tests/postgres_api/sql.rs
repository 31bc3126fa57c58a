//! What operators and callers do by SQL alone.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::Filter;
use dormouse::{InstanceId, Status};

use crate::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_by_sql_says_why_and_from_where_on() {
    let world = World::new().await;
    let start = "select dormouse.start('till', '{\"order\":1}', step => 'Open', version => 1, even_if_unknown => true, key => 'k')";
    let id = InstanceId(world.one::<i64>(start).await);
    let stale = world.fails("select dormouse.cancel('k', expected_seq => 7)").await;
    assert_eq!(stale, ("55000".to_owned(), format!("instance {id} is at seq 1 and not at 7")));
    for unfit in [
        "select dormouse.cancel('k', reason => '')",
        "select dormouse.cancel('k', reason => e' \\n')",
        "select dormouse.cancel('k', reason => e'a\\x1bb')",
        "select dormouse.cancel('k', reason => repeat('x', 1025))",
    ] {
        assert_eq!(world.fails(unfit).await.0, "22023", "{unfit}");
    }
    let row = world.client().get(id).await.expect("a read").expect("it is there");
    assert_eq!((row.status, row.cancel_reason), (Status::Runnable, None), "nothing was changed");
    let cancelled: String =
        world.one("select dormouse.cancel('k', reason => e'it''s\\nover', expected_seq => 1)").await;
    assert_eq!(cancelled, "cancelled");
    let row = world.client().get(id).await.expect("a read").expect("it is there");
    assert_eq!((row.status, row.cancel_reason.as_deref()), (Status::Cancelled, Some("it's\nover")));
    let again: String = world.one("select dormouse.cancel('k', 'default', 'again')").await;
    assert_eq!(again, "cancelled", "its status, as it had ended before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_started_by_sql_may_have_tags() {
    let world = World::new().await;
    for unfit in [
        "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => array['a', ''])",
        "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => array['a', null])",
        "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => array[repeat('x', 65)])",
        "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => array['1','2','3','4','5','6','7','8','9'])",
    ] {
        assert_eq!(world.fails(unfit).await.0, "22023", "{unfit}");
    }
    let tagged = "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => array['b', 'é', 'a', 'b'])";
    let id = InstanceId(world.one::<i64>(tagged).await);
    world
        .one::<i64>(
            "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, tags => '{}')",
        )
        .await;
    let found = world.client().list(Filter { tags: vec!["é".to_owned()], ..Filter::default() }).await;
    let found = found.expect("a read").instances;
    assert_eq!((found.len(), found[0].id, &found[0].tags.join(" ")[..]), (1, id, "a b é"));
    // What is collected leaves nothing behind.
    world.client().cancel(id).await.expect("a live instance");
    assert_eq!(world.client().collect(Duration::ZERO).await.expect("a sweep").instances, 1);
    assert_eq!(world.one::<i64>("select count(*) from dormouse.tags").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_by_sql_are_held_to_the_bounds_of_every_other_door() {
    let world = World::new().await;
    world.one::<i64>("select dormouse.start('till', '{\"order\":1}', step => 'Open', version => 1, key => 'k', even_if_unknown => true)").await;
    for (document, sqlstate) in [
        ("repeat('[', 64) || repeat(']', 64)", None),
        ("repeat('[', 65) || repeat(']', 65)", Some("54000")),
        ("repeat('{\"a\":', 65) || '1' || repeat('}', 65)", Some("54000")),
        ("repeat('[', 20000) || repeat(']', 20000)", Some("54001")),
        ("'\"' || repeat('[', 1000) || '\\\"[\"'", None),
        ("'[' || repeat('[],', 1000) || '[]]'", None),
        ("'\"' || repeat('x', 1048576) || '\"'", Some("54000")),
        ("'\"\\u0000\"'", Some("22P05")),
        ("'\"\\\\u0000\"'", None),
        ("'\"\\ud800\"'", Some("22P05")),
        ("'\"\\udc00\\ud800\"'", Some("22P05")),
        ("'\"\\ud83d\\udca3\"'", None),
        ("'1e400'", Some("22003")),
        ("'[-12.5E+309]'", Some("22003")),
        ("repeat('9', 400)", Some("22003")),
        ("'[1e308, 1e-400, 0e400, \"1e400\"]'", None),
        ("'no JSON'", Some("22P02")),
    ] {
        let signal = format!("select dormouse.signal('k', 'note', ({document})::json)");
        let start = format!(
            "select dormouse.start('till', ({document})::json, step => 'Open', version => 1, even_if_unknown => true)::text"
        );
        for call in [signal, start] {
            let call: &'static str = call.leak();
            match sqlstate {
                Some(sqlstate) => assert_eq!(world.fails(call).await.0, sqlstate, "{call}"),
                None => drop(world.one::<String>(call).await),
            }
        }
    }
    let stored: i64 = world.one("select count(*) from dormouse.signals").await;
    assert_eq!(stored, 6, "what was refused was not stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_below_zero_is_refused_and_cannot_be_stored() {
    let world = World::new().await;
    for start in [
        "select dormouse.start('m', step => 's', version => -1, even_if_unknown => true)",
        "select dormouse.start('till', '{\"order\":1}', step => 'Open', version => -2147483648, even_if_unknown => true)",
    ] {
        assert_eq!(world.fails(start).await.0, "22023", "{start}");
    }
    world.one::<i64>("select dormouse.start('m', step => 's', version => 0, even_if_unknown => true)").await;
    assert_eq!(world.fails("update dormouse.instances set version = -1").await.0, "23514");
}

/// Waits for receipts, and names what it takes.
struct Expense;

#[derive(Serialize, Deserialize)]
enum Report {
    Open { number: u64 },
    Paid { number: u64 },
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    cents: u64,
    lines: Vec<String>,
}

const RECEIPT: Signal<Receipt> = Signal::named("receipt");

impl Machine for Expense {
    const NAME: &'static str = "expense";
    type State = Report;
    type Output = u64;

    async fn step(&self, state: Report, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Report::Open { number } => Outcome::await_signal(RECEIPT, Report::Paid { number }),
            Report::Paid { .. } => Outcome::done(cx.received(RECEIPT)?[0].cents),
        })
    }

    fn accepts() -> Vec<dormouse::Accepts> {
        vec![RECEIPT.into()]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sql_sends_is_checked_by_what_the_machine_declares() {
    let world = World::new().await;
    let engine = dormouse::Engine::on(world.store.clone()).machine(Expense).start().await.expect("it starts");
    for (unfit, told) in [
        ("select dormouse.start('expense')", "the state of step Open: the document does not fit"),
        (r#"select dormouse.start('expense', '{"number":"one"}')"#, "number does not fit: whole is expected"),
        (r#"select dormouse.start('expense', '{}')"#, "missing member 'number'"),
    ] {
        let (state, message) = world.fails(unfit).await;
        assert!(state == "22023" && message.contains(told), "{message}");
    }
    let id: i64 = world.one(r#"select dormouse.start('expense', '{"number":1}', key => 'e:1')"#).await;
    for (unfit, told) in [
        (
            r#"select dormouse.signal('e:1', 'recept', '{"cents":1,"lines":[]}')"#,
            "machine 'expense' takes no signal 'recept'",
        ),
        (
            r#"select dormouse.signal('e:1', 'receipt', '{"cents":"oops","lines":[]}')"#,
            "the payload of signal 'receipt' is refused by machine 'expense': cents does not fit",
        ),
        (
            r#"select dormouse.signal('e:1', 'receipt', '{"cents":1,"lines":["a",2]}')"#,
            "lines[1] does not fit",
        ),
        (r#"select dormouse.signal('e:1', 'receipt', '{"cents":1}')"#, "missing member 'lines'"),
        ("select dormouse.signal('e:1', 'receipt')", "the document does not fit: object is expected"),
    ] {
        let (state, message) = world.fails(unfit).await;
        assert!(state == "22023" && message.contains(told), "{message}");
    }
    assert_eq!(world.client().get(InstanceId(id)).await.expect("a read").expect("it").inbox, 0);
    let fits = r#"select dormouse.signal('e:1', 'receipt', '{"cents":7,"lines":["a"]}')"#;
    assert_eq!(world.one::<String>(fits).await, "accepted");
    assert_eq!(engine.client().wait::<Expense>(InstanceId(id), crate::SOON).await.expect("an output"), 7);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_refuses_by_the_keywords_of_a_schema_that_it_knows_and_lets_through_the_others() {
    let world = World::new().await;
    for (schema, value, fits) in [
        (r#"{"type":"integer"}"#, "1.0", true),
        (r#"{"type":"integer"}"#, "1e3", true),
        (r#"{"type":"integer"}"#, "1.5", false),
        (r#"{"type":"integer"}"#, r#""1""#, false),
        (r#"{"type":["string","null"]}"#, "null", true),
        (r#"{"type":["string","null"]}"#, "1", false),
        (r#"{"minimum":1}"#, "0", false),
        (r#"{"minimum":1}"#, r#""no number""#, true),
        (r#"{"exclusiveMaximum":1}"#, "1", false),
        (r#"{"exclusiveMaximum":true,"maximum":1}"#, "1", true),
        (r#"{"minLength":2}"#, r#""é""#, false),
        (r#"{"maxLength":1}"#, r#""é""#, true),
        (r#"{"enum":[1,"a"]}"#, "1.0", true),
        (r#"{"enum":[1,"a"]}"#, r#""b""#, false),
        (r#"{"const":{"a":1}}"#, r#"{"a":2}"#, false),
        (r#"{"required":["a"]}"#, r#"{"b":1}"#, false),
        (r#"{"required":["a"]}"#, "[]", true),
        (r#"{"properties":{"a":{"items":{"maximum":5}}}}"#, r#"{"a":[1,6]}"#, false),
        (r#"{"properties":{"a":{"items":{"maximum":5}}}}"#, r#"{"b":6}"#, true),
        (r##"{"$ref":"#/$defs/a","maximum":5}"##, "6", true),
        (r#"{"pattern":"^a"}"#, r#""b""#, true),
        ("true", "1", true),
    ] {
        let call = format!("select coalesce(dormouse.schema_misfit('{schema}', '{value}', ''), '')");
        let told: String = world.one(call.leak()).await;
        assert_eq!(told.is_empty(), fits, "{schema} and {value}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_by_sql_may_be_kept_for_an_instance_to_come() {
    let world = World::new().await;
    for unfit in [
        "select dormouse.signal('k', 'paid', keep_for => interval '0')",
        "select dormouse.signal('k', 'paid', keep_for => interval '-1 hour')",
        "select dormouse.signal('k', 'paid', keep_for => interval '367 days')",
    ] {
        assert_eq!(world.fails(unfit).await.0, "22023", "{unfit}");
    }
    assert_eq!(
        world.fails("select dormouse.signal('k', 'paid')").await.0,
        "P0002",
        "it is not kept unless asked for"
    );
    let keep = "select dormouse.signal('k', 'paid', '7', dedup_key => 'a', keep_for => interval '1 hour')";
    assert_eq!(world.one::<String>(keep).await, "kept");
    assert_eq!(world.one::<String>(keep).await, "duplicate");
    let start = "select dormouse.start('m', step => 's', version => 1, even_if_unknown => true, key => 'k')";
    let id = InstanceId(world.one::<i64>(start).await);
    let inbox = world.client().inbox(id).await.expect("a read");
    assert_eq!(inbox.iter().map(|signal| signal.payload.as_str()).collect::<Vec<_>>(), ["7"]);
    assert_eq!(world.one::<String>(keep).await, "duplicate", "its instance remembers");
    for _ in 0..3 {
        let many =
            "select count(*) from (select dormouse.signal('many', 'paid', keep_for => interval '1 hour')
            from generate_series(1, 100)) kept";
        assert_eq!(world.one::<i64>(many).await, 100);
    }
    let counted = "with counted as (insert into dormouse.kept_counts values ('default', 9699, 0) returning 1)
        select count(*) from counted";
    assert_eq!(world.one::<i64>(counted).await, 1, "as if so many more were kept");
    let last = "select dormouse.signal('last', 'paid', keep_for => interval '1 hour')";
    assert_eq!(world.one::<String>(last).await, "kept");
    let full = world.fails("select dormouse.signal('more', 'paid', keep_for => interval '1 hour')").await;
    assert_eq!(
        full,
        ("53400".to_owned(), "no more signals can be kept in the namespace 'default'".to_owned())
    );
    let rows: i64 = world.one("select count(*) from dormouse.kept_counts").await;
    assert!(rows < 150, "the counts are folded: {rows}");
}
