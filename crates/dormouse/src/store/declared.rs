//! The declarations of machines, as workers stored them.

use jiff::Timestamp;

use crate::Json;

/// The stored declarations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    /// Changes whenever a declaration changes.
    pub mark: String,
    /// Every version of every machine.
    pub machines: Vec<Declared>,
}

/// The last declaration of one version of a machine.
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
