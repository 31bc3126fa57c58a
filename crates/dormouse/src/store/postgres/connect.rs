//! Connecting: encrypted to another machine, and aware of a pooler in between.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgSslMode};
use sqlx::{ConnectOptions, Row};
use tokio::sync::Semaphore;

use super::db::{Db, SET_UP};
use super::pool::{self, Pool};
use crate::{Error, Result};

/// Connections of one process, unless the address says otherwise.
const CONNECTIONS_MAX: u32 = 16;
/// How long a call waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a statement may go without an answer, unless the address says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an idle connection may take to show that it is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
/// How long the probe's own poke may take before it counts as lost.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// What the probe listens to.
const PROBE_CHANNEL: &str = "dormouse_probe";

/// A database that was reached.
pub(super) struct Open {
    pub(super) callers: Db,
    pub(super) engine: Db,
    pub(super) hears: bool,
}

/// Where the database is.
#[derive(Clone)]
pub(super) struct Address {
    options: PgConnectOptions,
    own: Own,
}

/// What an address may say that the driver does not know.
#[derive(Clone, Copy)]
struct Own {
    connections_max: u32,
    patience: Duration,
}

impl Address {
    /// Parses an address, and refuses what it asks for and is not supported.
    pub(super) fn parse(url: &str) -> Result<Self> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            let url = url.split_once(':').map_or("", |(scheme, _)| scheme).to_owned();
            return Err(Error::InvalidUrl { url, reason: "an address is postgres://user@host/database" });
        }
        let (url, own) = take_own(url)?;
        let options = PgConnectOptions::from_str(&url).map_err(|error| Error::CannotConnect {
            reason: format!("the address cannot be parsed: {error}"),
        })?;
        let says_sslmode = url.contains("sslmode=") || url.contains("ssl-mode=");
        let is_remote = options.get_socket().is_none() && is_remote(options.get_host());
        let options = if is_remote && !says_sslmode && std::env::var_os("PGSSLMODE").is_none() {
            options.ssl_mode(PgSslMode::VerifyFull)
        } else {
            options
        };
        // A pooler refuses a connection that asks for a setting it does not keep track of.
        let options = options.extra_float_digits(None);
        let options = options.application_name("dormouse").disable_statement_logging();
        Ok(Self { options, own })
    }

    /// One connection of its own.
    pub(super) async fn connect(&self) -> Result<sqlx::PgConnection> {
        self.options.connect().await.map_err(|error| self.unreachable(&error))
    }

    /// The database as callers talk to it and as the engine does, and whether pokes can be heard.
    pub(super) async fn open(&self) -> Result<Open> {
        let hears = self.probe().await?;
        let pooled = !hears;
        if pooled {
            tracing::warn!(
                "pokes do not reach this process, as behind a transaction-mode pooler: polling instead, and every \
                 statement is sent unnamed"
            );
        }
        let options =
            if pooled { self.options.clone().statement_cache_capacity(0) } else { self.options.clone() };
        let connections_max = self.own.connections_max;
        let patience = self.own.patience;
        let limits = pool::Limits {
            acquire: ACQUIRE_TIMEOUT.min(patience),
            sign_of_life: SIGN_OF_LIFE.min(patience / 2),
        };
        let set_up = (!pooled).then_some(SET_UP);
        let pool = |set_up, max| Pool::new(options.clone(), set_up, max, limits);
        // The engine's own statements, such as its heartbeat, have connections that callers cannot use up.
        let own_max = (connections_max / 2).max(2);
        let steps = pool(None, connections_max);
        let db = |max| Db {
            pool: pool(set_up, max),
            steps: steps.clone(),
            again: Arc::new(Semaphore::new((max as usize / 4).max(1))),
            pooled,
            patience,
        };
        Ok(Open { callers: db(connections_max), engine: db(own_max), hears })
    }

    /// Another connection that listens to a channel, for one that fell silent.
    pub(super) async fn listen(&self, channel: &str) -> Result<PgListener> {
        let listening = async {
            let mut listener = self.listener().await?;
            listener.listen(channel).await?;
            Ok(listener)
        };
        let listening = tokio::time::timeout(self.own.patience, listening).await;
        listening.unwrap_or_else(|_| Err(Error::Busy("the database did not answer in time".into())))
    }

    async fn listener(&self) -> Result<PgListener> {
        let options = self.options.clone().statement_cache_capacity(0);
        let pool =
            PgPoolOptions::new().max_connections(1).acquire_timeout(ACQUIRE_TIMEOUT.min(self.own.patience));
        let pool = pool.connect_with(options).await.map_err(|error| self.unreachable(&error))?;
        let mut listener = PgListener::connect_with(&pool).await?;
        // We reconnect ourselves: the driver does so only for a connection that reported its end.
        listener.eager_reconnect(false);
        Ok(listener)
    }

    /// Listens, and pokes itself from another connection: only if that arrives will others' pokes. Behind a pooler they
    /// do not: there the server connection listens, and the next client that gets it is notified.
    async fn probe(&self) -> Result<bool> {
        // A connection that must wait for another's transaction to end is behind a pooler, too.
        if tokio::time::timeout(PROBE_TIMEOUT, self.is_pooled()).await.unwrap_or(Ok(true))? {
            return Ok(false);
        }
        let mut listener = self.listener().await?;
        listener.listen(PROBE_CHANNEL).await?;
        let mut other = self.connect().await?;
        if sqlx::raw_sql("notify dormouse_probe").execute(&mut other).await.is_err() {
            return Ok(false);
        }
        let heard = tokio::time::timeout(PROBE_TIMEOUT, listener.recv()).await;
        Ok(matches!(heard, Ok(Ok(_))))
    }

    /// Whether a connection is with another process of the server from one transaction to the next. Two that take
    /// turns show it: whether a pooler hands out first what it got back first or last, one of them is given what
    /// the other had.
    async fn is_pooled(&self) -> Result<bool> {
        let (mut one, mut other) = (self.connect().await?, self.connect().await?);
        let mut before = None;
        for one_ends_first in [true, false, true] {
            let now = (begin(&mut one).await?, begin(&mut other).await?);
            let (first, second) =
                if one_ends_first { (&mut one, &mut other) } else { (&mut other, &mut one) };
            sqlx::raw_sql("commit").execute(first).await?;
            sqlx::raw_sql("commit").execute(second).await?;
            if before.is_some_and(|before| before != now) {
                return Ok(true);
            }
            before = Some(now);
        }
        Ok(false)
    }

    /// What a database that was reached says to a check of its schema.
    pub(super) fn unusable(&self, error: Error) -> Error {
        match error {
            Error::Storage(cause) if cause.to_string().contains("permission denied") => {
                let (host, port) = (self.options.get_host(), self.options.get_port());
                let user = self.options.get_username();
                Error::CannotConnect {
                    reason: format!(
                        "{host}:{port}: {cause}; make {user} a member of dormouse_engine, or of dormouse_read if it \
                         only looks"
                    ),
                }
            }
            other => other,
        }
    }

    fn unreachable(&self, error: &sqlx::Error) -> Error {
        let hint = match error {
            // The driver reports an untrusted certificate as invalid data.
            sqlx::Error::Io(fault) if fault.kind() != ErrorKind::InvalidData => "",
            sqlx::Error::Tls(_) | sqlx::Error::Io(_) => {
                "; a connection to another machine is encrypted and its certificate checked: name the authority with \
                 sslrootcert=FILE, or lower the guard with sslmode=require"
            }
            _ => "",
        };
        let (host, port) = (self.options.get_host(), self.options.get_port());
        // The driver appends the server's source location.
        let told =
            error.as_database_error().map_or_else(|| error.to_string(), |said| said.message().to_owned());
        Error::CannotConnect { reason: format!("{host}:{port}: {told}{hint}") }
    }
}

/// Begins a transaction, and says which process of the server is in it.
async fn begin(conn: &mut sqlx::PgConnection) -> Result<i32> {
    sqlx::raw_sql("begin").execute(&mut *conn).await?;
    Ok(sqlx::raw_sql("select pg_backend_pid() as pid").fetch_one(conn).await?.try_get("pid")?)
}

/// Our own parameters of the address, which the driver does not know.
fn take_own(url: &str) -> Result<(String, Own)> {
    let mut own = Own { connections_max: CONNECTIONS_MAX, patience: PATIENCE };
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), own)) };
    let refuse = |url: &str, reason| Error::InvalidUrl { url: url.to_owned(), reason };
    let mut rest = Vec::new();
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some(("connections", number)) => {
                own.connections_max = number.parse().ok().filter(|max| *max >= 2).ok_or_else(|| {
                    refuse("postgres://…?connections=", "connections must be a number of at least 2")
                })?;
            }
            Some(("patience_ms", number)) => {
                let ms = number.parse().ok().filter(|ms| *ms >= 100).ok_or_else(|| {
                    refuse("postgres://…?patience_ms=", "patience_ms must be a number of at least 100")
                })?;
                own.patience = Duration::from_millis(ms);
            }
            Some((name, _)) if is_known(name) => rest.push(parameter),
            _ => {
                // The driver would log it with its value, which may be a secret.
                let name = parameter.split('=').next().unwrap_or_default();
                tracing::warn!(name, "ignoring an unknown parameter of the database's address");
            }
        }
    }
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((url, own))
}

/// Whether the driver knows a parameter of this name.
fn is_known(name: &str) -> bool {
    const KNOWN: [&str; 17] = [
        "sslmode",
        "ssl-mode",
        "sslrootcert",
        "ssl-root-cert",
        "ssl-ca",
        "sslcert",
        "ssl-cert",
        "sslkey",
        "ssl-key",
        "statement-cache-capacity",
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "application_name",
    ];
    KNOWN.contains(&name)
        || name == "options"
        || name.starts_with("options[")
        || name.starts_with("options%5B")
}

/// Whether a host is another machine.
fn is_remote(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address {
        Ok(address) => !address.is_loopback(),
        Err(_) => host != "localhost" && !host.starts_with('/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_to_another_machine_is_encrypted_unless_the_address_says_otherwise() {
        let mode = |url: &str| Address::parse(url).expect("an address").options.get_ssl_mode();
        assert!(matches!(mode("postgres://u@db.example.com/d"), PgSslMode::VerifyFull));
        assert!(matches!(mode("postgres://u@10.0.0.1/d"), PgSslMode::VerifyFull));
        assert!(matches!(mode("postgres://u@db.example.com/d?sslmode=require"), PgSslMode::Require));
        assert!(matches!(mode("postgres://u@127.0.0.1/d"), PgSslMode::Prefer));
        assert!(matches!(mode("postgres://u@localhost/d"), PgSslMode::Prefer));
    }

    #[test]
    fn an_address_of_something_else_is_refused_without_telling_its_secrets() {
        for url in ["mysql://u:secret@host/d", "postgres:/u:secret@d", "secret"] {
            let refused = Address::parse(url).err().expect("it is refused").to_string();
            assert!(
                refused.contains("postgres://user@host/database") && !refused.contains("secret"),
                "{refused}"
            );
        }
    }

    #[test]
    fn an_address_may_say_how_many_connections_and_how_long_an_answer_may_take() {
        let own = |query: &str| Address::parse(&format!("postgres://u@localhost/d?{query}")).map(|a| a.own);
        assert_eq!(own("connections=4&sslmode=disable").unwrap().connections_max, 4);
        assert_eq!(own("sslmode=disable&patience_ms=500").unwrap().patience, Duration::from_millis(500));
        assert!(own("connections=none").is_err());
        assert!(own("patience_ms=0").is_err());
    }
}
