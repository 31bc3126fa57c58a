//! The roles of least privilege: each can do its work, and nothing else.

use dormouse::Error;
use dormouse::store::postgres::{PostgresStore, roles_script};
use private_postgres::Server;
use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::journey::{client, engine, everything, look};
use crate::private::{connect, execute, number, server};

const LOGINS: &str = "
    create role deploy login in role dormouse_migrate;
    create role worker login in role dormouse_engine;
    create role dashboard login in role dormouse_read;
    create role shop login in role dormouse_caller;
    create role stranger login;
";

/// A server with a database in which the script was run, and a login for each role.
async fn with_roles() -> Server {
    let server = server(&[]);
    let mut conn = connect(&server.url("postgres")).await;
    execute(&mut conn, "create database roles").await;
    execute(&mut connect(&server.url("roles")).await, roles_script()).await;
    execute(&mut conn, LOGINS).await;
    server
}

fn url(server: &Server, login: &str) -> String {
    server.url("roles").replace("postgres@", &format!("{login}@"))
}

#[tokio::test]
async fn each_role_does_its_work_and_is_refused_all_else() {
    let server = with_roles().await;
    let early = PostgresStore::connect(&url(&server, "worker")).await;
    assert!(matches!(early, Err(Error::OlderSchema { found: 0, .. })), "{:?}", early.err());
    PostgresStore::migrate(&url(&server, "worker")).await.expect_err("an engine does not migrate");

    let migrated =
        PostgresStore::migrate(&url(&server, "deploy")).await.expect("a member of the owner migrates");
    assert_eq!((migrated.from, migrated.to > 0), (0, true));
    let again = PostgresStore::migrate(&url(&server, "deploy")).await.expect("and again");
    assert_eq!(again.from, again.to);
    let mut root = connect(&server.url("roles")).await;
    let not_the_groups = "
        select count(*) from (
            select relowner as owner from pg_class where relnamespace = 'dormouse'::regnamespace
            union all select proowner from pg_proc where pronamespace = 'dormouse'::regnamespace
            union all select nspowner from pg_namespace where nspname = 'dormouse'
        ) o where owner <> 'dormouse_migrate'::regrole";
    assert_eq!(number(&mut root, not_the_groups).await, 0, "something is owned by whoever migrated");
    let for_everyone = "
        select count(*) from pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) acl
        where pronamespace = 'dormouse'::regnamespace and acl.grantee = 0";
    assert_eq!(number(&mut root, for_everyone).await, 0, "a function is everyone's");

    let engine = engine(&url(&server, "worker")).await;
    everything(&engine.client()).await;
    let mut worker = connect(&url(&server, "worker")).await;
    refused(&mut worker, "create table dormouse.mine ()").await;
    refused(&mut worker, "drop table dormouse.history").await;
    refused(&mut worker, "truncate dormouse.history").await;
    refused(&mut worker, "alter table dormouse.instances add column mine integer").await;
    refused(&mut worker, "update dormouse.schema set version = 0").await;
    refused(
        &mut worker,
        "create or replace function dormouse.now() returns timestamptz language sql as 'select null'",
    )
    .await;

    reads_and_writes_nothing(&url(&server, "dashboard")).await;

    for login in ["shop", "stranger"] {
        let mut conn = connect(&url(&server, login)).await;
        refused(&mut conn, "select * from dormouse.instances").await;
        refused(&mut conn, "delete from dormouse.signals").await;
        refused(&mut conn, "select dormouse.now()").await;
        let error =
            PostgresStore::connect(&url(&server, login)).await.err().expect("it has no right to look");
        assert!(error.to_string().contains("permission denied"), "{error}");
        assert!(error.to_string().contains("dormouse_engine"), "it says what to grant: {error}");
    }
    may_call(&mut root, "shop", &["cancel", "signal", "start"]).await;
    may_call(&mut root, "stranger", &[]).await;
    may_call(&mut root, "dashboard", &[]).await;
    calls(&mut connect(&url(&server, "shop")).await).await;
    let mut dashboard = connect(&url(&server, "dashboard")).await;
    refused(&mut dashboard, "select dormouse.cancel('one')").await;
    refused(&mut dashboard, "select dormouse.start('journey')").await;
    engine.shutdown().await;
}

async fn calls(conn: &mut PgConnection) {
    let start = "select dormouse.start('journey', key => 'called', start_at => now() + interval '1 hour')";
    execute(conn, start).await;
    execute(conn, "select dormouse.signal('called', 'go', '1')").await;
    execute(conn, "select dormouse.cancel('called')").await;
}

async fn reads_and_writes_nothing(url: &str) {
    let client = client(url).await;
    let one = client.get("one").await.expect("a read").expect("it is there");
    assert!(!client.history(one.id).await.expect("a history").is_empty());
    client.inbox(one.id).await.expect("an inbox");
    client.explain(one.id).await.expect("an explanation");
    client.stats().await.expect("counts");
    look(&client).await;
    client.list(dormouse::store::Filter { limit: 5, ..Default::default() }).await.expect("a list");
    let mut conn = connect(url).await;
    let tables = ["instances", "signals", "history", "workers", "machines", "paused_queues", "schema"];
    for table in tables.into_iter().chain(["api_keys", "audit", "answers", "counts"]) {
        refused(&mut conn, &format!("delete from dormouse.{table}")).await;
        refused(&mut conn, &format!("insert into dormouse.{table} default values")).await;
    }
    refused(&mut conn, "update dormouse.instances set state = 'null'").await;
    refused(&mut conn, "select * from dormouse.answers").await;
    refused(&mut conn, "select nextval('dormouse.instance_ids')").await;
    client.cancel(one.id).await.expect_err("it may not cancel");
    client.retry(one.id).await.expect_err("it may not retry");
    client.pause_queue("default").await.expect_err("it may not pause");
    let engine = dormouse::Engine::on(client.store().clone()).start().await;
    engine.err().expect("it may not register a worker");
}

#[tokio::test]
async fn the_script_may_be_run_after_the_migration_and_again_and_covers_what_comes_later() {
    let server = server(&[]);
    let mut root = connect(&server.url("postgres")).await;
    execute(&mut root, "create database roles").await;
    PostgresStore::migrate(&server.url("roles")).await.expect("a superuser migrates");
    let mut root = connect(&server.url("roles")).await;
    for _ in 0..3 {
        execute(&mut root, roles_script()).await;
    }
    execute(&mut root, LOGINS).await;
    let mut deploy = connect(&url(&server, "deploy")).await;
    // What a later migration would do.
    execute(&mut deploy, "alter table dormouse.instances add column later integer").await;
    execute(
        &mut deploy,
        "set role dormouse_migrate;
        create table dormouse.later (id bigint generated always as identity, at timestamptz);
        create function dormouse.later() returns integer language sql as 'select 1'",
    )
    .await;
    let mut worker = connect(&url(&server, "worker")).await;
    execute(&mut worker, "insert into dormouse.later (at) values (now()); select dormouse.later()").await;
    let mut dashboard = connect(&url(&server, "dashboard")).await;
    execute(&mut dashboard, "select * from dormouse.later").await;
    refused(&mut dashboard, "insert into dormouse.later (at) values (now())").await;
    refused(&mut connect(&url(&server, "stranger")).await, "select dormouse.later()").await;
    let engine = engine(&url(&server, "worker")).await;
    everything(&engine.client()).await;
    engine.shutdown().await;
}

#[tokio::test]
async fn without_the_script_a_migration_grants_nothing_to_roles_of_another_database() {
    let server = with_roles().await;
    let mut root = connect(&server.url("postgres")).await;
    execute(&mut root, "create database other").await;
    PostgresStore::migrate(&server.url("other")).await.expect("a superuser migrates");
    let other = server.url("other").replace("postgres@", "worker@");
    refused(&mut connect(&other).await, "select * from dormouse.instances").await;
}

/// Of all functions that can write, a login may call these alone.
async fn may_call(root: &mut PgConnection, login: &str, names: &[&str]) {
    let theirs: Vec<String> = sqlx::query_scalar(
        "select distinct proname::text from pg_proc
        where pronamespace = 'dormouse'::regnamespace and (provolatile = 'v' or prosecdef)
          and has_function_privilege($1, oid, 'execute')
        order by 1",
    )
    .bind(login)
    .fetch_all(root)
    .await
    .expect("the functions are listed");
    assert_eq!(theirs, names, "what {login} may call");
}

/// The server refuses a statement for want of a right.
async fn refused(conn: &mut PgConnection, sql: &str) {
    let answer = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(conn).await;
    let error = answer.err().unwrap_or_else(|| panic!("{sql}: it was not refused"));
    let code = error.as_database_error().and_then(DatabaseError::code);
    assert_eq!(code.as_deref(), Some("42501"), "{sql}: {error}");
}
