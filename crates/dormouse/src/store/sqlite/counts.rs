//! Kept counts: how many instances are where, so that nobody walks the table to know.
//!
//! A write notes what it moved; what a whole group moved is one statement for each place that gained or lost, in
//! the group's own transaction. What executes is not counted here: it is few, has an index, and a run-ahead commit
//! moves it from step to step.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use rusqlite::Connection;

use crate::{Result, Status};

/// Where an instance is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place<'a> {
    pub(super) namespace: &'a str,
    pub(super) queue: &'a str,
    pub(super) machine: &'a str,
    pub(super) version: u32,
    pub(super) step: &'a str,
    pub(super) status: Status,
}

/// What was gained and lost.
#[derive(Clone, Default)]
pub(super) struct Counts {
    moved: Vec<Moved>,
    /// Where a place is among those, by its hash: with many tenants, a group has many places.
    found: HashMap<u64, usize>,
    hasher: RandomState,
}

#[derive(Clone)]
struct Moved {
    namespace: String,
    queue: String,
    machine: String,
    version: u32,
    step: String,
    status: Status,
    by: i64,
}

impl Moved {
    fn place(&self) -> Place<'_> {
        let Self { namespace, queue, machine, version, step, status, .. } = self;
        Place { namespace, queue, machine, version: *version, step, status: *status }
    }
}

impl Counts {
    pub(super) fn add(&mut self, place: Place<'_>, by: i64) {
        if place.status == Status::Executing {
            return;
        }
        let found = self.found.entry(self.hasher.hash_one(place)).or_insert(self.moved.len());
        match self.moved.get_mut(*found) {
            Some(moved) if moved.place() == place => moved.by += by,
            // Two places of one hash are so rare that the second may be there more than once.
            _ => {
                let Place { namespace, queue, machine, version, step, status } = place;
                let [namespace, queue, machine, step] = [namespace, queue, machine, step].map(str::to_owned);
                self.moved.push(Moved { namespace, queue, machine, version, step, status, by });
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        if self.moved.is_empty() {
            *self = other;
        } else {
            other.moved.iter().for_each(|moved| self.add(moved.place(), moved.by));
        }
    }

    pub(super) fn save(&self, conn: &Connection) -> Result<()> {
        if self.moved.is_empty() {
            return Ok(());
        }
        let mut count = conn.prepare_cached(include_str!("count.sql"))?;
        let mut count_first = conn.prepare_cached(include_str!("count_first.sql"))?;
        for Moved { namespace, queue, machine, version, step, status, by } in
            self.moved.iter().filter(|moved| moved.by != 0)
        {
            let place = (namespace, queue, machine, version, step, status.as_str(), by);
            // Nearly every place has been counted before, and an update is half the work of an insert that meets it.
            if count.execute(place)? == 0 {
                count_first.execute(place)?;
            }
        }
        Ok(())
    }
}
