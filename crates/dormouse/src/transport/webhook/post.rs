//! One POST on a connection of its own. The name is resolved once, and the connection goes to the address that was
//! checked, even if the name resolves differently a moment later.

use std::sync::{Arc, OnceLock};

use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto};
use tokio_util::task::AbortOnDropHandle;

use super::Targets;

/// Posts, within bounds.
pub(super) struct Poster {
    pub(super) targets: Targets,
    pub(super) answer_bytes_max: usize,
    tls: OnceLock<Arc<ClientConfig>>,
}

/// What came back.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why nothing came back.
pub(super) enum Failure {
    /// It may not be posted there, now or later.
    Refused(String),
    /// It may work another time.
    Lost(String),
}

impl Poster {
    pub(super) fn new(targets: Targets, answer_bytes_max: usize) -> Self {
        Self { targets, answer_bytes_max, tls: OnceLock::new() }
    }

    pub(super) async fn post(&self, url: &Uri, headers: HeaderMap, body: String) -> Result<Answer, Failure> {
        let host = url.host().expect("checked from the start").trim_matches(['[', ']']);
        let is_tls = url.scheme_str() == Some("https");
        if !is_tls && self.targets == Targets::Public {
            return Err(Failure::Refused(
                "without TLS anybody on the way could read it: use https".to_owned(),
            ));
        }
        let stream = self.connect(host, url.port_u16().unwrap_or(if is_tls { 443 } else { 80 })).await?;
        let request = request(url, headers, body)?;
        if !is_tls {
            return self.exchange(stream, request).await;
        }
        let name =
            ServerName::try_from(host.to_owned()).map_err(|error| Failure::Refused(error.to_string()))?;
        let tls = TlsConnector::from(self.tls()?).connect(name, stream).await.map_err(lost)?;
        self.exchange(tls, request).await
    }

    /// Connects to the first address that answers, of those that may be posted to.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, Failure> {
        let found: Vec<_> = tokio::net::lookup_host((host, port)).await.map_err(lost)?.collect();
        let allowed: Vec<_> = found.iter().filter(|address| self.targets.allow(address.ip())).collect();
        if allowed.is_empty() && !found.is_empty() {
            let reason =
                format!("{host} is not a public address; if it is your own, allow it with `Targets::Any`");
            return Err(Failure::Refused(reason));
        }
        let mut failure = Failure::Lost(format!("{host} has no address"));
        for address in allowed {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = lost(error),
            }
        }
        Err(failure)
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, Failure> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        let _until_answered = AbortOnDropHandle::new(tokio::spawn(connection));
        let answer: Response<Incoming> = sender.send_request(request).await.map_err(lost)?;
        let (parts, body) = answer.into_parts();
        // A body that is too long or breaks off is ignored: the status has already accepted the request.
        let body = Limited::new(body, self.answer_bytes_max).collect().await;
        let body = body.map(Collected::to_bytes).unwrap_or_default();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, Failure> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(Failure::Lost("the system has no root certificates".to_owned()));
        }
        let config = client(roots).map_err(lost)?;
        Ok(self.tls.get_or_init(|| config).clone())
    }

    /// Trusts these authorities, and not the system's.
    pub(super) fn trust_only(&mut self, pem: &[u8]) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(pem) {
            let root = root.map_err(|error| error.to_string())?;
            roots.add(root).map_err(|error| error.to_string())?;
        }
        if roots.is_empty() {
            return Err("they contain no certificate; pass PEM text".to_owned());
        }
        self.tls = OnceLock::from(client(roots).map_err(|error| error.to_string())?);
        Ok(())
    }
}

fn client(roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn request(url: &Uri, headers: HeaderMap, body: String) -> Result<Request<Full<Bytes>>, Failure> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let authority = url.authority().map_or("", |authority| authority.as_str());
    // The user and password are not part of the host.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let built = Request::post(path).header(HOST, host).body(Full::new(Bytes::from(body)));
    let mut request = built.map_err(|error| Failure::Refused(error.to_string()))?;
    request.headers_mut().extend(headers);
    Ok(request)
}

fn lost(error: impl std::fmt::Display) -> Failure {
    Failure::Lost(error.to_string())
}
