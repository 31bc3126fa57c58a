//! Everything in the database, row by row, so that no stored input goes unnoticed.

use std::collections::BTreeMap;

use dormouse::store::postgres::{self, sqlx};
use dormouse::store::sqlite;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

/// The rows of each table.
pub type Rows = BTreeMap<String, Vec<String>>;

/// Tables that change by themselves, or that record refusals.
const APART: [&str; 8] =
    ["workers", "machines", "transports", "counts", "audit", "answers", "api_keys", "schema"];

/// Columns in which a sender records its tries, not the answer.
const OF_SENDING: [&str; 5] = ["sends", "send_at", "dispatched_at", "status", "error"];

/// Reads every row of every table.
pub async fn stored(url: &str) -> Rows {
    match url.strip_prefix("sqlite:") {
        Some(path) => on_sqlite(path),
        None => on_postgres(url).await,
    }
}

fn is_kept(table: &str) -> bool {
    !APART.contains(&table) && !table.starts_with("sqlite_")
}

fn is_shown(table: &str, column: &str) -> bool {
    table != "interactions" || !OF_SENDING.contains(&column)
}

fn on_sqlite(path: &str) -> Rows {
    let db = sqlite::Connection::open(path).expect("the file");
    let mut names = db.prepare("select name from sqlite_master where type = 'table'").expect("a statement");
    let names = names.query_map([], |row| row.get::<_, String>(0)).expect("a read");
    let names: Vec<String> = names.map(|name| name.expect("a name")).filter(|name| is_kept(name)).collect();
    let read = |table: String| {
        let mut all = db.prepare(&format!("select * from {table} order by 1, 2")).expect("a statement");
        let columns: Vec<String> = all.column_names().map(str::to_owned).collect();
        let shown = |row: &sqlite::rusqlite::Row<'_>| {
            let value = |(at, column): (usize, &String)| {
                is_shown(&table, column).then(|| format!("{column}={:?}", row.get_ref(at).expect("a value")))
            };
            Ok(columns.iter().enumerate().filter_map(value).collect::<Vec<_>>().join(" "))
        };
        let rows = all.query_map([], shown).expect("a read").map(|row| row.expect("a row")).collect();
        (table, rows)
    };
    names.into_iter().map(read).collect()
}

async fn on_postgres(url: &str) -> Rows {
    let mut conn = postgres::Connection::connect(url).await.expect("a connection");
    let tables = "select tablename::text from pg_tables where schemaname = 'dormouse'";
    let tables = sqlx::query(tables).fetch_all(&mut conn).await.expect("a read");
    let mut rows = Rows::new();
    for table in tables.iter().map(|row| row.get::<String, _>(0)).filter(|table| is_kept(table)) {
        let hidden = if table == "interactions" { OF_SENDING.join(",") } else { String::new() };
        let all = format!(
            "select (to_jsonb(t) - string_to_array('{hidden}', ','))::text from dormouse.{table} t order by 1"
        );
        let read = sqlx::query(AssertSqlSafe(all)).fetch_all(&mut conn).await.expect("a read");
        rows.insert(table, read.iter().map(|row| row.get(0)).collect());
    }
    conn.close().await.expect("a connection closes");
    rows
}
