//! TLS: the command line talks to servers that it trusts, and says why it does not talk to others; `serve` has its own.

#[path = "tls/own.rs"]
mod own;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use dormouse::Client;
use dormouse_server::{Access, Server};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};

/// A server with a certificate from an unknown authority.
struct Site {
    dir: TempDir,
    port: u16,
}

impl Site {
    /// Its certificate is for this name.
    async fn named(name: &str) -> Self {
        let dir = TempDir::new().expect("a directory");
        let client = Client::open(&format!("sqlite:{}", dir.path().join("test.db").display())).await;
        let router = Server::new(client.expect("a database"), Access::open_on_loopback())
            .expect("a store for servers")
            .router();
        let (authority, tls) = certificates(name);
        std::fs::write(dir.path().join("ca.pem"), authority).expect("a file");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, service) = (tls.clone(), TowerToHyperService::new(router.clone()));
                tokio::spawn(async move {
                    // A client that does not trust it hangs up.
                    if let Ok(stream) = tls.accept(stream).await {
                        let http = hyper::server::conn::http1::Builder::new();
                        let _ = http.serve_connection(TokioIo::new(stream), service).await;
                    }
                });
            }
        });
        Self { dir, port }
    }

    fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    async fn ls(&self, ca_file: Option<PathBuf>) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        command.env_remove("RUST_LOG").env_remove("DORMOUSE_CA_FILE").env_remove("DORMOUSE_DB");
        command.args(["--server", &format!("https://localhost:{}", self.port), "ls"]);
        if let Some(path) = ca_file {
            command.arg("--ca-file").arg(path);
        }
        tokio::task::spawn_blocking(move || command.output().expect("a run")).await.expect("its end")
    }
}

/// An authority's certificate in PEM, and a server with a certificate from it for this name.
fn certificates(name: &str) -> (String, TlsAcceptor) {
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate");
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new([name.to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the usual versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a certificate and its key");
    (authority.pem(), Arc::new(config).into())
}

#[track_caller]
fn fails(output: &Output, code: i32, told: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.contains(told), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_an_authority_that_is_trusted_is_talked_to() {
    let site = Site::named("localhost").await;
    let output = site.ls(Some(site.ca_file())).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_an_unknown_authority_is_not_trusted_and_the_way_out_is_told() {
    let site = Site::named("localhost").await;
    fails(&site.ls(None).await, 6, "name its certificate with --ca-file");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_name_is_not_trusted() {
    let site = Site::named("elsewhere.example").await;
    fails(&site.ls(Some(site.ca_file())).await, 6, "cannot reach https://localhost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_certificates_is_refused() {
    let site = Site::named("localhost").await;
    let empty = site.dir.path().join("empty.pem");
    std::fs::write(&empty, "no certificate").expect("a file");
    fails(&site.ls(Some(empty)).await, 2, "the file contains no PEM certificate");
    fails(&site.ls(Some(site.dir.path().join("absent.pem"))).await, 2, "--ca-file");
}
