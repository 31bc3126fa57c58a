//! The feed of changes: one reader of the history for all who watch, however many they are.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dormouse::Result;
use dormouse::store::{Change, Store};
use tokio::sync::broadcast;

/// Changes read at a time.
pub(crate) const ROWS_MAX: usize = 500;
/// Stretches that a slow watcher may fall behind before it reads for itself.
const BEHIND_MAX: usize = 64;
/// Changes that come together are told together.
const GATHER: Duration = Duration::from_millis(50);
/// How often to look for what other processes did.
const POLL: Duration = Duration::from_secs(1);

/// A stretch of changes; none means that positions start over.
pub(crate) type Stretch = Arc<[Change]>;

pub(crate) struct Feed {
    store: Arc<dyn Store>,
    reader: Mutex<Option<broadcast::Sender<Stretch>>>,
}

impl Feed {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, reader: Mutex::default() }
    }

    /// Hears of every change from now on. The reader runs while anyone listens.
    pub(crate) async fn listen(self: &Arc<Self>) -> Result<broadcast::Receiver<Stretch>> {
        if let Some(reader) = &*self.lock() {
            return Ok(reader.subscribe());
        }
        let position = self.store.changes(None, None, 0).await?.next;
        let mut reader = self.lock();
        // Another listener may have been faster.
        if let Some(reader) = &*reader {
            return Ok(reader.subscribe());
        }
        let (sender, receiver) = broadcast::channel(BEHIND_MAX);
        *reader = Some(sender.clone());
        tokio::spawn(self.clone().read(sender, position));
        Ok(receiver)
    }

    async fn read(self: Arc<Self>, sender: broadcast::Sender<Stretch>, mut position: i64) {
        let mut moved = self.store.hub().changes();
        loop {
            moved.borrow_and_update();
            match self.store.changes(None, Some(position), ROWS_MAX).await {
                Ok(read) => {
                    if !read.changes.is_empty() || read.next < position {
                        // Nobody may be listening just now; that is seen to below.
                        let _ = sender.send(read.changes.into());
                    }
                    position = read.next;
                    if read.more {
                        continue;
                    }
                }
                Err(error) => tracing::warn!(%error, "could not read what changed"),
            }
            {
                let mut reader = self.lock();
                if sender.receiver_count() == 0 {
                    *reader = None;
                    return;
                }
            }
            let _ = tokio::time::timeout(POLL, moved.changed()).await;
            tokio::time::sleep(GATHER).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<broadcast::Sender<Stretch>>> {
        self.reader.lock().expect("no code panics while it holds this lock")
    }
}
