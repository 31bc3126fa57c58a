//! A partner that speaks TLS, with a certificate of an authority of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse::store::InteractionFilter;
use dormouse::{Targets, Webhook};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, crypto};

use super::{Check, FraudCheck, SECRET, SOON, read, start, tokens};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partner_with_an_authority_of_its_own_is_asked_over_tls() {
    let partner = TlsPartner::start().await;
    let (told, sends) = partner.ask(&partner.url("localhost"), &partner.authority).await;
    assert_eq!((told, sends), ("fine, over TLS".to_owned(), 1));
    assert_eq!(partner.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partner_that_cannot_prove_who_it_is_gets_nothing_and_is_tried_again() {
    let partner = TlsPartner::start().await;
    let (told, sends) = partner.ask(&partner.url("localhost"), &authority().pem()).await;
    assert_eq!(told, "TimedOut", "of another authority");
    assert!(sends > 1, "it was tried {sends} times");
    let (told, sends) = partner.ask(&partner.url("127.0.0.1"), &partner.authority).await;
    assert_eq!(told, "TimedOut", "of another name");
    assert!(sends > 1, "it was tried {sends} times");
    assert_eq!(partner.requests.load(Ordering::SeqCst), 0, "nobody saw a request");
}

/// Answers each request at once.
struct TlsPartner {
    port: u16,
    authority: String,
    requests: Arc<AtomicUsize>,
}

impl TlsPartner {
    async fn start() -> Self {
        let authority = authority();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a certificate with its key");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let partner = Self { port, authority: authority.pem(), requests: Arc::default() };
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), partner.requests.clone()));
        partner
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/fraud?v=1", self.port)
    }

    /// Asks it about one order by a webhook that trusts this authority: what the machine was told, and how often it was
    /// sent.
    async fn ask(&self, url: &str, authority: &str) -> (String, u32) {
        let webhook = Webhook::new(url, SECRET).expect("a webhook").targets(Targets::Any);
        let webhook = webhook.trust_only(authority.as_bytes()).expect("an authority");
        let engine =
            start(webhook.resume_at("https://shop.example", tokens(), SOON).expect("an address")).await;
        let client = engine.client();
        let id =
            client.start::<FraudCheck>(Check::Ask { orders: vec!["a".to_owned()] }).await.expect("a start");
        let told = client.wait::<FraudCheck>(id, SOON).await.expect("an output").remove(0);
        let asked = client.interactions(InteractionFilter::default()).await.expect("a read").items.remove(0);
        engine.shutdown().await;
        (told, asked.sends)
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, requests: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, requests) = (acceptor.clone(), requests.clone());
        tokio::spawn(async move {
            // Whoever does not trust us hangs up here.
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let mut stream = BufReader::new(stream);
            let Some(_) = read(&mut stream).await else { return };
            requests.fetch_add(1, Ordering::SeqCst);
            let body = r#"{"output":"fine, over TLS"}"#;
            let say = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.get_mut().write_all(say.as_bytes()).await;
        });
    }
}
