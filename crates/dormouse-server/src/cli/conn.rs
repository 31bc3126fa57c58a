//! One way to ask, whether the answer comes from a server or from a router in this process.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tower::ServiceExt as _;

use super::failure::Failure;
use crate::access::NAMESPACE_HEADER;

/// Where requests go.
pub(crate) enum Conn {
    /// To a router over a database that is open here.
    Here { router: Router, namespace: Option<String> },
    /// To a server.
    There { server: Server, api_key: Option<String>, namespace: Option<String> },
}

/// The address of a server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    authority: String,
    prefix: String,
}

impl Server {
    pub(crate) fn parse(url: &str) -> Result<Self, Failure> {
        let refuse = |why: &str| Failure::usage(format!("--server {url:?}: {why}"));
        let uri: Uri = url.parse().map_err(|_| refuse("write http://host:port"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(refuse(
                    "this program speaks plain HTTP only; reach the server through a tunnel or a local proxy",
                ));
            }
            _ => return Err(refuse("write http://host:port")),
        }
        let authority = uri.authority().ok_or_else(|| refuse("a host is missing: write http://host:port"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("leave out the user and password; API keys come from DORMOUSE_API_KEY"));
        }
        let port = authority.port_u16().unwrap_or(80);
        let authority = format!("{}:{port}", authority.host());
        Ok(Self { authority, prefix: uri.path().trim_end_matches('/').to_owned() })
    }
}

impl Conn {
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.json(Method::GET, path, None).await.map(|(_, body)| body)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.json(Method::POST, path, Some(body)).await.map(|(_, body)| body)
    }

    /// The answer's status and body; a refusal is a failure.
    pub(crate) async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), Failure> {
        let (status, bytes) = self.bytes(method, path, body).await?;
        let value = serde_json::from_slice(&bytes)
            .map_err(|_| Failure::unreachable("the answer is not JSON: is this a dormouse server?"))?;
        Ok((status, value))
    }

    pub(crate) async fn bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let response = self.open(method, path, body).await?;
        let status = response.status();
        let bytes = to_bytes(response.into_body(), usize::MAX)
            .await
            .map_err(|error| Failure::unreachable(format!("the answer broke off: {error}")))?;
        if status.is_success() {
            Ok((status, bytes.into()))
        } else {
            Err(Failure::problem(status.as_u16(), &bytes))
        }
    }

    /// The answer with its body still to come.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Body>, Failure> {
        let request = Request::builder().method(method).header(header::ACCEPT, "*/*");
        let request = match body {
            Some(_) => request.header(header::CONTENT_TYPE, "application/json"),
            None => request,
        };
        let body = Body::from(body.map(Value::to_string).unwrap_or_default());
        match self {
            Self::Here { router, namespace } => {
                let request = with_namespace(request, namespace.as_deref());
                let request = request.uri(path).header(header::HOST, "localhost").body(body)?;
                let Ok(response) = router.clone().oneshot(request).await;
                Ok(response)
            }
            Self::There { server, api_key, namespace } => {
                let mut request = with_namespace(request, namespace.as_deref());
                if let Some(key) = api_key {
                    request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
                }
                let request =
                    request.uri(format!("{}{path}", server.prefix)).header(header::HOST, &server.authority);
                send(&server.authority, request.body(body)?).await
            }
        }
    }
}

fn with_namespace(
    request: axum::http::request::Builder,
    namespace: Option<&str>,
) -> axum::http::request::Builder {
    match namespace {
        Some(namespace) => request.header(NAMESPACE_HEADER, namespace),
        None => request,
    }
}

/// One connection for one request: commands ask little.
async fn send(authority: &str, request: Request<Body>) -> Result<Response<Body>, Failure> {
    let unreachable = |error: &dyn std::fmt::Display| {
        Failure::unreachable(format!("cannot reach http://{authority}: {error}"))
    };
    let stream = TcpStream::connect(authority).await.map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error))?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
    Ok(response.map(Body::new))
}

/// Text as a part of a path or a query.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => {
                encoded.push(byte as char);
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// A path with those of these parameters that are set.
pub(crate) fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let set =
        parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", encode(value.as_ref()?))));
    let query = set.collect::<Vec<_>>().join("&");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}
