//! The command line of a program: its machines, its name and version, and commands of its own.

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use dormouse::EngineBuilder;

use super::{Cli, Failure, Globals, Machines, finish, program, ran};

type Ran = Pin<Box<dyn Future<Output = Result<ExitCode, Failure>>>>;
type Run = Box<dyn Fn(Globals, ArgMatches) -> Ran>;

/// A program with machines of its own. [`main`](crate::main) is one without a name, a version and commands of its own.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use dormouse_server::Program;
/// use dormouse_server::cli::clap::{Arg, Command};
///
/// #[tokio::main]
/// async fn main() -> ExitCode {
///     let report = Command::new("report").about("Print a report").arg(Arg::new("month").required(true));
///     Program::new(|engine| engine.queue("default", 64))
///         .name("expenses")
///         .version(env!("CARGO_PKG_VERSION"))
///         .about("Expense reports and their approval.")
///         .command(report, |globals, matches| async move {
///             let client = globals.client().await?;
///             let month = matches.get_one::<String>("month").map_or("", String::as_str);
///             println!("{month}: {:?}", client.stats().await?.statuses);
///             Ok(ExitCode::SUCCESS)
///         })
///         .run()
///         .await
/// }
/// ```
#[must_use = "nothing is done before `run`"]
pub struct Program {
    machines: Machines,
    name: String,
    version: String,
    about: Option<String>,
    commands: Vec<(clap::Command, Run)>,
}

impl Program {
    /// A program with these machines. The closure runs once for each engine or client that a command needs.
    pub fn new(machines: impl Fn(EngineBuilder) -> EngineBuilder + Send + Sync + 'static) -> Self {
        Self {
            machines: Arc::new(machines),
            name: program(),
            version: format!("(dormouse {})", env!("CARGO_PKG_VERSION")),
            about: None,
            commands: Vec::new(),
        }
    }

    /// Its name in the help and in `--version`; by default that of its file.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Its version, usually `env!("CARGO_PKG_VERSION")`; by default that of dormouse.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// What it is, in one sentence, for the help.
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = Some(about.into());
        self
    }

    /// Adds a command. One with the name of a built-in command takes its place.
    pub fn command<F, R>(mut self, command: clap::Command, run: F) -> Self
    where
        F: Fn(Globals, ArgMatches) -> R + 'static,
        R: Future<Output = Result<ExitCode, Failure>> + 'static,
    {
        self.commands.push((command, Box::new(move |globals, matches| Box::pin(run(globals, matches)))));
        self
    }

    /// Reads the command line, does what it asks for, and reports a failure.
    pub async fn run(self) -> ExitCode {
        let matches = self.definition().get_matches();
        let globals = Globals::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let as_json = globals.json;
        let own = matches.subcommand().and_then(|(name, matches)| {
            let own = self.commands.iter().find(|(command, _)| command.get_name() == name)?;
            Some((&own.1, matches.clone()))
        });
        let done = match own {
            Some((run, matches)) => match globals.settled() {
                Ok(globals) => run(globals, matches).await,
                Err(refused) => Err(refused),
            },
            None => {
                let Cli { globals, command } =
                    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
                Box::pin(ran(&globals, command, self.machines.clone(), &|| self.definition())).await
            }
        };
        finish(done, as_json)
    }

    /// The whole command line.
    fn definition(&self) -> clap::Command {
        // The parser keeps texts that live as long as the program. It is made once or twice in its life.
        let text = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let mut all =
            Cli::command().name(text(&self.name)).bin_name(text(&self.name)).version(text(&self.version));
        if let Some(about) = &self.about {
            all = all.about(text(about));
        }
        for (command, _) in &self.commands {
            let name = command.get_name();
            let own = command.clone();
            all = if all.find_subcommand(name).is_some() {
                all.mut_subcommand(name, move |_| own)
            } else {
                all.subcommand(own)
            };
        }
        all
    }
}
