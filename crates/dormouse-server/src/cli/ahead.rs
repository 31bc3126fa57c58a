//! Looking ahead: a machine's graph, what is wrong with the machine, what a deploy would break, what an instance would
//! do.

use std::process::ExitCode;
use std::sync::Arc;

use dormouse::check::{self, Report};
use dormouse::graph::{Edge, Graph, On};
use dormouse::jiff::Timestamp;
use dormouse::store::sqlite::SqliteStore;
use dormouse::{Client, Difference, DynMachine, Engine, SystemClock};
use serde_json::{Value, json};

use super::conn::{Conn, encode, with_query};
use super::output::{Output, inert, items, line, short, table, text};
use super::{Failure, Globals, Machines, instance_path, json_argument};

/// The exit code when `check` or `diff` found something, for scripts.
const FOUND: u8 = 7;

/// Which machine.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// Only this machine [default: every machine that this program registers]
    machine: Option<String>,
}

/// Explores machines. Needs no database.
pub(super) fn check(output: Output, args: &Check, machines: &Machines) -> Result<ExitCode, Failure> {
    let client = known(machines)?;
    let codes = wanted(&client, args.machine.as_deref(), "check")?;
    let explore = |code: &Arc<dyn DynMachine>| {
        output.progress(&format!("exploring {} version {} …", code.name(), code.version()));
        let started = Timestamp::now();
        let report = check::machine(&**code, client.registry());
        output.progress_is_over();
        (report, Timestamp::now().duration_since(started).unsigned_abs())
    };
    let reports: Vec<_> = codes.iter().map(explore).collect();
    let told = json!({ "reports": reports.iter().map(|(report, _)| report).collect::<Vec<_>>() });
    output.show(&told, |_| {
        for (report, took) in &reports {
            line(&format!("{report}\n"));
            line(&format!("  explored in {took:.1?}\n"));
        }
    });
    let is_clean = reports.iter().all(|(report, _): &(Report, _)| report.is_clean());
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

/// How to draw.
#[derive(Debug, clap::Args)]
pub struct GraphArgs {
    /// The machine
    machine: String,
    /// The output format
    #[arg(long = "as", value_enum, default_value = "mermaid", value_name = "FORM")]
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Mermaid, for pages that render it.
    Mermaid,
    /// DOT, for Graphviz.
    Dot,
    /// An SVG picture.
    Svg,
    /// Steps and edges as JSON.
    Json,
}

/// Prints a machine's graph. For a machine of this program it needs no database; otherwise it is what a worker declared.
pub(super) async fn graph(
    globals: &Globals,
    output: Output,
    args: &GraphArgs,
    machines: &Machines,
) -> Result<ExitCode, Failure> {
    let client = known(machines)?;
    let its_own = client.registry().machines().filter(|code| code.name() == args.machine);
    let graph = match its_own.max_by_key(|code| code.version()) {
        Some(code) if globals.server.is_none() => code.graph().ok_or_else(|| {
            let told = format!("{} declares no graph: describe it in `Machine::graph`", args.machine);
            Failure::new(3, told)
        })?,
        None if globals.server.is_none() && globals.require_file("").is_err() => {
            let told =
                format!("this program registers no machine {:?}, and there is no database", args.machine);
            return Err(Failure::new(3, told));
        }
        _ => declared(globals, machines, &args.machine).await?,
    };
    let form = if output.json { Form::Json } else { args.form };
    line(
        match form {
            Form::Mermaid => graph.mermaid(),
            Form::Dot => graph.dot(),
            Form::Svg => graph.svg(),
            Form::Json => serde_json::to_string(&graph)?,
        }
        .trim_end(),
    );
    Ok(ExitCode::SUCCESS)
}

/// The graph that the newest version of a machine declared, from the server or the database.
async fn declared(globals: &Globals, machines: &Machines, machine: &str) -> Result<Graph, Failure> {
    let conn = globals.connect(machines).await?;
    let told = conn.get(&format!("/v1/machines/{}/graph", encode(machine))).await?;
    let nodes = serde_json::from_value(told["nodes"].clone())?;
    let edge = |edge: &Value| Edge {
        from: text(edge, "from"),
        to: text(edge, "to"),
        on: on(&text(edge, "when")),
        by: edge["by"].as_str().map(str::to_owned),
        after: None,
    };
    Ok(Graph { nodes, edges: items(&told, "edges").map(edge).collect() })
}

/// When a way is taken, by the label that is drawn on it.
fn on(label: &str) -> On {
    let known = [
        On::Timeout,
        On::Skipped,
        On::Again,
        On::Enough,
        On::Later,
        On::Children,
        On::Answers,
        On::Undone,
        On::Failed,
    ];
    match known.into_iter().find(|on| on.label() == Some(label)) {
        Some(on) => on,
        None if label.is_empty() => On::Next,
        None => On::Case(label.to_owned()),
    }
}

/// The machines of this program, on a throwaway database.
fn known(machines: &Machines) -> Result<Client, Failure> {
    let nowhere = SqliteStore::in_memory(Arc::new(SystemClock))?;
    Ok(machines(Engine::on(Arc::new(nowhere))).client())
}

fn wanted(client: &Client, name: Option<&str>, verb: &str) -> Result<Vec<Arc<dyn DynMachine>>, Failure> {
    let is_wanted = |code: &&Arc<dyn DynMachine>| name.is_none_or(|name| code.name() == name);
    let mut codes: Vec<_> = client.registry().machines().filter(is_wanted).cloned().collect();
    codes.sort_by_key(|code| (code.name().to_owned(), code.version()));
    match (codes.is_empty(), name) {
        (false, _) => Ok(codes),
        (true, Some(name)) => Err(Failure::new(3, format!("this program registers no machine {name:?}"))),
        (true, None) => Err(Failure::usage(format!(
            "this program registers no machines: run `{verb}` with a program that does (see `dormouse_server::main`)"
        ))),
    }
}

/// Compares this program's machines with the live rows.
pub(super) async fn diff(
    globals: &Globals,
    output: Output,
    machines: &Machines,
) -> Result<ExitCode, Failure> {
    let client = machines(Engine::on(globals.open().await?)).client();
    let diff = client.diff(|live| output.progress(&format!("{live} live instances …"))).await?;
    output.progress_is_over();
    output.show(&serde_json::to_value(&diff)?, |_| {
        let row = |found: &Difference| {
            let examples: Vec<_> = found.examples.iter().map(ToString::to_string).collect();
            vec![
                found.kind.as_str().to_owned(),
                inert(&found.machine),
                found.version.to_string(),
                inert(&found.step),
                found.count.to_string(),
                examples.join(", "),
                short(&inert(&found.reason), 120),
            ]
        };
        let rows: Vec<_> = diff.differences.iter().map(row).collect();
        let none = format!("this code fits all {} live instances", diff.live);
        table(&["WHAT", "MACHINE", "VERSION", "STEP", "COUNT", "SUCH AS", "WHY"], &rows, &none);
    });
    Ok(if diff.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

/// The event to suppose.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("happening").required(true)))]
pub struct WhatIf {
    /// The instance
    instance: String,
    /// Suppose that a signal of this name arrives
    #[arg(long, value_name = "NAME", group = "happening")]
    signal: Option<String>,
    /// The payload of the signal: JSON, @file, or - for standard input
    #[arg(long, value_name = "JSON", requires = "signal")]
    payload: Option<String>,
    /// Suppose that the deadline of its wait passes
    #[arg(long, group = "happening")]
    deadline: bool,
    /// Suppose that its sleep is over
    #[arg(long, group = "happening")]
    clock: bool,
    /// Suppose that its children end
    #[arg(long, group = "happening")]
    children: bool,
    /// Suppose that its unit is answered
    #[arg(long, group = "happening")]
    answers: bool,
}

pub(super) async fn what_if(conn: &Conn, output: Output, args: WhatIf) -> Result<(), Failure> {
    let payload = args.payload.as_deref().map(|text| json_argument("--payload", text)).transpose()?;
    let happening = match &args {
        WhatIf { signal: Some(_), .. } => "signal",
        WhatIf { deadline: true, .. } => "deadline",
        WhatIf { clock: true, .. } => "clock",
        WhatIf { children: true, .. } => "children",
        _ => "answers",
    };
    let query = [
        ("happening", Some(happening.to_owned())),
        ("signal", args.signal),
        ("payload", payload.map(|payload| payload.to_string())),
    ];
    let path = with_query(&format!("{}/what-if", instance_path(&args.instance)), &query);
    output.show(&conn.get(&path).await?, |foresight| {
        for (index, way) in items(foresight, "ways").enumerate() {
            line(&format!("way {}", index + 1));
            way.as_array().into_iter().flatten().for_each(print_look);
        }
        if foresight["is_complete"] != true {
            line("there are more ways than these");
        }
    });
    Ok(())
}

fn print_look(look: &Value) {
    line(&format!("  {}: {}", text(look, "step"), text(look, "what")));
    let state = text(look, "state");
    if !state.is_empty() {
        line(&format!("    {} at {}: {}", text(look, "status"), text(look, "to"), inert(&state)));
    }
}
