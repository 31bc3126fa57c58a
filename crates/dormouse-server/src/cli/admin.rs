//! API keys, the audit log, collection.

use serde_json::{Value, json};

use super::Failure;
use super::conn::{Conn, encode, with_query};
use super::output::{Output, age, items, line, short, table, text};

/// How many instances `gc` removes per request, so that it can show its progress.
const GC_ROWS: usize = 5_000;

/// What to do with API keys.
#[derive(Debug, clap::Subcommand)]
pub enum Keys {
    /// Create an API key; it is shown only once
    Create {
        /// A label that says who uses the key
        #[arg(long)]
        label: String,
        /// What it allows
        #[arg(long, value_parser = ["read", "operate", "admin"])]
        scope: String,
        /// How long the key is valid, such as 90d [default: forever]
        #[arg(long, value_name = "SPAN")]
        expires_in: Option<String>,
    },
    /// List the API keys of the namespace
    Ls,
    /// Revoke an API key; every server refuses it within two seconds
    Revoke {
        /// The public part of the key, as `keys ls` shows it
        id: String,
    },
}

pub(super) async fn keys(conn: &Conn, output: Output, command: Keys) -> Result<(), Failure> {
    match command {
        Keys::Create { label, scope, expires_in } => {
            let body = json!({ "label": label, "scope": scope, "expires_in": expires_in });
            let made = conn.post("/v1/api-keys", &body).await?;
            output.show(&made, |made| {
                line(&text(made, "secret"));
                eprintln!(
                    "This is the only time it is shown. Send it as `Authorization: Bearer dmk_...`, or set"
                );
                eprintln!("DORMOUSE_API_KEY to it for this program.");
            });
        }
        Keys::Ls => output.show(&conn.get("/v1/api-keys").await?, |keys| {
            let row = |key: &Value| {
                let live = if key["is_live"] == true { "live" } else { "dead" };
                let ends = if key["revoked_at"].is_null() { "expires_at" } else { "revoked_at" };
                vec![
                    text(key, "id"),
                    text(key, "label"),
                    text(key, "scope"),
                    live.to_owned(),
                    age(key, "created_at"),
                    age(key, ends),
                ]
            };
            let rows: Vec<_> = items(keys, "api_keys").map(row).collect();
            table(
                &["ID", "LABEL", "SCOPE", "", "MADE", "ENDS"],
                &rows,
                "no API keys: anyone on this host has access",
            );
        }),
        Keys::Revoke { id } => {
            let revoked = conn.post(&format!("/v1/api-keys/{}/revoke", encode(&id)), &json!({})).await?;
            output
                .show(&revoked, |key| line(&format!("revoked {} ({})", text(key, "id"), text(key, "label"))));
        }
    }
    Ok(())
}

/// Which entries.
#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    /// Only changes by this actor
    #[arg(long)]
    who: Option<String>,
    /// Only changes of this kind, such as instance.cancel
    #[arg(long)]
    what: Option<String>,
    /// Only changes to this target
    #[arg(long)]
    target: Option<String>,
    /// Show at most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Continue where an earlier page ended
    #[arg(long)]
    cursor: Option<String>,
}

pub(super) async fn audit(conn: &Conn, output: Output, args: AuditArgs) -> Result<(), Failure> {
    let path = with_query(
        "/v1/audit",
        &[
            ("who", args.who),
            ("what", args.what),
            ("target", args.target),
            ("limit", Some(args.limit.to_string())),
            ("cursor", args.cursor),
        ],
    );
    output.show(&conn.get(&path).await?, |page| {
        let row = |entry: &Value| {
            let target = short(&text(entry, "target"), 32);
            vec![text(entry, "at"), text(entry, "who"), text(entry, "what"), target, text(entry, "result")]
        };
        let rows: Vec<_> = items(page, "items").map(row).collect();
        table(
            &["AT", "WHO", "WHAT", "TARGET", "RESULT"],
            &rows,
            "nothing was changed through the API or the command line",
        );
        if let Some(next) = page.get("next").and_then(Value::as_str) {
            line(&format!("more: --cursor {next}"));
        }
    });
    Ok(())
}

/// What to remove.
#[derive(Debug, clap::Args)]
pub struct Gc {
    /// Remove instances that ended longer ago than this, such as 30d
    #[arg(long, value_name = "SPAN")]
    ended_for: String,
}

pub(super) async fn gc(conn: &Conn, output: Output, args: Gc) -> Result<(), Failure> {
    let mut gone = 0;
    loop {
        let body = json!({ "ended_for": args.ended_for, "limit": GC_ROWS });
        let answer = conn.post("/v1/gc", &body).await?;
        gone += answer["instances"].as_u64().unwrap_or(0);
        output.progress(&format!("{gone} removed so far"));
        if answer["more"] != true {
            break;
        }
    }
    output.progress_is_over();
    output.show(&json!({ "instances": gone }), |_| {
        line(&format!("{gone} instances removed, each with its history"));
    });
    Ok(())
}
