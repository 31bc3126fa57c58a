//! The command line: the same commands over a database that is opened here and over a server far away.
//!
//! [`main`] is the whole of it for a program with machines of its own. A program that has further
//! commands flattens [`Globals`] and [`Command`] into its own.

mod admin;
mod ahead;
pub(crate) mod conn;
mod doctor;
mod failure;
mod inbox;
mod instances;
mod interactions;
mod log;
mod look;
mod migrate;
mod operate;
mod output;
mod run;
mod signal;
mod tls;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, Parser, Subcommand};
use dormouse::store::{Store, shown};
use dormouse::{Client, Engine, EngineBuilder, Json};

use self::conn::Conn;
pub use self::failure::{EXIT_CODES, Failure};
pub use self::log::Log;
use self::output::Output;
use crate::{Access, Server};

/// Registers a program's machines with an engine.
pub type Machines = Arc<dyn Fn(EngineBuilder) -> EngineBuilder + Send + Sync>;

/// A program whose commands are all from here.
#[derive(Parser)]
#[command(name = "dormouse", version, about = "Durable state machines that sleep until something happens.", after_help = failure::EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Clone, clap::Args)]
pub struct Globals {
    /// The database: a path, sqlite:path/to/file.db, or postgres://user@host/database [default: dormouse.db]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "DORMOUSE_DB",
        hide_env_values = true,
        conflicts_with = "server"
    )]
    pub db: Option<String>,
    /// Ask a server instead of opening a database, such as http://127.0.0.1:7878; https works too
    #[arg(long, global = true, value_name = "URL", env = "DORMOUSE_SERVER", hide_env_values = true)]
    pub server: Option<String>,
    /// Trust the certificates in this file too, in PEM, where the server is an https one
    #[arg(long, global = true, value_name = "FILE", env = "DORMOUSE_CA_FILE", hide_env_values = true)]
    pub ca_file: Option<PathBuf>,
    /// Work in this namespace; with an API key, it is the key's
    #[arg(long, global = true, value_name = "NAME", env = "DORMOUSE_NAMESPACE", hide_env_values = true)]
    pub namespace: Option<String>,
    /// Print JSON for programs instead of tables for people
    #[arg(long, global = true)]
    pub json: bool,
    /// How to log; RUST_LOG says what
    #[arg(long, global = true, value_name = "FORM", value_enum)]
    pub log: Option<Log>,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Serve the dashboard and the HTTP API, and run this program's machines
    Serve(run::Serve),
    /// Run this program's machines, without HTTP
    Worker,
    /// Make the database, or bring its schema up to date
    Migrate(migrate::Migrate),
    /// Start an instance
    Start(instances::Start),
    /// List instances, newest first
    Ls(instances::Ls),
    /// Show an instance
    Get(instances::One),
    /// Show what changes, as it changes
    Watch(watch::Watch),
    /// Show an instance's history
    History(instances::History),
    /// Show the signals that wait for an instance, or drop or edit one
    Inbox(inbox::Inbox),
    /// List an instance's children
    Children(instances::One),
    /// Show how an instance ended, or wait for it
    Result(instances::ResultArgs),
    /// Say why an instance does not move
    Explain(instances::One),
    /// Say what an instance would do if something happened to it; nothing is run or changed
    WhatIf(ahead::WhatIf),
    /// Signal an instance, or all that match
    Signal(signal::Signal),
    /// Show what is awaited, or who waits for a signal
    Waiting(look::Waiting),
    /// List and answer what waits for an answer from outside
    #[command(subcommand)]
    Interactions(interactions::Interactions),
    /// Cancel instances
    Cancel(operate::Cancel),
    /// Run a failed or cancelled instance again
    Retry(operate::Retry),
    /// Put the brake on an instance or a queue
    Pause(operate::Brake),
    /// Take the brake off an instance or a queue
    Resume(operate::Brake),
    /// Add and remove tags of an instance
    Tag(operate::Tag),
    /// Start another instance from an event of one
    Fork(operate::Fork),
    /// List queues, their depths and brakes
    Queues,
    /// List workers
    Workers,
    /// List machines and where their instances are
    Machines,
    /// Show counts, depths and ages
    Stats,
    /// Make, list and revoke API keys
    #[command(subcommand)]
    Keys(admin::Keys),
    /// Show what was changed and by whom
    Audit(admin::AuditArgs),
    /// Remove what ended long ago
    Gc(admin::Gc),
    /// Look for what is wrong, and say what to do
    Doctor,
    /// Explore this program's machines, without running them, and say what is wrong with them
    Check(ahead::Check),
    /// Print the graph of one of this program's machines
    Graph(ahead::GraphArgs),
    /// Compare this program's machines with the live instances, before it is deployed
    Diff,
    /// Print a script that completes commands in a shell
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Runs the command line of a program with these machines: `serve`, `worker`, `ls` and all the others.
///
/// ```no_run
/// use dormouse::prelude::*;
/// # struct Shop;
/// # #[derive(Serialize, Deserialize)] enum State { Start }
/// # impl Machine for Shop {
/// #     const NAME: &'static str = "shop";
/// #     type State = State;
/// #     type Output = ();
/// #     async fn step(&self, _state: State, _cx: &Context) -> StepResult<Self> { Ok(Outcome::done(())) }
/// # }
///
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     dormouse_server::main(|engine| engine.machine(Shop).queue("default", 64)).await
/// }
/// ```
///
/// The machines are registered once for each engine or client that the command needs, so what they share (a pool, a
/// client of another service) is made before and cloned in.
pub async fn main(machines: impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync + 'static) -> ExitCode {
    let cli = Cli::parse();
    let done = run(&cli.globals, cli.command, Arc::new(machines), Cli::command).await;
    finish(done, cli.globals.json)
}

/// What to tell the shell.
pub fn finish(done: Result<ExitCode, Failure>, as_json: bool) -> ExitCode {
    log::close();
    done.unwrap_or_else(|failure| failure.report(as_json))
}

/// Runs one of the commands. `definition` is the whole command line, for its completions.
///
/// Boxed, so that it is compiled here: what an async function does is compiled in each program that awaits it.
pub fn run(
    globals: &Globals,
    command: Command,
    machines: Machines,
    definition: fn() -> clap::Command,
) -> Pin<Box<dyn Future<Output = Result<ExitCode, Failure>> + '_>> {
    Box::pin(ran(globals, command, machines, definition))
}

async fn ran(
    globals: &Globals,
    command: Command,
    machines: Machines,
    definition: fn() -> clap::Command,
) -> Result<ExitCode, Failure> {
    let output = Output { json: globals.json };
    globals.log(matches!(command, Command::Serve(_) | Command::Worker));
    match command {
        Command::Serve(args) => return run::serve(globals, args, machines).await,
        Command::Worker => return run::worker(globals, machines).await,
        Command::Migrate(args) => return migrate::migrate(globals, output, args).await,
        Command::Check(args) => return ahead::check(output, &args, &machines),
        Command::Graph(args) => return ahead::graph(output, &args, &machines),
        Command::Diff => return ahead::diff(globals, output, &machines).await,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut definition(), program(), &mut std::io::stdout());
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let conn = globals.connect(&machines).await?;
    match command {
        Command::Start(args) => instances::start(&conn, output, args).await?,
        Command::Ls(args) => instances::ls(&conn, output, args).await?,
        Command::Get(args) => instances::get(&conn, output, &args).await?,
        Command::Watch(args) => watch::watch(&conn, output, args).await?,
        Command::History(args) => instances::history(&conn, output, args).await?,
        Command::Inbox(args) => inbox::inbox(&conn, output, args).await?,
        Command::Children(args) => instances::children(&conn, output, &args).await?,
        Command::Result(args) => return instances::result(&conn, output, args).await,
        Command::Explain(args) => instances::explain(&conn, output, &args).await?,
        Command::WhatIf(args) => ahead::what_if(&conn, output, args).await?,
        Command::Signal(args) => signal::signal(&conn, output, args).await?,
        Command::Waiting(args) => look::waiting(&conn, output, args).await?,
        Command::Interactions(command) => interactions::interactions(&conn, output, command).await?,
        Command::Cancel(args) => operate::cancel(&conn, output, args).await?,
        Command::Retry(args) => operate::retry(&conn, output, args).await?,
        Command::Pause(args) => operate::brake(&conn, output, args, "pause").await?,
        Command::Resume(args) => operate::brake(&conn, output, args, "resume").await?,
        Command::Tag(args) => operate::tag(&conn, output, args).await?,
        Command::Fork(args) => operate::fork(&conn, output, args).await?,
        Command::Queues => look::queues(&conn, output).await?,
        Command::Workers => look::workers(&conn, output).await?,
        Command::Machines => look::machines(&conn, output).await?,
        Command::Stats => look::stats(&conn, output).await?,
        Command::Keys(command) => admin::keys(&conn, output, command).await?,
        Command::Audit(args) => admin::audit(&conn, output, args).await?,
        Command::Gc(args) => admin::gc(&conn, output, args).await?,
        Command::Doctor => return doctor::doctor(&conn, output).await,
        Command::Serve(_)
        | Command::Worker
        | Command::Migrate(_)
        | Command::Check(_)
        | Command::Graph(_)
        | Command::Diff
        | Command::Completions { .. } => unreachable!("these were seen to above"),
    }
    Ok(ExitCode::SUCCESS)
}

impl Globals {
    /// The address of the database: what is named, or the usual file.
    fn url(&self) -> String {
        match self.db.as_deref().unwrap_or("dormouse.db") {
            url if url.starts_with("sqlite:") || url.contains("://") => url.to_owned(),
            path => format!("sqlite:{path}"),
        }
    }

    /// The database for people to read: an address without its secrets.
    pub fn shown(&self) -> String {
        let url = self.url();
        url.strip_prefix("sqlite:").map_or_else(|| shown(&url), str::to_owned)
    }

    /// The address of the database, if it is on a PostgreSQL server.
    pub fn postgres_url(&self) -> Option<String> {
        Some(self.url()).filter(|url| url.starts_with("postgres://") || url.starts_with("postgresql://"))
    }

    /// The path of the database, if it is a file.
    pub fn db_path(&self) -> Option<PathBuf> {
        let url = self.url();
        let path = url.strip_prefix("sqlite:").filter(|path| *path != ":memory:")?;
        Some(path.strip_prefix("//").unwrap_or(path).into())
    }

    /// Opens the database: a file is made if there is none, a server must have been migrated.
    pub async fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        if self.server.is_some() {
            return Err(Failure::usage("this needs the database itself: use --db instead of --server"));
        }
        Ok(Client::open(&self.url()).await?.store().clone())
    }

    async fn connect(&self, machines: &Machines) -> Result<Conn, Failure> {
        if let Some(url) = &self.server {
            let server = conn::Server::parse(url, self.ca_file.as_deref())?;
            // Not an option: what is on a command line, others can see.
            let api_key = std::env::var("DORMOUSE_API_KEY").ok().filter(|key| !key.is_empty());
            if api_key.is_some() && server.is_overheard() {
                eprintln!(
                    "warning: the API key is sent to {} by plain HTTP, and whoever is on the way can read it: use https",
                    server.authority()
                );
            }
            return Ok(Conn::There { server, api_key, namespace: self.namespace.clone() });
        }
        if let Some(path) = self.db_path().filter(|path| !path.exists()) {
            let told =
                format!("there is no database {}: `migrate` makes one, `--db` names another", path.display());
            return Err(Failure::unreachable(told));
        }
        let client = machines(Engine::on(self.open().await?)).client();
        let router = Server::new(client, Access::trusted(user()))?.router();
        Ok(Conn::Here { router, namespace: self.namespace.clone() })
    }
}

/// The addresses are shown without their secrets.
impl fmt::Debug for Globals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { db, server, ca_file, namespace, json, log } = self;
        let mut told = f.debug_struct("Globals");
        told.field("db", &db.as_deref().map(shown)).field("server", &server.as_deref().map(shown));
        told.field("ca_file", ca_file)
            .field("namespace", namespace)
            .field("json", json)
            .field("log", log)
            .finish()
    }
}

/// What this program is called.
fn program() -> String {
    let path = std::env::args().next().unwrap_or_default();
    Path::new(&path)
        .file_stem()
        .map_or_else(|| "dormouse".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Who types the commands, for the audit log.
fn user() -> String {
    let name = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
    format!("command line ({})", name.unwrap_or_else(|| "unknown user".to_owned()))
}

/// An instance as people write it: its id, `key:` and its key, or a key that is no number.
fn instance_path(instance: &str) -> String {
    let is_id = instance.parse::<i64>().is_ok();
    let target =
        if is_id || instance.starts_with("key:") { instance.to_owned() } else { format!("key:{instance}") };
    format!("/v1/instances/{}", conn::encode(&target))
}

/// JSON from an argument: the text itself, `@file`, or `-` for what comes in.
fn json_argument(name: &str, text: &str) -> Result<Json, Failure> {
    let read = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}")),
        None if text == "-" => std::io::read_to_string(std::io::stdin()).map_err(|error| error.to_string()),
        None => Ok(text.to_owned()),
    };
    let text = read.map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{name} is not JSON: {error}")))
}

/// A body with a document in it as it was written: its numbers keep their digits, and whether it can be stored is for the
/// server to say.
fn with_document(members: serde_json::Value, name: &str, document: Option<Json>) -> BTreeMap<String, Json> {
    let members = members.as_object().cloned().unwrap_or_default();
    let members = members.into_iter().map(|(name, value)| (name, Json::from(value)));
    members.chain(document.map(|document| (name.to_owned(), document))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_sent_as_it_was_written() {
        for written in [r#"{"b":123456789012345678901234567890,"a":1.10}"#, "1e400", r#""\ud800""#] {
            let document = json_argument("--state", written).expect("JSON");
            let body = with_document(serde_json::json!({ "machine": "m" }), "state", Some(document));
            let sent = serde_json::to_string(&body).expect("a body");
            assert_eq!(sent, format!(r#"{{"machine":"m","state":{written}}}"#));
        }
    }
}
