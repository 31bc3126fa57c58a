//! Serving a [`Server`] at an address, from the first request to the last.

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

/// How long requests may go on after a stop was asked for.
const DRAIN: Duration = Duration::from_secs(10);
/// Whoever takes longer to say what they want, or says nothing for so long, is hung up on.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// Connections at a time; more wait to be taken.
const CONNECTIONS_MAX: u32 = 16 * 1024;
/// How long to wait when the system has no room for another connection.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// Serves until asked to stop, and then lets the requests under way end. A second request to stop ends it at once.
///
/// `ready` is told the address once requests are taken.
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
        // All places are free when all connections have ended.
        _ = places.acquire_many(CONNECTIONS_MAX) => {}
        () = tokio::time::sleep(DRAIN) => {
            tracing::warn!("the drain time is over: requests that are still under way are cut off");
        }
        () = stop.requested() => {}
    }
    Ok(())
}

/// Takes connections for as long as it is polled.
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
                // A caller that hung up at once, or no room for another open file: both pass.
                tracing::debug!(%error, "a connection could not be taken");
                tokio::time::sleep(FULL_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            // It works without, a little later.
            tracing::debug!(%error, "small parts of answers are not sent at once");
        }
        let (router, stopping) = (router.clone(), stopping.clone());
        Connection { stream, from, router, answer_within, stopping, place }.serve(&http);
    }
}

/// What a command line says about who may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Auth {
    /// Whoever has an API key.
    Keys,
    /// Anyone, also when there are API keys; only on the loopback interface.
    Open,
}

/// Decides who may come in at this address, and refuses what would let anyone in from elsewhere.
///
/// Unless said, API keys are asked for as soon as one was ever made, also while the server runs.
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
            "{bind} can be reached from other machines, and nothing would ask who is there: make an API key \
             (`keys create --label me --scope admin`) and serve with `--auth keys`, or bind to 127.0.0.1"
        )
        .into()),
        Auth::Keys if !keys.iter().any(|key| key.is_live) => Err(
            "API keys are asked for, and there is no live one: make one with `keys create --label me --scope admin`"
                .into(),
        ),
        Auth::Keys => Ok(Access::keys()),
        Auth::Open => {
            let open = if auth.is_some() { Access::open_on_loopback() } else { Access::open_until_first_key() };
            Ok(hosts.iter().fold(open, Access::allow_host))
        }
    }
}
