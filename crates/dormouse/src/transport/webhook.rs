//! Webhooks: each request is a signed POST to one address, by the scheme of Standard Webhooks.

mod post;
mod targets;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::{StatusCode, Uri};
use jiff::Timestamp;
use serde::Deserialize;
use sha2::Sha256;

use self::post::{Answer, Failure, Poster};
pub use self::targets::Targets;
use super::envelope::{self, Envelope};
use super::{Sent, Transport};
use crate::{Clock, Error, Interaction, Json, Result, SystemClock, Tokens, When};

/// The default for the largest answer that is read: the largest document that can be stored, and the JSON around it.
const ANSWER_BYTES_MAX: usize = 1024 * 1024 + 1024;

/// Posts signed requests to one address, with what the receiver needs to answer them.
///
/// A 2xx accepts the request; a 200 with a body `{"output": …}` answers it at once. 408, 425, 429 and 5xx, and a
/// connection that fails, are tried again, not before a `Retry-After`. Every other status, including a redirect,
/// rejects it.
pub struct Webhook {
    url: Uri,
    secrets: Vec<Box<[u8]>>,
    resume: Option<Resume>,
    poster: Poster,
}

/// How an answer comes back.
struct Resume {
    tokens: Tokens,
    /// Up to the slash before the token.
    url: String,
    valid_for: Duration,
}

impl Webhook {
    /// Posts to this address, signed with this secret: `whsec_` and base64, as Standard Webhooks has it.
    pub fn new(url: &str, secret: &str) -> Result<Self> {
        // An address may contain a password or a token anywhere, so the error does not quote it.
        let refuse = |reason: String| Error::InvalidConfig(format!("the URL of a webhook: {reason}"));
        let parsed = address(url).map_err(refuse)?;
        let poster = Poster::new(Targets::Public, ANSWER_BYTES_MAX);
        Self { url: parsed, secrets: Vec::new(), resume: None, poster }.and_secret(secret)
    }

    /// Signs with another secret too, so that the receiver can change from one to the other.
    pub fn and_secret(mut self, secret: &str) -> Result<Self> {
        let refuse = |reason: &str| Error::InvalidConfig(format!("a webhook secret {reason}"));
        let text = secret.strip_prefix("whsec_").ok_or_else(|| refuse("starts with `whsec_`"))?;
        let bytes = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text));
        let bytes = bytes.map_err(|_| refuse("goes on in base64"))?;
        if !(24..=64).contains(&bytes.len()) {
            return Err(refuse("has 24 to 64 bytes"));
        }
        self.secrets.push(bytes.into());
        Ok(self)
    }

    /// Sends with each request where to answer it: this address with a resume token at its end, valid this long.
    ///
    /// A bare address of a server, such as `https://shop.example`, means its `/v1/resume/`. An address with a path is
    /// used as it is, for a server behind a proxy or a route of your own. An invalid address is refused here.
    pub fn resume_at(mut self, url: &str, tokens: Tokens, valid_for: Duration) -> Result<Self> {
        self.resume = Some(Resume { tokens, url: resume_url(url)?, valid_for });
        Ok(self)
    }

    /// Which addresses may be posted to.
    #[must_use]
    pub fn targets(mut self, targets: Targets) -> Self {
        self.poster.targets = targets;
        self
    }

    /// Trusts the certificate authorities of this PEM text, and not the system's: for a receiver with one of its own.
    pub fn trust_only(mut self, pem: &[u8]) -> Result<Self> {
        let refuse = |reason: String| Error::InvalidConfig(format!("the webhook's authorities: {reason}"));
        self.poster.trust_only(pem).map_err(refuse)?;
        Ok(self)
    }

    /// The largest answer that is read (1 MiB and 1 KiB by default). A larger one only counts as an acceptance.
    #[must_use]
    pub fn answer_bytes_max(mut self, bytes: usize) -> Self {
        self.poster.answer_bytes_max = bytes;
        self
    }

    async fn post(&self, asked: &Interaction) -> Sent {
        let now = SystemClock.now();
        let resume = self.resume.as_ref().map(|resume| {
            let expires_at = When::In(resume.valid_for).moment(asked.handed_out_at());
            envelope::Resume::Url(format!("{}{}", resume.url, resume.tokens.issue(asked, expires_at)))
        });
        let body = Envelope::new(asked, resume).to_json();
        let mut headers = match self.headers(&asked.idempotency_key, now.as_second(), &body) {
            Ok(headers) => headers,
            Err(reason) => return Sent::Rejected(reason),
        };
        if let Some(trace) = &asked.trace {
            headers.insert("traceparent", trace.as_str().parse().expect("a trace is plain text"));
        }
        match self.poster.post(&self.url, headers, body).await {
            Ok(answer) => read(answer, now),
            Err(Failure::Refused(reason)) => Sent::Rejected(reason),
            Err(Failure::Lost(reason)) => Sent::Retry { reason, after: None },
        }
    }

    fn headers(&self, id: &str, at_s: i64, body: &str) -> Result<HeaderMap, String> {
        let signed = self.secrets.iter().map(|secret| signature(secret, id, at_s, body));
        let signatures = signed.collect::<Vec<_>>().join(" ");
        let value = |text: &str| {
            let refused = |_| format!("the idempotency key {id:?} cannot be sent in a header");
            text.parse().map_err(refused)
        };
        let mut headers = HeaderMap::new();
        headers.insert("content-type", value("application/json")?);
        headers.insert("webhook-id", value(id)?);
        headers.insert("webhook-timestamp", value(&at_s.to_string())?);
        headers.insert("webhook-signature", value(&signatures)?);
        Ok(headers)
    }
}

impl Transport for Webhook {
    fn send<'a>(&'a self, asked: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        Box::pin(self.post(asked))
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.url.host()).finish_non_exhaustive()
    }
}

/// An address that can be posted to.
fn address(url: &str) -> Result<Uri, String> {
    let parsed: Uri = url.parse().map_err(|error| format!("is no URL: {error}"))?;
    if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.host().is_none_or(str::is_empty) {
        return Err("write https://host/path".to_owned());
    }
    Ok(parsed)
}

/// Where answers come in, up to the token.
fn resume_url(url: &str) -> Result<String> {
    let refuse = |reason: String| {
        Error::InvalidConfig(format!(
            "answers to a webhook cannot come in at the address given to `resume_at`: {reason}"
        ))
    };
    let parsed = address(url).map_err(refuse)?;
    let authority = parsed.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err(refuse("leave out the user and password: every receiver would see them".to_owned()));
    }
    if parsed.query().is_some() || url.contains('#') {
        return Err(refuse("leave out the query and fragment: the token is appended to the path".to_owned()));
    }
    let path = match parsed.path().trim_end_matches('/') {
        "" => "/v1/resume",
        path => path,
    };
    Ok(format!("{}://{authority}{path}/", parsed.scheme_str().unwrap_or("https")))
}

/// The body that answers at once.
#[derive(Deserialize)]
struct Completion {
    output: Json,
}

/// A signature of Standard Webhooks, version 1.
fn signature(secret: &[u8], id: &str, at_s: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length will do");
    mac.update(format!("{id}.{at_s}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

fn read(answer: Answer, now: Timestamp) -> Sent {
    let status = answer.status;
    match status {
        StatusCode::OK => match serde_json::from_slice::<Completion>(&answer.body) {
            Ok(Completion { output }) => Sent::Answered(output),
            Err(_) => Sent::Accepted,
        },
        _ if status.is_success() => Sent::Accepted,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            again(status, &answer.headers, now)
        }
        _ if status.is_server_error() => again(status, &answer.headers, now),
        _ if status.is_redirection() => {
            Sent::Rejected(format!("the receiver says {status}: redirects are not followed"))
        }
        _ => Sent::Rejected(format!("the receiver says {status}")),
    }
}

fn again(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Sent {
    let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    Sent::Retry {
        reason: format!("the receiver says {status}"),
        after: asked.and_then(|text| wait(text, now)),
    }
}

/// A `Retry-After`: seconds, or a date.
fn wait(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text.trim()).ok()?;
    Duration::try_from(date.duration_since(now)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        // The example of the specification's own libraries.
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let signed =
            signature(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2015-10-21T07:27:00Z".parse().expect("a moment");
        assert_eq!(wait("120", now), Some(Duration::from_secs(120)));
        assert_eq!(wait("Wed, 21 Oct 2015 07:28:00 GMT", now), Some(Duration::from_secs(60)));
        assert_eq!(wait("Wed, 21 Oct 2015 07:26:00 GMT", now), None, "that is over");
        assert_eq!(wait("soon", now), None);
    }

    #[test]
    fn an_address_or_a_secret_that_cannot_be_used_is_refused() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        for url in ["", "shop.example", "ftp://shop.example/", "/path"] {
            assert!(Webhook::new(url, secret).is_err(), "{url}");
        }
        for url in ["ftp://ann:hunter2@shop.example/", "https://ann:hunter2@/", "https://a b/?token=hunter2"]
        {
            let told = Webhook::new(url, secret).expect_err("no such address").to_string();
            assert!(!told.contains("hunter2"), "{told}");
        }
        for secret in ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!"] {
            assert!(Webhook::new("https://shop.example/", secret).is_err(), "{secret}");
        }
        let webhook = Webhook::new("https://ann:secret@shop.example/", secret).expect("a webhook");
        let pem = "-----BEGIN CERTIFICATE-----\nbm8gY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n";
        for authorities in ["", "no PEM", pem] {
            let webhook = Webhook::new("https://shop.example/", secret).expect("a webhook");
            assert!(webhook.trust_only(authorities.as_bytes()).is_err(), "{authorities}");
        }
        assert!(!format!("{webhook:?}").contains("secret"));
    }

    #[test]
    fn answers_come_in_at_the_path_of_the_server_or_the_one_given() {
        for (url, told) in [
            ("http://127.0.0.1:7070", "http://127.0.0.1:7070/v1/resume/"),
            ("https://shop.example/", "https://shop.example/v1/resume/"),
            ("https://shop.example/v1/resume", "https://shop.example/v1/resume/"),
            ("https://shop.example/v1/resume/", "https://shop.example/v1/resume/"),
            ("https://shop.example/behind/v1/resume/", "https://shop.example/behind/v1/resume/"),
            ("https://[::1]:7070/answers", "https://[::1]:7070/answers/"),
        ] {
            assert_eq!(resume_url(url).expect("an address"), told);
        }
        for url in [
            "",
            "shop.example",
            "127.0.0.1:7070",
            "/v1/resume/",
            "ftp://shop.example",
            "http://",
            "https://shop.example/?token=",
            "https://ann:secret@shop.example",
        ] {
            let refused = resume_url(url).expect_err(url).to_string();
            assert!(refused.contains("resume_at") && !refused.contains("secret"), "{refused}");
        }
    }
}
