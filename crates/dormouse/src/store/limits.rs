//! The verbs and queries of limits.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Reply, Written};
use crate::{InstanceId, Limit};

/// How many lanes of a family [`LimitView`] counts at most.
pub const LANES_COUNTED_MAX: usize = 200;

/// How many instances that wait in one lane are counted at most.
pub const WAITING_COUNTED_MAX: usize = 1_000;

/// Limits: which there are, and what they let run.
///
/// A lane's width is that of the limit of its name, else that of its family's limit, else 1. Whatever settles a lane asks
/// for the width then: it lets the next in line run while fewer than that hold the lane, and takes the turn back from those
/// that could run but are not claimed while more do. Claimed instances are left alone.
pub trait LimitStore: Send + Sync + 'static {
    /// Sets the limit of a name, or removes it, and answers whether the name had one. Lanes that it concerns are settled
    /// in the same transaction, as many as a bound allows; [`LimitStore::settle_limits`] settles the others. It waits
    /// neither for steps that run nor for a transaction that holds one of the lanes.
    fn set_limit(&self, namespace: String, name: String, limit: Option<Limit>) -> Reply<'_, Written<bool>>;

    /// Settles some of the lanes whose limit has changed and which could not be settled with that change: there were too
    /// many, or another transaction held them. Answers whether there is more to do at once. Callers of
    /// [`LimitStore::set_limit`] call it right after, and every worker calls it with each heartbeat.
    fn settle_limits(&self) -> Reply<'_, Written<bool>>;

    /// The limit that holds for a lane: that of its name, else that of its family.
    fn limit_of(&self, namespace: String, lane: String) -> Reply<'_, Option<Limit>>;

    /// The limits of a namespace in the order of their names: those after this name, or from the first.
    fn limits(&self, namespace: String, after: Option<String>, rows_max: usize) -> Reply<'_, Vec<LimitView>>;
}

/// A limit and how much of it is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitView {
    /// Its name: a lane or a family.
    pub name: String,
    /// The limit.
    pub limit: Limit,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// Lanes that it concerns and in which something runs, could run or waits; up to [`LANES_COUNTED_MAX`] are looked at.
    pub lanes: usize,
    /// Whether there are more lanes than those.
    pub more_lanes: bool,
    /// Places in use in these lanes.
    pub held: u64,
    /// Instances that wait for a place in these lanes; up to [`WAITING_COUNTED_MAX`] are counted in each.
    pub waiting: u64,
}

/// A lane as one that waits for it sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// How many of it run at a time.
    pub width: u32,
    /// Whether a limit says so; without one, a lane runs one at a time.
    pub is_limited: bool,
    /// The other instances that hold it: they run, or are next.
    pub holders: Vec<InstanceId>,
    /// When the lane's rate lets it start, if that is not yet.
    pub turn_at: Option<Timestamp>,
    /// Whether that is only the earliest moment: more are before it than were counted.
    pub turn_is_later: bool,
}

/// When the step of a claimed row may start. A start that is counted starts in time, or its claim is given back; and it does
/// not run ahead, as each start is counted by a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Starts {
    /// At any time: it is in no lane with a rate.
    #[default]
    Anytime,
    /// At once: it was counted as of now.
    Now,
    /// Within [`STARTS_AHEAD_MAX`] of its claim: it was counted as of then.
    Ahead,
}

/// How long after its claim a step starts at the latest that is counted for a rate.
pub const STARTS_AHEAD_MAX: Duration = Duration::from_nanos(crate::rules::AHEAD_NS as u64);
