//! `inbox`: lists the signals in an instance's inbox, and drops or edits one.

use serde::Serialize;
use serde_json::{Value, json};

use super::conn::Conn;
use super::instances::all_pages;
use super::output::{Output, age, inert, items, line, short, table, text};
use super::{Failure, instance_path, json_argument, with_document};

/// Which inbox to show, or what to repair.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Inbox {
    /// The instance, by its id or its key
    #[arg(required = true)]
    instance: Option<String>,
    #[command(subcommand)]
    repair: Option<Repair>,
}

#[derive(Debug, clap::Subcommand)]
enum Repair {
    /// Remove a signal, so that it can be sent again
    Drop(Which),
    /// Replace the payload of a signal
    Edit {
        #[command(flatten)]
        which: Which,
        /// The new payload: JSON, @file, or - for standard input
        payload: String,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The instance, by its id or its key
    instance: String,
    /// The signal, by its id as `inbox` shows it
    signal: i64,
    /// Only if the instance is at this seq, as `get` shows it
    #[arg(long, value_name = "SEQ")]
    if_seq: Option<u64>,
}

pub(super) async fn inbox(conn: &Conn, output: Output, args: Inbox) -> Result<(), Failure> {
    match args {
        Inbox { repair: Some(Repair::Drop(which)), .. } => {
            let body = json!({ "expected_seq": which.if_seq });
            amend(conn, output, &which, "drop", &body, "is dropped").await
        }
        Inbox { repair: Some(Repair::Edit { which, payload }), .. } => {
            let payload = json_argument("the payload", &payload)?;
            let body = with_document(json!({ "expected_seq": which.if_seq }), "payload", Some(payload));
            amend(conn, output, &which, "edit", &body, "is changed").await
        }
        Inbox { instance: Some(instance), .. } => show(conn, output, &instance).await,
        Inbox { .. } => Err(Failure::usage("name an instance, or use `inbox drop` or `inbox edit`")),
    }
}

async fn amend(
    conn: &Conn,
    output: Output,
    which: &Which,
    verb: &str,
    body: &impl Serialize,
    done: &str,
) -> Result<(), Failure> {
    let path = format!("{}/inbox/{}/{verb}", instance_path(&which.instance), which.signal);
    let amended = conn.post(&path, body).await?;
    output.show(&amended, |_| line(&format!("signal {} of {} {done}", which.signal, which.instance)));
    Ok(())
}

async fn show(conn: &Conn, output: Output, instance: &str) -> Result<(), Failure> {
    let page = all_pages(conn, &format!("{}/inbox", instance_path(instance)), &[]).await?;
    output.show(&page, |page| {
        let row = |signal: &Value| {
            let payload = short(&inert(&signal["payload"].to_string()), 60);
            let unreadable = match signal.get("unreadable") {
                Some(_) => format!("cannot be read: {}", text(signal, "unreadable")),
                None => String::new(),
            };
            vec![
                text(signal, "id"),
                text(signal, "name"),
                text(signal, "dedup_key"),
                age(signal, "at"),
                payload,
                unreadable,
            ]
        };
        let rows: Vec<_> = items(page, "items").map(row).collect();
        table(&["ID", "SIGNAL", "DEDUP KEY", "ARRIVED", "PAYLOAD", ""], &rows, "the inbox is empty");
    });
    Ok(())
}
