//! When to stop: Ctrl-C, SIGTERM, or the time given.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;

/// Hears every request to stop.
pub(super) struct Stop {
    requests: mpsc::Receiver<()>,
}

impl Stop {
    /// Listens from now on, so that nothing before the first frame ends the process in the middle of a write.
    pub(super) fn listen(after: Option<Duration>) -> io::Result<Self> {
        let (sender, requests) = mpsc::channel(4);
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
                let (mut signals, sender) = (signal(kind)?, sender.clone());
                tokio::spawn(async move {
                    while signals.recv().await.is_some() && sender.send(()).await.is_ok() {}
                });
            }
        }
        #[cfg(not(unix))]
        {
            let sender = sender.clone();
            tokio::spawn(async move {
                while tokio::signal::ctrl_c().await.is_ok() && sender.send(()).await.is_ok() {}
            });
        }
        if let Some(after) = after {
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                // Nobody listens any more if it stopped before.
                let _ = sender.send(()).await;
            });
        }
        Ok(Self { requests })
    }

    /// Resolves once for each request.
    pub(super) async fn requested(&mut self) {
        if self.requests.recv().await.is_none() {
            std::future::pending().await
        }
    }
}
