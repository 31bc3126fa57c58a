//! Errors of the API as RFC 9457 problem documents: a stable `type` for each cause, and a sentence.

use axum::body::Body as ResponseBody;
use axum::http::{HeaderValue, Response, StatusCode, header};
use dormouse::Error;
use dormouse::store::Refusal;
use serde::Serialize;
use serde_json::{Map, Value};

/// An error response: a refusal or a fault.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) cause: Cause,
    pub(crate) detail: String,
    /// Additional members, such as the holder of a key.
    pub(crate) members: Map<String, Value>,
}

macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $variant:ident => $word:literal, $status:ident;)+) => {
        /// Why a request failed. The word is the last part of the problem's `type` and never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Cause {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Cause {
            /// Every cause, with its word, status and meaning.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)+];

            pub(crate) const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            pub(crate) const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status,)+ }
            }

            /// What the cause means, for any request.
            pub(crate) fn title(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim(),)+ }
            }
        }
    };
}

causes! {
    /// The request is malformed.
    InvalidRequest => "invalid-request", BAD_REQUEST;
    /// The JSON is nested too deeply.
    TooDeep => "too-deep", BAD_REQUEST;
    /// The cursor does not come from this list.
    InvalidCursor => "invalid-cursor", BAD_REQUEST;
    /// An API key is needed.
    Unauthenticated => "unauthenticated", UNAUTHORIZED;
    /// The API key does not allow this.
    Forbidden => "forbidden", FORBIDDEN;
    /// The resume token is not one of ours, was altered, or has expired.
    TokenRefused => "token-refused", FORBIDDEN;
    /// The request comes from a page on another site.
    UntrustedOrigin => "untrusted-origin", FORBIDDEN;
    /// The request came through a proxy, but this server does not require API keys.
    Proxied => "proxied", FORBIDDEN;
    /// The request names a host that this server does not answer to.
    UntrustedHost => "untrusted-host", MISDIRECTED_REQUEST;
    /// The resource does not exist.
    NotFound => "not-found", NOT_FOUND;
    /// There is no live instance to signal.
    NoTarget => "no-target", NOT_FOUND;
    /// There is no such signal in the inbox.
    NoSignal => "no-signal", NOT_FOUND;
    /// The inbox of the instance is full.
    InboxFull => "inbox-full", CONFLICT;
    /// The signal cannot be kept for an instance to come.
    NotKept => "not-kept", UNPROCESSABLE_ENTITY;
    /// The namespace keeps as many signals for instances to come as the limit allows.
    KeptFull => "kept-full", CONFLICT;
    /// There is no such event in the history.
    NoEvent => "no-event", NOT_FOUND;
    /// There is no such route.
    NoRoute => "no-route", NOT_FOUND;
    /// The route does not support this method.
    MethodNotAllowed => "method-not-allowed", METHOD_NOT_ALLOWED;
    /// The key is taken by another instance.
    KeyTaken => "key-taken", CONFLICT;
    /// The status of the instance does not allow this.
    WrongStatus => "wrong-status", CONFLICT;
    /// The instance is not at the expected `seq`.
    StaleSeq => "stale-seq", CONFLICT;
    /// This server has no code for the machine.
    UnknownMachine => "unknown-machine", CONFLICT;
    /// No worker has declared the machine.
    UndeclaredMachine => "undeclared-machine", UNPROCESSABLE_ENTITY;
    /// The machine does not accept a signal of this name.
    UndeclaredSignal => "undeclared-signal", UNPROCESSABLE_ENTITY;
    /// No machine, worker or instance names the queue.
    UnknownQueue => "unknown-queue", UNPROCESSABLE_ENTITY;
    /// The interaction is claimed by somebody else, closed, or ambiguous.
    CompletionRefused => "completion-refused", CONFLICT;
    /// A request with this Idempotency-Key is in progress.
    UnderWay => "under-way", CONFLICT;
    /// The body arrived too slowly.
    TooSlow => "too-slow", REQUEST_TIMEOUT;
    /// The request or a document in it is too large.
    TooLarge => "too-large", PAYLOAD_TOO_LARGE;
    /// The body is not JSON, or is compressed.
    UnsupportedMediaType => "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE;
    /// This Idempotency-Key was used for another request.
    KeyReused => "idempotency-key-reused", UNPROCESSABLE_ENTITY;
    /// A name, key, queue, lane, namespace, tag or reason cannot be used.
    InvalidName => "invalid-name", UNPROCESSABLE_ENTITY;
    /// The state is not one that an instance can have.
    InvalidState => "invalid-state", UNPROCESSABLE_ENTITY;
    /// The schedule could not happen, or asks for too much.
    InvalidSchedule => "invalid-schedule", UNPROCESSABLE_ENTITY;
    /// The payload is not what the machine accepts for this signal.
    PayloadRefused => "payload-refused", UNPROCESSABLE_ENTITY;
    /// The output does not fit the step that asked for it.
    OutputRefused => "output-refused", UNPROCESSABLE_ENTITY;
    /// A document contains a value that no step could read: half of a surrogate pair, or a number that does not fit a
    /// 64-bit float.
    UnreadableDocument => "unreadable-document", UNPROCESSABLE_ENTITY;
    /// A limit lets nothing run, or more than can be counted.
    InvalidLimit => "invalid-limit", UNPROCESSABLE_ENTITY;
    /// A number is larger than the largest that can be stored.
    OutOfRange => "out-of-range", UNPROCESSABLE_ENTITY;
    /// A document or a text contains the character U+0000, which this database cannot store.
    HoldsNul => "holds-nul", UNPROCESSABLE_ENTITY;
    /// This key or namespace has too many long polls or event streams open.
    TooManyAtOnce => "too-many-at-once", TOO_MANY_REQUESTS;
    /// The server failed.
    Internal => "internal", INTERNAL_SERVER_ERROR;
    /// The database is busy, or the server is stopping.
    Unavailable => "unavailable", SERVICE_UNAVAILABLE;
    /// The disk is full.
    DiskFull => "disk-full", INSUFFICIENT_STORAGE;
}

/// A member that some problems have besides those of all.
pub(crate) struct Member {
    pub(crate) name: &'static str,
    /// Its type in JSON; the items of an array are strings.
    pub(crate) json_type: &'static str,
    pub(crate) description: &'static str,
}

const fn member(name: &'static str, json_type: &'static str, description: &'static str) -> Member {
    Member { name, json_type, description }
}

/// Every additional member, for the OpenAPI document.
pub(crate) const MEMBERS: &[Member] = &[
    member("holder", "integer", "Of `key-taken`: the instance that holds the key."),
    member("reason", "string", "Of a refused answer or token: the cause as one word."),
    member("signal", "string", "The name of the signal that is refused."),
    member("accepts", "array", "Of `undeclared-signal`: the signals that the machine accepts."),
    member("nearest", "string", "The known name that is most like the one in the request."),
    member("instance_status", "string", "Of `wrong-status`: the status of the instance."),
    member("seq", "integer", "Of `stale-seq`: the `seq` of the instance."),
    member("expected_seq", "integer", "Of `stale-seq`: the `seq` in the request."),
    member("of", "string", "Of `too-many-at-once`: whose limit it is, `key` or `namespace`."),
    member("limit", "integer", "Of `too-many-at-once`: the limit."),
];

/// The prefix of every problem's `type`.
pub(crate) const TYPE_PREFIX: &str = "urn:dormouse:problem:";

impl Problem {
    pub(crate) fn new(cause: Cause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into(), members: Map::new() }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Cause::InvalidRequest, detail)
    }

    /// The entry in the audit log: the cause, and the signal that was refused.
    pub(crate) fn audited(&self) -> String {
        const SIGNAL_CHARS_MAX: usize = 64;
        let signal = self.members.get("signal").and_then(Value::as_str);
        signal.map_or_else(
            || self.cause.word().to_owned(),
            |signal| {
                let signal: String = signal.chars().take(SIGNAL_CHARS_MAX).collect();
                format!("{} {signal}", self.cause.word())
            },
        )
    }

    pub(crate) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        debug_assert!(MEMBERS.iter().any(|known| known.name == member), "{member} is not in MEMBERS");
        self.members.insert(member.to_owned(), value.into());
        self
    }

    /// Its `type`.
    pub(crate) fn kind(&self) -> String {
        format!("{TYPE_PREFIX}{}", self.cause.word())
    }

    fn body(&self) -> String {
        let Self { cause, detail, members } = self;
        let body = Body {
            cause: self.kind(),
            title: cause.title(),
            status: cause.status().as_u16(),
            detail,
            members,
        };
        serde_json::to_string(&body).expect("text and numbers can be written")
    }

    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::from(self.body()));
        *response.status_mut() = self.cause.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.cause {
            Cause::Unauthenticated => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Cause::Unavailable | Cause::UnderWay | Cause::TooManyAtOnce => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// The JSON of a problem, with members in the order in which people read them.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    cause: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(flatten)]
    members: &'a Map<String, Value>,
}

/// Passes the library's messages on, except those that could expose internals: SQL, paths, the system.
impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let told = error.to_string();
        let problem = |cause| Self::new(cause, told.clone());
        match error {
            Error::InvalidName { .. } => problem(Cause::InvalidName),
            Error::TooLarge { .. } => problem(Cause::TooLarge),
            Error::TooDeep { .. } => problem(Cause::TooDeep),
            Error::UnreadableDocument { .. } => problem(Cause::UnreadableDocument),
            Error::RefusedValue(_) => Self::hidden(
                Cause::UnreadableDocument,
                "the database refused a value in this request, and would refuse it again; nothing was written",
                &told,
            ),
            Error::HoldsNul { .. } => problem(Cause::HoldsNul),
            Error::InvalidLimit { .. } => problem(Cause::InvalidLimit),
            Error::OutOfRange { .. } => problem(Cause::OutOfRange),
            Error::InvalidJson { .. }
            | Error::Decode { .. }
            | Error::InvalidCondition(_)
            | Error::InvalidTrace(_) => problem(Cause::InvalidRequest),
            Error::InvalidState(_) | Error::InvalidOutcome(_) => problem(Cause::InvalidState),
            Error::KeyTaken { holder, .. } => problem(Cause::KeyTaken).with("holder", holder.0),
            Error::NoTarget(_) => problem(Cause::NoTarget),
            Error::PayloadRefused { signal, .. } => problem(Cause::PayloadRefused).with("signal", signal),
            Error::NoSignal { .. } => problem(Cause::NoSignal),
            Error::InboxFull(_) => problem(Cause::InboxFull),
            Error::NotKept(_) => problem(Cause::NotKept),
            Error::KeptFull(_) => problem(Cause::KeptFull),
            Error::NotFound(_) | Error::NoSchedule(_) => problem(Cause::NotFound),
            Error::InvalidSchedule { .. } => problem(Cause::InvalidSchedule),
            Error::TokenRefused(refusal) => Self::token_refused(refusal),
            Error::CompletionRefused { refusal, .. } => {
                let cause = match refusal {
                    // An interaction of another namespace looks like one that never existed.
                    Refusal::Unknown | Refusal::OtherNamespace => {
                        return Self::new(Cause::NotFound, "there is no such interaction");
                    }
                    Refusal::NotAList | Refusal::Malformed | Refusal::Schema | Refusal::Projection => {
                        Cause::OutputRefused
                    }
                    Refusal::Forged | Refusal::Expired => return Self::token_refused(refusal),
                    _ => Cause::CompletionRefused,
                };
                problem(cause).with("reason", refusal.as_str())
            }
            Error::UnknownMachine { nearest, .. } => {
                let problem = problem(Cause::UndeclaredMachine);
                nearest.into_iter().fold(problem, |problem, name| problem.with("nearest", name))
            }
            Error::UndeclaredSignal { signal, nearest, accepts, .. } => {
                let problem =
                    problem(Cause::UndeclaredSignal).with("signal", signal).with("accepts", accepts);
                nearest.into_iter().fold(problem, |problem, name| problem.with("nearest", name))
            }
            Error::UnknownQueue { nearest, .. } => {
                let problem = problem(Cause::UnknownQueue);
                nearest.into_iter().fold(problem, |problem, name| problem.with("nearest", name))
            }
            Error::Untold { .. } => problem(Cause::UnknownMachine),
            Error::NoEvent { .. } => problem(Cause::NoEvent),
            Error::WrongStatus { status, .. } => {
                problem(Cause::WrongStatus).with("instance_status", status.as_str())
            }
            Error::StaleSeq { expected, actual, .. } => {
                problem(Cause::StaleSeq).with("seq", actual).with("expected_seq", expected)
            }
            Error::Busy(_) => Self::hidden(
                Cause::Unavailable,
                "the database is busy; send the request again, with an Idempotency-Key if it must not be done twice",
                &told,
            ),
            Error::Closed => Self::hidden(Cause::Unavailable, "the server is stopping", &told),
            Error::DiskFull(_) => Self::hidden(
                Cause::DiskFull,
                "the disk of the database is full; nothing was written; send the request again when there is room",
                &told,
            ),
            Error::CannotConnect { .. } => Self::hidden(
                Cause::Unavailable,
                "the database cannot be reached; send the request again",
                &told,
            ),
            Error::OlderSchema { .. } | Error::NewerSchema { .. } => Self::hidden(
                Cause::Unavailable,
                "the schema version of the database does not match this server; its operator \
                 has to migrate the database or upgrade the server",
                &told,
            ),
            // The other errors concern programs that embed the library. No request leads to them unless something is
            // broken.
            // `OwnWrites` and `WrongStore` are among them: a step's own writes are its engine's business.
            _ => Self::hidden(
                Cause::Internal,
                "the request failed and nothing of it was kept; see the server's log",
                &told,
            ),
        }
    }
}

impl Problem {
    /// Reports every invalid token in the same way, except a genuine one that has expired.
    fn token_refused(refusal: Refusal) -> Self {
        let refusal = if refusal == Refusal::Expired { refusal } else { Refusal::Forged };
        Self::new(Cause::TokenRefused, refusal.told()).with("reason", refusal.as_str())
    }

    pub(crate) fn panicked(error: &tokio::task::JoinError) -> Self {
        Self::hidden(
            Cause::Internal,
            "the request caused a panic in the server; see the server's log",
            &error.to_string(),
        )
    }

    /// Returns one text to the caller and logs the other.
    fn hidden(cause: Cause, told: &str, inside: &str) -> Self {
        tracing::error!(cause = cause.word(), error = inside, "a request failed");
        Self::new(cause, told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_in_the_guide_with_its_status() {
        let page = include_str!("../../../docs/guide/http-api.md");
        for cause in Cause::ALL {
            let row = page
                .lines()
                .find(|line| line.starts_with('|') && line.contains(&format!("`{}`", cause.word())));
            let row = row.unwrap_or_else(|| panic!("{} is not there", cause.word()));
            assert!(row.contains(cause.status().as_str()), "{row}");
        }
    }

    #[test]
    fn every_member_is_in_the_guide() {
        let page = include_str!("../../../docs/guide/http-api.md");
        for Member { name, .. } in MEMBERS {
            assert!(page.contains(&format!("`{name}`")), "{name} is not there");
        }
    }
}
