//! Progress reports of running steps, for those who watch. The last one is stored with the event of the step's outcome;
//! until then a report is a hint, and may be lost.

use jiff::Timestamp;
use serde::Serialize;

use crate::{InstanceId, Json};

/// A report of a running step.
#[derive(Clone, Debug)]
pub struct NewProgress {
    /// Its instance.
    pub instance: InstanceId,
    /// The `seq` at which it was claimed: of another run, nothing is stored.
    pub seq: u64,
    /// What it reports.
    pub value: Json,
}

/// The last report of a running step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// Grows with every report.
    pub place: i64,
    /// Its instance.
    pub instance: InstanceId,
    /// That instance's namespace.
    pub namespace: String,
    /// Its machine.
    pub machine: String,
    /// Its queue.
    pub queue: String,
    /// Its key.
    pub key: Option<String>,
    /// The step that runs.
    pub step: String,
    /// The `seq` at which it was claimed.
    pub seq: u64,
    /// When it was reported.
    pub at: Timestamp,
    /// What it reported.
    pub value: Json,
}

/// Which reports to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// Of this instance.
    Of(InstanceId),
    /// After this place, in their order.
    After(i64),
    /// The newest alone, to know where the others will follow.
    Newest,
}

/// The name that a report pokes: one that no queue can have.
pub(crate) const PROGRESS_QUEUE: &str = "progress\t";
