//! Commands that start and show instances.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use clap::builder::PossibleValuesParser;
use dormouse::Status;
use dormouse::jiff::Timestamp;
use serde_json::{Value, json};

use super::conn::{Conn, with_query};
use super::output::{Output, age, escaped, inert, items, line, short, table, text};
use super::{Failure, instance_path, json_argument, with_document};
use crate::span;

/// One instance.
#[derive(Debug, clap::Args)]
pub struct One {
    /// The instance, by its id or its key
    pub(super) instance: String,
}

/// What to start.
#[derive(Debug, clap::Args)]
pub struct Start {
    /// The machine's name
    machine: String,
    /// The step to start at; optional for a machine with one step
    #[arg(long)]
    step: Option<String>,
    /// The step's state: JSON, @file, or - for standard input
    #[arg(long, value_name = "JSON")]
    state: Option<String>,
    /// The version of the machine's code [default: the newest]
    #[arg(long)]
    version: Option<u32>,
    /// Its key: a business identity that no other live instance may have
    #[arg(long)]
    key: Option<String>,
    /// The queue it runs in
    #[arg(long)]
    queue: Option<String>,
    /// Its priority; lower runs earlier
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Its lane: instances of one lane run one at a time, in order
    #[arg(long)]
    lane: Option<String>,
    /// Its share: work of one queue and priority is served by turns of its shares
    #[arg(long)]
    share: Option<String>,
    /// The trace it is part of, as in the header traceparent
    #[arg(long, value_name = "TRACEPARENT")]
    trace: Option<String>,
    /// How many starts each of its steps counts as, in a lane with a rate
    #[arg(long)]
    cost: Option<u32>,
    /// A tag to find it by; repeatable
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Start after this delay, such as 5m
    #[arg(long = "in", value_name = "SPAN")]
    start_in: Option<String>,
    /// Start at this moment, such as 2030-01-01T12:00:00Z
    #[arg(long = "at", value_name = "MOMENT")]
    start_at: Option<String>,
    /// Start it even if no worker has declared its machine
    #[arg(long)]
    even_if_unknown: bool,
}

pub(super) async fn start(conn: &Conn, output: Output, args: Start) -> Result<(), Failure> {
    let state = args.state.as_deref().map(|text| json_argument("--state", text)).transpose()?;
    let mut body = json!({
        "machine": args.machine, "step": args.step, "version": args.version, "key": args.key, "queue": args.queue,
    "lane": args.lane, "share": args.share, "start_in": args.start_in, "start_at": args.start_at, "tags": args.tags,
    "trace": args.trace, "cost": args.cost,
    "even_if_unknown": args.even_if_unknown,
    });
    if let Some(priority) = args.priority {
        body["priority"] = json!(priority);
    }
    let body = with_document(body, "state", state);
    let started = conn.post("/v1/instances", &body).await?;
    output.show(&started, |started| line(&format!("started {}", text(started, "id"))));
    Ok(())
}

/// Which instances.
#[derive(Debug, clap::Args)]
pub struct Ls {
    #[command(flatten)]
    pub(super) filter: Filter,
    /// Show at most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Continue where an earlier page ended
    #[arg(long)]
    cursor: Option<String>,
    /// Show all of them, page after page
    #[arg(long, conflicts_with = "cursor")]
    all: bool,
}

/// A filter of instances.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Filter {
    /// Only instances of this machine
    #[arg(long)]
    pub(super) machine: Option<String>,
    /// Only instances of this version
    #[arg(long)]
    pub(super) version: Option<u32>,
    /// Only instances in this status, such as failed; several have commas between
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Status::ALL.map(Status::as_str)))]
    pub(super) status: Vec<String>,
    /// Only instances at this step
    #[arg(long)]
    pub(super) step: Option<String>,
    /// Only instances whose last error has this text in it
    #[arg(long, value_name = "TEXT")]
    pub(super) error: Option<String>,
    /// Only instances whose state meets this, such as 'total > 1000' or 'customer = "acme"'; repeatable
    #[arg(long = "where", value_name = "CONDITION")]
    pub(super) conditions: Vec<String>,
    /// Only instances created at or after this moment, such as 2030-01-01T12:00:00Z
    #[arg(long, value_name = "MOMENT")]
    pub(super) created_from: Option<String>,
    /// Only instances created before this moment
    #[arg(long, value_name = "MOMENT")]
    pub(super) created_before: Option<String>,
    /// Only instances whose last transition was at or after this moment
    #[arg(long, value_name = "MOMENT")]
    pub(super) changed_from: Option<String>,
    /// Only instances whose last transition was before this moment
    #[arg(long, value_name = "MOMENT")]
    pub(super) changed_before: Option<String>,
    /// Only instances that ended at or after this moment
    #[arg(long, value_name = "MOMENT")]
    pub(super) ended_from: Option<String>,
    /// Only instances that ended before this moment
    #[arg(long, value_name = "MOMENT")]
    pub(super) ended_before: Option<String>,
    /// Oldest first instead of newest first
    #[arg(long)]
    pub(super) oldest: bool,
    /// Only instances in this queue
    #[arg(long)]
    pub(super) queue: Option<String>,
    /// Only instances whose key starts with this
    #[arg(long)]
    pub(super) key: Option<String>,
    /// Only instances that await this signal
    #[arg(long)]
    pub(super) awaiting: Option<String>,
    /// Only children of this instance, by its id
    #[arg(long)]
    pub(super) parent: Option<i64>,
    /// Only instances that no other instance spawned
    #[arg(long)]
    pub(super) roots: bool,
    /// Only instances created since then: a span, such as 2h, or a moment, such as 2030-01-01T12:00:00Z
    #[arg(long, value_name = "SINCE", value_parser = since)]
    pub(super) since: Option<Timestamp>,
    /// Only instances with this tag; repeat it to require several
    #[arg(long = "tag", value_name = "TAG")]
    pub(super) tags: Vec<String>,
}

/// A moment, or how long ago it was.
fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let ago =
        span::parse(text).map_err(|told| format!("{told}; or a moment, such as 2030-01-01T12:00:00Z"))?;
    Timestamp::now().checked_sub(ago).map_err(|_| format!("{text} ago is too long ago"))
}

impl Filter {
    pub(super) fn path(&self, limit: usize, cursor: Option<String>) -> String {
        self.path_of("/v1/instances", limit, cursor)
    }

    /// The same for another route that takes such a query.
    pub(super) fn path_of(&self, route: &str, limit: usize, cursor: Option<String>) -> String {
        let Self { tags, conditions, .. } = self;
        let mut query = vec![
            ("machine", self.machine.clone()),
            ("version", self.version.map(|version| version.to_string())),
            ("status", (!self.status.is_empty()).then(|| self.status.join(","))),
            ("step", self.step.clone()),
            ("queue", self.queue.clone()),
            ("key", self.key.clone()),
            ("awaiting", self.awaiting.clone()),
            ("error", self.error.clone()),
            ("created_from", self.since.map(|at| at.to_string()).or_else(|| self.created_from.clone())),
            ("created_before", self.created_before.clone()),
            ("changed_from", self.changed_from.clone()),
            ("changed_before", self.changed_before.clone()),
            ("ended_from", self.ended_from.clone()),
            ("ended_before", self.ended_before.clone()),
            ("parent", self.parent.map(|id| id.to_string())),
            ("roots", self.roots.then(|| "true".to_owned())),
            ("order", self.oldest.then(|| "oldest".to_owned())),
            ("limit", Some(limit.to_string())),
            ("cursor", cursor),
        ];
        query.extend(tags.iter().map(|tag| ("tag", Some(tag.clone()))));
        query.extend(conditions.iter().map(|condition| ("where", Some(condition.clone()))));
        with_query(route, &query)
    }
}

pub(super) async fn ls(conn: &Conn, output: Output, args: Ls) -> Result<(), Failure> {
    let mut page = conn.get(&args.filter.path(args.limit, args.cursor)).await?;
    while let Some(next) = page.get("next").and_then(Value::as_str).filter(|_| args.all).map(str::to_owned) {
        let mut more = conn.get(&args.filter.path(500, Some(next))).await?;
        let all = page["items"].as_array_mut().expect("a page has items");
        all.append(more["items"].as_array_mut().expect("a page has items"));
        output.progress(&format!("{} so far", all.len()));
        page["next"] = more["next"].take();
    }
    output.progress_is_over();
    output.show(&page, print_page);
    Ok(())
}

/// Prints instances as a table.
pub(super) fn print_page(page: &Value) {
    let rows: Vec<_> = items(page, "items")
        .map(|instance| {
            let waits = text(instance, "awaits");
            let told = match text(instance, "status").as_str() {
                "awaiting_signal" => format!("for {waits}"),
                "failed" => text(instance, "last_error"),
                "cancelled" => text(instance, "cancel_reason"),
                _ => age(instance, "wake_at"),
            };
            let paused = if instance["paused"] == true { " (paused)" } else { "" };
            vec![
                text(instance, "id"),
                text(instance, "machine"),
                short(&text(instance, "key"), 32),
                format!("{}{paused}", text(instance, "status")),
                text(instance, "step"),
                age(instance, "changed_at"),
                short(&told, 40),
            ]
        })
        .collect();
    table(&["ID", "MACHINE", "KEY", "STATUS", "STEP", "CHANGED", ""], &rows, "no instances");
    let next = page.get("next").and_then(Value::as_str);
    if let Some(looked) = page.get("looked").filter(|looked| looked["indexed"] == false) {
        let rows = text(looked, "rows");
        let further = if next.is_some() { "; the next page looks further" } else { "" };
        line(&format!("not indexed: looked at {rows} instances{further}"));
    }
    if let Some(next) = next {
        line(&format!("more: --cursor {next}"));
    }
}

/// The members of an instance, in the order in which people look for them.
const MEMBERS: [&str; 32] = [
    "id",
    "key",
    "machine",
    "version",
    "namespace",
    "status",
    "step",
    "awaits",
    "wake_at",
    "attempt",
    "last_error",
    "paused",
    "cancel_requested",
    "cancel_reason",
    "cancelled_with",
    "tags",
    "queue",
    "priority",
    "lane",
    "share",
    "lane_blocked",
    "inbox",
    "barrier",
    "parent",
    "parent_round",
    "parent_index",
    "worker",
    "seq",
    "created_at",
    "changed_at",
    "ended_at",
    "state",
];

pub(super) async fn get(conn: &Conn, output: Output, args: &One) -> Result<(), Failure> {
    let instance = conn.get(&instance_path(&args.instance)).await?;
    output.show(&instance, |instance| {
        for name in MEMBERS.into_iter().chain(["output"]) {
            let shown = match &instance[name] {
                Value::Null | Value::Bool(false) => continue,
                Value::Array(items) if items.is_empty() => continue,
                document if matches!(name, "state" | "output") => escaped(&format!("{document:#}")),
                // An error may have several lines.
                Value::String(told) if name == "last_error" => told.trim_end().replace('\n', "\n    "),
                _ => text(instance, name),
            };
            line(&format!("{name:<17}{shown}"));
        }
    });
    Ok(())
}

/// Which events.
#[derive(Debug, clap::Args)]
pub struct History {
    /// The instance, by its id or its key
    instance: String,
    /// Only events after this seq
    #[arg(long, default_value_t = 0)]
    after: u64,
    /// Show the state after each event
    #[arg(long)]
    states: bool,
}

pub(super) async fn history(conn: &Conn, output: Output, args: History) -> Result<(), Failure> {
    let path = format!("{}/history", instance_path(&args.instance));
    let page = all_pages(conn, &path, &[("after", Some(args.after.to_string()))]).await?;
    output.show(&page, |page| {
        let rows: Vec<_> = items(page, "items")
            .map(|event| {
                let told = event
                    .get("data")
                    .filter(|data| !data.is_null())
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let told = if args.states { event["state"].to_string() } else { told };
                let told = if args.states { inert(&told) } else { short(&inert(&told), 60) };
                let took = event["run"]["took_us"].as_u64().map(took).unwrap_or_default();
                vec![text(event, "seq"), text(event, "at"), text(event, "kind"), moved(event), took, told]
            })
            .collect();
        let last = if args.states { "STATE" } else { "DATA" };
        table(
            &["SEQ", "AT", "EVENT", "STEP", "RAN", last],
            &rows,
            "no events: history is off, or the events were pruned",
        );
    });
    Ok(())
}

/// Where an event led: `step.completed` names the step that completed first, then the next one.
fn moved(event: &Value) -> String {
    let (from, to) = (text(event, "from_step"), text(event, "step"));
    if from.is_empty() || from == to { to } else { format!("{from} -> {to}") }
}

/// Reads all pages of a list as one. A page may be short because its items are large.
pub(super) async fn all_pages(
    conn: &Conn,
    path: &str,
    first: &[(&str, Option<String>)],
) -> Result<Value, Failure> {
    let limit = ("limit", Some("500".to_owned()));
    let first: Vec<_> = first.iter().cloned().chain([limit.clone()]).collect();
    let mut page = conn.get(&with_query(path, &first)).await?;
    while let Some(next) = page.get("next").and_then(Value::as_str).map(str::to_owned) {
        let mut more = conn.get(&with_query(path, &[("cursor", Some(next)), limit.clone()])).await?;
        page["items"].as_array_mut().expect("items").append(more["items"].as_array_mut().expect("items"));
        page["next"] = more["next"].take();
    }
    Ok(page)
}

/// How long a run took.
fn took(us: u64) -> String {
    format!("{:.1?}", std::time::Duration::from_micros(us))
}

pub(super) async fn children(conn: &Conn, output: Output, args: &One) -> Result<(), Failure> {
    let page = all_pages(conn, &format!("{}/children", instance_path(&args.instance)), &[]).await?;
    output.show(&page, print_page);
    Ok(())
}

/// How long to wait.
#[derive(Debug, clap::Args)]
pub struct ResultArgs {
    /// The instance, by its id or its key
    instance: String,
    /// Wait up to this long for the instance to end, such as 30s or 2h
    #[arg(long, value_name = "SPAN")]
    wait: Option<String>,
}

pub(super) async fn result(conn: &Conn, output: Output, args: ResultArgs) -> Result<ExitCode, Failure> {
    let (status, result) = waited(conn, &args).await?;
    output.show(&result, |result| match text(result, "status").as_str() {
        "done" => line(&escaped(&result["output"].to_string())),
        "cancelled" if result["error"].is_null() => line("cancelled"),
        "failed" | "cancelled" => {
            let why = result["error"].as_str().unwrap_or_default().trim_end();
            line(&format!("{}: {why}", text(result, "status")));
        }
        _ => line(result["explanation"].as_str().unwrap_or_default()),
    });
    Ok(match text(&result, "status").as_str() {
        _ if status == StatusCode::ACCEPTED => ExitCode::from(7),
        "done" => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The longest that one request waits.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Asks for the result until there is one or the time is over.
async fn waited(conn: &Conn, args: &ResultArgs) -> Result<(StatusCode, Value), Failure> {
    let path = format!("{}/result", instance_path(&args.instance));
    let wait = args.wait.as_deref().map(span::parse).transpose().map_err(Failure::usage)?;
    let Some(wait) = wait else { return conn.json(Method::GET, &path, None).await };
    // A deadline too far off to be an instant counts as none.
    let deadline = Instant::now().checked_add(wait);
    loop {
        let left = deadline.map_or(WAIT_MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        let asked = format!("{}ms", left.min(WAIT_MAX).as_millis());
        let answer = conn.json(Method::GET, &with_query(&path, &[("wait", Some(asked))]), None).await?;
        if answer.0 != StatusCode::ACCEPTED || left <= WAIT_MAX {
            return Ok(answer);
        }
    }
}

pub(super) async fn explain(conn: &Conn, output: Output, args: &One) -> Result<(), Failure> {
    let explanation = conn.get(&format!("{}/explain", instance_path(&args.instance))).await?;
    output.show(&explanation, |told| line(told["explanation"].as_str().unwrap_or_default()));
    Ok(())
}
