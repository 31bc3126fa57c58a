//! One way to send a request, whether to a server or to a router in this process.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::ServiceExt as _;

use super::failure::Failure;
use super::tls::{self, Trust};
use crate::access::NAMESPACE_HEADER;

/// Where requests go.
pub(crate) enum Conn {
    /// To a router in this process, over a database that is open here.
    Here { router: Router, namespace: Option<String> },
    /// To a remote server.
    There { server: Server, api_key: Option<String>, namespace: Option<String> },
}

/// The address of a server, and how to verify its identity.
#[derive(Clone)]
pub(crate) struct Server {
    host: String,
    port: u16,
    prefix: String,
    /// Absent for plain HTTP.
    tls: Option<TlsConnector>,
}

impl Server {
    /// `ca_file` holds certificates to trust in addition to the system's.
    pub(crate) fn parse(url: &str, ca_file: Option<&Path>) -> Result<Self, Failure> {
        let uri: Uri = url.parse().map_err(|_| refused(url, FORM))?;
        Self::at(&uri, ca_file)
    }

    pub(crate) fn at(uri: &Uri, ca_file: Option<&Path>) -> Result<Self, Failure> {
        let (tls, usual_port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(tls::connector(Trust::Authorities(ca_file))?), 443),
            _ => return Err(refused(uri, FORM)),
        };
        let authority = uri.authority().ok_or_else(|| refused(uri, FORM))?;
        if authority.as_str().contains('@') {
            let told = "leave out the user and password; API keys come from DORMOUSE_API_KEY";
            return Err(refused(uri, told));
        }
        let (host, port) = (authority.host().to_owned(), authority.port_u16().unwrap_or(usual_port));
        Ok(Self { host, port, prefix: uri.path().trim_end_matches('/').to_owned(), tls })
    }

    /// A server on this host, with TLS if there is something to trust.
    pub(crate) fn here(address: SocketAddr, trust: Option<Trust<'_>>) -> Result<Self, Failure> {
        let host = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let tls = trust.map(tls::connector).transpose()?;
        Ok(Self { host, port: address.port(), prefix: String::new(), tls })
    }

    /// Whether others on the network can read what is sent.
    pub(crate) fn is_overheard(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        let is_here = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        self.tls.is_none() && !is_here
    }

    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Opens a connection for each request: a command sends few.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, Failure> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let unreachable = |error: std::io::Error| {
            Failure::unreachable(format!("cannot reach {scheme}://{}: {error}", self.authority()))
        };
        let stream = TcpStream::connect(self.authority()).await.map_err(unreachable)?;
        let answered = match &self.tls {
            None => exchange(stream, request).await,
            Some(connector) => {
                let stream = tls::connect(connector, &self.host, stream).await.map_err(unreachable)?;
                exchange(stream, request).await
            }
        };
        answered.map_err(|error| unreachable(std::io::Error::other(error)))
    }
}

const FORM: &str = "write https://host or http://host:port";

fn refused(url: impl std::fmt::Display, why: &str) -> Failure {
    let url = dormouse::store::shown(&url.to_string());
    Failure::usage(format!("{url} is not the address of a server: {why}"))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
) -> hyper::Result<Response<Body>> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?.map(Body::new))
}

impl Conn {
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.json(Method::GET, path, None).await.map(|(_, body)| body)
    }

    pub(crate) async fn post(&self, path: &str, body: &impl Serialize) -> Result<Value, Failure> {
        let body = serde_json::to_string(body)?;
        self.json(Method::POST, path, Some(body)).await.map(|(_, body)| body)
    }

    /// The response's status and body. An error status is a failure.
    pub(crate) async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(StatusCode, Value), Failure> {
        let (status, bytes) = self.bytes(method, path, body).await?;
        let value = serde_json::from_slice(&bytes)
            .map_err(|_| Failure::unreachable("the response is not JSON: is this a dormouse server?"))?;
        Ok((status, value))
    }

    pub(crate) async fn bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let response = self.open(method, path, body).await?;
        let status = response.status();
        let bytes = to_bytes(response.into_body(), usize::MAX)
            .await
            .map_err(|error| Failure::unreachable(format!("the response broke off: {error}")))?;
        if status.is_success() { Ok((status, bytes.into())) } else { Err(self.refused(status, &bytes)) }
    }

    /// The failure that an error response is. What a server says is meant for all of its callers; this adds what to do here.
    pub(crate) fn refused(&self, status: StatusCode, body: &[u8]) -> Failure {
        let failure = Failure::problem(status.as_u16(), body);
        let Self::There { server, api_key, .. } = self else { return failure };
        let kind = failure.problem_type().map(|kind| kind.rsplit(['/', ':']).next().unwrap_or(kind));
        match (status.as_u16(), kind) {
            (401, _) if api_key.is_none() => {
                failure.with("set DORMOUSE_API_KEY to an API key of this server")
            }
            (401 | 403, _) => failure.with("DORMOUSE_API_KEY holds the API key that was sent"),
            (404, Some("no-route") | None) => {
                let path = if server.prefix.is_empty() { "/" } else { &server.prefix };
                let told =
                    format!("the API is not at {path} of {}: check the path of --server", server.authority());
                Failure::unreachable(told)
            }
            _ => failure,
        }
    }

    /// The response, before its body is read.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Response<Body>, Failure> {
        let request = Request::builder().method(method).header(header::ACCEPT, "*/*");
        let request = match body {
            Some(_) => request.header(header::CONTENT_TYPE, "application/json"),
            None => request,
        };
        let body = Body::from(body.unwrap_or_default());
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
                let request = request.uri(format!("{}{path}", server.prefix));
                server.send(request.header(header::HOST, server.authority()).body(body)?).await
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

/// Percent-encodes text for a path or a query.
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

/// A path with the parameters that are set.
pub(crate) fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let set =
        parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", encode(value.as_ref()?))));
    let query = set.collect::<Vec<_>>().join("&");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}
