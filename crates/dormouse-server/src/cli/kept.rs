//! `kept`: signals that are kept for instances to come.

use serde_json::{Value, json};

use super::Failure;
use super::conn::{Conn, with_query};
use super::output::{Output, age, inert, items, line, short, table, text};

/// What to do with kept signals.
#[derive(Debug, clap::Subcommand)]
pub enum Kept {
    /// List the signals that are kept, in the order in which they came
    Ls {
        /// Only those for this key
        #[arg(long)]
        key: Option<String>,
        /// Show at most this many
        #[arg(long)]
        limit: Option<usize>,
        /// Continue where an earlier list ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Drop a kept signal
    Drop {
        /// The signal, by its id as `kept ls` shows it
        id: i64,
    },
}

pub(super) async fn kept(conn: &Conn, output: Output, command: Kept) -> Result<(), Failure> {
    match command {
        Kept::Ls { key, limit, cursor } => {
            let limit = limit.map(|limit| limit.to_string());
            let path = with_query("/v1/kept", &[("key", key), ("cursor", cursor), ("limit", limit)]);
            output.show(&conn.get(&path).await?, print);
        }
        Kept::Drop { id } => {
            let dropped = conn.post(&format!("/v1/kept/{id}/drop"), &json!({})).await?;
            output.show(&dropped, |_| line(&format!("kept signal {id} is dropped")));
        }
    }
    Ok(())
}

fn print(value: &Value) {
    let row = |kept: &Value| {
        let payload = short(&inert(&kept["payload"].to_string()), 60);
        vec![
            text(kept, "id"),
            text(kept, "key"),
            text(kept, "name"),
            text(kept, "dedup_key"),
            age(kept, "at"),
            text(kept, "until"),
            payload,
        ]
    };
    let rows: Vec<_> = items(value, "items").map(row).collect();
    let headers = ["ID", "KEY", "SIGNAL", "DEDUP KEY", "SENT", "UNTIL", "PAYLOAD"];
    table(&headers, &rows, "no signals are kept");
    if let Some(next) = value.get("next").and_then(Value::as_str) {
        line(&format!("\nmore with --cursor {next}"));
    }
}
