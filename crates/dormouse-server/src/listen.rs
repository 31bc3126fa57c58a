//! Serves a [`Server`] at an address until it is stopped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use dormouse::{BoxError, Client};
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::{Access, Server, Stop};

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
    let listener = TcpListener::bind(bind)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {bind}: {error}")))?;
    let stopping = CancellationToken::new();
    let answer_within = server.answers_within();
    let router = server.stopping(stopping.clone()).router();
    ready(listener.local_addr()?);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    tokio::select! {
        () = accept(&listener, &router, &places, answer_within, &stopping) => {}
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

/// Accepts connections for as long as it is polled.
async fn accept(
    listener: &TcpListener,
    router: &Router,
    places: &Arc<Semaphore>,
    answer_within: Duration,
    stopping: &CancellationToken,
) {
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
        let (router, stopping) = (router.clone(), stopping.clone());
        Connection { stream, from, router, answer_within, stopping, place }.serve(&http);
    }
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
