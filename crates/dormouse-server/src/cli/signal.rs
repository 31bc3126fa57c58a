//! `signal`: signals one instance, or all that match. Without `--yes` it only counts the matches.

use std::collections::BTreeMap;

use dormouse::Json;
use serde_json::{Value, json};

use super::conn::Conn;
use super::instances::Filter;
use super::output::{Output, items, line, text};
use super::{Failure, instance_path, json_argument, with_document};

/// Signals sent in one write.
const BATCH: usize = 500;

/// What to send, and to whom.
#[derive(Debug, clap::Args)]
pub struct Signal {
    /// The signal's name
    name: String,
    /// The payload: JSON, @file, or - for standard input [default: null]
    payload: Option<String>,
    /// The instance, by its id or its key
    #[arg(long, value_name = "INSTANCE", required_unless_present = "where_")]
    to: Option<String>,
    /// All live instances that match, such as `awaiting=payment,machine=order`; prints how many there are, and sends
    /// only with --yes
    #[arg(id = "where_", long = "where", value_name = "NAME=VALUE,...", conflicts_with = "to")]
    filter: Option<String>,
    /// Send to every instance that --where matches
    #[arg(long, requires = "where_")]
    yes: bool,
    /// A key that makes redelivery of this signal a no-op for the life of the instance
    #[arg(long, value_name = "KEY")]
    dedup: Option<String>,
    /// The trace in which it is sent, as in the header traceparent
    #[arg(long, value_name = "TRACEPARENT")]
    trace: Option<String>,
    /// Keep it for so long, such as 1h, if no instance has this key yet: the one that starts with it gets it
    #[arg(long, value_name = "SPAN", requires = "to")]
    keep_for: Option<String>,
}

pub(super) async fn signal(conn: &Conn, output: Output, args: Signal) -> Result<(), Failure> {
    let payload = args.payload.as_deref().map(|text| json_argument("the payload", text)).transpose()?;
    let mut signal = json!({ "name": args.name, "dedup_key": args.dedup, "trace": args.trace });
    if let Some(keep_for) = &args.keep_for {
        signal["keep_for"] = keep_for.as_str().into();
    }
    let signal = with_document(signal, "payload", payload);
    match (&args.to, &args.filter) {
        (Some(to), _) => {
            let delivered = conn.post(&format!("{}/signals", instance_path(to)), &signal).await?;
            output.show(&delivered, |delivered| {
                let woke = if delivered["woke"] == true { ", and woke it" } else { "" };
                let until = match delivered["until"].as_str() {
                    Some(until) => format!(" as {} until {until}", text(delivered, "id")),
                    None => String::new(),
                };
                line(&format!("{}{woke}{until}", text(delivered, "delivered")));
            });
            Ok(())
        }
        (None, Some(filter)) => signal_all(conn, output, &parse_filter(filter)?, &signal, args.yes).await,
        (None, None) => Err(Failure::usage("name the receivers with --to or --where")),
    }
}

fn parse_filter(text: &str) -> Result<Filter, Failure> {
    let mut filter = Filter::default();
    for pair in text.split(',') {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--where: {pair:?} is not of the form NAME=VALUE")))?;
        let value = Some(value.to_owned());
        match name.trim() {
            "machine" => filter.machine = value,
            "status" => filter.status = value.into_iter().collect(),
            "queue" => filter.queue = value,
            "key" => filter.key = value,
            "awaiting" => filter.awaiting = value,
            "tag" => filter.tags.extend(value),
            other => {
                let told =
                    format!("--where: {other:?} is not one of machine, status, queue, key, awaiting, tag");
                return Err(Failure::usage(told));
            }
        }
    }
    Ok(filter)
}

async fn signal_all(
    conn: &Conn,
    output: Output,
    filter: &Filter,
    signal: &BTreeMap<String, Json>,
    is_meant: bool,
) -> Result<(), Failure> {
    let ids = matching(conn, output, filter).await?;
    if !is_meant {
        let told = json!({ "would_signal": ids.len(), "instances": ids.iter().take(20).collect::<Vec<_>>() });
        output.show(&told, |_| {
            line(&format!("{} live instances match; nothing was sent. Add --yes to send", ids.len()));
        });
        return Ok(());
    }
    let (mut accepted, mut duplicate, mut ended) = (0, 0, 0);
    for batch in ids.chunks(BATCH) {
        let signals = batch.iter().map(|id| {
            let mut signal = signal.clone();
            signal.insert("target".to_owned(), Json::from(json!(id)));
            signal
        });
        let body = BTreeMap::from([("signals", signals.collect::<Vec<_>>())]);
        let answer = conn.post("/v1/signals/batch", &body).await?;
        for result in items(&answer, "results") {
            match text(result, "delivered").as_str() {
                "accepted" => accepted += 1,
                "duplicate" => duplicate += 1,
                _ => ended += 1,
            }
        }
        output.progress(&format!("{} of {} signalled", accepted + duplicate + ended, ids.len()));
    }
    output.progress_is_over();
    let told = json!({ "accepted": accepted, "duplicate": duplicate, "no_target": ended });
    output.show(&told, |_| {
        line(&format!("{accepted} accepted, {duplicate} had it already, {ended} had ended meanwhile"));
    });
    Ok(())
}

/// The live instances that match.
async fn matching(conn: &Conn, output: Output, filter: &Filter) -> Result<Vec<i64>, Failure> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    loop {
        let page = conn.get(&filter.path(BATCH, cursor)).await?;
        let live = items(&page, "items").filter(|instance| instance["ended_at"].is_null());
        ids.extend(live.filter_map(|instance| instance["id"].as_i64()));
        output.progress(&format!("{} match so far", ids.len()));
        cursor = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if cursor.is_none() {
            output.progress_is_over();
            return Ok(ids);
        }
    }
}
