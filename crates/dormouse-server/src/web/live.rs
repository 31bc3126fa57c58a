//! The stream that makes an open page refresh: the API's stream, for as long as the session lasts.

use std::time::Duration;

use axum::body::Body;
use axum::http::Method;
use futures_util::StreamExt as _;

use super::Answered;
use super::session::caller_of;
use super::visit::Visit;
use crate::route::Parts;
use crate::server::{Act, text_of};

/// How often a stream checks that its session is still valid.
const LOOK_EVERY: Duration = Duration::from_secs(2);

pub(super) async fn watch(visit: Visit) -> Answered {
    let parts = Parts { last_event_id: text_of(&visit.head.headers, "last-event-id"), ..Parts::default() };
    let query = visit.query.query().trim_start_matches('?').to_owned();
    let act = Act { method: Method::GET, path: "/v1/events", parts, query, body: None };
    let response = visit.app.act(&visit.caller, act).await?;
    let Some(session) = visit.session else {
        let pass = visit.caller.pass;
        return Ok(response.map(|body| visit.app.body_while_let_in(pass, body)));
    };
    let over = async move {
        while let Ok(Some(_)) = caller_of(&visit.app, &session).await {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    Ok(response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(over)))))
}
