//! `schedules`: lists, creates and operates what starts again and again.

use serde_json::{Value, json};

use super::conn::{Conn, encode, with_query};
use super::output::{Output, age, escaped, items, line, table, text};
use super::{Failure, json_argument, with_document};

/// What to do with schedules.
#[derive(Debug, clap::Subcommand)]
pub enum Schedules {
    /// List them, newest first
    Ls {
        /// Show at most this many
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Continue where an earlier page ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show a schedule, its next occurrences and its last runs
    Show {
        /// Its name
        schedule: String,
    },
    /// Create a schedule
    Create {
        /// Its name
        schedule: String,
        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// Change a schedule; what is not named stays as it is
    Change {
        /// Its name
        schedule: String,
        #[command(flatten)]
        settings: Box<Settings>,
    },
    /// Make a schedule again what code declares
    Reset {
        /// Its name
        schedule: String,
    },
    /// Pause a schedule
    Pause {
        /// Its name
        schedule: String,
    },
    /// Resume a paused schedule
    Resume {
        /// Its name
        schedule: String,
    },
    /// Start one run now, beside the calendar
    Run {
        /// Its name
        schedule: String,
    },
    /// Start every occurrence of a past range that was not started before
    Backfill {
        /// Its name
        schedule: String,
        /// From this moment, such as 2030-01-01T00:00:00Z
        #[arg(long, value_name = "MOMENT")]
        from: String,
        /// Up to and with this moment
        #[arg(long, value_name = "MOMENT")]
        to: String,
    },
    /// Delete a schedule; its runs go on
    Delete {
        /// Its name
        schedule: String,
    },
    /// List the next occurrences of a schedule
    Next {
        /// Its name
        schedule: String,
        /// How many
        #[arg(long, default_value_t = 10)]
        count: usize,
    },
}

/// When a schedule happens, and what it starts.
#[derive(Debug, clap::Args)]
pub struct Settings {
    /// When: a cron expression of 5 fields, or of 6 with seconds first
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "every")]
    cron: Option<String>,
    /// When: every so often, such as 5m
    #[arg(long, value_name = "SPAN")]
    every: Option<String>,
    /// The time zone of the cron expression, such as Europe/Berlin [default: UTC]
    #[arg(long)]
    zone: Option<String>,
    /// The machine that each occurrence starts
    #[arg(long)]
    machine: Option<String>,
    /// The version of its code [default: the newest]
    #[arg(long)]
    version: Option<u32>,
    /// The step to start at
    #[arg(long)]
    step: Option<String>,
    /// The state of that step: JSON, @file, or - for standard input; {{scheduled_at}} in it stands for the moment
    #[arg(long, value_name = "JSON")]
    state: Option<String>,
    /// The queue of what it starts [default: the machine's]
    #[arg(long)]
    queue: Option<String>,
    /// The priority of what it starts; lower runs earlier
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// The lane of what it starts
    #[arg(long)]
    lane: Option<String>,
    /// The share of what it starts [default: the namespace's own]
    #[arg(long)]
    share: Option<String>,
    /// A tag of what it starts; repeatable
    #[arg(long)]
    tag: Vec<String>,
    /// The start of the keys of what it starts [default: the schedule's name]
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,
    /// Accept a machine that no worker has declared
    #[arg(long)]
    even_if_unknown: bool,
    /// While an earlier run lives: skip, allow, wait or cancel [default: skip]
    #[arg(long, value_name = "POLICY")]
    overlap: Option<String>,
    /// After downtime: none, last, or the age up to which all are started, such as 1h [default: last]
    #[arg(long, value_name = "POLICY")]
    catch_up: Option<String>,
    /// Delay each occurrence by up to this much
    #[arg(long, value_name = "SPAN")]
    jitter: Option<String>,
    /// Nothing before this moment
    #[arg(long, value_name = "MOMENT")]
    from: Option<String>,
    /// Nothing after this moment
    #[arg(long, value_name = "MOMENT")]
    until: Option<String>,
    /// Done after this many runs
    #[arg(long, value_name = "COUNT")]
    runs_max: Option<u64>,
}

pub(super) async fn schedules(conn: &Conn, output: Output, command: Schedules) -> Result<(), Failure> {
    let path = |schedule: &str, verb: &str| format!("/v1/schedules/{}{verb}", encode(schedule));
    let (schedule, verb, told) = match command {
        Schedules::Ls { limit, cursor } => {
            let query = [("limit", Some(limit.to_string())), ("cursor", cursor)];
            output.show(&conn.get(&with_query("/v1/schedules", &query)).await?, list);
            return Ok(());
        }
        Schedules::Show { schedule } => return show(conn, output, &schedule).await,
        Schedules::Create { schedule, settings } => {
            let created = conn.post("/v1/schedules", &settings.body(Some(&schedule))?).await?;
            output.show(&created, |created| line(&format!("created; next at {}", text(created, "next"))));
            return Ok(());
        }
        Schedules::Change { schedule, settings } => {
            let changed = conn.post(&path(&schedule, "/change"), &settings.body(None)?).await?;
            output.show(&changed, |_| line("changed; it counts from now on"));
            return Ok(());
        }
        Schedules::Backfill { schedule, from, to } => {
            let body = json!({ "from": from, "to": to });
            let filled = conn.post(&path(&schedule, "/backfill"), &body).await?;
            output.show(&filled, |filled| {
                line(&format!(
                    "{} occurrences; those that were started before are not started again",
                    text(filled, "occurrences")
                ));
            });
            return Ok(());
        }
        Schedules::Next { schedule, count } => {
            let query = [("count", Some(count.to_string()))];
            let next = conn.get(&with_query(&path(&schedule, "/next"), &query)).await?;
            output.show(&next, |next| match next["next"].as_array() {
                Some(moments) if !moments.is_empty() => {
                    moments.iter().filter_map(Value::as_str).for_each(line);
                }
                _ => line("nothing is to come"),
            });
            return Ok(());
        }
        Schedules::Reset { schedule } => (schedule, "/reset", "is again what code declares"),
        Schedules::Pause { schedule } => (schedule, "/pause", "is paused"),
        Schedules::Resume { schedule } => (schedule, "/resume", "is resumed"),
        Schedules::Run { schedule } => (schedule, "/run", "starts one now, or when it is resumed"),
        Schedules::Delete { schedule } => (schedule, "/delete", "is deleted"),
    };
    let done = conn.post(&path(&schedule, verb), &json!({})).await?;
    output.show(&done, |_| line(&format!("{schedule} {told}")));
    Ok(())
}

impl Settings {
    fn body(&self, name: Option<&str>) -> Result<impl serde::Serialize + use<>, Failure> {
        let state = self.state.as_deref().map(|text| json_argument("--state", text)).transpose()?;
        let members = json!({
            "name": name,
            "cron": self.cron,
            "every": self.every,
            "zone": self.zone,
            "machine": self.machine,
            "version": self.version,
            "step": self.step,
            "queue": self.queue,
            "priority": self.priority,
            "lane": self.lane,
            "share": self.share,
            "tags": Some(&self.tag).filter(|tags| !tags.is_empty()),
            "key_prefix": self.key_prefix,
            "even_if_unknown": Some(true).filter(|_| self.even_if_unknown),
            "overlap": self.overlap,
            "catch_up": self.catch_up,
            "jitter": self.jitter,
            "from": self.from,
            "until": self.until,
            "runs_max": self.runs_max,
        });
        let members = members.as_object().cloned().unwrap_or_default();
        let named: serde_json::Map<_, _> =
            members.into_iter().filter(|(_, value)| !value.is_null()).collect();
        Ok(with_document(named.into(), "state", state))
    }
}

async fn show(conn: &Conn, output: Output, schedule: &str) -> Result<(), Failure> {
    let path = format!("/v1/schedules/{}", encode(schedule));
    let mut found = conn.get(&path).await?;
    let next = conn.get(&with_query(&format!("{path}/next"), &[("count", Some("5".to_owned()))])).await?;
    let runs = conn.get(&with_query(&format!("{path}/runs"), &[("limit", Some("10".to_owned()))])).await?;
    if let Some(members) = found.as_object_mut() {
        members.insert("next_occurrences".to_owned(), next["next"].clone());
        members.insert("runs".to_owned(), runs["items"].clone());
    }
    output.show(&found, |found| {
        line(&escaped(&format!("{:#}", without_lists(found))));
        line(&format!("next: {}", text(found, "next_occurrences")));
        let row = |run: &Value| {
            vec![text(run, "id"), text(run, "key"), text(run, "status"), age(run, "created_at")]
        };
        let rows: Vec<_> = items(found, "runs").map(row).collect();
        table(&["RUN", "KEY", "STATUS", "STARTED"], &rows, "nothing was started yet");
    });
    Ok(())
}

fn without_lists(schedule: &Value) -> Value {
    let mut schedule = schedule.clone();
    if let Some(members) = schedule.as_object_mut() {
        members.remove("next_occurrences");
        members.remove("runs");
        members.retain(|_, value| !value.is_null());
    }
    schedule
}

fn list(page: &Value) {
    let row = |entry: &Value| {
        let when = match text(entry, "cron").as_str() {
            "" => format!("every {} s", text(entry, "every_seconds")),
            cron => format!("{cron} {}", text(entry, "zone")),
        };
        let state = match (entry["paused"] == true, entry["declared"].is_object()) {
            (true, _) => "paused",
            (false, true) => "changed",
            (false, false) => "",
        };
        vec![
            text(entry, "name"),
            when,
            text(entry, "machine"),
            age(entry, "next"),
            age(entry, "last"),
            text(entry, "started"),
            text(entry, "missed"),
            state.to_owned(),
        ]
    };
    let rows: Vec<_> = items(page, "items").map(row).collect();
    let headers = ["NAME", "WHEN", "STARTS", "NEXT", "LAST", "STARTED", "MISSED", ""];
    table(&headers, &rows, "there are no schedules");
    if let Some(next) = page.get("next").and_then(Value::as_str) {
        line(&format!("there are more: --cursor {next}"));
    }
}
