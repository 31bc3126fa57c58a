//! TLS to a server. Trusts the system's certificate authorities and those in `--ca-file`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::failure::Failure;

/// Which servers to talk to.
#[derive(Clone, Copy)]
pub(crate) enum Trust<'a> {
    /// Those with a certificate for their name from an authority that the system trusts, or that is in this file.
    Authorities(Option<&'a Path>),
    /// The one whose certificate is the first in this file, whatever name it is for.
    Only(&'a Path),
}

pub(super) fn connector(trust: Trust<'_>) -> Result<TlsConnector, Failure> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has what the usual versions need");
    let config = match trust {
        Trust::Authorities(ca_file) => builder.with_root_certificates(authorities(ca_file)?),
        Trust::Only(path) => {
            let expected = first(path).map_err(|why| Failure::usage(format!("{}: {why}", path.display())))?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Only { expected, provider }))
        }
    };
    Ok(Arc::new(config.with_no_client_auth()).into())
}

fn authorities(ca_file: Option<&Path>) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        add(&mut roots, path)
            .map_err(|why| Failure::usage(format!("--ca-file {}: {why}", path.display())))?;
    }
    if roots.is_empty() {
        let told = "this system trusts no certificate authority: install its ca-certificates package, or name a --ca-file";
        return Err(Failure::unreachable(told));
    }
    Ok(roots)
}

fn first(path: &Path) -> Result<CertificateDer<'static>, String> {
    let mut certificates = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let first = certificates.next().ok_or("the file contains no PEM certificate")?;
    first.map_err(|error| error.to_string())
}

/// Trusts one certificate.
#[derive(Debug)]
struct Only {
    expected: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Only {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.expected {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let mut added = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
        added += 1;
    }
    if added == 0 { Err("the file contains no PEM certificate".to_owned()) } else { Ok(()) }
}

pub(super) async fn connect(
    connector: &TlsConnector,
    host: &str,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    // A URL puts an IPv6 address in brackets; a certificate does not.
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(io::Error::other)?;
    connector.connect(name, stream).await.map_err(|error| {
        let is_unknown = error.to_string().contains("UnknownIssuer");
        let hint = "; if the server uses a private authority, name its certificate with --ca-file";
        io::Error::other(format!("{error}{}", if is_unknown { hint } else { "" }))
    })
}
