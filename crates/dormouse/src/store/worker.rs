//! Workers, and how long they hold what they claim.

use std::time::Duration;

use super::Namespaces;
use crate::{Declaration, InstanceId, Process};

/// A worker that registers.
#[derive(Clone, Debug)]
pub struct NewWorker {
    /// Its name; a worker that registers under the same name takes over.
    pub name: String,
    /// The process it is.
    pub process: Process,
    /// How long its claims are safe without a heartbeat.
    pub lease: Duration,
    /// The namespaces it serves.
    pub namespaces: Namespaces,
    /// The queues it serves.
    pub queues: Vec<String>,
    /// The machines and versions it runs.
    pub machines: Vec<(String, u32)>,
    /// The transports it has.
    pub transports: Vec<String>,
    /// Those machines as its code declares them.
    pub declares: Vec<Declaration>,
}

/// The result of a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The lease is renewed; these of its instances should be cancelled.
    Held {
        /// Executing instances that someone wants cancelled.
        cancel: Vec<InstanceId>,
        /// Every claim it holds, as the store sees it: an instance, and the `seq` at which it is claimed.
        holds: Vec<(InstanceId, u64)>,
    },
    /// It is over: nothing this worker holds is its own any more.
    Lost,
}

/// Whether a step ran on a claim that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// None did: the row is as if it had not been claimed.
    No,
    /// One did, or may have: that counts as a try, and is an event.
    Yes,
}
