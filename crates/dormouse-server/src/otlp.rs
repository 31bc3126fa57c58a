//! Traces by OTLP over HTTP. Sent only if `OTEL_EXPORTER_OTLP_ENDPOINT` is set, and configured by OpenTelemetry's other
//! environment variables.

use std::env;
use std::fmt;
use std::future::{Future, ready};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, Response, header};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Runtime;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use crate::cli::conn::Server;

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
/// A batch is lost if the collector takes longer than this.
const SEND_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Sends spans to the collector, if there is one: those of dormouse, and all others at info or above.
pub(crate) fn layer<S>(service: &str) -> Option<impl Layer<S>>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
{
    let is_set = |name: &&str| env::var(name).is_ok_and(|value| !value.is_empty());
    let is_disabled = env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    if is_disabled || !ENDPOINTS.iter().any(is_set) {
        return None;
    }
    let provider = provider(service)
        .inspect_err(|error| {
            eprintln!("no traces are sent, because OTLP cannot be set up: {}", inert(&error.to_string()));
        })
        .ok()?;
    let tracer = PROVIDER.get_or_init(|| provider).tracer("dormouse");
    let told = Targets::new().with_default(LevelFilter::INFO).with_target("dormouse", LevelFilter::DEBUG);
    Some(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(told))
}

/// An error without the secrets of an address that it may contain.
fn inert(error: &str) -> String {
    let set = ENDPOINTS.iter().filter_map(|name| env::var(name).ok()).filter(|url| !url.is_empty());
    set.fold(error.to_owned(), |told, url| told.replace(&url, &dormouse::store::shown(&url)))
}

fn provider(service: &str) -> Result<SdkTracerProvider, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let poster = Poster { runtime, collector: OnceLock::new() };
    let exporter = SpanExporter::builder().with_http().with_http_client(poster).build()?;
    let mut resource = Resource::builder();
    if env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(service.to_owned());
    }
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build())
}

/// Makes a request part of its caller's trace, if the request names one.
pub(crate) fn adopt(span: &tracing::Span, headers: &HeaderMap) {
    if headers.contains_key("traceparent") {
        let caller = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
        // Fails without a tracing layer; then there is no trace.
        let _ = span.set_parent(caller);
    }
}

/// Sends buffered traces, and waits for it.
pub(crate) fn close() {
    if let Some(provider) = PROVIDER.get()
        && let Err(error) = provider.shutdown()
    {
        eprintln!("the last traces may not have been sent: {error}");
    }
}

/// Posts batches. OpenTelemetry calls it from a thread of its own, so it blocks there, on a runtime of its own: the
/// program's runtime may have ended when the last batch is sent.
struct Poster {
    runtime: Runtime,
    collector: OnceLock<Server>,
}

impl Poster {
    fn post(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (mut head, body) = request.into_parts();
        let collector = match self.collector.get() {
            Some(collector) => collector,
            None => {
                let ca_file = env::var_os("OTEL_EXPORTER_OTLP_CERTIFICATE").map(PathBuf::from);
                let collector = Server::at(&head.uri, ca_file.as_deref()).map_err(|told| told.to_string())?;
                self.collector.get_or_init(|| collector)
            }
        };
        head.headers.insert(header::HOST, collector.authority().parse()?);
        head.uri = head.uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
        let exchange = async {
            let request = Request::from_parts(head, Body::from(body));
            let answer = collector.send(request).await.map_err(|told| told.to_string())?;
            let (head, body) = answer.into_parts();
            Ok(Response::from_parts(head, to_bytes(body, ANSWER_BYTES_MAX).await?))
        };
        self.runtime.block_on(async { tokio::time::timeout(SEND_WITHIN, exchange).await })?
    }
}

impl HttpClient for Poster {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(ready(self.post(request)))
    }
}

impl fmt::Debug for Poster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Poster")
    }
}
