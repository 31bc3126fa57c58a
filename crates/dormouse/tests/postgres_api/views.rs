//! Typed views of machines: what SQL and BI tools read.

use std::sync::Arc;

use dormouse::prelude::*;
use dormouse::store::postgres::PostgresStore;
use dormouse::store::{Namespaces, NewWorker, Store as _};
use dormouse::{Client, Json, Process};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use crate::SOON;
use crate::database::Database;

struct Checkout;

#[derive(Serialize, Deserialize)]
enum Order {
    Placed { customer: String, cents: u32, gift: bool, rate: f64, status: Option<String> },
    Shipped { customer: String, cents: u32, total: u64, carrier: Carrier, lines: Vec<u64> },
}

#[derive(Serialize, Deserialize)]
enum Carrier {
    Post,
    Van,
}

impl Machine for Checkout {
    const NAME: &'static str = "checkout";
    type State = Order;
    type Output = ();

    async fn step(&self, state: Order, _: &Context) -> StepResult<Self> {
        Ok(match state {
            Order::Placed { customer, cents, .. } => {
                let (total, carrier) = (u64::MAX, if cents > 0 { Carrier::Post } else { Carrier::Van });
                let shipped = Order::Shipped { customer, cents, total, carrier, lines: vec![1, 2] };
                Outcome::sleep(std::time::Duration::from_secs(3600), shipped)
            }
            Order::Shipped { .. } => Outcome::done(()),
        })
    }
}

/// Each row of a query, as JSON.
async fn rows(conn: &mut PgConnection, sql: &str) -> Vec<Value> {
    let sql = format!("select to_json(r)::text as row from ({sql}) r");
    let rows = sqlx::query(AssertSqlSafe(sql.clone())).fetch_all(conn).await;
    let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.iter().map(|row| serde_json::from_str(row.get("row")).expect("JSON")).collect()
}

async fn execute(conn: &mut PgConnection, sql: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(conn).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// A database whose time passes as everybody's does.
async fn moved() -> Database {
    let database = Database::new("2030-01-01T00:00:00Z".parse().expect("a moment")).await;
    database.let_time_pass().await;
    database
}

async fn opened(database: &Database) -> (Arc<PostgresStore>, PgConnection) {
    let store = PostgresStore::connect(&database.store_url()).await.expect("it opens");
    (Arc::new(store), PgConnection::connect(&database.url).await.expect("a connection"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_makes_a_typed_view_of_each_machine_and_version() {
    let database = moved().await;
    let (store, mut conn) = opened(&database).await;
    let engine = dormouse::Engine::on(store).machine(Checkout).start().await.expect("an engine");
    let client = engine.client();
    let placed = |customer: &str, cents| Order::Placed {
        customer: customer.to_owned(),
        cents,
        gift: true,
        rate: 0.25,
        status: None,
    };
    let id = client.start::<Checkout>(placed("acme", 250)).key("order:1").await.expect("a start");
    client.wait_settled(id, SOON).await.expect("it sleeps");
    let sql = "select key, status, step, customer, cents, gift, total, carrier, lines, state_status \
        from dormouse_views.checkout where customer = 'acme' and cents > 200";
    let expected = json!({
        "key": "order:1", "status": "scheduled", "step": "Shipped", "customer": "acme", "cents": 250, "gift": null,
        "total": u64::MAX, "carrier": "Post", "lines": [1, 2], "state_status": null,
    });
    assert_eq!(rows(&mut conn, sql).await, [expected]);
    assert_eq!(rows(&mut conn, "select id from dormouse_views.checkout_v1").await, [json!({ "id": id })]);
    let types = "select column_name::text as name, data_type::text as type from information_schema.columns \
        where table_schema = 'dormouse_views' and table_name = 'checkout' and ordinal_position > 21 order by ordinal_position";
    let types: Vec<_> =
        rows(&mut conn, types).await.iter().map(|row| [row["name"].clone(), row["type"].clone()]).collect();
    let expected = json!([
        ["customer", "text"],
        ["cents", "bigint"],
        ["gift", "boolean"],
        ["rate", "numeric"],
        ["state_status", "text"],
        ["total", "numeric"],
        ["carrier", "text"],
        ["lines", "json"],
    ]);
    assert_eq!(json!(types), expected);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_does_not_fit_its_type_is_null_and_breaks_no_query() {
    let database = moved().await;
    let (store, mut conn) = opened(&database).await;
    declare(
        &store,
        "w",
        "m",
        1,
        json!([["n", { "kind": "whole", "of": { "min": 0, "max": 9 } }], ["t", { "kind": "text" }]]),
    )
    .await;
    for state in ["{\"n\":\"x\",\"t\":5}", "[1]", "7", "null", "{\"n\":1e30}", "{\"n\":3,\"t\":\"a\"}"] {
        execute(
            &mut conn,
            &format!(
                "select dormouse.start('m', '{state}', step => 's', version => 2, even_if_unknown => true)"
            ),
        )
        .await;
    }
    let found = rows(&mut conn, "select n, t from dormouse_views.m order by id").await;
    let none = json!({ "n": null, "t": null });
    assert_eq!(found[..5], [none.clone(), none.clone(), none.clone(), none.clone(), none]);
    assert_eq!(found[5], json!({ "n": 3, "t": "a" }));
}

/// Registers a worker that declares a machine with one step `s`, whose state has these members.
async fn declare(store: &PostgresStore, worker: &str, name: &str, version: u32, members: Value) {
    let members: Vec<_> = members
        .as_array()
        .expect("a list")
        .iter()
        .map(|member| json!({ "name": member[0], "outline": member[1], "required": false }))
        .collect();
    let outline = json!({ "kind": "object", "of": { "members": members, "open": false } });
    let told = json!({
        "name": name, "version": version, "migrates_from": version, "steps": ["s"], "queue": "default", "keeps_history": true,
        "states": [{ "steps": ["s"], "outline": outline }],
    });
    let declares = vec![serde_json::from_value(told).expect("a declaration")];
    let registered = store.register(NewWorker {
        name: worker.to_owned(),
        process: Process::current(),
        namespaces: Namespaces::All,
        lease: SOON,
        queues: vec!["default".to_owned()],
        machines: vec![(name.to_owned(), version)],
        transports: vec![],
        declares,
    });
    registered.await.expect("a worker registers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_and_overlong_names_of_machines_and_members_are_only_names() {
    let database = moved().await;
    let (store, mut conn) = opened(&database).await;
    let text = json!({ "kind": "text" });
    let long = "é".repeat(120);
    let hostile = r#"x"; drop table dormouse.instances; --'); select 1; $$"#;
    let names = [hostile, &long, "%I %s %L", "with space", "SELECT", "checkout_v1", "checkout"];
    for (place, name) in names.iter().enumerate() {
        let members: Vec<_> =
            [hostile, &long, &format!("{long}2"), "%I", "id", "state_id", "ID", "'", "\\", " "]
                .iter()
                .map(|member| json!([member, text]))
                .collect();
        declare(&store, &format!("w{place}"), name, 1, json!(members)).await;
    }
    let views = PostgresStore::make_views(&database.url).await.expect("views");
    assert!(views.iter().all(|view| view.result == "there"), "{views:?}");
    assert_eq!(views.len(), 2 * names.len());
    for name in names {
        let client = Client::on(store.clone());
        let state = json!({ hostile: "a", "id": "b", "'": "c", "\\": "d", format!("{long}2"): "e" });
        let at = dormouse::At { step: "s".into(), state: Json::from(state) };
        client.start_many([NewInstance::named(name, 1, at)]).await.expect("a start");
    }
    for view in &views {
        let quoted = format!("dormouse_views.\"{}\"", view.name.replace('"', "\"\""));
        let found = rows(&mut conn, &format!("select * from {quoted}")).await;
        assert_eq!(found.len(), 1, "{view:?}");
        let row = found[0].as_object().expect("a row");
        let column = |name: &str| row.get(name).unwrap_or_else(|| panic!("no {name:?} in {row:?}"));
        assert_eq!(
            (column(hostile), column("state_id"), column("'"), column("\\")),
            (&json!("a"), &json!("b"), &json!("c"), &json!("d"))
        );
        assert!(row.values().any(|value| *value == json!("e")), "{row:?}");
    }
    let mut all: Vec<_> = views.iter().map(|view| view.name.clone()).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), views.len(), "each has a name of its own");
    let of = |machine: &str, version| {
        views.iter().find(|view| view.machine == machine && view.version == version).expect("a view")
    };
    assert_eq!(of("checkout_v1", None).name, "checkout_v1", "who came first has the name");
    assert_ne!(of("checkout", Some(1)).name, "checkout_v1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_follows_its_declaration_and_waits_for_no_reader() {
    let database = moved().await;
    let (store, mut conn) = opened(&database).await;
    let (text, flag) = (json!({ "kind": "text" }), json!({ "kind": "flag" }));
    declare(&store, "w", "m", 1, json!([["a", text]])).await;
    execute(&mut conn, "begin; select * from dormouse_views.m").await;
    declare(&store, "w", "m", 1, json!([["a", flag], ["b", text]])).await;
    execute(&mut conn, "commit").await;
    assert!(rows(&mut conn, "select a from dormouse_views.m").await.is_empty(), "the old one is still there");
    let remade = PostgresStore::make_views(&database.url).await.expect("views");
    let result =
        |version| remade.iter().find(|view| view.version == version).map(|view| view.result.as_str());
    assert_eq!((result(None), result(Some(1))), (Some("made"), Some("there")));
    rows(&mut conn, "select a and true as a, b || '' as b from dormouse_views.m").await;
    execute(&mut conn, "create view mine as select a from dormouse_views.m").await;
    declare(&store, "w", "m", 1, json!([["b", text]])).await;
    let kept = PostgresStore::make_views(&database.url).await.expect("views");
    assert_eq!(
        kept.iter().find(|view| view.version.is_none()).map(|view| view.result.as_str()),
        Some("kept")
    );
    rows(&mut conn, "select a from mine").await;
}
