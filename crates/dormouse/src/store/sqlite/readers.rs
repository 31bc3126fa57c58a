//! Connections for queries. In WAL mode they see a snapshot and never hold up the writer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{Semaphore, watch};

use super::{blocking, open};
use crate::{Error, Result};

/// Queries that may run at the same time.
const READERS_MAX: usize = 4;

/// How long a read waits for the log to start over.
const GATE_MAX: Duration = Duration::from_millis(500);

pub(super) struct Readers {
    path: PathBuf,
    gate: Arc<Gate>,
    permits: Semaphore,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, gate: Arc<Gate>) -> Self {
        Self { path, gate, permits: Semaphore::new(READERS_MAX), idle: Arc::default() }
    }

    /// Runs a query in one read transaction, off the async threads.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        mut query: impl FnMut(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _permit = self.permits.acquire().await.map_err(|_| Error::Closed)?;
        self.gate.pass().await;
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

/// Keeps new reads from starting while the writer waits for those under way to end.
pub(super) struct Gate {
    is_closed: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { is_closed: watch::Sender::new(false) }
    }
}

impl Gate {
    /// Closes it until the guard is dropped.
    pub(super) fn close(&self) -> Closed<'_> {
        self.is_closed.send_replace(true);
        Closed(self)
    }

    async fn pass(&self) {
        if *self.is_closed.borrow() {
            let mut is_closed = self.is_closed.subscribe();
            let _ = tokio::time::timeout(GATE_MAX, is_closed.wait_for(|is_closed| !is_closed)).await;
        }
    }
}

pub(super) struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.is_closed.send_replace(false);
    }
}
