//! Connections for queries. In WAL mode they see a snapshot and never hold up the writer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{blocking, open};
use crate::{Error, Result};

/// Queries that may run at the same time.
const READERS_MAX: usize = 4;

pub(super) struct Readers {
    path: PathBuf,
    permits: Semaphore,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, permits: Semaphore::new(READERS_MAX), idle: Arc::default() }
    }

    /// Runs a query in one read transaction, off the async threads.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        mut query: impl FnMut(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _permit = self.permits.acquire().await.map_err(|_| Error::Closed)?;
        let idle = self.idle.clone();
        let path = self.path.clone();
        blocking(move || {
            let pooled = idle.lock().expect("no code panics while it holds the pool's lock").pop();
            let conn = pooled.map_or_else(|| open::reader(&path), Ok)?;
            let snapshot = conn.unchecked_transaction()?;
            let answer = query(&snapshot)?;
            snapshot.finish()?;
            idle.lock().expect("no code panics while it holds the pool's lock").push(conn);
            Ok(answer)
        })
        .await
    }
}
