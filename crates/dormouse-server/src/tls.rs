//! TLS for the server: a certificate and its key from files, read again when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

/// How often to look for a renewed certificate. It costs two calls of `stat`.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A certificate and its key. [`listen`](crate::listen) reads the files again when they change, so that a renewed
/// certificate needs no restart; connections that are open keep the one they began with.
#[derive(Clone)]
pub struct Tls(Arc<Files>);

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    /// When the files were last changed, as far as the system says.
    changed_at: [Option<SystemTime>; 2],
}

impl Tls {
    /// Reads PEM files: the certificate with those between it and its authority, and its private key.
    pub fn from_files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> io::Result<Self> {
        let (certificate, key) = (certificate.into(), key.into());
        let changed_at = changed_at(&certificate, &key);
        let current = Mutex::new(Current { config: read(&certificate, &key)?, changed_at });
        Ok(Self(Arc::new(Files { certificate, key, current })))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0.current.lock().expect("no code panics while it holds this lock").config.clone().into()
    }

    /// Reads the files again whenever they change. Files that do not fit together, as while they are being replaced, leave
    /// the current certificate in use.
    pub(crate) async fn keep_current(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let this = self.clone();
            // Files may be on a slow disk.
            let looked = tokio::task::spawn_blocking(move || this.look_again());
            if let Err(error) = looked.await {
                tracing::warn!(%error, "the certificate could not be checked for changes");
            }
        }
    }

    fn look_again(&self) {
        let Files { certificate, key, current } = &*self.0;
        let now = changed_at(certificate, key);
        if current.lock().expect("no code panics while it holds this lock").changed_at == now {
            return;
        }
        let read = read(certificate, key);
        let mut current = current.lock().expect("no code panics while it holds this lock");
        current.changed_at = now;
        match read {
            Ok(config) => {
                current.config = config;
                tracing::info!(certificate = %certificate.display(), "new connections use the changed certificate");
            }
            Err(error) => {
                tracing::warn!(%error, "the changed certificate cannot be used; the one before stays in use");
            }
        }
    }
}

fn changed_at(certificate: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [certificate, key].map(|path| path.metadata().and_then(|file| file.modified()).ok())
}

fn read(certificate: &Path, key: &Path) -> io::Result<Arc<ServerConfig>> {
    let refused = |path: &Path, why: String| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", path.display()))
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| refused(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(refused(certificate, "the file contains no PEM certificate".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| refused(key, error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has what the usual versions need")
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| refused(key, format!("it is not the key of {}: {error}", certificate.display())))?;
    Ok(Arc::new(config))
}
