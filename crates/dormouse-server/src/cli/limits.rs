//! `limits`: how many instances of a lane run at a time.

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
    /// Limit how many instances of a lane run at a time, or of each lane of a family
    Set {
        /// A lane, or a family: the part of a lane before its first `/`
        name: String,
        /// How many run at a time
        #[arg(long)]
        width: u32,
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
        Limits::Set { name, width } => {
            let body = json!({ "width": width });
            let set = conn.post(&format!("/v1/limits/{}", encode(&name)), &body).await?;
            output.show(&set, |set| {
                line(&format!("limit {} lets {} run at a time", text(set, "limit"), text(set, "width")));
            });
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

fn print(value: &Value) {
    let row = |limit: &Value| {
        let more = if limit["more_lanes"] == true { " or more" } else { "" };
        vec![
            text(limit, "name"),
            text(limit, "width"),
            text(limit, "held"),
            text(limit, "waiting"),
            format!("{}{more}", text(limit, "lanes")),
            age(limit, "changed_at"),
        ]
    };
    let rows: Vec<_> = items(value, "limits").map(row).collect();
    let headers = ["LIMIT", "WIDTH", "IN USE", "WAITING", "LANES", "CHANGED"];
    table(&headers, &rows, "no limits: every lane runs one at a time");
    if let Some(next) = value.get("next").and_then(Value::as_str) {
        line(&format!("\nmore with --after {next}"));
    }
}
