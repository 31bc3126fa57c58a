//! Routes for programs: liveness, readiness, metrics and the API description.

use std::sync::LazyLock;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::problem::{Cause, Problem};
use crate::route::{Answer, Call, Reply};
use crate::sight::Sight;
use crate::{metrics, openapi};

/// A store that takes longer to answer is of no use to a request.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Health")]
pub(super) struct Health {
    status: &'static str,
}

/// The process answers; this promises nothing more.
pub(super) async fn healthz(_call: Call) -> Result<Answer<Health>, Problem> {
    Answer::ok(Health { status: "ok" })
}

/// The store can be read and written, and the server is not stopping.
pub(super) async fn readyz(call: Call) -> Result<Answer<Health>, Problem> {
    let refuse = |told: &str| Problem::new(Cause::Unavailable, told);
    if call.app.stopping.is_cancelled() {
        return Err(refuse("the server is stopping"));
    }
    let store = call.client.store();
    let probe = async {
        store.about().await?;
        // Touches no row, but takes the path of a write.
        store.due(0).await
    };
    match tokio::time::timeout(ANSWER_WITHIN, probe).await {
        Ok(Ok(_)) => Answer::ok(Health { status: "ready" }),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            Err(refuse("the store failed"))
        }
        Err(_) => Err(refuse("the store did not answer within two seconds")),
    }
}

pub(super) async fn metrics(call: Call) -> Result<Text, Problem> {
    let mut text = match &call.app.exporter {
        Some(exporter) => exporter.render(&Sight::of(&call.caller, &call.client).await?),
        None => String::new(),
    };
    text += &metrics::gauges(&call.client).await?;
    Ok(Text(text))
}

/// Metrics in the text format of Prometheus.
pub(super) struct Text(String);

impl Reply for Text {
    const MEDIA: &'static str = "text/plain; version=0.0.4";

    fn schema(schemas: &mut SchemaGenerator) -> Option<Schema> {
        Some(schemas.subschema_for::<String>())
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.0));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(Self::MEDIA));
        response
    }
}

pub(super) async fn openapi(_call: Call) -> Result<Answer<&'static serde_json::Value>, Problem> {
    static DOCUMENT: LazyLock<serde_json::Value> = LazyLock::new(openapi::document);
    Answer::ok(&*DOCUMENT)
}
