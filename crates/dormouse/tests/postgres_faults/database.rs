//! A server for one test, which may do to it what it likes.

use std::path::Path;
use std::time::Duration;

use dormouse::Client;
use dormouse::store::postgres::PostgresStore;
use private_postgres::{Binaries, Server};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::SOON;

const NAME: &str = "postgres";
/// A crash of the server is no crash of the machine, so the disk is not the subject.
const SETTINGS: [(&str, &str); 4] =
    [("fsync", "off"), ("shared_buffers", "32MB"), ("max_connections", "120"), ("log_min_messages", "fatal")];

pub struct Database {
    pub server: Server,
}

impl Database {
    pub async fn start(test: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
        let binaries = Binaries::find().expect("a PostgreSQL");
        let server = Server::start(&binaries, &dir, &SETTINGS).expect("a server starts");
        PostgresStore::migrate(&server.url(NAME)).await.expect("a new database is migrated");
        let database = Self { server };
        // What steps write with their outcomes.
        database.execute("create table ledger (sale bigint, run bigint)").await;
        database.execute("create table errands (number bigint)").await;
        let places = "create table places (lane text, entered timestamptz, left_at timestamptz)";
        database.execute(places).await;
        database
    }

    pub fn url(&self) -> String {
        self.server.url(NAME)
    }

    /// The same database on another port.
    pub fn url_by(&self, port: u16) -> String {
        self.url().replace(&format!(":{}/", self.server.port()), &format!(":{port}/"))
    }

    /// A client that goes straight to the server, for what has to be asked in spite of everything.
    pub async fn client(&self) -> Client {
        Client::open(&self.url()).await.expect("it opens")
    }

    /// A connection on which nothing of what the test breaks is broken.
    pub async fn admin(&self) -> PgConnection {
        let unbroken = "?options[statement_timeout]=0&options[lock_timeout]=0\
            &options[default_transaction_read_only]=off";
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            match PgConnection::connect(&format!("{}{unbroken}", self.url())).await {
                Ok(conn) => return conn,
                Err(error) if tokio::time::Instant::now() > deadline => panic!("{error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    pub async fn execute(&self, sql: &str) {
        let mut admin = self.admin().await;
        execute(&mut admin, sql).await;
        admin.close().await.expect("a connection closes");
    }

    /// Changes a setting for every connection there is and will be; `None` makes it what it was.
    pub async fn set(&self, setting: &str, value: Option<&str>) {
        match value {
            Some(value) => self.execute(&format!("alter system set {setting} = '{value}'")).await,
            None => self.execute(&format!("alter system reset {setting}")).await,
        }
        self.server.reload().expect("it reloads");
    }

    /// A crash of all its processes, and its recovery.
    pub fn crash(&mut self) {
        tokio::task::block_in_place(|| {
            self.server.stop_immediate();
            self.server.start_again().expect("it recovers");
        });
    }
}

pub async fn execute(conn: &mut PgConnection, sql: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(conn).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error}"));
}
