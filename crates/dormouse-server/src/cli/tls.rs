//! TLS to a server. Trusts the system's certificate authorities and those in `--ca-file`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::failure::Failure;

pub(super) fn connector(ca_file: Option<&Path>) -> Result<TlsConnector, Failure> {
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
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has what the usual versions need")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
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
