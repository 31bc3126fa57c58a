//! A route: one entry of the table that defines the router, the access rules, the audit log and the OpenAPI document. A
//! handler's own types describe its input and its response, so these cannot drift apart.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use dormouse::store::Scope;
use dormouse::{Client, InstanceId, Opened, Target, Trace};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::access::Caller;
use crate::body;
use crate::problem::{Cause, Problem};
use crate::server::App;

/// A decoded request, and who sent it.
pub(crate) struct Call<Q = Nothing, B = Nothing> {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    /// In the caller's namespace.
    pub(crate) client: Client,
    pub(crate) parts: Parts,
    pub(crate) query: Q,
    pub(crate) body: B,
}

/// The parts of a request that are not decoded.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    /// The named parts of the path.
    pub(crate) path: Vec<(String, String)>,
    /// The path as the caller wrote it, with any prefix.
    pub(crate) full_path: String,
    pub(crate) last_event_id: Option<String>,
    /// The trace of the request, if its header names one.
    pub(crate) trace: Option<Trace>,
    /// The resume token in the path, after it was verified.
    pub(crate) token: Option<Opened>,
}

impl Parts {
    /// A named part of the path.
    pub(crate) fn named(&self, name: &str) -> &str {
        let found = self.path.iter().find(|(part, _)| part == name);
        found.map(|(_, value)| value.as_str()).expect("a route names the parts its handler asks for")
    }
}

impl<Q, B> Call<Q, B> {
    /// A named part of the path.
    pub(crate) fn path(&self, name: &str) -> &str {
        self.parts.named(name)
    }

    /// The trace of what this request starts or sends: that of its own span, or else of its header.
    pub(crate) fn trace(&self) -> Option<String> {
        Trace::current().or_else(|| self.parts.trace.clone()).map(String::from)
    }

    /// The instance that the path names.
    pub(crate) fn target(&self) -> Result<Target, Problem> {
        parse_target(self.path("instance"))
    }
}

/// An instance as callers name it: its id, or `key:` followed by its key.
pub(crate) fn parse_target(text: &str) -> Result<Target, Problem> {
    if let Some(key) = text.strip_prefix("key:") {
        return Ok(Target::Key(key.to_owned()));
    }
    text.parse().map(|id| Target::Id(InstanceId(id))).map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        Problem::invalid(format!("{shown:?} names no instance: write its id, or `key:` followed by its key"))
    })
}

/// An empty query or body.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// A response with a JSON body.
pub(crate) struct Answer<T> {
    status: StatusCode,
    location: Option<String>,
    is_unchanged: bool,
    body: T,
}

/// Marks a response to a request that changed nothing because it had been done before.
#[derive(Clone)]
pub(crate) struct Unchanged;

impl<T> Answer<T> {
    fn new(status: StatusCode, body: T) -> Self {
        Self { status, location: None, is_unchanged: false, body }
    }

    pub(crate) fn ok(body: T) -> Result<Self, Problem> {
        Ok(Self::new(StatusCode::OK, body))
    }

    pub(crate) fn created(location: String, body: T) -> Result<Self, Problem> {
        Ok(Self { location: Some(location), ..Self::new(StatusCode::CREATED, body) })
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        let Self { status, location, is_unchanged, body } = self;
        Answer { status, location, is_unchanged, body: change(body) }
    }

    pub(crate) fn accepted(body: T) -> Result<Self, Problem> {
        Ok(Self::new(StatusCode::ACCEPTED, body))
    }

    /// Nothing was changed.
    pub(crate) fn unchanged(body: T) -> Result<Self, Problem> {
        Ok(Self { is_unchanged: true, ..Self::new(StatusCode::OK, body) })
    }
}

/// What a handler may return.
pub(crate) trait Reply {
    const MEDIA: &'static str;
    fn schema(schemas: &mut SchemaGenerator) -> Option<Schema>;
    fn into_response(self) -> Response<Body>;
}

impl<T: Serialize + JsonSchema> Reply for Answer<T> {
    const MEDIA: &'static str = "application/json";

    fn schema(schemas: &mut SchemaGenerator) -> Option<Schema> {
        Some(schemas.subschema_for::<T>())
    }

    fn into_response(self) -> Response<Body> {
        let body = match serde_json::to_vec(&self.body) {
            Ok(body) => body,
            Err(error) => return Problem::from(dormouse::Error::Storage(error.into())).into_response(),
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(Self::MEDIA));
        if self.is_unchanged {
            response.extensions_mut().insert(Unchanged);
        }
        if let Some(location) = self.location.and_then(|location| location.try_into().ok()) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        response
    }
}

/// What a caller needs for a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Scope(Scope),
    /// The resume token at the end of its path, and no API key.
    Token,
}

/// The path parameter that is a resume token.
pub(crate) const TOKEN: &str = "token";

impl Needs {
    /// Refuses a caller whose scope is too small.
    pub(crate) fn check(self, caller: &Caller) -> Result<(), Problem> {
        match self {
            Self::Scope(needed) if caller.scope < needed => {
                let has = caller.scope;
                let told = format!("this requires an API key of scope {needed}, but yours has scope {has}");
                Err(Problem::new(Cause::Forbidden, told))
            }
            _ => Ok(()),
        }
    }
}

/// One entry of the table.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) needs: Needs,
    /// Its name in the audit log; routes that only read have none.
    pub(crate) audit: Option<&'static str>,
    /// Whether its response may be stored for a repeated request.
    pub(crate) is_repeatable: bool,
    /// Whether it may wait for long, or stream without end.
    pub(crate) lasts: bool,
    pub(crate) summary: &'static str,
    pub(crate) describe: fn(&mut Schemas) -> Described,
    run: Box<dyn Fn(Undecoded) -> Running + Send + Sync>,
}

/// The schemas of a route's input and response.
pub(crate) struct Described {
    pub(crate) query: Schema,
    pub(crate) body: Option<Schema>,
    pub(crate) answer: Option<Schema>,
    pub(crate) media: &'static str,
}

/// Input may omit fields that output always has, so the two have separate schemas.
pub(crate) struct Schemas {
    pub(crate) incoming: SchemaGenerator,
    pub(crate) outgoing: SchemaGenerator,
}

/// An admitted request, with its query and body still as text.
pub(crate) struct Undecoded {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) client: Client,
    pub(crate) parts: Parts,
    pub(crate) query: String,
    pub(crate) body: Vec<u8>,
}

/// A body up to this size is decoded on the thread that received it.
const LIGHT_BYTES_MAX: usize = 16 * 1024;

pub(crate) type Running = Pin<Box<dyn Future<Output = Result<Response<Body>, Problem>> + Send>>;

impl Route {
    /// A route that only reads.
    pub(crate) fn get<Q, A, F, R>(path: &'static str, summary: &'static str, handler: F) -> Self
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        A: Reply + Send + 'static,
        F: Fn(Call<Q, Nothing>) -> R + Copy + Send + Sync + 'static,
        R: Future<Output = Result<A, Problem>> + Send + 'static,
    {
        Self {
            method: Method::GET,
            path,
            needs: Needs::Scope(Scope::Read),
            audit: None,
            is_repeatable: false,
            lasts: false,
            summary,
            describe: |schemas| Described {
                query: Q::json_schema(&mut schemas.incoming),
                body: None,
                answer: A::schema(&mut schemas.outgoing),
                media: A::MEDIA,
            },
            run: Box::new(move |request| Box::pin(run(request, handler))),
        }
    }

    /// A route that changes something, under this name in the audit log.
    pub(crate) fn post<Q, B, A, F, R>(
        path: &'static str,
        audit: &'static str,
        summary: &'static str,
        handler: F,
    ) -> Self
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        B: DeserializeOwned + JsonSchema + Send + 'static,
        A: Reply + Send + 'static,
        F: Fn(Call<Q, B>) -> R + Copy + Send + Sync + 'static,
        R: Future<Output = Result<A, Problem>> + Send + 'static,
    {
        Self {
            method: Method::POST,
            path,
            needs: Needs::Scope(Scope::Operate),
            audit: Some(audit),
            is_repeatable: true,
            lasts: false,
            summary,
            describe: |schemas| Described {
                query: Q::json_schema(&mut schemas.incoming),
                body: Some(schemas.incoming.subschema_for::<B>()),
                answer: A::schema(&mut schemas.outgoing),
                media: A::MEDIA,
            },
            run: Box::new(move |request| Box::pin(run(request, handler))),
        }
    }

    pub(crate) fn admin(self) -> Self {
        Self { needs: Needs::Scope(Scope::Admin), ..self }
    }

    /// Opens the route to anyone who reaches the server.
    pub(crate) fn public(self) -> Self {
        Self { needs: Needs::Nothing, ..self }
    }

    /// Opens the route to the holder of the resume token in its path. A token admits one answer, so no response is
    /// stored for repeats.
    pub(crate) fn by_token(self) -> Self {
        Self { needs: Needs::Token, is_repeatable: false, ..self }
    }

    /// Does not store the response for repeats, because it contains a secret.
    pub(crate) fn secret(self) -> Self {
        Self { is_repeatable: false, ..self }
    }

    /// Marks the route as long-lasting: it waits for something, or streams changes.
    pub(crate) fn lasting(self) -> Self {
        Self { lasts: true, ..self }
    }

    /// Whether the request may take long on a processor: its result may be large, or its body is.
    pub(crate) fn is_heavy(&self, request: &Undecoded) -> bool {
        let is_large = self.method == Method::GET || request.body.len() > LIGHT_BYTES_MAX;
        is_large && !self.lasts && self.needs != Needs::Nothing
    }

    /// Its name in the audit log when it is refused.
    pub(crate) fn name(&self) -> &'static str {
        self.audit.unwrap_or(self.path)
    }

    pub(crate) fn run(&self, request: Undecoded) -> Running {
        (self.run)(request)
    }
}

async fn run<Q, B, A, R>(
    request: Undecoded,
    handler: impl Fn(Call<Q, B>) -> R,
) -> Result<Response<Body>, Problem>
where
    Q: DeserializeOwned,
    B: DeserializeOwned,
    A: Reply,
    R: Future<Output = Result<A, Problem>>,
{
    let Undecoded { app, caller, client, parts, query, body } = request;
    let query = decode_query(&query)?;
    let body = body::decode(&body, client.limits().document_depth_max)?;
    Ok(handler(Call { app, caller, client, parts, query, body }).await?.into_response())
}

/// The values of a name that may repeat in a query; a filter requires all of them.
#[derive(Default)]
pub(crate) struct Several(pub(crate) Vec<String>);

/// The names that may repeat.
const SEVERAL: [&str; 3] = ["tag", "status", "where"];
/// A separator that no value can contain.
const BETWEEN: &str = "\n";

impl<'de> Deserialize<'de> for Several {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self(text.split(BETWEEN).map(str::to_owned).collect()))
    }
}

/// A query without repeated names, because it is decoded into fields.
fn gathered(query: &str) -> String {
    let is_several = |name: &str| SEVERAL.contains(&name);
    let (several, others): (Vec<_>, Vec<_>) =
        form_urlencoded::parse(query.as_bytes()).into_owned().partition(|(name, _)| is_several(name));
    let mut text = form_urlencoded::Serializer::new(String::new());
    text.extend_pairs(others);
    for name in SEVERAL {
        let values: Vec<_> = several.iter().filter(|(of, _)| of == name).map(|(_, value)| &**value).collect();
        if !values.is_empty() {
            text.append_pair(name, &values.join(BETWEEN));
        }
    }
    text.finish()
}

fn decode_query<Q: DeserializeOwned>(query: &str) -> Result<Q, Problem> {
    let query = gathered(query);
    // The extractor takes a whole URI; only its query matters here.
    let uri = format!("/?{query}").parse().map_err(|_| Problem::invalid("the query is malformed"))?;
    let decoded = axum::extract::Query::<Q>::try_from_uri(&uri);
    decoded.map(|query| query.0).map_err(|error| {
        Problem::invalid(format!(
            "the query is not valid: {}",
            std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
        ))
    })
}
