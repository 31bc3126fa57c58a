//! `serve` and `worker`: the commands that run until they are stopped.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use dormouse::store::{Namespaces, Store};
use dormouse::{Engine, EngineBuilder, Error, Tokens};

use super::{Failure, Globals, Machines};
use crate::listen::{Auth, access_at, listen};
use crate::{AtOnce, Exporter, Server, Stop};

/// The environment variable with the keys that sign and verify resume tokens.
const RESUME_KEYS: &str = "DORMOUSE_RESUME_KEYS";

/// How to serve.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// The address to listen on; serving other hosts requires `--auth keys`
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:7878",
        env = "DORMOUSE_BIND",
        hide_env_values = true
    )]
    bind: SocketAddr,
    /// Who has access [default: anyone on this host until the first API key exists, then holders of a key]
    #[arg(long, value_enum, env = "DORMOUSE_AUTH", hide_env_values = true)]
    auth: Option<Auth>,
    /// Also accept requests to this host name when no API key is required
    #[arg(long = "allow-host", value_name = "NAME")]
    allow_hosts: Vec<String>,
    /// How many requests may wait for an instance at once; one namespace gets at most half of them, one API key a
    /// quarter
    #[arg(long, value_name = "NUMBER", default_value_t = 1024, env = "DORMOUSE_WAITS_MAX")]
    waits_max: usize,
    /// How many event streams and dashboard pages may be open at once; shared in the same way
    #[arg(long, value_name = "NUMBER", default_value_t = 8192, env = "DORMOUSE_STREAMS_MAX")]
    streams_max: usize,
    /// Do not run machines in this process
    #[arg(long)]
    no_worker: bool,
}

pub(super) async fn serve(globals: &Globals, args: Serve, machines: Machines) -> Result<ExitCode, Failure> {
    let mut stop = Stop::listen()?;
    let tokens = resume_tokens()?;
    let store = globals.open().await?;
    let exporter = Exporter::install();
    let builder = engine(globals, store, &machines);
    let client = builder.client();
    let access = access_at(&client, args.bind, args.auth, &args.allow_hosts).await?;
    let runs = !args.no_worker && client.registry().machines().next().is_some();
    let engine = if runs { Some(builder.start().await?) } else { None };
    let mut server = Server::new(client, access)?
        .waits_at_once(AtOnce::of(args.waits_max))
        .streams_at_once(AtOnce::of(args.streams_max));
    if let Some(exporter) = exporter {
        server = server.exporter(exporter);
    }
    if let Some(tokens) = tokens {
        server = server.resume_tokens(tokens);
    }
    let served = listen(server, args.bind, &mut stop, |address| {
        let machines = if runs { "with this program's machines" } else { "without machines" };
        tracing::info!(%address, db = globals.shown(), "serving http://{address}, {machines}");
    });
    let served = served.await;
    shut_down(engine, &mut stop).await;
    served?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn worker(globals: &Globals, machines: Machines) -> Result<ExitCode, Failure> {
    let mut stop = Stop::listen()?;
    let builder = engine(globals, globals.open().await?, &machines);
    if builder.client().registry().machines().next().is_none() {
        let told = "this program has no machines to run: write a program that registers some \
            with `dormouse_server::main(|engine| ...)`";
        return Err(Failure::new(4, told));
    }
    let engine = builder.start().await?;
    tracing::info!(db = globals.shown(), "working");
    stop.requested().await;
    shut_down(Some(engine), &mut stop).await;
    Ok(ExitCode::SUCCESS)
}

/// Reads the keys of resume tokens. They are not an argument, because other users of the host could see it.
fn resume_tokens() -> Result<Option<Tokens>, Failure> {
    let Some(keys) = std::env::var_os(RESUME_KEYS).filter(|keys| !keys.is_empty()) else { return Ok(None) };
    match keys.to_string_lossy().parse() {
        Ok(tokens) => Ok(Some(tokens)),
        Err(Error::InvalidConfig(reason)) => Err(Failure::usage(format!("{RESUME_KEYS}: {reason}"))),
        Err(error) => Err(error.into()),
    }
}

fn engine(globals: &Globals, store: Arc<dyn Store>, machines: &Machines) -> EngineBuilder {
    let builder = machines(Engine::on(store));
    match &globals.namespace {
        Some(namespace) => builder.namespaces(Namespaces::Only(vec![namespace.clone()])),
        None => builder,
    }
}

/// Waits for running steps to end. A second request to stop ends the wait.
async fn shut_down(engine: Option<Engine>, stop: &mut Stop) {
    let Some(engine) = engine else { return };
    tracing::info!("stopping: waiting for running steps to end");
    tokio::select! {
        () = engine.shutdown() => {}
        () = stop.requested() => tracing::warn!("stopped at once: interrupted steps will run again"),
    }
}
