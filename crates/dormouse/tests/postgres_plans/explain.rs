//! Plans as the server logs them, of the statements inside the functions too.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use serde_json::Value;

/// Makes every statement of a connection leave its plan in the log, with what really happened.
pub const OPTIONS: &str = "-c%20session_preload_libraries%3Dauto_explain\
    %20-c%20auto_explain.log_min_duration%3D0\
    %20-c%20auto_explain.log_nested_statements%3Don\
    %20-c%20auto_explain.log_analyze%3Don\
    %20-c%20auto_explain.log_buffers%3Don\
    %20-c%20auto_explain.log_timing%3Doff\
    %20-c%20auto_explain.log_format%3Djson";

/// The tables that grow without bound. The others have a row for each worker, machine or paused queue.
const LARGE: [&str; 5] = ["instances", "signals", "history", "units", "interactions"];

/// What one statement did.
pub struct Plan {
    pub query: String,
    root: Value,
}

/// The plans in a stretch of the log. A statement's own comes after those of what it called.
pub fn plans(log: &str) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        if !(line.contains("LOG:  duration:") && line.ends_with("plan:")) {
            continue;
        }
        let mut text = String::new();
        while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
            text.push_str(line);
        }
        let mut plan: Value = serde_json::from_str(&text).expect("a plan in JSON");
        let query = plan["Query Text"].as_str().unwrap_or_default().to_owned();
        plans.push(Plan { query, root: plan["Plan"].take() });
    }
    plans
}

impl Plan {
    /// The pages it looked at, with those of the statements that it called.
    pub fn buffers(&self) -> u64 {
        ["Shared Hit Blocks", "Shared Read Blocks"].iter().map(|name| number(&self.root, name) as u64).sum()
    }

    /// The large tables that it reads from end to end.
    pub fn sequential(&self) -> Vec<&str> {
        let scans = self.nodes().into_iter().filter(|node| node["Node Type"] == "Seq Scan");
        let tables = scans.filter_map(|node| node["Relation Name"].as_str());
        tables.filter(|table| LARGE.contains(table)).collect()
    }

    /// The most rows that any of its nodes handed on or threw away, and so the most that any sorted.
    pub fn rows_max(&self) -> u64 {
        let rows = |node: &&Value| {
            let each = [
                "Actual Rows",
                "Rows Removed by Filter",
                "Rows Removed by Join Filter",
                "Rows Removed by Index Recheck",
            ];
            let each: f64 = each.iter().map(|name| number(node, name)).sum();
            (each * number(node, "Actual Loops")) as u64
        };
        self.nodes().iter().map(rows).max().unwrap_or_default()
    }

    /// The plan, for whoever has to find out.
    pub fn shown(&self) -> String {
        format!("{}\n{:#}", self.query, self.root)
    }

    fn nodes(&self) -> Vec<&Value> {
        let mut nodes = vec![&self.root];
        let mut next = 0;
        while let Some(node) = nodes.get(next) {
            let below = node["Plans"].as_array();
            nodes.extend(below.into_iter().flatten());
            next += 1;
        }
        nodes
    }
}

fn number(node: &Value, name: &str) -> f64 {
    node[name].as_f64().unwrap_or_default()
}
