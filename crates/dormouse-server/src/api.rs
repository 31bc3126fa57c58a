//! The HTTP API: the table of all routes.

mod admin;
mod ahead;
mod amend;
mod bulk;
mod events;
mod instances;
mod interactions;
mod kept;
mod limits;
mod look;
mod operate;
mod overlap;
mod probes;
mod schedules;
mod search;
mod signals;
mod start;
mod transports;
mod troubles;
mod versions;

pub(crate) use self::bulk::Verb;
pub(crate) use self::look::Overview;
pub(crate) use self::search::{conditions, statuses, told_of};
pub(crate) use self::versions::InFlight;
use crate::route::Route;

/// Every route of the server. A route that is not in this table is not served.
pub(crate) fn table() -> Vec<Route> {
    vec![
        Route::post("/v1/instances", "instance.start", "Start an instance", start::one),
        Route::post(
            "/v1/instances/batch",
            "instance.start_batch",
            "Start many instances in one write",
            start::many,
        ),
        Route::post(
            "/v1/instances/bulk",
            "instance.bulk",
            "Act on every instance that the query matches, a page at a time",
            bulk::bulk,
        ),
        Route::get("/v1/instances", "List instances, newest first", search::list),
        Route::get("/v1/instances/{instance}", "Get an instance", instances::get),
        Route::get(
            "/v1/instances/{instance}/history",
            "List its history, oldest event first",
            instances::history,
        ),
        Route::get("/v1/instances/{instance}/inbox", "List the signals in its inbox", instances::inbox),
        Route::get(
            "/v1/instances/{instance}/mail",
            "List its mail that is not delivered yet",
            instances::mail,
        ),
        Route::get(
            "/v1/instances/{instance}/children",
            "List its children, newest first",
            instances::children,
        ),
        Route::get(
            "/v1/instances/{instance}/result",
            "Get its result, with `wait` after waiting for it",
            instances::result,
        )
        .lasting(),
        Route::get(
            "/v1/instances/{instance}/settled",
            "Get it once it is parked or has ended, with `wait` after waiting for that",
            instances::settled,
        )
        .lasting(),
        Route::get(
            "/v1/instances/{instance}/explain",
            "Explain in one sentence why it does not move",
            instances::explain,
        ),
        Route::get(
            "/v1/instances/{instance}/what-if",
            "Show what it would do if something happened to it",
            ahead::what_if,
        ),
        Route::post("/v1/instances/{instance}/signals", "instance.signal", "Signal it", signals::one),
        Route::post(
            "/v1/signals/batch",
            "instance.signal_batch",
            "Send many signals in one write",
            signals::many,
        ),
        Route::post(
            "/v1/instances/{instance}/inbox/{signal}/drop",
            "signal.drop",
            "Remove a signal from its inbox",
            amend::drop,
        ),
        Route::post(
            "/v1/instances/{instance}/inbox/{signal}/edit",
            "signal.edit",
            "Replace the payload of a signal in its inbox",
            amend::edit,
        ),
        Route::get(
            "/v1/kept",
            "List the signals that are kept for instances to come, in the order in which they came",
            kept::list,
        ),
        Route::post("/v1/kept/{kept}/drop", "kept.drop", "Drop a kept signal", kept::drop),
        Route::post("/v1/instances/{instance}/cancel", "instance.cancel", "Cancel it", operate::cancel),
        Route::post(
            "/v1/instances/{instance}/retry",
            "instance.retry",
            "Run it again after it has ended",
            operate::retry,
        ),
        Route::post(
            "/v1/instances/{instance}/edit",
            "instance.edit",
            "Replace its state, or members of it",
            operate::edit,
        ),
        Route::post("/v1/instances/{instance}/pause", "instance.pause", "Pause it", operate::pause),
        Route::post(
            "/v1/instances/{instance}/resume",
            "instance.resume",
            "Resume it after a pause",
            operate::resume,
        ),
        Route::post("/v1/instances/{instance}/tags", "instance.tag", "Add and remove tags", operate::tag),
        Route::post(
            "/v1/instances/{instance}/fork",
            "instance.fork",
            "Start a new instance from one of its events",
            operate::fork,
        ),
        Route::get(
            "/v1/waiting",
            "List the signals that are awaited, or the instances that await one",
            look::waiting,
        ),
        Route::get("/v1/interactions", "List interactions, oldest first", interactions::list),
        Route::get("/v1/interactions/{interaction}", "Get an interaction", interactions::get),
        Route::post(
            "/v1/interactions/{interaction}/claim",
            "interaction.claim",
            "Claim it for a while",
            interactions::claim,
        ),
        Route::post(
            "/v1/interactions/{interaction}/complete",
            "interaction.complete",
            "Answer it",
            interactions::complete,
        ),
        Route::post(
            "/v1/interactions/{interaction}/fail",
            "interaction.fail",
            "Answer it with a failure",
            interactions::fail,
        ),
        Route::post(
            "/v1/interactions/batch",
            "interaction.complete_batch",
            "Answer many in one write",
            interactions::many,
        ),
        Route::post(
            "/v1/resume/{token}",
            "interaction.resume",
            "Answer with a resume token",
            interactions::resume,
        )
        .by_token(),
        Route::get(
            "/v1/machines",
            "List machines, where their instances are, and which workers run them",
            look::machines,
        ),
        Route::get(
            "/v1/machines/{machine}/graph",
            "Get a machine's graph: its steps and the edges between them",
            ahead::graph,
        ),
        Route::get("/v1/queues", "List queues, their depths, and whether they are paused", look::queues),
        Route::post("/v1/queues/{queue}/pause", "queue.pause", "Pause a queue", operate::pause_queue),
        Route::post(
            "/v1/queues/{queue}/resume",
            "queue.resume",
            "Resume a queue after a pause",
            operate::resume_queue,
        ),
        Route::get(
            "/v1/limits",
            "List limits and how much of each is in use, in the order of their names",
            limits::list,
        ),
        Route::post(
            "/v1/limits/{limit}",
            "limit.set",
            "Limit how many instances of a lane, or of each lane of a family, run at a time",
            limits::set,
        ),
        Route::post("/v1/limits/{limit}/remove", "limit.remove", "Remove a limit", limits::remove),
        Route::get(
            "/v1/transports",
            "List transports, what limits their sends, and what they wait for, in the order of their names",
            transports::list,
        ),
        Route::post(
            "/v1/transports/{transport}",
            "transport.set",
            "Limit the sends of a transport, for all workers and namespaces",
            transports::set,
        )
        .admin(),
        Route::post(
            "/v1/transports/{transport}/close",
            "transport.close",
            "Close the breaker of a transport: its requests are sent at once",
            transports::close,
        )
        .admin(),
        Route::get("/v1/shares", "List shares whose weight is not 1", look::shares),
        Route::post(
            "/v1/shares/{share}/weigh",
            "share.weigh",
            "Set how many instances a share is served in each of its turns",
            operate::weigh_share,
        )
        .admin(),
        Route::post("/v1/schedules", "schedule.create", "Create a schedule", schedules::create),
        Route::get("/v1/schedules", "List live schedules, newest first", schedules::list),
        Route::get("/v1/schedules/{schedule}", "Get a schedule", schedules::get),
        Route::get("/v1/schedules/{schedule}/next", "List its next occurrences", schedules::next),
        Route::get("/v1/schedules/{schedule}/runs", "List what it started, newest first", schedules::runs),
        Route::post(
            "/v1/schedules/{schedule}/change",
            "schedule.change",
            "Change it; it counts from now on",
            schedules::change,
        ),
        Route::post(
            "/v1/schedules/{schedule}/reset",
            "schedule.reset",
            "Make it again what code declares",
            schedules::reset,
        ),
        Route::post("/v1/schedules/{schedule}/pause", "schedule.pause", "Pause it", schedules::pause),
        Route::post(
            "/v1/schedules/{schedule}/resume",
            "schedule.resume",
            "Resume it after a pause",
            schedules::resume,
        ),
        Route::post(
            "/v1/schedules/{schedule}/run",
            "schedule.run",
            "Start one run now, beside the calendar",
            schedules::run,
        ),
        Route::post(
            "/v1/schedules/{schedule}/backfill",
            "schedule.backfill",
            "Start every occurrence of a past range that was not started before",
            schedules::backfill,
        ),
        Route::post(
            "/v1/schedules/{schedule}/delete",
            "schedule.delete",
            "Delete it; its runs go on",
            schedules::delete,
        ),
        Route::get("/v1/workers", "List the workers that serve this namespace", look::workers),
        Route::get("/v1/stats", "Get counts, depths and ages", look::stats),
        Route::get(
            "/v1/troubles",
            "List what keeps many instances from moving, and what to do about it",
            troubles::list,
        ),
        Route::get(
            "/v1/about",
            "Get the versions of this server and its store, and who the caller is",
            look::about,
        ),
        Route::get("/v1/events", "Stream changes as they happen", events::watch).lasting(),
        Route::post(
            "/v1/api-keys",
            "api_key.create",
            "Create an API key; its secret is shown only once. Refused by a server that requires no API keys",
            admin::create_key,
        )
        .admin()
        .secret(),
        Route::get("/v1/api-keys", "List the API keys of this namespace", admin::keys).admin(),
        Route::post(
            "/v1/api-keys/{api_key}/revoke",
            "api_key.revoke",
            "Revoke an API key",
            admin::revoke_key,
        )
        .admin(),
        Route::get("/v1/audit", "List the audit log, newest first", admin::audit).admin(),
        Route::post("/v1/gc", "gc", "Remove instances that ended long ago", admin::gc).admin(),
        Route::get("/metrics", "Get metrics for Prometheus", probes::metrics),
        Route::get("/healthz", "Check that the process answers", probes::healthz).public(),
        Route::get("/readyz", "Check that requests can be served", probes::readyz).public(),
        Route::get("/openapi.json", "Get this API description", probes::openapi).public(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Needs;

    #[test]
    fn no_two_routes_are_the_same_and_every_change_is_audited() {
        let table = table();
        for (index, route) in table.iter().enumerate() {
            let same = |other: &Route| other.path == route.path && other.method == route.method;
            assert!(!table[..index].iter().any(same), "{} {}", route.method, route.path);
            assert_eq!(route.audit.is_some(), route.method != "GET", "{} {}", route.method, route.path);
            // Every change needs a right: an API key, or the token in the path.
            assert!(route.audit.is_none() || route.needs != Needs::Nothing);
            assert_eq!(route.needs == Needs::Token, route.path.ends_with("/{token}"), "{}", route.path);
            assert!(route.needs != Needs::Token || !route.is_repeatable, "a token is kept nowhere");
        }
    }
}
