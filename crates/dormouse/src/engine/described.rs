//! What each metric of the library is, for recorders that show it.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// The steps, and other names, that a label may not hold stand together under this one.
pub(super) const OTHER: &str = "other";

const COUNTERS: [(&str, &str); 13] = [
    ("dormouse_answers_total", "Answers that came back by a transport, by outcome"),
    (
        "dormouse_breaker_changes_total",
        "Breakers of transports that this process opened or closed, by change",
    ),
    ("dormouse_claims_total", "Rows claimed"),
    ("dormouse_collected_total", "Instances and events removed"),
    ("dormouse_commits_total", "Outcomes committed"),
    ("dormouse_ends_total", "Instances that ended by an outcome or were given up, by machine and outcome"),
    ("dormouse_reaped_total", "Claims taken back from workers that are gone"),
    ("dormouse_sends_total", "Requests of units handed to a transport, by outcome"),
    ("dormouse_stale_total", "Outcomes that came after their claim was lost"),
    ("dormouse_step_errors_total", "Runs of steps that failed, each try, by machine and step"),
    ("dormouse_store_failures_total", "Calls of the store by this engine that failed and are tried again"),
    ("dormouse_woken_total", "Rows woken by the clock"),
    ("dormouse_kept_expired_total", "Kept signals that expired before an instance with their key started"),
];

const GAUGES: [(&str, &str); 3] = [
    ("dormouse_places", "Steps that this process may run at once, by queue"),
    ("dormouse_places_in_use", "Steps that run in this process, by queue"),
    (
        "dormouse_unanswered_since_seconds",
        "When the oldest unanswered request of a transport could first be sent, in seconds since 1970; 0 if none",
    ),
];

const SECONDS: [(&str, &str); 2] = [
    ("dormouse_claim_wait_seconds", "Time from when a row could run until it was claimed, by queue"),
    ("dormouse_step_seconds", "One run of a step, its handler not included, by machine and step"),
];

const SIZES: [(&str, &str); 2] = [
    ("dormouse_commit_group", "Outcomes committed together"),
    ("dormouse_sqlite_group_writes", "Writes in one SQLite transaction"),
];

/// Describes all of them to this process's recorder.
pub(super) fn describe() {
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
    }
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    for (name, help) in SECONDS {
        describe_histogram!(name, Unit::Seconds, help);
    }
    for (name, help) in SIZES {
        describe_histogram!(name, Unit::Count, help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_in_the_guide_and_the_guide_names_no_other() {
        let page = include_str!("../../../../docs/guide/observability.md");
        let all = COUNTERS.iter().chain(&GAUGES).chain(&SECONDS).chain(&SIZES);
        for (name, _) in all {
            assert!(page.contains(&format!("| `{name}` |")), "{name} is not in the guide");
        }
    }
}
