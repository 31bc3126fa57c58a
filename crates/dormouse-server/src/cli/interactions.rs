//! `interactions`: lists, claims and answers what waits for an answer from outside.

use clap::builder::PossibleValuesParser;
use dormouse::InteractionStatus;
use serde_json::{Value, json};

use super::conn::{Conn, encode, with_query};
use super::{Failure, json_argument, with_document};

use super::output::{Output, age, escaped, items, line, short, table, text};

/// What to do with interactions.
#[derive(Debug, clap::Subcommand)]
pub enum Interactions {
    /// List them, oldest first
    Ls {
        /// Only those in this status
        #[arg(long, value_parser = PossibleValuesParser::new(InteractionStatus::ALL.map(InteractionStatus::as_str)))]
        status: Option<String>,
        /// Only those sent by this transport
        #[arg(long)]
        transport: Option<String>,
        /// Only those of this machine
        #[arg(long)]
        machine: Option<String>,
        /// Only those of this instance
        #[arg(long)]
        instance: Option<String>,
        /// Only those addressed to, or claimed by, this person or program
        #[arg(long)]
        assignee: Option<String>,
        /// Only those addressed to this group
        #[arg(long)]
        group: Option<String>,
        /// Show at most this many
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Continue where an earlier page ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show an interaction
    Get {
        /// Its id, or `correlation:` and its correlation id
        interaction: String,
    },
    /// Claim an interaction for a while, so that nobody else can answer it
    Claim {
        /// Its id, or `correlation:` and its correlation id
        interaction: String,
        /// Who claims it
        #[arg(long, value_name = "WHO")]
        r#as: String,
        /// For how many seconds; 0 releases it
        #[arg(long, default_value_t = 600)]
        seconds: u32,
    },
    /// Answer an interaction
    Complete {
        /// Its id, or `correlation:` and its correlation id
        interaction: String,
        /// The answer: JSON, @file, or - for standard input [default: null]
        output: Option<String>,
        /// Who answers; must be the claimant if it is claimed
        #[arg(long, value_name = "WHO")]
        r#as: Option<String>,
    },
    /// Answer an interaction with a failure
    Fail {
        /// Its id, or `correlation:` and its correlation id
        interaction: String,
        /// The reason
        reason: String,
        /// Who answers; must be the claimant if it is claimed
        #[arg(long, value_name = "WHO")]
        r#as: Option<String>,
    },
}

pub(super) async fn interactions(conn: &Conn, output: Output, command: Interactions) -> Result<(), Failure> {
    let path = |interaction: &str, verb: &str| format!("/v1/interactions/{}{verb}", encode(interaction));
    match command {
        Interactions::Ls { status, transport, machine, instance, assignee, group, limit, cursor } => {
            let path = with_query(
                "/v1/interactions",
                &[
                    ("status", status),
                    ("transport", transport),
                    ("machine", machine),
                    ("instance", instance),
                    ("assignee", assignee),
                    ("group", group),
                    ("limit", Some(limit.to_string())),
                    ("cursor", cursor),
                ],
            );
            output.show(&conn.get(&path).await?, list);
        }
        Interactions::Get { interaction } => {
            let found = conn.get(&path(&interaction, "")).await?;
            output.show(&found, |found| line(&escaped(&format!("{found:#}"))));
        }
        Interactions::Claim { interaction, r#as, seconds } => {
            let body = json!({ "assignee": r#as, "seconds": seconds });
            let claimed = conn.post(&path(&interaction, "/claim"), &body).await?;
            output.show(&claimed, |claimed| {
                line(&format!("claimed by {} until {}", text(claimed, "assignee"), text(claimed, "until")));
            });
        }
        Interactions::Complete { interaction, output: answer, r#as } => {
            let answer = answer.as_deref().map(|text| json_argument("the output", text)).transpose()?;
            let body = with_document(json!({ "assignee": r#as }), "output", answer);
            tell(output, &conn.post(&path(&interaction, "/complete"), &body).await?);
        }
        Interactions::Fail { interaction, reason, r#as } => {
            let body = json!({ "reason": reason, "assignee": r#as });
            tell(output, &conn.post(&path(&interaction, "/fail"), &body).await?);
        }
    }
    Ok(())
}

/// The person and the group that an interaction is addressed to.
fn asked_of(entry: &Value) -> String {
    let named: Vec<_> = ["for_assignee", "for_group"].map(|name| text(entry, name)).into();
    named.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ")
}

fn list(page: &Value) {
    let row = |entry: &Value| {
        vec![
            text(entry, "id"),
            format!("{} {}", text(entry, "machine"), text(entry, "instance")),
            text(entry, "transport"),
            text(entry, "status"),
            text(entry, "sends"),
            age(entry, "opened_at"),
            age(entry, "deadline"),
            asked_of(entry),
            text(entry, "assignee"),
            text(entry, "answered_by"),
            short(&entry["request"].to_string(), 48),
            short(&text(entry, "error"), 48),
        ]
    };
    let rows: Vec<_> = items(page, "items").map(row).collect();
    table(
        &[
            "ID",
            "FOR",
            "TRANSPORT",
            "STATUS",
            "SENDS",
            "SINCE",
            "UNTIL",
            "ASKED OF",
            "CLAIMED BY",
            "ANSWERED BY",
            "REQUEST",
            "ERROR",
        ],
        &rows,
        "nothing waits for an answer",
    );
    if let Some(next) = page.get("next").and_then(Value::as_str) {
        line(&format!("there are more: --cursor {next}"));
    }
}

fn tell(output: Output, completed: &Value) {
    output.show(completed, |completed| {
        line(match (text(completed, "completed").as_str(), completed["woke"] == true) {
            ("repeat", _) => "it had been answered before; nothing was changed",
            (_, true) => "answered; its instance goes on",
            (_, false) => "answered",
        });
    });
}
