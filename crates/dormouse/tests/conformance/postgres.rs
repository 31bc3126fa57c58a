//! Databases for tests: each its own, made from one that is migrated once.

#![allow(unreachable_pub, dead_code, reason = "several test targets use it, each what it needs")]

use dormouse::jiff::Timestamp;
use dormouse::store::postgres::{PostgresStore, schema_script};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use tokio::sync::OnceCell;

/// What the tests run against, set by `cargo xtask test`.
const SERVER: &str = "DORMOUSE_TEST_POSTGRES";
/// A transaction-mode pooler before that server. If it is set, the stores connect through it.
const POOLER: &str = "DORMOUSE_TEST_POOLER";

/// A database that is dropped with the test.
pub struct Database {
    name: String,
    pub url: String,
}

impl Database {
    /// A migrated database whose time stands at a moment.
    pub async fn new(now: Timestamp) -> Self {
        static TEMPLATE: OnceCell<String> = OnceCell::const_new();
        let template = TEMPLATE.get_or_init(template).await;
        let name = format!("test_{:016x}", fastrand::u64(..));
        let mut server = connect("postgres").await;
        execute(&mut server, format!("create database {name} template {template}")).await;
        let url = url(&name);
        let database = Self { name, url };
        database.move_to(now).await;
        database
    }

    /// Where the store under test connects to.
    pub fn store_url(&self) -> String {
        std::env::var(POOLER).map_or_else(|_| self.url.clone(), |pooler| on(&pooler, &self.name))
    }

    /// Moves the database's time.
    pub fn set_time(&self, now: Timestamp) {
        use tokio::runtime::{Builder, Handle, RuntimeFlavor};
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            // Nobody else would move this thread's tasks on meanwhile, so another one does it.
            let moving = || {
                let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(self.move_to(now));
            };
            std::thread::scope(|scope| scope.spawn(moving).join().expect("time is moved"));
        } else {
            tokio::task::block_in_place(|| Handle::current().block_on(self.move_to(now)));
        }
    }

    /// Lets its time pass as everybody's does.
    pub async fn let_time_pass(&self) {
        let now = "create or replace function dormouse.now() returns timestamptz language sql stable
            as 'select statement_timestamp()'";
        let mut conn = connect(&self.name).await;
        execute(&mut conn, now).await;
        conn.close().await.expect("a connection closes");
    }

    /// Makes it refuse every row that would stand at a step.
    pub async fn refuse_rows_at(&self, step: &str) {
        let trigger = format!(
            "create function refuses() returns trigger language plpgsql as
                $$ begin raise 'this row cannot be stored'; end $$;
            create trigger refuses before update on dormouse.instances for each row when (new.step = '{step}')
                execute function refuses();"
        );
        let mut conn = connect(&self.name).await;
        execute(&mut conn, trigger).await;
        conn.close().await.expect("a connection closes");
    }

    async fn move_to(&self, now: Timestamp) {
        let mut conn = connect(&self.name).await;
        execute(&mut conn, format!("update test_clock set at = '{now}'")).await;
        conn.close().await.expect("a connection closes");
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let name = self.name.clone();
        let dropping = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut server = connect("postgres").await;
                execute(&mut server, format!("drop database if exists {name} with (force)")).await;
            });
        });
        // A test that fails has more to say than a database that could not be dropped.
        let _ = dropping.join();
    }
}

/// Makes the database that all others are copies of, unless another process did.
async fn template() -> String {
    let mut hasher = DefaultHasher::new();
    schema_script().hash(&mut hasher);
    let name = format!("template_{:016x}", hasher.finish());
    let mut server = connect("postgres").await;
    execute(&mut server, "select pg_advisory_lock(1)").await;
    let sql = format!("select from pg_database where datname = '{name}'");
    let found = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_optional(&mut server).await.expect("a query");
    if found.is_none() {
        let draft = format!("{name}_draft");
        execute(&mut server, format!("drop database if exists {draft}")).await;
        execute(&mut server, format!("create database {draft}")).await;
        PostgresStore::migrate(&url(&draft)).await.expect("a new database is migrated");
        let mut conn = connect(&draft).await;
        execute(
            &mut conn,
            "create table test_clock (at timestamptz not null);
            insert into test_clock values (now());
            create or replace function dormouse.now() returns timestamptz
                language sql stable as 'select at from public.test_clock'",
        )
        .await;
        conn.close().await.expect("a connection closes");
        rename(&mut server, &draft, &name).await;
    }
    execute(&mut server, "select pg_advisory_unlock(1)").await;
    name
}

/// Renames a database, once the connections that made it are quite gone.
async fn rename(server: &mut PgConnection, from: &str, to: &str) {
    let sql = format!("alter database {from} rename to {to}");
    for _ in 0..100 {
        if sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *server).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{from} stays in use");
}

async fn connect(database: &str) -> PgConnection {
    PgConnection::connect(&url(database)).await.expect("the test server takes connections")
}

async fn execute(conn: &mut PgConnection, sql: impl Into<String>) {
    let sql = sql.into();
    sqlx::raw_sql(AssertSqlSafe(sql.clone()))
        .execute(conn)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn url(database: &str) -> String {
    let server = std::env::var(SERVER).unwrap_or_else(|_| {
        panic!(
            "{SERVER} is not set: run `cargo xtask test`, or set it to a server's address that tests may use"
        )
    });
    on(&server, database)
}

/// The address of another database on a server.
fn on(server: &str, database: &str) -> String {
    let (base, _) = server.rsplit_once('/').expect("an address names a database");
    format!("{base}/{database}")
}
