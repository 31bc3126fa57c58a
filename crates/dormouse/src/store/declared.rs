//! What workers declared of the machines they run, as it is stored.

use jiff::Timestamp;

use crate::Json;

/// What workers declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    /// Changes whenever a declaration changes.
    pub mark: String,
    /// Every version of every machine.
    pub machines: Vec<Declared>,
}

/// What a machine declared, as it was last declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The machine.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// The oldest version it takes over.
    pub migrates_from: u32,
    /// When a worker that runs it last registered.
    pub at: Timestamp,
    /// Its [`Declaration`](crate::Declaration).
    pub told: Json,
}
