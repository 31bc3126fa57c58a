//! `limits`: how many instances of a lane run at a time, and how many of its steps start in a period.

use dormouse::WIDTH_MAX;
use serde_json::{Value, json};

use super::Failure;
use super::conn::{Conn, encode, with_query};
use super::output::{Output, age, items, line, table, text};

/// What to do with limits.
#[derive(Debug, clap::Subcommand)]
pub enum Limits {
    /// List the limits of the namespace and how much of each is in use
    Ls {
        /// Show at most this many
        #[arg(long)]
        limit: Option<usize>,
        /// Continue after this name
        #[arg(long)]
        after: Option<String>,
    },
    /// Limit how many instances of a lane run at a time, or start in a period, or of each lane of a family
    Set {
        /// A lane, or a family: the part of a lane before its first `/`
        name: String,
        /// How many run at a time; with a rate alone, any number
        #[arg(long, required_unless_present = "rate")]
        width: Option<u32>,
        /// How many steps start in each period
        #[arg(long)]
        rate: Option<u32>,
        /// The period of the rate, such as 1s or 1m
        #[arg(long, requires = "rate", default_value = "1s")]
        period: String,
        /// How many may start together after a rest
        #[arg(long, requires = "rate", default_value_t = 1)]
        burst: u32,
    },
    /// Remove a limit: its lanes go by their family's limit, or run one at a time
    Rm {
        /// The name of the limit
        name: String,
    },
}

pub(super) async fn limits(conn: &Conn, output: Output, command: Limits) -> Result<(), Failure> {
    match command {
        Limits::Ls { limit, after } => {
            let limit = limit.map(|limit| limit.to_string());
            let path = with_query("/v1/limits", &[("after", after), ("limit", limit)]);
            output.show(&conn.get(&path).await?, print);
        }
        Limits::Set { name, width, rate, period, burst } => {
            let (period, burst) = (rate.map(|_| period), rate.map(|_| burst));
            let body = json!({ "width": width, "rate": rate, "period": period, "burst": burst });
            let set = conn.post(&format!("/v1/limits/{}", encode(&name)), &body).await?;
            output.show(&set, |set| line(&format!("limit {} lets {}", text(set, "limit"), lets(set))));
        }
        Limits::Rm { name } => {
            let removed = conn.post(&format!("/v1/limits/{}/remove", encode(&name)), &json!({})).await?;
            output.show(&removed, |told| {
                let how = if told["removed"] == true { "removed" } else { "there was no" };
                line(&format!("{how} limit {}", text(told, "limit")));
            });
        }
    }
    Ok(())
}

/// What a limit lets run and start.
fn lets(limit: &Value) -> String {
    let run = width(limit).map(|width| format!("{width} run at a time"));
    let start = rate(limit).map(|rate| format!("{rate} start"));
    run.into_iter().chain(start).collect::<Vec<_>>().join(", and ")
}

/// The width of a limit; none if it limits by rate alone.
fn width(limit: &Value) -> Option<String> {
    let is_any = limit["width"] == WIDTH_MAX && !limit["rate"].is_null();
    (!is_any).then(|| text(limit, "width"))
}

fn rate(limit: &Value) -> Option<String> {
    let (count, period, burst) = (text(limit, "rate"), text(limit, "period"), text(limit, "burst"));
    (!limit["rate"].is_null()).then(|| format!("{count} in {period} (burst {burst})"))
}

fn print(value: &Value) {
    let row = |limit: &Value| {
        let more = if limit["more_lanes"] == true { " or more" } else { "" };
        vec![
            text(limit, "name"),
            width(limit).unwrap_or_else(|| "any".to_owned()),
            rate(limit).unwrap_or_else(|| "any".to_owned()),
            text(limit, "held"),
            text(limit, "waiting"),
            format!("{}{more}", text(limit, "lanes")),
            age(limit, "changed_at"),
        ]
    };
    let rows: Vec<_> = items(value, "limits").map(row).collect();
    let headers = ["LIMIT", "WIDTH", "RATE", "IN USE", "WAITING", "LANES", "CHANGED"];
    table(&headers, &rows, "no limits: every lane runs one at a time");
    if let Some(next) = value.get("next").and_then(Value::as_str) {
        line(&format!("\nmore with --after {next}"));
    }
}
