//! `bulk`: one action on every instance that matches. Without `--yes` it only counts them.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse::Json;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::conn::Conn;
use super::instances::{Filter, print_page};
use super::output::{Output, inert, items, line, text};
use super::{Failure, json_argument};

/// What to do, to which instances, and how fast.
#[derive(Debug, clap::Args)]
pub struct Bulk {
    /// What to do to each: retry, edit, cancel, signal, pause, resume or fork
    #[arg(value_parser = ["retry", "edit", "cancel", "signal", "pause", "resume", "fork"])]
    verb: String,
    #[command(flatten)]
    filter: Filter,
    /// Do it; without this, only count the instances and name some
    #[arg(long)]
    yes: bool,
    /// At most this many instances a second
    #[arg(long, value_name = "NUMBER", default_value_t = 500)]
    per_second: u32,
    /// How many to change in one request
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    batch: usize,
    /// Go on where an earlier run stopped
    #[arg(long)]
    cursor: Option<String>,
    /// The signal to send, for signal
    #[arg(long, value_name = "NAME")]
    signal: Option<String>,
    /// Its payload: JSON, @file, or - for standard input
    #[arg(long, value_name = "JSON", requires = "signal")]
    payload: Option<String>,
    /// A key that makes its redelivery a no-op
    #[arg(long, value_name = "KEY", requires = "signal")]
    dedup: Option<String>,
    /// The reason, for cancel
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The step to run from, for retry and fork
    #[arg(long, value_name = "STEP")]
    from_step: Option<String>,
    /// Replace a member of the state, such as `cents=7`, for edit, retry and fork; a value that is not JSON is text
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
}

impl Bulk {
    /// How many to change in one request: no more than in one second, so that slow is slow from the start.
    fn batch(&self) -> usize {
        self.batch.clamp(1, 500).min(self.per_second.max(1) as usize)
    }
}

pub(super) async fn bulk(conn: &Conn, output: Output, args: Bulk) -> Result<(), Failure> {
    let body = body(&args)?;
    if !args.yes {
        return dry_run(conn, output, &args, body).await;
    }
    let (mut done, mut refused, mut refusals, mut cursor) = (0, 0, Vec::new(), args.cursor.clone());
    let started = Instant::now();
    loop {
        let path = args.filter.path_of("/v1/instances/bulk", args.batch(), cursor.clone());
        let answer = tokio::select! {
            answer = conn.post(&path, &body) => answer,
            _ = tokio::signal::ctrl_c() => Err(Failure::new(1, "stopped by Ctrl-C; the batch under way may be done")),
        };
        let answer = answer.map_err(|failure| resumable(failure, done, cursor.as_deref()))?;
        done += answer["done"].as_u64().unwrap_or_default();
        refused += answer["refused"].as_u64().unwrap_or_default();
        refusals.extend(items(&answer, "refusals").take(10).cloned());
        output.progress(&format!("{done} done, {refused} refused"));
        cursor = answer.get("next").and_then(Value::as_str).map(str::to_owned);
        if cursor.is_none() {
            break;
        }
        let share = Duration::from_secs_f64((done + refused) as f64 / f64::from(args.per_second.max(1)));
        tokio::select! {
            () = sleep_until(started + share) => {}
            _ = tokio::signal::ctrl_c() => {
                return Err(resumable(Failure::new(1, "stopped by Ctrl-C"), done, cursor.as_deref()));
            }
        }
    }
    output.progress_is_over();
    refusals.truncate(10);
    let told = json!({ "done": done, "refused": refused, "refusals": refusals });
    output.show(&told, |told| {
        line(&format!("{}: {done} done, {refused} refused", args.verb));
        for refusal in items(told, "refusals") {
            line(&format!("  {}: {}", text(refusal, "instance"), text(refusal, "reason")));
        }
    });
    Ok(())
}

/// A failure that says how to go on.
fn resumable(failure: Failure, done: u64, cursor: Option<&str>) -> Failure {
    let from = cursor.map_or_else(String::new, |cursor| format!(" --cursor {cursor}"));
    failure.after(&format!("{done} were done before it failed; to go on, repeat the command{}", inert(&from)))
}

async fn dry_run(
    conn: &Conn,
    output: Output,
    args: &Bulk,
    mut body: BTreeMap<&'static str, Json>,
) -> Result<(), Failure> {
    body.insert("dry_run", Json::from(json!(true)));
    let path = args.filter.path_of("/v1/instances/bulk", args.batch.clamp(1, 500), args.cursor.clone());
    let answer = conn.post(&path, &body).await?;
    output.show(&answer, |answer| {
        let more = if answer.get("next").is_some() { ", and there may be more" } else { "" };
        print_page(&json!({ "items": answer.get("examples").cloned().unwrap_or_else(|| json!([])) }));
        let (verb, matched) = (&args.verb, text(answer, "matched"));
        line(&format!(
            "{verb} would change {matched} instances{more}; nothing was changed. Add --yes to do it"
        ));
    });
    Ok(())
}

/// The body of the requests.
fn body(args: &Bulk) -> Result<BTreeMap<&'static str, Json>, Failure> {
    let mut body = BTreeMap::from([("verb", Json::from(json!(args.verb)))]);
    if let Some(name) = &args.signal {
        let payload = args.payload.as_deref().map(|text| json_argument("--payload", text)).transpose()?;
        let mut signal = BTreeMap::from([("name", Json::from(json!(name)))]);
        signal.insert("payload", payload.unwrap_or_else(Json::null));
        if let Some(key) = &args.dedup {
            signal.insert("dedup_key", Json::from(json!(key)));
        }
        body.insert("signal", encoded(&signal)?);
    }
    if let Some(reason) = &args.reason {
        body.insert("reason", Json::from(json!(reason)));
    }
    if let Some(step) = &args.from_step {
        body.insert("step", Json::from(json!(step)));
    }
    body.extend(members(&args.set)?.map(|set| ("set", set)));
    Ok(body)
}

/// The members that `--set` names, as an object.
pub(super) fn members(changes: &[String]) -> Result<Option<Json>, Failure> {
    let mut set = BTreeMap::new();
    for change in changes {
        let (name, value) = change
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set {change:?} is not of the form NAME=VALUE")))?;
        let value = Json::parse("--set", value).unwrap_or_else(|_| Json::from(json!(value)));
        set.insert(name, value);
    }
    if set.is_empty() { Ok(None) } else { encoded(&set).map(Some) }
}

fn encoded<T: serde::Serialize>(value: &T) -> Result<Json, Failure> {
    Json::encode("body", value).map_err(|error| Failure::usage(error.to_string()))
}
