//! `serve` and `worker`: the commands that run until they are stopped.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use dormouse::store::{Namespaces, Store};
use dormouse::{Engine, EngineBuilder, Error, Tokens};

use super::{Failure, Globals, Machines};
use crate::listen::{Auth, access_at, listen};
use crate::settings::Settings;
use crate::{AtOnce, Exporter, Server, Stop, Tls};

/// How to serve.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Serve {
    /// The address to listen on; serving other hosts requires `--auth keys` [default: 127.0.0.1:7878]
    #[arg(long, value_name = "ADDRESS", env = "DORMOUSE_BIND", hide_env_values = true)]
    bind: Option<SocketAddr>,
    /// Who has access [default: anyone on this host until the first API key exists, then holders of a key]
    #[arg(long, value_enum, env = "DORMOUSE_AUTH", hide_env_values = true)]
    auth: Option<Auth>,
    /// Also accept requests to this host name when no API key is required
    #[arg(long = "allow-host", value_name = "NAME")]
    allow_hosts: Vec<String>,
    /// Serve https with the certificate chain in this PEM file; it is read again when it changes
    #[arg(long, value_name = "FILE", env = "DORMOUSE_TLS_CERTIFICATE", hide_env_values = true)]
    tls_certificate: Option<PathBuf>,
    /// The certificate's private key, a PEM file
    #[arg(long, value_name = "FILE", env = "DORMOUSE_TLS_KEY", hide_env_values = true)]
    tls_key: Option<PathBuf>,
    /// How many requests may wait for an instance at once; one namespace gets at most half of them, one API key a
    /// quarter [default: 1024]
    #[arg(long, value_name = "NUMBER", env = "DORMOUSE_WAITS_MAX", hide_env_values = true)]
    waits_max: Option<usize>,
    /// How many event streams and dashboard pages may be open at once; shared in the same way [default: 8192]
    #[arg(long, value_name = "NUMBER", env = "DORMOUSE_STREAMS_MAX", hide_env_values = true)]
    streams_max: Option<usize>,
    /// Do not run machines in this process
    #[arg(long)]
    no_worker: bool,
    #[command(flatten)]
    worker: Worker,
}

/// How to work.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Worker {
    /// Create the database file if it is not there; a PostgreSQL database is created by `migrate` alone
    #[arg(long, env = "DORMOUSE_CREATE", hide_env_values = true)]
    create: bool,
}

impl Serve {
    /// The settings under these options.
    pub(super) fn over(&self, settings: &Settings) -> Settings {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let auth = self.auth.map(|auth| match auth {
            Auth::Keys => "keys".to_owned(),
            Auth::Open => "open".to_owned(),
        });
        settings.clone().under([
            ("serve.bind", self.bind.map(|bind| bind.to_string())),
            ("serve.auth", auth),
            ("serve.allow_hosts", Some(self.allow_hosts.join(",")).filter(|hosts| !hosts.is_empty())),
            ("serve.waits_max", self.waits_max.map(|max| max.to_string())),
            ("serve.streams_max", self.streams_max.map(|max| max.to_string())),
            ("serve.run_machines", self.no_worker.then(|| "false".to_owned())),
            ("serve.tls_certificate", path(&self.tls_certificate)),
            ("serve.tls_key", path(&self.tls_key)),
        ])
    }
}

/// Where `serve` listens.
pub(super) fn bind(settings: &Settings) -> SocketAddr {
    let usual = SocketAddr::from(([127, 0, 0, 1], 7878));
    settings.text("serve.bind").and_then(|bind| bind.parse().ok()).unwrap_or(usual)
}

/// Whom `serve` lets in.
pub(super) fn auth(settings: &Settings) -> Option<Auth> {
    settings.text("serve.auth").map(|word| if word == "keys" { Auth::Keys } else { Auth::Open })
}

pub(super) async fn serve(globals: &Globals, args: Serve, machines: Machines) -> Result<ExitCode, Failure> {
    let mut stop = Stop::listen()?;
    let settings = args.over(&globals.settings);
    let (tokens, tls) = (resume_tokens(&settings)?, tls(&settings)?);
    let store = open(globals, &args.worker).await?;
    let exporter = Exporter::install();
    let builder = engine(globals, store, &machines);
    let client = builder.client();
    let bind = bind(&settings);
    let access = access_at(&client, bind, auth(&settings), &settings.list("serve.allow_hosts")).await?;
    let runs =
        settings.is_on("serve.run_machines").unwrap_or(true) && client.registry().machines().next().is_some();
    let engine = if runs { Some(builder.start().await?) } else { None };
    let mut server = Server::new(client, access)?
        .waits_at_once(AtOnce::of(settings.number("serve.waits_max").unwrap_or(1024)))
        .streams_at_once(AtOnce::of(settings.number("serve.streams_max").unwrap_or(8192)));
    if let Some(exporter) = exporter {
        server = server.exporter(exporter);
    }
    if let Some(tokens) = tokens {
        server = server.resume_tokens(tokens);
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    if let Some(tls) = tls {
        server = server.tls(tls);
    }
    let served = listen(server, bind, &mut stop, |address| {
        let machines = if runs { "with this program's machines" } else { "without machines" };
        tracing::info!(%address, db = globals.shown(), "serving {scheme}://{address}, {machines}");
    });
    let served = served.await;
    shut_down(engine, &mut stop).await;
    served?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn worker(
    globals: &Globals,
    args: &Worker,
    machines: Machines,
) -> Result<ExitCode, Failure> {
    let mut stop = Stop::listen()?;
    let builder = engine(globals, open(globals, args).await?, &machines);
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

/// Opens the database. A file that is not there is created only on request: its name may be mistyped.
async fn open(globals: &Globals, args: &Worker) -> Result<Arc<dyn Store>, Failure> {
    if !args.create && globals.server.is_none() {
        globals.require_file("create it with `migrate` or `--create`")?;
    }
    globals.open().await
}

/// Reads the keys of resume tokens. They are not an argument, because other users of the host could see it.
fn resume_tokens(settings: &Settings) -> Result<Option<Tokens>, Failure> {
    let Some(keys) = settings.text("resume_keys") else { return Ok(None) };
    match keys.parse() {
        Ok(tokens) => Ok(Some(tokens)),
        Err(Error::InvalidConfig(reason)) => {
            Err(Failure::usage(format!("resume_keys (DORMOUSE_RESUME_KEYS): {reason}")))
        }
        Err(error) => Err(error.into()),
    }
}

fn tls(settings: &Settings) -> Result<Option<Tls>, Failure> {
    match (settings.path("serve.tls_certificate"), settings.path("serve.tls_key")) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            Tls::from_files(certificate, key).map(Some).map_err(|error| Failure::usage(error.to_string()))
        }
        (Some(_), None) => Err(Failure::usage("a TLS certificate needs its key: set serve.tls_key")),
        (None, Some(_)) => Err(Failure::usage("a TLS key needs its certificate: set serve.tls_certificate")),
    }
}

fn engine(globals: &Globals, store: Arc<dyn Store>, machines: &Machines) -> EngineBuilder {
    let builder = globals.engine(store, machines);
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
