//! Requests to stop: Ctrl-C and SIGTERM.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives every request to stop from the moment it listens.
pub struct Stop {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

#[cfg(unix)]
impl Stop {
    /// Starts listening.
    pub fn listen() -> io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate })
    }

    /// Resolves once for each request.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Stop {
    /// Starts listening.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Resolves once for each request.
    pub async fn requested(&mut self) {
        // If Ctrl-C cannot be handled, it ends the process as usual.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
