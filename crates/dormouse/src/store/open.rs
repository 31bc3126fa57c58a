//! Which store an address means.

use std::sync::Arc;

use super::{Store, shown};
use crate::Result;

/// Opens a store by its address.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return open_postgres(url).await;
    }
    let refuse = |reason| Err(crate::Error::InvalidUrl { url: shown(url), reason });
    match url.strip_prefix("sqlite:") {
        Some("") => refuse("a file is missing: write sqlite:path/to/file.db"),
        Some(":memory:") => {
            Ok(Arc::new(super::sqlite::SqliteStore::in_memory(Arc::new(crate::SystemClock))?))
        }
        Some(path) if path.contains('?') => {
            refuse("a query string is not understood: write sqlite:path/to/file.db")
        }
        Some(path) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            Ok(Arc::new(super::sqlite::SqliteStore::open(path).await?))
        }
        None => {
            refuse("only sqlite:path/to/file.db, sqlite::memory: and postgres://user@host/database are known")
        }
    }
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(super::postgres::PostgresStore::connect(url).await?))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_url: &str) -> Result<Arc<dyn Store>> {
    let reason = "the PostgreSQL store is not built in: turn on the feature `postgres` of dormouse";
    // An address may hold a password.
    Err(crate::Error::InvalidUrl { url: "postgres://…".to_owned(), reason })
}
