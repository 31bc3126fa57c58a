//! Kept counts: how many instances are where, so that nobody walks the table to know.
//!
//! A write notes what it moved; what a whole group moved is one statement for each place that gained or lost, in
//! the group's own transaction. What executes is not counted here: it is few, has an index, and a run-ahead commit
//! moves it from step to step.

use std::collections::HashMap;
use std::fmt::Write as _;

use rusqlite::{Connection, OptionalExtension};

use crate::{Error, Result, Status};

/// The most places whose numbers are kept in memory: some 10 MB.
const KNOWN_MAX: usize = 65_536;

/// Where an instance is.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) namespace: &'a str,
    pub(super) queue: &'a str,
    pub(super) machine: &'a str,
    pub(super) version: u32,
    pub(super) step: &'a str,
    pub(super) status: Status,
}

impl Place<'_> {
    /// Its parts, with a character between them that no name has.
    fn write_name(&self, name: &mut String) {
        let Self { namespace, queue, machine, version, step, status } = self;
        name.clear();
        for part in [namespace, queue, machine, step, status.as_str()] {
            name.push_str(part);
            name.push('\0');
        }
        write!(name, "{version}").expect("a string takes all that is written to it");
    }
}

/// What was gained and lost, by the names of places.
#[derive(Clone, Default)]
pub(super) struct Counts {
    moved: HashMap<Box<str>, i64>,
    /// The name of the place that is added to, so that one which is known needs no allocation.
    name: String,
}

impl Counts {
    pub(super) fn add(&mut self, place: Place<'_>, by: i64) {
        if place.status == Status::Executing {
            return;
        }
        place.write_name(&mut self.name);
        match self.moved.get_mut(&*self.name) {
            Some(moved) => *moved += by,
            None => drop(self.moved.insert(self.name.as_str().into(), by)),
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        if self.moved.is_empty() {
            *self = other;
        } else {
            other.moved.into_iter().for_each(|(name, by)| *self.moved.entry(name).or_default() += by);
        }
    }

    pub(super) fn save(&self, conn: &Connection, known: &mut KnownPlaces) -> Result<()> {
        if self.moved.is_empty() {
            return Ok(());
        }
        let mut count = conn.prepare_cached(include_str!("count.sql"))?;
        for (name, by) in self.moved.iter().filter(|(_, by)| **by != 0) {
            count.execute((known.number(conn, name)?, by))?;
        }
        Ok(())
    }
}

/// The numbers of places, so that a group does not look each of them up again.
///
/// No place is ever removed, so a number stays true; but one that a rolled back transaction gave does not, so the writer
/// forgets all of them then.
#[derive(Default)]
pub(super) struct KnownPlaces {
    numbers: HashMap<Box<str>, i64>,
}

impl KnownPlaces {
    pub(super) fn forget(&mut self) {
        self.numbers.clear();
    }

    fn number(&mut self, conn: &Connection, name: &str) -> Result<i64> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let parts: Vec<&str> = name.split('\0').collect();
        let [namespace, queue, machine, step, status, version] = parts[..] else {
            return Err(Error::Storage(
                format!("the name of a place has a control character: {name:?}").into(),
            ));
        };
        // SQLite reads the version as the number that it is, by the column's type.
        let columns = (namespace, queue, machine, version, step, status);
        let mut find = conn.prepare_cached(include_str!("count_place.sql"))?;
        let number = match find.query_row(columns, |row| row.get(0)).optional()? {
            Some(number) => number,
            None => {
                conn.prepare_cached(include_str!("count_first.sql"))?.execute(columns)?;
                let number = conn.last_insert_rowid();
                conn.prepare_cached("insert into counted (place, count) values (?1, 0)")?
                    .execute([number])?;
                number
            }
        };
        if self.numbers.len() == KNOWN_MAX {
            self.numbers.clear();
        }
        self.numbers.insert(name.into(), number);
        Ok(number)
    }
}
