#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(feature = "sqlite"),
    allow(unused, reason = "some rules are used by the SQLite store alone: PostgreSQL has them in SQL")
)]

mod ahead;
pub mod check;
mod client;
mod clock;
mod context;
mod diff;
mod engine;
mod error;
mod explain;
pub mod flow;
mod form;
mod gate;
pub mod graph;
mod history;
mod instance;
mod json;
mod key;
mod limit;
mod limits;
mod machine;
mod mail;
mod open;
mod outcome;
pub mod outline;
mod poke;
mod process;
mod retry;
pub mod rules;
mod sample;
#[cfg(feature = "schedules")]
mod schedule;
mod schema;
mod search;
mod sends;
mod share;
mod signal;
mod token;
mod trace;
mod transport;
mod unit;
mod words;

pub mod store;
#[cfg(feature = "sqlite")]
pub mod testing;

/// The client of NATS that [`Nats`] works with.
#[cfg(feature = "nats")]
pub use async_nats;
/// The library of moments and durations that the API speaks in.
pub use jiff;

pub use crate::client::{
    AmendCall, CancelCall, Client, EditCall, Foresight, Happening, Look, PauseCall, PauseQueueCall,
    RetryCall, SignalCall, Start, Started, TagCall, Trouble, TroubleKind,
};
#[cfg(feature = "schedules")]
pub use crate::client::{ScheduleView, Schedules};
pub use crate::clock::{Clock, SystemClock, VirtualClock, When};
pub use crate::context::{ChildView, Context, ParentRef, UnreadSignal};
pub use crate::diff::{Diff, Difference, DifferenceKind};
pub use crate::engine::{Engine, EngineBuilder, Unreadable};
pub use crate::error::{BoxError, Error, Result};
pub use crate::form::{Field, Form};
pub use crate::history::{Event, EventKind, History, Retention, Run};
pub use crate::instance::{
    At, DEFAULT_NAMESPACE, Inserted, Instance, InstanceId, NewInstance, Status, Wake, WorkerId,
};
pub use crate::json::Json;
pub use crate::key::KeyScope;
pub use crate::limit::{LaneChange, Limit, RATE_MAX, Rate, WIDTH_MAX};
pub use crate::limits::{
    InboxMax, KeptMax, Limits, NAME_BYTES_MAX, REASON_BYTES_MAX, TAG_BYTES_MAX, TAGS_MAX,
};
pub use crate::machine::{
    Accepted, Declaration, DynMachine, Fault, Final, Job, JobMachine, JobState, Machine, Registry, Running,
    Stated, StepError, StepResult, Taken,
};
pub use crate::mail::{Mail, MailId};
pub use crate::outcome::{Await, Children, Outcome, Quorum, Round, Spawn, Transition};
pub use crate::outline::Outline;
pub use crate::poke::Hub;
pub use crate::process::Process;
pub use crate::retry::Retry;
#[cfg(feature = "schedules")]
pub use crate::schedule::{
    CatchUp, Missed, MissedWhy, OCCURRENCES_MAX, Occurrence, Overlap, SCHEDULE_MACHINE,
    SCHEDULE_NAME_BYTES_MAX, Schedule, Starts, Timing,
};
pub use crate::sends::{Breaker, SENDS_MAX, SendRate, Setting, TransportChange, TransportLimits};
pub use crate::share::{ShareWeight, WEIGHT_MAX};
pub use crate::signal::{
    Accepts, Delivered, InboxSignal, KEEP_FOR_MAX, KeptId, KeptSignal, NewSignal, Signal, SignalId, Target,
};
pub use crate::token::{Opened, Tokens};
pub use crate::trace::Trace;
#[cfg(feature = "nats")]
pub use crate::transport::Nats;
pub use crate::transport::{Reception, Sending, Sent, Transport};
#[cfg(feature = "webhook")]
pub use crate::transport::{Targets, Webhook};
pub use crate::unit::{
    Answering, Answers, AsOne, Ask, Dispatch, INTERACTION_API, Interaction, InteractionId, InteractionStatus,
    OnFailure, PerItem, Shape, Takes, Unit, UnitId, UnitStatus, UnitView, Verdict, VerdictStream,
};

pub use crate::words::UnknownWord;

/// Everything a machine's file usually needs.
pub mod prelude {
    pub use serde::{Deserialize, Serialize};

    pub use crate::{
        Await, BoxError, Context, Final, Job, Machine, Mail, NewInstance, Outcome, Retry, Round, Signal,
        StepError, StepResult, Unit,
    };
}

/// The guide, so that its code is compiled and run with the doc tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/guide/machines.md")]
    mod machines {}
    #[doc = include_str!("../../../docs/guide/outcomes.md")]
    mod outcomes {}
    #[doc = include_str!("../../../docs/guide/signals.md")]
    mod signals {}
    #[doc = include_str!("../../../docs/guide/mail.md")]
    mod mail {}
    #[doc = include_str!("../../../docs/guide/children.md")]
    mod children {}
    #[doc = include_str!("../../../docs/guide/units.md")]
    mod units {}
    #[doc = include_str!("../../../docs/guide/time.md")]
    mod time {}
    #[doc = include_str!("../../../docs/guide/keys-and-namespaces.md")]
    mod keys_and_namespaces {}
    #[doc = include_str!("../../../docs/guide/lanes-queues-priority.md")]
    mod lanes_queues_priority {}
    #[doc = include_str!("../../../docs/guide/limits.md")]
    mod limits {}
    #[doc = include_str!("../../../docs/guide/shares.md")]
    mod shares {}
    #[doc = include_str!("../../../docs/guide/errors-and-retries.md")]
    mod errors_and_retries {}
    #[doc = include_str!("../../../docs/guide/flows.md")]
    mod flows {}
    #[doc = include_str!("../../../docs/guide/looking-ahead.md")]
    mod looking_ahead {}
    #[doc = include_str!("../../../docs/guide/settings.md")]
    mod settings {}
    #[doc = include_str!("../../../docs/guide/deploying.md")]
    mod deploying {}
    #[doc = include_str!("../../../docs/guide/upgrading.md")]
    mod upgrading {}
    #[doc = include_str!("../../../docs/guide/backups.md")]
    mod backups {}
    #[cfg(feature = "schedules")]
    #[doc = include_str!("../../../docs/guide/schedules.md")]
    mod schedules {}
    #[doc = include_str!("../../../docs/guide/jobs.md")]
    mod jobs {}
    #[doc = include_str!("../../../docs/guide/history-and-fork.md")]
    mod history_and_fork {}
    #[doc = include_str!("../../../docs/guide/operating.md")]
    mod operating {}
    #[doc = include_str!("../../../docs/guide/versions-and-migrations.md")]
    mod versions_and_migrations {}
    #[doc = include_str!("../../../docs/guide/testing.md")]
    mod testing {}
    #[doc = include_str!("../../../docs/guide/observability.md")]
    mod observability {}
    #[doc = include_str!("../../../docs/guide/embedding.md")]
    mod embedding {}
    #[doc = include_str!("../../../docs/guide/choosing-a-store.md")]
    mod choosing_a_store {}
    #[doc = include_str!("../../../docs/guide/postgres.md")]
    mod postgres {}
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../../docs/guide/your-own-transaction.md")]
    mod your_own_transaction {}
    #[doc = include_str!("../../../docs/guide/from-sql.md")]
    mod from_sql {}
    #[doc = include_str!("../../../docs/guide/cli.md")]
    mod cli {}
    #[doc = include_str!("../../../docs/guide/http-api.md")]
    mod http_api {}
    #[doc = include_str!("../../../docs/guide/dashboard.md")]
    mod dashboard {}
    #[doc = include_str!("../../../docs/guide/security.md")]
    mod security {}
    #[doc = include_str!("../../../docs/guide/coming-from.md")]
    mod coming_from {}
    #[doc = include_str!("../../../docs/guide/words.md")]
    mod words {}
}
