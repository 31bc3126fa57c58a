//! A PostgreSQL of a test's own: its settings and its log are the test's, and it ends with it.

#![allow(dead_code, unreachable_pub, reason = "each test target uses what it needs")]

use std::path::{Path, PathBuf};

use dormouse::store::postgres::PostgresStore;
use private_postgres::{Binaries, Server};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};

/// None of it needs to outlive a power failure, and nothing runs in it that the test did not start.
const SETTINGS: [(&str, &str); 8] = [
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("synchronous_commit", "off"),
    ("autovacuum", "off"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "1h"),
    ("shared_buffers", "256MB"),
    ("max_connections", "100"),
];

/// Starts a server with these settings on top.
pub fn server(settings: &[(&str, &str)]) -> Server {
    let binaries = Binaries::find().unwrap_or_else(|error| panic!("{error}"));
    let settings: Vec<_> = SETTINGS.iter().chain(settings).copied().collect();
    Server::start(&binaries, &dir("postgres"), &settings).unwrap_or_else(|error| panic!("{error}"))
}

/// A directory that nothing else uses.
pub fn dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{:016x}", fastrand::u64(..)))
}

/// Gives a server other rules for who comes in, by which nobody does without a password, and waits until they hold.
pub async fn ask_for_passwords(server: &Server, rules: &str) {
    std::fs::write(server.data().join("pg_hba.conf"), rules).expect("a file");
    server.reload().expect("a running server");
    while PgConnection::connect(&server.url("postgres")).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Makes a database with the schema, and returns its address.
pub async fn migrated(server: &Server, name: &str) -> String {
    let mut conn = connect(&server.url("postgres")).await;
    execute(&mut conn, format!("create database {name}")).await;
    let url = server.url(name);
    PostgresStore::migrate(&url).await.expect("a new database is migrated");
    url
}

pub async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

pub async fn execute(conn: &mut PgConnection, sql: impl Into<String>) {
    let sql = sql.into();
    let done = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(conn).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// The one number that a query answers with.
pub async fn number(conn: &mut PgConnection, sql: &str) -> i64 {
    let row = sqlx::query(AssertSqlSafe(format!("select ({sql})::bigint"))).fetch_one(conn).await;
    row.and_then(|row| row.try_get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Waits until the connections that a store has closed are gone: only then are all their counts in the statistics.
/// The one that listens for pokes writes nothing.
pub async fn closed(conn: &mut PgConnection) {
    let others = "select count(*) from pg_stat_activity where datname = current_database()
        and pid <> pg_backend_pid() and backend_type = 'client backend' and query !~* '^(listen|select 1$)'";
    for _ in 0..1_000 {
        if number(conn, others).await == 0 {
            execute(conn, "select pg_stat_clear_snapshot()").await;
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("a connection stays open");
}
