//! Serving a [`Server`] at an address, from the first request to the last.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use dormouse::{BoxError, Client};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Access, Server, Stop};

/// How long requests may go on after a stop was asked for.
const DRAIN: Duration = Duration::from_secs(10);

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
    let router = server.stopping(stopping.clone()).router();
    ready(listener.local_addr()?);
    let serving = axum::serve(listener, router).with_graceful_shutdown(stopping.clone().cancelled_owned());
    let mut serving = tokio::spawn(serving.into_future());
    tokio::select! {
        ended = &mut serving => return ended.map_err(io::Error::other)?,
        () = stop.requested() => {}
    }
    stopping.cancel();
    tokio::select! {
        ended = &mut serving => ended.map_err(io::Error::other)?,
        () = tokio::time::sleep(DRAIN) => {
            tracing::warn!("the drain time is over: requests that are still under way are cut off");
            serving.abort();
            Ok(())
        }
        () = stop.requested() => {
            serving.abort();
            Ok(())
        }
    }
}

/// What a command line says about who may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Auth {
    /// Whoever has an API key.
    Keys,
    /// Anyone; only on the loopback interface.
    Open,
}

/// Decides who may come in at this address, and refuses what would let anyone in from elsewhere.
///
/// Unless said, API keys are asked for as soon as one was ever made.
pub async fn access_at(
    client: &Client,
    bind: SocketAddr,
    auth: Option<Auth>,
    hosts: &[String],
) -> Result<Access, BoxError> {
    let keys = client.store().api_keys(None).await?;
    let auth = auth.unwrap_or(if keys.is_empty() { Auth::Open } else { Auth::Keys });
    let is_loopback = bind.ip().is_loopback();
    match auth {
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
        Auth::Open => Ok(hosts.iter().fold(Access::open_on_loopback(), Access::allow_host)),
    }
}
