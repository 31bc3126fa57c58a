//! The receiver: lets a transport bring answers in. One for each transport.

use std::sync::Arc;

use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{FAULT_PAUSE, Shared};
use crate::transport::{NamedTransport, Reception};

/// Receives until told to stop, and lets what is in hand be finished.
pub(super) async fn run(shared: Arc<Shared>, named: NamedTransport, steps: TaskTracker) {
    // Whoever waits for the steps to end waits for what is in hand here, too.
    let receiving = steps.token();
    while !shared.stop.is_cancelled() {
        let (transport, reception) = (named.transport.clone(), reception(&shared, &named));
        // In a task of its own: its panic is not ours.
        let task = tokio::spawn(async move { transport.receive(reception).await });
        let ended = AbortOnDropHandle::new(task).await;
        if shared.stop.is_cancelled() {
            break;
        }
        match ended {
            Ok(()) => {
                tracing::warn!(transport = named.name, "the transport stopped receiving: starting it again");
            }
            Err(panic) => tracing::error!(transport = named.name, %panic, "it panicked: starting anew"),
        }
        tokio::time::sleep(FAULT_PAUSE).await;
    }
    drop(receiving);
    std::future::pending::<()>().await;
}

fn reception(shared: &Shared, named: &NamedTransport) -> Reception {
    Reception {
        client: shared.client.clone(),
        transport: named.name.clone(),
        namespaces: shared.config.namespaces.clone(),
        stop: shared.stop.clone(),
    }
}
