//! Getting a connection: encrypted to another machine, and knowing what stands in between.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions, PgSslMode};
use sqlx::{ConnectOptions, Row};

use super::db::Db;
use crate::{Error, Result};

/// Connections of one process, unless the address says otherwise.
const CONNECTIONS_MAX: u32 = 16;
/// How long a call waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that was idle for longer is tried before it is used: the server may have gone meanwhile.
const TRUSTED_FOR: Duration = Duration::from_secs(1);
/// How long the probe's own poke may take before it counts as lost.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// What the probe listens to.
const PROBE_CHANNEL: &str = "dormouse_probe";

/// Where the database is.
#[derive(Clone)]
pub(super) struct Address {
    options: PgConnectOptions,
    connections_max: u32,
}

impl Address {
    /// Reads an address; what it asks for and cannot be had is refused here.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (url, connections_max) = take_connections_max(url)?;
        let options = PgConnectOptions::from_str(&url).map_err(|error| Error::CannotConnect {
            reason: format!("the address is not understood: {error}"),
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
        Ok(Self { options, connections_max })
    }

    /// One connection of its own.
    pub(super) async fn connect(&self) -> Result<sqlx::PgConnection> {
        self.options.connect().await.map_err(|error| self.unreachable(&error))
    }

    /// The pool for verbs, and what listens to pokes, if anything can.
    pub(super) async fn open(&self) -> Result<(Db, Option<PgListener>)> {
        let listener = self.probe().await?;
        let pooled = listener.is_none();
        if pooled {
            tracing::warn!(
                "pokes do not reach this process, as behind a transaction-mode pooler: polling instead, and every \
                 statement is sent unnamed"
            );
        }
        let options =
            if pooled { self.options.clone().statement_cache_capacity(0) } else { self.options.clone() };
        let steps = self.pool(self.connections_max).connect_lazy_with(options.clone());
        let pool = self.pool(self.connections_max).connect_with(options);
        let pool = pool.await.map_err(|error| self.unreachable(&error))?;
        Ok((Db { pool, steps, pooled }, listener))
    }

    /// Listens, and pokes itself from another connection: only if that arrives will others' pokes. Not behind a
    /// pooler, where it would be the server connection that listens, and whoever is given it next that is told.
    async fn probe(&self) -> Result<Option<PgListener>> {
        // Whoever has to wait for another's transaction to end is behind a pooler, too.
        if tokio::time::timeout(PROBE_TIMEOUT, self.is_pooled()).await.unwrap_or(Ok(true))? {
            return Ok(None);
        }
        let options = self.options.clone().statement_cache_capacity(0);
        let pool = self.pool(1).connect_with(options).await.map_err(|error| self.unreachable(&error))?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(PROBE_CHANNEL).await?;
        let mut other = self.connect().await?;
        if sqlx::raw_sql("notify dormouse_probe").execute(&mut other).await.is_err() {
            return Ok(None);
        }
        let heard = tokio::time::timeout(PROBE_TIMEOUT, listener.recv()).await;
        if !matches!(heard, Ok(Ok(_))) {
            return Ok(None);
        }
        listener.unlisten(PROBE_CHANNEL).await?;
        Ok(Some(listener))
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

    fn pool(&self, connections_max: u32) -> PgPoolOptions {
        PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|conn, meta| {
                Box::pin(async move {
                    if meta.idle_for > TRUSTED_FOR {
                        sqlx::Connection::ping(conn).await?;
                    }
                    Ok(true)
                })
            })
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
            // A certificate that is not trusted comes as data that is not understood.
            sqlx::Error::Io(fault) if fault.kind() != ErrorKind::InvalidData => "",
            sqlx::Error::Tls(_) | sqlx::Error::Io(_) => {
                "; a connection to another machine is encrypted and its certificate checked: name the authority with \
                 sslrootcert=FILE, or lower the guard with sslmode=require"
            }
            _ => "",
        };
        let (host, port) = (self.options.get_host(), self.options.get_port());
        Error::CannotConnect { reason: format!("{host}:{port}: {error}{hint}") }
    }
}

/// Begins a transaction, and says which process of the server is in it.
async fn begin(conn: &mut sqlx::PgConnection) -> Result<i32> {
    sqlx::raw_sql("begin").execute(&mut *conn).await?;
    Ok(sqlx::raw_sql("select pg_backend_pid() as pid").fetch_one(conn).await?.try_get("pid")?)
}

/// Closes a pool that will not be used again.
pub(super) async fn close(pool: &PgPool) {
    pool.close().await;
}

/// Our own parameter of the address, which the driver does not know.
fn take_connections_max(url: &str) -> Result<(String, u32)> {
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), CONNECTIONS_MAX)) };
    let mut connections_max = CONNECTIONS_MAX;
    let mut rest = Vec::new();
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some(("connections", number)) => {
                connections_max = number.parse().ok().filter(|max| *max >= 2).ok_or(Error::InvalidUrl {
                    url: "postgres://…?connections=".to_owned(),
                    reason: "connections must be a number of at least 2",
                })?;
            }
            _ => rest.push(parameter),
        }
    }
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    Ok((url, connections_max))
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
    fn an_address_may_say_how_many_connections() {
        let address = |url: &str| Address::parse(url);
        assert_eq!(
            address("postgres://u@localhost/d?connections=4&sslmode=disable").unwrap().connections_max,
            4
        );
        assert!(address("postgres://u@localhost/d?connections=none").is_err());
    }
}
