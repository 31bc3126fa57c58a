//! `watch`: prints changes as they happen.

use axum::http::Method;
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};

use super::conn::{Conn, with_query};
use super::output::{Output, inert, line, short, text};
use super::{Failure, instance_path};

/// What to watch.
#[derive(Debug, clap::Args)]
pub struct Watch {
    /// Watch one instance, by its id or its key, until it ends
    instance: Option<String>,
    /// Only instances of this machine
    #[arg(long)]
    machine: Option<String>,
    /// Only instances in this queue
    #[arg(long)]
    queue: Option<String>,
}

pub(super) async fn watch(conn: &Conn, output: Output, args: Watch) -> Result<(), Failure> {
    let id = match &args.instance {
        Some(instance) => Some(text(&conn.get(&instance_path(instance)).await?, "id")),
        None => None,
    };
    let path =
        with_query("/v1/events", &[("instance", id), ("machine", args.machine), ("queue", args.queue)]);
    let response = conn.open(Method::GET, &path, None).await?;
    if !response.status().is_success() {
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        return Err(conn.refused(status, &body));
    }
    // Asked once the stream is open, so that an end is seen here or there.
    if let Some(instance) = &args.instance
        && let Some(ended) = ended(&conn.get(&instance_path(instance)).await?)
    {
        output.show(&ended, print);
        return Ok(());
    }
    let mut body = response.into_body().into_data_stream();
    let mut pending = Vec::new();
    let broke_off = |error: axum::Error| Failure::unreachable(format!("the stream broke off: {error}"));
    while let Some(bytes) = body.try_next().await.map_err(broke_off)? {
        pending.extend_from_slice(&bytes);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let read: Vec<u8> = pending.drain(..=end).collect();
            if let Some(data) = String::from_utf8_lossy(&read).strip_prefix("data: ")
                && let Ok(change) = serde_json::from_str::<Value>(data)
                && change.get("instance").is_some()
            {
                output.show(&change, print);
                let ended = matches!(text(&change, "kind").as_str(), "done" | "failed" | "cancelled");
                if ended && args.instance.is_some() {
                    return Ok(());
                }
            }
        }
    }
    Err(Failure::unreachable("the server ended the stream"))
}

/// The last change of an instance that has ended.
fn ended(instance: &Value) -> Option<Value> {
    let kind = &instance["status"];
    matches!(kind.as_str(), Some("done" | "failed" | "cancelled")).then(|| {
        let [id, at, machine, key, seq, step] =
            ["id", "ended_at", "machine", "key", "seq", "step"].map(|member| &instance[member]);
        json!({ "instance": id, "at": at, "machine": machine, "key": key, "seq": seq, "step": step, "kind": kind })
    })
}

fn print(change: &Value) {
    let what = match change.get("value") {
        Some(progress) => format!("progress {}", short(&inert(&progress.to_string()), 60)),
        None => text(change, "kind"),
    };
    let key = text(change, "key");
    let key = if key.is_empty() { String::new() } else { format!(" {key}") };
    line(&format!(
        "{}  {} {}{key}  {} at {}",
        text(change, "at"),
        text(change, "machine"),
        text(change, "instance"),
        what,
        text(change, "step"),
    ));
}
