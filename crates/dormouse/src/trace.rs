//! Trace context: the trace that an instance belongs to, as the header `traceparent` of W3C writes it.
//!
//! The library stores and passes it on as text. With the feature `opentelemetry` it also takes it from the current span,
//! and makes steps and sends part of it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// How long a trace context is.
const BYTES: usize = 55;

/// A trace context: which trace, and which of its spans comes before. Its text is that of the header `traceparent` in
/// version 00: `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
///
/// ```
/// # use dormouse::Trace;
/// let trace: Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse()?;
/// assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// # Ok::<(), dormouse::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Trace(Box<str>);

impl Trace {
    /// Reads a header `traceparent`. One that is not valid, or of a version that cannot be read, is `None`: whoever gets
    /// such a header ignores it. Of a newer version it reads what version 00 has.
    pub fn from_header(header: &str) -> Option<Self> {
        let mut parts = header.trim_ascii().splitn(5, '-');
        let version = hex(parts.next()?, 2)?;
        let (trace_id, span_id) = (hex(parts.next()?, 32)?, hex(parts.next()?, 16)?);
        let flags = hex(parts.next()?, 2)?;
        let has_more = parts.next().is_some();
        let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
        if version == "ff" || (version == "00" && has_more) || is_zero(trace_id) || is_zero(span_id) {
            return None;
        }
        Some(Self(format!("00-{trace_id}-{span_id}-{flags}").into()))
    }

    /// Its text, as a header has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        &self.0[3..35]
    }

    /// The span that comes before: 16 hexadecimal digits.
    pub fn span_id(&self) -> &str {
        &self.0[36..52]
    }

    /// A trace that a store holds. What somebody wrote there by hand and is not valid counts as none.
    pub(crate) fn stored(text: Option<String>) -> Option<Self> {
        text.as_deref().and_then(Self::from_header)
    }

    /// The trace of the current span, with the feature `opentelemetry` and a subscriber that knows traces.
    pub fn current() -> Option<Self> {
        #[cfg(feature = "opentelemetry")]
        let current = otel::current();
        #[cfg(not(feature = "opentelemetry"))]
        let current = None;
        current
    }
}

/// Text of exactly so many lowercase hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<&str> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then_some(text)
}

impl FromStr for Trace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = Self::from_header(text).filter(|read| text.len() == BYTES && read.as_str() == text);
        read.ok_or_else(|| Error::InvalidTrace(text.chars().take(2 * BYTES).collect()))
    }
}

impl TryFrom<String> for Trace {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Trace> for String {
    fn from(trace: Trace) -> Self {
        trace.0.into()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Makes a span part of a trace, and links it with others.
#[cfg_attr(
    not(feature = "opentelemetry"),
    expect(unused_variables, reason = "without it, spans have no trace")
)]
pub(crate) fn adopt<'a>(span: &tracing::Span, trace: Option<&Trace>, links: impl Iterator<Item = &'a Trace>) {
    #[cfg(feature = "opentelemetry")]
    otel::adopt(span, trace, links);
}

#[cfg(feature = "opentelemetry")]
mod otel {
    use opentelemetry::Context;
    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    use super::Trace;

    pub(super) fn current() -> Option<Trace> {
        let of_span = told(Span::current().context().span().span_context());
        of_span.or_else(|| told(Context::current().span().span_context()))
    }

    pub(super) fn adopt<'a>(span: &Span, trace: Option<&Trace>, links: impl Iterator<Item = &'a Trace>) {
        if span.is_disabled() {
            return;
        }
        if let Some(before) = trace.and_then(context) {
            // Fails without a layer that knows traces; then there is none.
            let _ = span.set_parent(Context::new().with_remote_span_context(before));
        }
        for link in links.filter_map(context) {
            span.add_link(link);
        }
    }

    fn told(context: &SpanContext) -> Option<Trace> {
        let (trace, span) = (context.trace_id(), context.span_id());
        let text = || format!("00-{trace}-{span}-{:02x}", context.trace_flags().to_u8());
        context.is_valid().then(text).as_deref().and_then(Trace::from_header)
    }

    fn context(trace: &Trace) -> Option<SpanContext> {
        let flags = u8::from_str_radix(&trace.as_str()[53..55], 16).ok()?;
        let trace_id = TraceId::from_hex(trace.trace_id()).ok()?;
        let span_id = SpanId::from_hex(trace.span_id()).ok()?;
        Some(SpanContext::new(trace_id, span_id, TraceFlags::new(flags), true, TraceState::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_as_w3c_says_and_a_bad_one_is_ignored() {
        let read = |header: &str| Trace::from_header(header).map(String::from);
        assert_eq!(read(GOOD).as_deref(), Some(GOOD));
        assert_eq!(read(&format!(" {GOOD} ")).as_deref(), Some(GOOD));
        assert_eq!(
            read(&format!("cc{}-what-comes-later", &GOOD[2..])).as_deref(),
            Some(GOOD),
            "a later version"
        );
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_value_given_on_purpose_is_exactly_of_version_00_or_refused() {
        assert_eq!(GOOD.parse::<Trace>().expect("a trace").span_id(), "00f067aa0ba902b7");
        for bad in [format!(" {GOOD}"), format!("cc{}", &GOOD[2..]), "x".repeat(1_000)] {
            let refused = bad.parse::<Trace>().expect_err("not a trace").to_string();
            assert!(refused.len() < 400, "{refused}");
        }
    }
}
