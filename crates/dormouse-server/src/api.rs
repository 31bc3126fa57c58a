//! The HTTP API: the table of all routes.

mod admin;
mod ahead;
mod amend;
mod events;
mod instances;
mod interactions;
mod look;
mod operate;
mod probes;
mod signals;
mod start;
mod versions;

pub(crate) use self::look::Overview;
pub(crate) use self::versions::InFlight;
use crate::route::Route;

/// Every route there is. What is not in here is not served.
pub(crate) fn table() -> Vec<Route> {
    vec![
        Route::post("/v1/instances", "instance.start", "Start an instance", start::one),
        Route::post(
            "/v1/instances/batch",
            "instance.start_batch",
            "Start many instances in one write",
            start::many,
        ),
        Route::get("/v1/instances", "List instances, newest first", instances::list),
        Route::get("/v1/instances/{instance}", "One instance", instances::get),
        Route::get(
            "/v1/instances/{instance}/history",
            "Its history, from its first event",
            instances::history,
        ),
        Route::get("/v1/instances/{instance}/inbox", "The signals that wait for it", instances::inbox),
        Route::get("/v1/instances/{instance}/children", "Its children, newest first", instances::children),
        Route::get("/v1/instances/{instance}/result", "How it ended, waited for if asked", instances::result)
            .lasting(),
        Route::get(
            "/v1/instances/{instance}/settled",
            "The instance once it is parked or has ended, waited for if asked",
            instances::settled,
        )
        .lasting(),
        Route::get(
            "/v1/instances/{instance}/explain",
            "Why it does not move, in one sentence",
            instances::explain,
        ),
        Route::get(
            "/v1/instances/{instance}/what-if",
            "What it would do if something happened to it",
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
            "Give a signal in its inbox another payload",
            amend::edit,
        ),
        Route::post("/v1/instances/{instance}/cancel", "instance.cancel", "Cancel it", operate::cancel),
        Route::post(
            "/v1/instances/{instance}/retry",
            "instance.retry",
            "Run it again after its end",
            operate::retry,
        ),
        Route::post("/v1/instances/{instance}/pause", "instance.pause", "Put its brake on", operate::pause),
        Route::post(
            "/v1/instances/{instance}/resume",
            "instance.resume",
            "Take its brake off",
            operate::resume,
        ),
        Route::post("/v1/instances/{instance}/tags", "instance.tag", "Add and remove its tags", operate::tag),
        Route::post(
            "/v1/instances/{instance}/fork",
            "instance.fork",
            "Start another from one of its events",
            operate::fork,
        ),
        Route::get("/v1/waiting", "What is awaited, or who waits for a signal", look::waiting),
        Route::get("/v1/interactions", "What waits for an answer, oldest first", interactions::list),
        Route::get("/v1/interactions/{interaction}", "One interaction", interactions::get),
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
            "Answer by a resume token",
            interactions::resume,
        )
        .by_token(),
        Route::get("/v1/machines", "Machines, where their instances are, and who runs them", look::machines),
        Route::get(
            "/v1/machines/{machine}/graph",
            "A machine's steps and the ways between them",
            ahead::graph,
        ),
        Route::get("/v1/queues", "Queues, their depths and brakes", look::queues),
        Route::post(
            "/v1/queues/{queue}/pause",
            "queue.pause",
            "Put a queue's brake on",
            operate::pause_queue,
        ),
        Route::post(
            "/v1/queues/{queue}/resume",
            "queue.resume",
            "Take a queue's brake off",
            operate::resume_queue,
        ),
        Route::get("/v1/workers", "Workers that serve this namespace", look::workers),
        Route::get("/v1/stats", "Counts, depths and ages", look::stats),
        Route::get("/v1/about", "This server, its store, and you", look::about),
        Route::get("/v1/events", "What changes, as it changes", events::watch).lasting(),
        Route::post(
            "/v1/api-keys",
            "api_key.create",
            "Make an API key; its secret is shown once. Refused where anyone may come in",
            admin::create_key,
        )
        .admin()
        .secret(),
        Route::get("/v1/api-keys", "The API keys of this namespace", admin::keys).admin(),
        Route::post(
            "/v1/api-keys/{api_key}/revoke",
            "api_key.revoke",
            "Revoke an API key",
            admin::revoke_key,
        )
        .admin(),
        Route::get("/v1/audit", "What was changed and by whom, newest first", admin::audit).admin(),
        Route::post("/v1/gc", "gc", "Remove what ended long ago", admin::gc).admin(),
        Route::get("/metrics", "Numbers for Prometheus", probes::metrics),
        Route::get("/healthz", "Whether the process answers", probes::healthz).public(),
        Route::get("/readyz", "Whether requests can be served", probes::readyz).public(),
        Route::get("/openapi.json", "This API, described", probes::openapi).public(),
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
            // Whoever changes something has shown a right to: an API key, or the token in the path.
            assert!(route.audit.is_none() || route.needs != Needs::Nothing);
            assert_eq!(route.needs == Needs::Token, route.path.ends_with("/{token}"), "{}", route.path);
            assert!(route.needs != Needs::Token || !route.is_repeatable, "a token is kept nowhere");
        }
    }
}
