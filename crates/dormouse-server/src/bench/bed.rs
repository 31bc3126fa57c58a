//! Where the loads run: a new file, or a new database on a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dormouse::BoxError;
use dormouse::store::Store;
use dormouse::store::postgres::{Bench, PostgresStore};
use dormouse::store::sqlite::{SqliteStore, raw_steps_per_s};

/// Where beds are created.
pub(super) enum Place {
    /// Files in a temporary directory.
    Directory(tempfile::TempDir),
    /// Databases on a server, by the address of an existing one.
    Server(String),
}

/// A new, empty store.
pub(super) struct Bed {
    pub(super) store: Arc<dyn Store>,
    kind: Kind,
}

enum Kind {
    File { path: PathBuf, store: Arc<SqliteStore> },
    Database(Box<Bench>),
}

impl Place {
    pub(super) fn directory(within: &Path) -> Result<Self, BoxError> {
        Ok(Self::Directory(tempfile::Builder::new().prefix("dormouse-bench-").tempdir_in(within)?))
    }

    pub(super) fn store_name(&self) -> &'static str {
        match self {
            Self::Directory(_) => "sqlite",
            Self::Server(_) => "postgres",
        }
    }

    /// Runs only the statements of a run-ahead commit.
    pub(super) async fn raw_steps_per_s(&self, steps: u64) -> Result<f64, BoxError> {
        match self {
            Self::Directory(dir) => {
                let path = dir.path().join("raw.db");
                Ok(tokio::task::spawn_blocking(move || raw_steps_per_s(&path, steps)).await??)
            }
            Self::Server(url) => {
                let database = Bench::create(url).await?;
                let raw = database.raw_steps_per_s(steps).await?;
                database.remove().await?;
                Ok(raw)
            }
        }
    }

    pub(super) async fn bed(&self, name: &str) -> Result<Bed, BoxError> {
        match self {
            Self::Directory(dir) => {
                let path = dir.path().join(name);
                let store = Arc::new(SqliteStore::open(&path).await?);
                Ok(Bed { store: store.clone(), kind: Kind::File { path, store } })
            }
            Self::Server(url) => {
                let database = Bench::create(url).await?;
                let store = Arc::new(PostgresStore::connect(database.url()).await?);
                Ok(Bed { store, kind: Kind::Database(Box::new(database)) })
            }
        }
    }
}

impl Bed {
    /// Its address, for another process.
    pub(super) fn url(&self) -> String {
        match &self.kind {
            Kind::File { path, .. } => format!("sqlite:{}", path.display()),
            Kind::Database(database) => database.url().to_owned(),
        }
    }

    /// Closes the store, and returns its size in bytes and its number of fsyncs.
    pub(super) async fn strip(self) -> Result<(u64, u64), BoxError> {
        let Self { store, kind } = self;
        drop(store);
        match kind {
            Kind::File { path, store } => {
                let fsyncs = store.fsyncs();
                // The last connection to close checkpoints the log into the file.
                drop(store);
                Ok((std::fs::metadata(path)?.len(), fsyncs))
            }
            Kind::Database(database) => {
                let stripped = (database.bytes().await?, database.fsyncs().await?);
                database.remove().await?;
                Ok(stripped)
            }
        }
    }
}
