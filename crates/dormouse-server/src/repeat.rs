//! `Idempotency-Key`: a request that is sent again is not executed again.

use std::future::Future;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Response, StatusCode, header};
use dormouse::store::{Admission, Answer, Repeatable, ServerStore};
use sha2::{Digest, Sha256};

use crate::access::Caller;
use crate::problem::{Cause, Problem};
use crate::route::{Needs, Route};

/// How long a response is stored.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// No request takes this long: if it has not finished by then, its server died.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);
const KEY_BYTES_MAX: usize = 255;
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// A request with an `Idempotency-Key`.
pub(crate) struct Repeat(Repeatable);

impl Repeat {
    pub(crate) fn of(
        route: &Route,
        head: &Parts,
        caller: &Caller,
        body: &[u8],
    ) -> Result<Option<Self>, Problem> {
        // A resume token already makes its answer idempotent, and must not be stored, not even hashed.
        let is_asked = route.audit.is_some() && route.needs != Needs::Token;
        let Some(key) = head.headers.get("idempotency-key").filter(|_| is_asked) else {
            return Ok(None);
        };
        if !route.is_repeatable {
            let told = "send this request without an Idempotency-Key: its response contains a secret, so it is not stored";
            return Err(Problem::invalid(told));
        }
        let key = key.to_str().unwrap_or_default();
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let told = format!("an Idempotency-Key is 1 to {KEY_BYTES_MAX} visible ASCII characters");
            return Err(Problem::invalid(told));
        }
        let mut hash = Sha256::new();
        // Hash each part with its length, so that parts cannot run into each other.
        for part in
            [route.method.as_str(), head.uri.path(), head.uri.query().unwrap_or_default(), &caller.who]
        {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update(body);
        Ok(Some(Self(Repeatable {
            namespace: caller.namespace.clone(),
            key: key.to_owned(),
            fingerprint: hash.finalize().into(),
            kept_for: KEPT_FOR,
            given_up_after: GIVEN_UP_AFTER,
        })))
    }

    /// Executes the request, or returns the response it got before.
    pub(crate) async fn once(
        self,
        store: &dyn ServerStore,
        request: impl Future<Output = Result<Response<Body>, Problem>>,
    ) -> Result<Response<Body>, Problem> {
        let Repeatable { namespace, key, .. } = self.0.clone();
        match store.admit(self.0).await? {
            Admission::New => {}
            Admission::Answered(answer) => return Ok(repeated(answer)),
            Admission::UnderWay => {
                let told = "a request with this Idempotency-Key is in progress; send it again later to get its response";
                return Err(Problem::new(Cause::UnderWay, told));
            }
            Admission::Different => {
                let told =
                    "this Idempotency-Key was used for another request; use a new key for each new request";
                return Err(Problem::new(Cause::KeyReused, told));
            }
        }
        let response = match request.await {
            Ok(response) => response,
            Err(problem) => problem.into_response(),
        };
        let (head, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
        // A server fault may be gone at the next try, so its response is not stored.
        let is_kept = !head.status.is_server_error() && body.len() <= ANSWER_BYTES_MAX;
        let answer = String::from_utf8(body.to_vec()).ok().filter(|_| is_kept);
        let answer = answer.map(|body| Answer { status: head.status.as_u16(), body });
        store.answer(namespace, key, answer).await?;
        Ok(Response::from_parts(head, Body::from(body)))
    }
}

fn repeated(answer: Answer) -> Response<Body> {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let media = if status.is_success() { "application/json" } else { "application/problem+json" };
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    response
}
