//! `doctor`: finds problems and says what to do about them.

use std::process::ExitCode;
use std::time::Duration;

use dormouse::jiff::Timestamp;
use serde_json::{Value, json};

use super::Failure;
use super::conn::Conn;
use super::look::unserved_versions;
use super::output::{Output, items, line, text};
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
    advice: &'static str,
}

pub(super) async fn doctor(conn: &Conn, output: Output) -> Result<ExitCode, Failure> {
    let about = conn.get("/v1/about").await?;
    let ready = conn.get("/readyz").await;
    let [stats, workers, machines] =
        [conn.get("/v1/stats").await?, conn.get("/v1/workers").await?, conn.get("/v1/machines").await?];
    let mut findings = vec![database(&about), readiness(&ready), clock(&about)];
    findings.extend(crew(&workers, &stats));
    findings.extend(unserved_machines(&machines));
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
        advice: "",
    }
}

fn readiness(ready: &Result<Value, Failure>) -> Finding {
    match ready {
        Ok(_) => fine("store", "it can be read and written"),
        Err(failure) => Finding {
            verdict: Verdict::Problem,
            about: "store",
            told: failure.to_string(),
            advice: "look for a full disk, a file that cannot be written, or a process that holds its lock",
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
        advice: "synchronize all clocks by NTP: timers and leases use the store's clock",
    }
}

fn crew(workers: &Value, stats: &Value) -> Vec<Finding> {
    let (live, gone): (Vec<_>, Vec<_>) =
        items(workers, "workers").partition(|worker| worker["is_live"] == true);
    let count = |status: &str| stats["statuses"][status].as_u64().unwrap_or(0);
    let wants_work =
        count("runnable") + count("scheduled") + count("awaiting_signal") + count("awaiting_children");
    let mut findings = Vec::new();
    findings.push(match (live.len(), wants_work) {
        (0, 0) => note("workers", "none is live, and there is nothing to run", ""),
        (0, waiting) => Finding {
            verdict: Verdict::Problem,
            about: "workers",
            told: format!("none is live, and {waiting} instances wait to run or to wake"),
            advice: "start your program with `worker` or `serve`: only an engine runs steps and fires timers",
        },
        (live, _) => fine("workers", &format!("{live} live")),
    });
    let held: u64 = gone.iter().filter_map(|worker| worker["claims"].as_u64()).sum();
    if held > 0 {
        findings.push(Finding {
            verdict: Verdict::Problem,
            about: "workers",
            told: format!("{held} steps are held by {} workers whose lease has expired", gone.len()),
            advice: "any live worker takes them back at its next heartbeat: start one",
        });
    }
    findings
}

fn unserved_machines(machines: &Value) -> Vec<Finding> {
    let problem = |told, advice| Finding { verdict: Verdict::Problem, about: "machines", told, advice };
    let mut findings = Vec::new();
    for machine in items(machines, "machines") {
        let live: u64 = items(machine, "in_flight").filter_map(|version| version["live"].as_u64()).sum();
        if machine["workers"] == 0 && live > 0 {
            findings.push(problem(
                format!("no live worker runs {}, which has {live} live instances", text(machine, "name")),
                "start a program that registers it, or cancel them (`ls --machine NAME`, `cancel`)",
            ));
            continue;
        }
        let advice = "start a program that has this version, or one that migrates from it (`MIGRATES_FROM`)";
        findings.extend(unserved_versions(machine).map(|told| problem(told, advice)));
    }
    findings
}

fn queues(stats: &Value) -> Vec<Finding> {
    let now = text(stats, "now").parse::<Timestamp>().unwrap_or_else(|_| Timestamp::now());
    let mut findings = Vec::new();
    for queue in items(stats, "queues") {
        let (name, runnable) = (text(queue, "name"), queue["runnable"].as_u64().unwrap_or(0));
        let oldest = text(queue, "oldest_runnable_at").parse::<Timestamp>().ok();
        let waits = oldest.map(|at| now.duration_since(at).unsigned_abs()).unwrap_or_default();
        if queue["paused"] == true {
            let told = format!("{name} is paused and has {runnable} runnable instances");
            findings.push(note("queues", &told, "resume it with `resume --queue NAME`"));
        } else if runnable > 0 && queue["workers"] == 0 {
            findings.push(Finding {
                verdict: Verdict::Problem,
                about: "queues",
                told: format!("no live worker serves {name}, which has {runnable} runnable instances"),
                advice: "let a worker serve it: `.queue(NAME, 64)` where the engine is set up",
            });
        } else if waits > RUNNABLE_MAX {
            findings.push(Finding {
                verdict: Verdict::Problem,
                about: "queues",
                told: format!("the oldest of {runnable} runnable instances in {name} has waited for {}", span::show(waits)),
                advice: "give the queue more places, start more workers, or see which steps are slow (/metrics)",
            });
        }
    }
    if findings.is_empty() {
        findings.push(fine("queues", "nothing waits for long"));
    }
    findings
}

fn failures(stats: &Value) -> Finding {
    match stats["statuses"]["failed"].as_u64().unwrap_or(0) {
        0 => fine("failed", "none"),
        count => note(
            "failed",
            &format!("{count} instances have failed"),
            "list them with `ls --status failed`; run one again with `retry`",
        ),
    }
}

fn fine(about: &'static str, told: &str) -> Finding {
    Finding { verdict: Verdict::Fine, about, told: told.to_owned(), advice: "" }
}

fn note(about: &'static str, told: &str, advice: &'static str) -> Finding {
    Finding { verdict: Verdict::Note, about, told: told.to_owned(), advice }
}
