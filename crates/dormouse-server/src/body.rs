//! Request bodies: bounded in size and depth, JSON only, without unknown fields.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use futures_util::TryStreamExt as _;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::problem::{Cause, Problem};

/// How many levels deeper a body may be than a document in it: the documents of a batch are nested.
const AROUND_DOCUMENTS_MAX: usize = 8;

/// How much of a body that is too large is read and discarded, as a multiple of the limit. A client that is cut off
/// while it sends would not see the response.
const DISCARDED: usize = 4;

/// A body that arrives at this rate or faster is read to its end, and a response that is read at this rate is written
/// to its end.
pub(crate) const BYTES_PER_SECOND: usize = 16 * 1024;

/// How much of a body is read, and how long the server waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) bytes_max: usize,
    /// Extended by a second for each [`BYTES_PER_SECOND`] bytes that have arrived.
    pub(crate) within: Duration,
}

/// Reads a JSON body within bounds.
pub(crate) async fn read(headers: &HeaderMap, body: Body, bounds: Bounds) -> Result<Vec<u8>, Problem> {
    let kept = gather(body, bounds).await?;
    if !kept.is_empty() {
        check_type(headers)?;
    }
    Ok(kept)
}

/// Reads a body of any type within bounds.
pub(crate) async fn gather(body: Body, bounds: Bounds) -> Result<Vec<u8>, Problem> {
    let Bounds { bytes_max, within } = bounds;
    let mut stream = body.into_data_stream();
    let (mut kept, mut total) = (Vec::new(), 0);
    let started = Instant::now();
    let broke_off = |_| Problem::invalid("the body broke off");
    let too_slow = |_| {
        let told = format!(
            "the body did not arrive within {} s plus a second for each {BYTES_PER_SECOND} bytes",
            within.as_secs()
        );
        Problem::new(Cause::TooSlow, told)
    };
    loop {
        let fair = Duration::from_secs((total / BYTES_PER_SECOND) as u64);
        let next = timeout_at(started + within + fair, stream.try_next()).await.map_err(too_slow)?;
        let Some(bytes) = next.map_err(broke_off)? else { break };
        total += bytes.len();
        if total <= bytes_max {
            kept.extend_from_slice(&bytes);
        } else if total > bytes_max.saturating_mul(1 + DISCARDED) {
            break;
        }
    }
    if total > bytes_max {
        let told = format!("the body is larger than {bytes_max} bytes; send less at a time");
        return Err(Problem::new(Cause::TooLarge, told));
    }
    Ok(kept)
}

/// A page on another site can send forms and plain text without a preflight request, but not JSON.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let refuse = |detail: &str| Err(Problem::new(Cause::UnsupportedMediaType, detail));
    if headers.contains_key(header::CONTENT_ENCODING) {
        return refuse("send the body without a Content-Encoding");
    }
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = sent.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media != "application/json" && !(media.starts_with("application/") && media.ends_with("+json")) {
        return refuse("send the body with `Content-Type: application/json`");
    }
    Ok(())
}

/// Decodes a body; an empty one counts as `{}`.
///
/// The depth of a document is checked where it is stored, as for every other caller. Only what cannot be decoded is
/// refused here.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8], document_depth_max: usize) -> Result<T, Problem> {
    let text = if bytes.is_empty() { b"{}" } else { bytes };
    let text = std::str::from_utf8(text).map_err(|_| Problem::invalid("the body is not UTF-8"))?;
    check_depth(text, document_depth_max.saturating_add(AROUND_DOCUMENTS_MAX))?;
    decode_object(text).map_err(|told| Problem::invalid(format!("the body is not valid: {told}")))
}

/// An object in a body. A plain struct would also accept an array of its fields.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        decode_object(text.get()).map(Self).map_err(D::Error::custom)
    }
}

/// Decodes an object, with an error that says what is wrong and where.
fn decode_object<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    if serde_json::from_str::<&RawValue>(text).is_ok() && !text.trim_start().starts_with('{') {
        return Err("it is not an object".to_owned());
    }
    serde_json::from_str(text).map_err(|plain| {
        // Track the path only after a failure, because tracking is slow.
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        match serde_path_to_error::deserialize::<_, T>(deserializer) {
            Err(error) if error.path().iter().next().is_some() => {
                format!("at `{}`: {}", error.path(), error.inner())
            }
            _ => plain.to_string(),
        }
    })
}

fn check_depth(text: &str, depth_max: usize) -> Result<(), Problem> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > depth_max {
            let told = format!("the body has more than {depth_max} objects and arrays inside each other");
            return Err(Problem::new(Cause::TooDeep, told));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_are_not_deep() {
        let flat = serde_json::json!({ "text": "[".repeat(1000), "quote": "\"[{" }).to_string();
        assert!(check_depth(&flat, 64).is_ok());
        assert!(check_depth(&"[".repeat(64), 64).is_ok());
        assert!(check_depth(&"[".repeat(65), 64).is_err());
    }
}
