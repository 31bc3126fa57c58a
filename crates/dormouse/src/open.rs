//! Which store an address means. This is the one place that names every store.

use std::sync::Arc;

use crate::store::{Store, shown};
use crate::{Client, Engine, EngineBuilder, Error, Result};

impl Engine {
    /// Opens a store by its address: `sqlite:shop.db`, `sqlite::memory:` for tests, or `postgres://user@host/database`
    /// with the feature `postgres`.
    pub async fn open(url: &str) -> Result<EngineBuilder> {
        Ok(Self::on(open(url).await?))
    }
}

impl Client {
    /// Opens a store by its address, without running anything here.
    pub async fn open(url: &str) -> Result<Self> {
        Ok(Self::on(open(url).await?))
    }
}

/// Opens a store by its address.
async fn open(url: &str) -> Result<Arc<dyn Store>> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return open_postgres(url).await;
    }
    match url.strip_prefix("sqlite:") {
        Some("") => refuse(url, "a file is missing: write sqlite:path/to/file.db"),
        Some(path) if path.contains('?') => {
            refuse(url, "a query string is not supported: write sqlite:path/to/file.db")
        }
        Some(path) => open_sqlite(url, path).await,
        None => refuse(
            url,
            "only sqlite:path/to/file.db, sqlite::memory: and postgres://user@host/database are known",
        ),
    }
}

fn refuse(url: &str, reason: &'static str) -> Result<Arc<dyn Store>> {
    Err(Error::InvalidUrl { url: shown(url), reason })
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(_url: &str, path: &str) -> Result<Arc<dyn Store>> {
    use crate::store::sqlite::SqliteStore;
    Ok(Arc::new(match path {
        ":memory:" => SqliteStore::in_memory(Arc::new(crate::SystemClock))?,
        path => SqliteStore::open(path.strip_prefix("//").unwrap_or(path)).await?,
    }))
}

#[cfg(not(feature = "sqlite"))]
async fn open_sqlite(url: &str, _path: &str) -> Result<Arc<dyn Store>> {
    refuse(url, "this program was built without the SQLite store: turn on dormouse's feature `sqlite`")
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(crate::store::postgres::PostgresStore::connect(url).await?))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_url: &str) -> Result<Arc<dyn Store>> {
    let reason = "this program was built without the PostgreSQL store: turn on dormouse's feature `postgres`";
    // An address may hold a password.
    Err(Error::InvalidUrl { url: "postgres://…".to_owned(), reason })
}
