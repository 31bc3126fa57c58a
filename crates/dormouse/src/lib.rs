#![doc = include_str!("../README.md")]

mod client;
mod clock;
mod context;
mod engine;
mod error;
mod explain;
mod history;
mod instance;
mod json;
mod limits;
mod machine;
mod outcome;
mod poke;
mod process;
mod retry;
mod signal;

pub mod store;
pub mod testing;

pub use crate::client::{Client, SignalCall, Start, Started};
pub use crate::clock::{Clock, SystemClock, VirtualClock, When};
pub use crate::context::{ChildView, Context};
pub use crate::engine::{Engine, EngineBuilder, Unreadable};
pub use crate::error::{BoxError, Error, Result};
pub use crate::history::{Event, EventKind, History, Retention};
pub use crate::instance::{
    At, DEFAULT_NAMESPACE, Inserted, Instance, InstanceId, KeyScope, NewInstance, Status, Wake, WorkerId,
};
pub use crate::json::Json;
pub use crate::limits::{Limits, NAME_BYTES_MAX};
pub use crate::machine::{
    DynMachine, Fault, Job, JobMachine, JobState, Machine, Registry, Running, StepError, StepResult,
};
pub use crate::outcome::{Children, Outcome, Spawn, Transition};
pub use crate::poke::Hub;
pub use crate::process::Process;
pub use crate::retry::Retry;
pub use crate::signal::{Accepts, Delivered, InboxSignal, NewSignal, Signal, SignalId, Target};

/// Everything a machine's file usually needs.
pub mod prelude {
    pub use serde::{Deserialize, Serialize};

    pub use crate::{
        BoxError, Context, Job, Machine, NewInstance, Outcome, Retry, Signal, StepError, StepResult,
    };
}
