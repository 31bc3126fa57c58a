//! The span of a request, in the trace of its caller.

use axum::http::{HeaderMap, Method};
use tracing::Span;
use tracing::field::Empty;

/// The span has the names and fields of OpenTelemetry's conventions for HTTP.
pub(crate) fn request(method: &Method, route: &'static str, headers: &HeaderMap) -> Span {
    let span = tracing::debug_span!(
        "request",
        otel.name = format_args!("{method} {route}"),
        otel.kind = "server",
        http.request.method = %method,
        http.route = route,
        http.response.status_code = Empty,
    );
    #[cfg(feature = "otlp")]
    crate::otlp::adopt(&span, headers);
    #[cfg(not(feature = "otlp"))]
    let _ = headers;
    span
}

/// Records the status of the response.
pub(crate) fn answered(span: &Span, status: u16) {
    span.record("http.response.status_code", status);
}
