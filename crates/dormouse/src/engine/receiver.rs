//! The receiver: lets a transport bring answers in. One for each transport.

use std::sync::Arc;

use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{FAULT_PAUSE, Shared};
use crate::transport::{NamedTransport, Reception};

/// Receives until the engine stops, and lets the transport finish the answers in progress.
pub(super) async fn run(shared: Arc<Shared>, named: NamedTransport, steps: TaskTracker) {
    // Waiting for the steps to end includes the answers in progress here.
    let receiving = steps.token();
    while !shared.stop.is_cancelled() {
        let (transport, reception) = (named.transport.clone(), reception(&shared, &named));
        // In a task of its own, so that its panic does not become ours.
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
