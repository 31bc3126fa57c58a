//! `doctor`: finds problems and says what to do about them.

use std::process::ExitCode;
use std::time::Duration;

use dormouse::jiff::Timestamp;
use serde_json::{Value, json};

use super::Failure;
use super::conn::Conn;
use super::output::{Output, age, items, line, text};
use crate::span;

/// A larger clock difference makes timers fire at the wrong moment.
const CLOCK_OFF_MAX: Duration = Duration::from_secs(2);
/// If a runnable row waits longer than this, there are not enough workers.
const RUNNABLE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    Note,
    Problem,
}

/// The finding of one check.
struct Finding {
    verdict: Verdict,
    about: &'static str,
    told: String,
    advice: String,
}

pub(super) async fn doctor(conn: &Conn, output: Output) -> Result<ExitCode, Failure> {
    let about = conn.get("/v1/about").await?;
    let ready = conn.get("/readyz").await;
    let [stats, workers, troubles] =
        [conn.get("/v1/stats").await?, conn.get("/v1/workers").await?, conn.get("/v1/troubles").await?];
    let mut findings = vec![database(&about), readiness(&ready), clock(&about)];
    findings.extend(crew(&workers));
    findings.extend(items(&troubles, "troubles").map(trouble));
    findings.extend(queues(&stats));
    findings.push(failures(&stats));

    let told = |finding: &Finding| {
        let verdict = match finding.verdict {
            Verdict::Fine => "ok",
            Verdict::Note => "note",
            Verdict::Problem => "problem",
        };
        json!({ "verdict": verdict, "about": finding.about, "told": finding.told, "advice": finding.advice })
    };
    let report = json!({ "findings": findings.iter().map(told).collect::<Vec<_>>() });
    output.show(&report, |report| {
        for finding in items(report, "findings") {
            line(&format!(
                "{:<8} {:<9} {}",
                text(finding, "verdict"),
                text(finding, "about"),
                text(finding, "told")
            ));
            let advice = text(finding, "advice");
            if !advice.is_empty() {
                line(&format!("{:18} {advice}", ""));
            }
        }
    });
    let is_ill = findings.iter().any(|finding| finding.verdict == Verdict::Problem);
    Ok(if is_ill { ExitCode::from(7) } else { ExitCode::SUCCESS })
}

fn database(about: &Value) -> Finding {
    let [store, version, schema, namespace] =
        ["store", "store_version", "schema", "namespace"].map(|m| text(about, m));
    Finding {
        verdict: Verdict::Fine,
        about: "database",
        told: format!(
            "{store} {version}, schema version {schema}, namespace {namespace}, as {}",
            text(about, "who")
        ),
        advice: String::new(),
    }
}

fn readiness(ready: &Result<Value, Failure>) -> Finding {
    match ready {
        Ok(_) => fine("store", "it can be read and written"),
        Err(failure) => Finding {
            verdict: Verdict::Problem,
            about: "store",
            told: failure.to_string(),
            advice: "look for a full disk, a file that cannot be written, or a process that holds its lock"
                .to_owned(),
        },
    }
}

fn clock(about: &Value) -> Finding {
    let read = |member: &str| text(about, member).parse::<Timestamp>().ok();
    let off =
        [read("now"), read("server_now")].into_iter().flatten().map(|at| Timestamp::now().duration_since(at));
    let off = off.map(dormouse::jiff::SignedDuration::unsigned_abs).max().unwrap_or_default();
    if off <= CLOCK_OFF_MAX {
        return fine("clock", "the clocks of the store, the server and this machine agree");
    }
    Finding {
        verdict: Verdict::Problem,
        about: "clock",
        told: format!("the clock of the store or the server is {} off this machine's", span::show(off)),
        advice: "synchronize all clocks by NTP: timers and leases use the store's clock".to_owned(),
    }
}

fn crew(workers: &Value) -> Vec<Finding> {
    let (live, gone): (Vec<_>, Vec<_>) =
        items(workers, "workers").partition(|worker| worker["is_live"] == true);
    let mut findings = Vec::new();
    findings.push(match live.len() {
        0 => note("workers", "none is live", ""),
        live => fine("workers", &format!("{live} live")),
    });
    let held: u64 = gone.iter().filter_map(|worker| worker["claims"].as_u64()).sum();
    if held > 0 {
        findings.push(Finding {
            verdict: Verdict::Problem,
            about: "workers",
            told: format!("{held} steps are held by {} workers whose lease has expired", gone.len()),
            advice: "any live worker takes them back at its next heartbeat: start one".to_owned(),
        });
    }
    findings
}

/// What the server found, and what it advises.
fn trouble(trouble: &Value) -> Finding {
    let (verdict, about) = match text(trouble, "kind").as_str() {
        "no_worker" => (Verdict::Problem, "workers"),
        "nobody_runs" => (Verdict::Problem, "machines"),
        "nobody_serves" => (Verdict::Problem, "queues"),
        "nobody_sends" | "sends_fail" | "breaker_open" => (Verdict::Problem, "sending"),
        "queue_paused" => (Verdict::Note, "queues"),
        _ => (Verdict::Problem, "other"),
    };
    let again = match text(trouble, "next_at").as_str() {
        "" => String::new(),
        _ if trouble["instance"].is_null() => format!(" (next try {})", age(trouble, "next_at")),
        _ => format!(" (next try {}, see instance {})", age(trouble, "next_at"), text(trouble, "instance")),
    };
    let told = format!("{}{again}", text(trouble, "told"));
    Finding { verdict, about, told, advice: text(trouble, "advice") }
}

fn queues(stats: &Value) -> Vec<Finding> {
    let now = text(stats, "now").parse::<Timestamp>().unwrap_or_else(|_| Timestamp::now());
    let mut findings = Vec::new();
    for queue in items(stats, "queues").filter(|queue| queue["paused"] != true && queue["workers"] != 0) {
        let (name, runnable) = (text(queue, "name"), queue["runnable"].as_u64().unwrap_or(0));
        let oldest = text(queue, "oldest_runnable_at").parse::<Timestamp>().ok();
        let waits = oldest.map(|at| now.duration_since(at).unsigned_abs()).unwrap_or_default();
        if waits > RUNNABLE_MAX {
            findings.push(Finding {
                verdict: Verdict::Problem,
                about: "queues",
                told: format!(
                    "the oldest of {runnable} runnable instances in {name} has waited for {}",
                    span::show(waits)
                ),
                advice:
                    "give the queue more places, start more workers, or see which steps are slow (/metrics)"
                        .to_owned(),
            });
        }
    }
    if findings.is_empty() {
        findings.push(fine("queues", "nothing waits for long where workers serve"));
    }
    findings
}

fn failures(stats: &Value) -> Finding {
    match stats["statuses"]["failed"].as_u64().unwrap_or(0) {
        0 => fine("failed", "none"),
        count => note(
            "failed",
            &format!("{count} instances have failed"),
            "list them with `ls --status failed`; run one again with `retry`, all of a kind with `bulk retry`",
        ),
    }
}

fn fine(about: &'static str, told: &str) -> Finding {
    Finding { verdict: Verdict::Fine, about, told: told.to_owned(), advice: String::new() }
}

fn note(about: &'static str, told: &str, advice: &str) -> Finding {
    Finding { verdict: Verdict::Note, about, told: told.to_owned(), advice: advice.to_owned() }
}
