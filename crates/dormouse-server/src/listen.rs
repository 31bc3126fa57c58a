//! Serves a [`Server`] at an address until it is stopped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use dormouse::{BoxError, Client};
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::{Access, Server, Stop, Tls};

/// How long requests may continue after a request to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// A connection is closed if a request's head takes longer than this, or if it is idle for longer.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// The most open connections; further ones wait to be accepted.
const CONNECTIONS_MAX: u32 = 16 * 1024;
/// How long to wait when the system has no room for another connection.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// Serves until a request to stop, then waits for the requests in progress. A second request to stop ends it at once.
///
/// Calls `ready` with the address once it accepts requests.
pub async fn listen(
    server: Server,
    bind: SocketAddr,
    stop: &mut Stop,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let listener = TcpListener::bind(bind).await.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => "; choose another address with `--bind` (or DORMOUSE_BIND)",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot listen on {bind}: {error}{advice}"))
    })?;
    let stopping = CancellationToken::new();
    let (answer_within, tls) = (server.answers_within(), server.tls_files());
    let router = server.stopping(stopping.clone()).router();
    ready(listener.local_addr()?);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    let entry = Entry { router, answer_within, stopping: stopping.clone(), tls: tls.clone() };
    tokio::select! {
        () = accept(&listener, &entry, &places) => {}
        () = renewed(tls) => {}
        () = stop.requested() => {}
    }
    drop(listener);
    stopping.cancel();
    tokio::select! {
        // All permits are free when all connections have ended.
        _ = places.acquire_many(CONNECTIONS_MAX) => {}
        () = tokio::time::sleep(DRAIN) => {
            tracing::warn!("the drain time is over: requests that are still in progress are cut off");
        }
        () = stop.requested() => {}
    }
    Ok(())
}

/// What every connection gets.
struct Entry {
    router: Router,
    answer_within: Duration,
    stopping: CancellationToken,
    tls: Option<Tls>,
}

/// Keeps the certificate current for as long as it is polled.
async fn renewed(tls: Option<Tls>) {
    match tls {
        Some(tls) => tls.keep_current().await,
        None => std::future::pending().await,
    }
}

/// Accepts connections for as long as it is polled.
async fn accept(listener: &TcpListener, entry: &Entry, places: &Arc<Semaphore>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN);
    loop {
        let place = places.clone().acquire_owned().await.expect("places are never closed");
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // The caller hung up at once, or there are too many open files: both pass.
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(FULL_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            // It works without, only a little slower.
            tracing::debug!(%error, "TCP_NODELAY could not be set: small parts of responses may be delayed");
        }
        let (router, stopping) = (entry.router.clone(), entry.stopping.clone());
        let connection =
            Connection { stream, from, router, answer_within: entry.answer_within, stopping, place };
        match &entry.tls {
            None => connection.serve(&http),
            Some(tls) => shake_hands(connection, tls, http.clone()),
        }
    }
}

/// Serves a connection once TLS is established, in a task of its own: a caller may take its time.
fn shake_hands(connection: Connection<TcpStream>, tls: &Tls, http: http1::Builder) {
    let acceptor = tls.acceptor();
    tokio::spawn(async move {
        let Connection { stream, from, router, answer_within, stopping, place } = connection;
        let shaken = tokio::time::timeout(HEADERS_WITHIN, acceptor.accept(stream));
        let Some(shaken) = stopping.run_until_cancelled(shaken).await else { return };
        match shaken {
            Ok(Ok(stream)) => {
                let stream = Box::new(stream);
                Connection { stream, from, router, answer_within, stopping, place }.serve(&http);
            }
            Ok(Err(error)) => tracing::debug!(%error, "a caller did not agree on TLS"),
            Err(_) => tracing::debug!("a caller took too long to agree on TLS"),
        }
    });
}

/// Who has access, as an option of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Auth {
    /// Holders of an API key.
    Keys,
    /// Anyone, even if there are API keys; only on the loopback interface.
    Open,
}

/// Decides who has access at this address, and refuses a combination that would admit anyone from other hosts.
///
/// Without `auth`, the server requires API keys as soon as one exists, even if it is created while the server runs.
pub async fn access_at(
    client: &Client,
    bind: SocketAddr,
    auth: Option<Auth>,
    hosts: &[String],
) -> Result<Access, BoxError> {
    let keys = client.server_store()?.api_keys(None).await?;
    let is_loopback = bind.ip().is_loopback();
    match auth.unwrap_or(if keys.is_empty() { Auth::Open } else { Auth::Keys }) {
        Auth::Open if !is_loopback => Err(format!(
            "{bind} can be reached from other hosts, and no API key would be required: create an API key \
             (`keys create --label me --scope admin`) and serve with `--auth keys`, or bind to 127.0.0.1"
        )
        .into()),
        Auth::Keys if !keys.iter().any(|key| key.is_live) => Err(
            "API keys are required, but there is no live one: create one with `keys create --label me --scope admin`"
                .into(),
        ),
        Auth::Keys => Ok(Access::keys()),
        Auth::Open => {
            let open = if auth.is_some() { Access::open_on_loopback() } else { Access::open_until_first_key() };
            Ok(hosts.iter().fold(open, Access::allow_host))
        }
    }
}
