//! The command line. The same commands work on a local database and on a remote server.
//!
//! A program with its own machines calls [`main`] and needs nothing else. A program with further commands flattens
//! [`Globals`] and [`Command`] into its own parser.

mod admin;
mod ahead;
mod bulk;
mod config;
pub(crate) mod conn;
mod doctor;
mod document;
mod failure;
mod health;
mod inbox;
mod instances;
mod interactions;
mod kept;
mod limits;
mod log;
mod look;
mod mail;
mod migrate;
mod operate;
mod output;
mod program;
mod run;
mod schedules;
mod signal;
mod tls;
mod transports;
mod views;
mod watch;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

/// The parser of the command line, for programs that add commands.
pub use clap;
use clap::{Parser, Subcommand};
use dormouse::store::{Store, shown};
use dormouse::{Client, Engine, EngineBuilder};

use self::conn::Conn;
use self::document::json_argument;
pub(crate) use self::document::with_document;
pub use self::failure::{EXIT_CODES, Failure};
pub use self::log::Log;
use self::output::Output;
pub use self::program::Program;
use crate::settings::Settings;
use crate::{Access, Auth, Server};

/// Registers a program's machines with an engine.
pub type Machines = Arc<dyn Fn(EngineBuilder) -> EngineBuilder + Send + Sync>;

/// The parser of a program that adds no commands of its own.
#[derive(Parser)]
#[command(name = "dormouse", version, about = "Durable state machines that sleep until something happens.", after_help = failure::EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

/// Options that every command takes.
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
    /// The settings file [default: dormouse.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE", env = "DORMOUSE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Connect to a server instead of opening a database, such as http://127.0.0.1:7878 or an https address
    #[arg(long, global = true, value_name = "URL", env = "DORMOUSE_SERVER", hide_env_values = true)]
    pub server: Option<String>,
    /// For an https server: also trust the certificates in this PEM file
    #[arg(long, global = true, value_name = "FILE", env = "DORMOUSE_CA_FILE", hide_env_values = true)]
    pub ca_file: Option<PathBuf>,
    /// Work in this namespace; an API key always works in its own
    #[arg(long, global = true, value_name = "NAME", env = "DORMOUSE_NAMESPACE", hide_env_values = true)]
    pub namespace: Option<String>,
    /// Print JSON instead of tables
    #[arg(long, global = true)]
    pub json: bool,
    /// The format of log lines; RUST_LOG selects what is logged
    #[arg(long, global = true, value_name = "FORM", value_enum)]
    pub log: Option<Log>,
    /// What the settings file and the environment say, once they are read.
    #[arg(skip)]
    settings: Settings,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Serve the dashboard and the HTTP API, and run this program's machines
    Serve(run::Serve),
    /// Run this program's machines, without HTTP
    Worker(run::Worker),
    /// Create the database, or bring its schema up to date
    Migrate(migrate::Migrate),
    /// Make the typed views of machines on PostgreSQL, and list them
    Views,
    /// Start an instance
    Start(instances::Start),
    /// List instances, newest first
    Ls(instances::Ls),
    /// Show an instance
    Get(instances::One),
    /// Follow changes as they happen
    Watch(watch::Watch),
    /// Show the history of an instance
    History(instances::History),
    /// Show the signals in an instance's inbox, or drop or edit one
    Inbox(inbox::Inbox),
    /// Show the mail of an instance that is not delivered yet
    Mail(instances::One),
    /// List or drop signals that are kept for instances to come
    #[command(subcommand)]
    Kept(kept::Kept),
    /// List an instance's children
    Children(instances::One),
    /// Show the result of an instance, or wait for it
    Result(instances::ResultArgs),
    /// Explain why an instance does not move
    Explain(instances::One),
    /// Show what an instance would do if something happened to it; runs and changes nothing
    WhatIf(ahead::WhatIf),
    /// Retry, edit, cancel, signal, pause, resume or fork every instance that matches a filter
    Bulk(bulk::Bulk),
    /// Signal an instance, or all instances that match a filter
    Signal(signal::Signal),
    /// Show which signals are awaited, or which instances await one
    Waiting(look::Waiting),
    /// List and answer interactions: requests that wait for an answer from outside
    #[command(subcommand)]
    Interactions(interactions::Interactions),
    /// Cancel instances
    Cancel(operate::Cancel),
    /// Run a failed or cancelled instance again
    Retry(operate::Retry),
    /// Replace the state of an instance, which stays where it is
    Edit(operate::Edit),
    /// Pause an instance or a queue
    Pause(operate::Brake),
    /// Resume a paused instance or queue
    Resume(operate::Brake),
    /// Add tags to an instance, or remove them
    Tag(operate::Tag),
    /// Start a new instance from an event in another one's history
    Fork(operate::Fork),
    /// List, create and operate schedules: what starts again and again
    #[command(subcommand)]
    Schedules(schedules::Schedules),
    /// List queues, their depths, and whether they are paused
    Queues,
    /// List, set and remove limits: how many instances of a lane run at a time, or start in a period
    #[command(subcommand)]
    Limits(limits::Limits),
    /// List transports, limit their sends, and close their breakers
    #[command(subcommand)]
    Transports(transports::Transports),
    /// List shares whose weight is not 1
    Shares,
    /// Set how many instances a share is served in each of its turns
    Weigh(operate::Weigh),
    /// List workers
    Workers,
    /// List machines and the steps their instances are at
    Machines,
    /// Show counts, depths and ages
    Stats,
    /// Create, list and revoke API keys
    #[command(subcommand)]
    Keys(admin::Keys),
    /// Show the audit log: what was changed and by whom
    Audit(admin::AuditArgs),
    /// Remove instances that ended long ago
    Gc(admin::Gc),
    /// Show the settings, and where each comes from; takes the options of `serve`
    Config(run::Serve),
    /// Ask a server whether it is well: by default the one that `serve` starts with these settings
    Health(health::Health),
    /// Look for problems and suggest what to do
    Doctor,
    /// Explore this program's machines without running them, and report what is wrong with them
    Check(ahead::Check),
    /// Print the graph of one of this program's machines
    Graph(ahead::GraphArgs),
    /// Compare this program's machines with the live instances; use it before a deploy
    Diff,
    /// Print a shell completion script
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
/// The closure runs once for each engine or client that the command needs. Create what the machines share (a pool, a
/// client of another service) outside the closure and clone it in. [`Program`] also takes a name, a version and commands.
pub async fn main(machines: impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync + 'static) -> ExitCode {
    Program::new(machines).run().await
}

/// Reports a failure, if there was one, and returns the exit code.
pub fn finish(done: Result<ExitCode, Failure>, as_json: bool) -> ExitCode {
    log::close();
    done.unwrap_or_else(|failure| failure.report(as_json))
}

/// Runs one of the commands. `definition` is the whole command line, for its completions.
///
/// The future is boxed so that it is compiled here; an async function is compiled again in each program that awaits it.
pub fn run(
    globals: &Globals,
    command: Command,
    machines: Machines,
    definition: fn() -> clap::Command,
) -> Pin<Box<dyn Future<Output = Result<ExitCode, Failure>> + '_>> {
    Box::pin(async move { ran(globals, command, machines, &definition).await })
}

async fn ran(
    globals: &Globals,
    command: Command,
    machines: Machines,
    definition: &dyn Fn() -> clap::Command,
) -> Result<ExitCode, Failure> {
    let output = Output { json: globals.json };
    let globals = &globals.clone().settled()?;
    globals.log(matches!(command, Command::Serve(_) | Command::Worker(_)));
    match command {
        Command::Serve(args) => return run::serve(globals, args, machines).await,
        Command::Worker(args) => return run::worker(globals, &args, machines).await,
        Command::Migrate(args) => return migrate::migrate(globals, output, args).await,
        Command::Views => return views::views(globals, output).await,
        Command::Config(args) => {
            config::config(globals, output, &args);
            return Ok(ExitCode::SUCCESS);
        }
        Command::Health(args) => return health::health(globals, output, &args).await,
        Command::Check(args) => return ahead::check(output, &args, &machines),
        Command::Graph(args) => return ahead::graph(globals, output, &args, &machines).await,
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
        Command::Mail(args) => mail::mail(&conn, output, &args).await?,
        Command::Kept(command) => kept::kept(&conn, output, command).await?,
        Command::Children(args) => instances::children(&conn, output, &args).await?,
        Command::Result(args) => return instances::result(&conn, output, args).await,
        Command::Explain(args) => instances::explain(&conn, output, &args).await?,
        Command::WhatIf(args) => ahead::what_if(&conn, output, args).await?,
        Command::Bulk(args) => bulk::bulk(&conn, output, args).await?,
        Command::Signal(args) => signal::signal(&conn, output, args).await?,
        Command::Waiting(args) => look::waiting(&conn, output, args).await?,
        Command::Interactions(command) => interactions::interactions(&conn, output, command).await?,
        Command::Cancel(args) => operate::cancel(&conn, output, args).await?,
        Command::Retry(args) => operate::retry(&conn, output, args).await?,
        Command::Edit(args) => operate::edit(&conn, output, args).await?,
        Command::Pause(args) => operate::brake(&conn, output, args, "pause").await?,
        Command::Resume(args) => operate::brake(&conn, output, args, "resume").await?,
        Command::Tag(args) => operate::tag(&conn, output, args).await?,
        Command::Fork(args) => operate::fork(&conn, output, args).await?,
        Command::Schedules(command) => schedules::schedules(&conn, output, command).await?,
        Command::Queues => look::queues(&conn, output).await?,
        Command::Limits(command) => limits::limits(&conn, output, command).await?,
        Command::Transports(command) => transports::transports(&conn, output, command).await?,
        Command::Shares => look::shares(&conn, output).await?,
        Command::Weigh(args) => operate::weigh(&conn, output, &args).await?,
        Command::Workers => look::workers(&conn, output).await?,
        Command::Machines => look::machines(&conn, output).await?,
        Command::Stats => look::stats(&conn, output).await?,
        Command::Keys(command) => admin::keys(&conn, output, command).await?,
        Command::Audit(args) => admin::audit(&conn, output, args).await?,
        Command::Gc(args) => admin::gc(&conn, output, args).await?,
        Command::Doctor => return doctor::doctor(&conn, output).await,
        Command::Serve(_)
        | Command::Worker(_)
        | Command::Migrate(_)
        | Command::Views
        | Command::Config(_)
        | Command::Health(_)
        | Command::Check(_)
        | Command::Graph(_)
        | Command::Diff
        | Command::Completions { .. } => unreachable!("these were seen to above"),
    }
    Ok(ExitCode::SUCCESS)
}

impl Globals {
    /// Reads the settings file and the environment, and takes from them what the command line leaves open. [`main`] and
    /// [`run`] do this; a program with commands of its own does it first.
    pub fn settled(mut self) -> Result<Self, Failure> {
        let settings = Settings::load(self.config.as_deref(), |name| std::env::var(name).ok())?;
        let log = self.log.map(|log| log.word().to_owned());
        let flags = [("db", self.db.clone()), ("namespace", self.namespace.clone()), ("log.form", log)];
        self.settings = settings.under(flags);
        let text = |name: &str| self.settings.text(name).map(str::to_owned);
        (self.db, self.namespace) = (text("db"), text("namespace"));
        self.log = self.settings.text("log.form").and_then(Log::from_word);
        Ok(self)
    }

    /// An engine on this store with a program's machines and these settings.
    fn engine(&self, store: Arc<dyn Store>, machines: &Machines) -> EngineBuilder {
        self.over(machines(Engine::on(store)))
    }

    /// An engine with these settings, for a command of a program's own. What they leave open stays as it was built.
    pub fn over(&self, engine: EngineBuilder) -> EngineBuilder {
        self.settings.engine(engine)
    }

    /// Where these settings have `serve` listen.
    pub fn bind(&self) -> SocketAddr {
        run::bind(&self.settings)
    }

    /// Who these settings let in, if they say.
    pub fn auth(&self) -> Option<Auth> {
        run::auth(&self.settings)
    }

    /// The address of the database: the given one, or the default file.
    fn url(&self) -> String {
        match self.db.as_deref().unwrap_or("dormouse.db") {
            url if url.starts_with("sqlite:") || url.contains("://") => url.to_owned(),
            path => format!("sqlite:{path}"),
        }
    }

    /// The address of the database without its secrets, for logs and messages.
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

    /// A client of the database, in the chosen namespace. It knows no machines.
    pub async fn client(&self) -> Result<Client, Failure> {
        self.require_file("create it with `migrate`")?;
        let client = Client::on(self.open().await?);
        Ok(match &self.namespace {
            Some(namespace) => client.in_namespace(namespace)?,
            None => client,
        })
    }

    /// Opens the database. A missing file is created; a PostgreSQL database must have been migrated.
    pub async fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        if self.server.is_some() {
            return Err(Failure::usage(
                "this command works on the database itself: use --db instead of --server",
            ));
        }
        Ok(Client::open(&self.url()).await?.store().clone())
    }

    /// Refuses a database file that is not there.
    fn require_file(&self, advice: &str) -> Result<(), Failure> {
        let Some(path) = self.db_path().filter(|path| !path.exists()) else { return Ok(()) };
        let told =
            format!("there is no database {}: {advice}, or name another one with `--db`", path.display());
        Err(Failure::unreachable(told))
    }

    async fn connect(&self, machines: &Machines) -> Result<Conn, Failure> {
        if let Some(url) = &self.server {
            let server = conn::Server::parse(url, self.ca_file.as_deref())?;
            // Not an option: other users of this host can see command lines.
            let api_key = std::env::var("DORMOUSE_API_KEY").ok().filter(|key| !key.is_empty());
            if api_key.is_some() && server.is_overheard() {
                eprintln!(
                    "warning: the API key is sent to {} over plain HTTP, and anyone on the way can read it: use https",
                    server.authority()
                );
            }
            return Ok(Conn::There { server, api_key, namespace: self.namespace.clone() });
        }
        self.require_file("create it with `migrate`")?;
        let client = self.engine(self.open().await?, machines).client();
        let router = Server::new(client, Access::trusted(user()))?.router();
        Ok(Conn::Here { router, namespace: self.namespace.clone() })
    }
}

/// The addresses are shown without their secrets.
impl fmt::Debug for Globals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { db, config, server, ca_file, namespace, json, log, settings: _ } = self;
        let mut told = f.debug_struct("Globals");
        told.field("db", &db.as_deref().map(shown)).field("server", &server.as_deref().map(shown));
        told.field("config", config)
            .field("ca_file", ca_file)
            .field("namespace", namespace)
            .field("json", json)
            .field("log", log)
            .finish()
    }
}

/// The name of this program.
fn program() -> String {
    let path = std::env::args().next().unwrap_or_default();
    Path::new(&path)
        .file_stem()
        .map_or_else(|| "dormouse".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The user who runs the command, for the audit log.
fn user() -> String {
    let name = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
    format!("command line ({})", name.unwrap_or_else(|| "unknown user".to_owned()))
}

/// The path of an instance, which users name by its id, by `key:` and its key, or by a key that is not a number.
fn instance_path(instance: &str) -> String {
    let is_id = instance.parse::<i64>().is_ok();
    let target =
        if is_id || instance.starts_with("key:") { instance.to_owned() } else { format!("key:{instance}") };
    format!("/v1/instances/{}", conn::encode(&target))
}
