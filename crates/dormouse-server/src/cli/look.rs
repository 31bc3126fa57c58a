//! Commands that show an overview: `waiting`, `queues`, `workers`, `machines`, `stats`.

use serde_json::Value;

use super::Failure;
use super::conn::{Conn, with_query};
use super::instances::print_page;
use super::output::{Output, age, items, line, table, text};

/// Which signal.
#[derive(Debug, clap::Args)]
pub struct Waiting {
    /// List the instances that await this signal
    signal: Option<String>,
    /// Show at most this many
    #[arg(long, requires = "signal")]
    limit: Option<usize>,
}

pub(super) async fn waiting(conn: &Conn, output: Output, args: Waiting) -> Result<(), Failure> {
    let limit = args.limit.map(|limit| limit.to_string());
    let who = args.signal.is_some();
    let waiting = conn.get(&with_query("/v1/waiting", &[("signal", args.signal), ("limit", limit)])).await?;
    output.show(&waiting, |waiting| if who { print_page(waiting) } else { print_awaiting(waiting) });
    Ok(())
}

fn print_awaiting(value: &Value) {
    let row = |awaited: &Value| {
        let more = if awaited["is_capped"] == true { " or more" } else { "" };
        let count = format!("{}{more}", text(awaited, "count"));
        let longest = format!("instance {}", text(awaited, "oldest"));
        vec![text(awaited, "names"), count, longest, age(awaited, "since")]
    };
    let rows: Vec<_> = items(value, "awaiting").map(row).collect();
    table(&["SIGNALS", "WAITING", "LONGEST", "SINCE"], &rows, "no instance awaits a signal");
}

pub(super) async fn queues(conn: &Conn, output: Output) -> Result<(), Failure> {
    output.show(&conn.get("/v1/queues").await?, print_queues);
    Ok(())
}

fn print_queues(value: &Value) {
    let row = |queue: &Value| {
        let paused = if queue["paused"] == true { "paused" } else { "" };
        vec![
            text(queue, "name"),
            text(queue, "runnable"),
            age(queue, "oldest_runnable_at"),
            text(queue, "workers"),
            paused.to_owned(),
        ]
    };
    let rows: Vec<_> = items(value, "queues").map(row).collect();
    table(
        &["QUEUE", "RUNNABLE", "OLDEST", "WORKERS", ""],
        &rows,
        "no queue holds anything, and none is served",
    );
}

pub(super) async fn shares(conn: &Conn, output: Output) -> Result<(), Failure> {
    output.show(&conn.get("/v1/shares").await?, |value| {
        let row = |share: &Value| vec![text(share, "share"), text(share, "weight")];
        let rows: Vec<_> = items(value, "shares").map(row).collect();
        table(&["SHARE", "WEIGHT"], &rows, "every share has weight 1");
    });
    Ok(())
}

pub(super) async fn workers(conn: &Conn, output: Output) -> Result<(), Failure> {
    output.show(&conn.get("/v1/workers").await?, |value| {
        let row = |worker: &Value| {
            let machines: Vec<_> = items(worker, "machines")
                .map(|machine| format!("{} {}", text(machine, "name"), text(machine, "version")))
                .collect();
            let live = if worker["is_live"] == true { "live" } else { "gone" };
            vec![
                text(worker, "id"),
                text(worker, "name"),
                live.to_owned(),
                age(worker, "started_at"),
                text(worker, "claims"),
                text(worker, "queues"),
                machines.join(", "),
            ]
        };
        let rows: Vec<_> = items(value, "workers").map(row).collect();
        let headers = ["ID", "WORKER", "", "STARTED", "CLAIMS", "QUEUES", "MACHINES"];
        table(&headers, &rows, "no worker serves this namespace: start one with `worker` or `serve`");
    });
    Ok(())
}

pub(super) async fn machines(conn: &Conn, output: Output) -> Result<(), Failure> {
    output.show(&conn.get("/v1/machines").await?, |value| {
        let mut rows = Vec::new();
        for machine in items(value, "machines") {
            let head = || [text(machine, "name"), text(machine, "versions"), text(machine, "workers")];
            let mut places: Vec<_> = items(machine, "places")
                .map(|place| ["version", "step", "status", "count"].map(|member| text(place, member)))
                .collect();
            if places.is_empty() {
                places.push(Default::default());
            }
            for (index, place) in places.into_iter().enumerate() {
                let head = if index == 0 { head() } else { Default::default() };
                rows.push(head.into_iter().chain(place).collect());
            }
        }
        let headers = ["MACHINE", "RUNS", "WORKERS", "VERSION", "STEP", "STATUS", "INSTANCES"];
        table(&headers, &rows, "no machine is known, and there are no instances");
        let unserved: Vec<_> = items(value, "machines").flat_map(unserved_versions).collect();
        if value["more"] == true {
            line("\nthere are more machines or steps than these");
        }
        if !unserved.is_empty() {
            line(&format!("\n{}", unserved.join("\n")));
        }
    });
    Ok(())
}

/// A warning for each version of a machine that has live instances but no live worker.
pub(super) fn unserved_versions(machine: &Value) -> impl Iterator<Item = String> {
    let unserved = items(machine, "in_flight").filter(|version| version["workers"] == 0);
    unserved.map(|version| {
        let [version, live] = ["version", "live"].map(|member| text(version, member));
        let name = text(machine, "name");
        let instances = if live == "1" { "instance" } else { "instances" };
        format!("no live worker runs version {version} of {name}, which has {live} live {instances}")
    })
}

pub(super) async fn stats(conn: &Conn, output: Output) -> Result<(), Failure> {
    output.show(&conn.get("/v1/stats").await?, |stats| {
        let statuses = stats["statuses"].as_object().into_iter().flatten();
        let rows: Vec<_> = statuses.map(|(status, count)| vec![status.clone(), count.to_string()]).collect();
        table(&["STATUS", "INSTANCES"], &rows, "");
        let workers = text(stats, "workers");
        line(&format!("\n{workers} live {}\n", if workers == "1" { "worker" } else { "workers" }));
        print_queues(stats);
        line("");
        print_awaiting(stats);
    });
    Ok(())
}
