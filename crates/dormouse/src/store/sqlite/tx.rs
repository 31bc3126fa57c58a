//! One write under way: its connection, its time, and what it will have made possible.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::counts::Counts;
use crate::store::Effects;
use crate::{InstanceId, Result, Target};

pub(super) struct Tx<'c> {
    conn: &'c Connection,
    now: Timestamp,
    pub(super) effects: Effects,
    pub(super) counts: Counts,
    /// Lanes, by namespace, that may have no holder: settled when the write is complete.
    pub(super) lanes: BTreeSet<(String, String)>,
}

impl<'c> Tx<'c> {
    pub(super) fn new(conn: &'c Connection, now: Timestamp) -> Self {
        Self { conn, now, effects: Effects::default(), counts: Counts::default(), lanes: BTreeSet::new() }
    }

    pub(super) fn conn(&self) -> &'c Connection {
        self.conn
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Now, as it is stored.
    pub(super) fn now_us(&self) -> i64 {
        self.now.as_microsecond()
    }

    pub(super) fn sql(&self, sql: &str) -> Result<CachedStatement<'c>> {
        Ok(self.conn.prepare_cached(sql)?)
    }

    /// What it made possible, and what it moved.
    pub(super) fn into_parts(self) -> (Effects, Counts) {
        (self.effects, self.counts)
    }
}

/// The instance that a target means: an id as it is, a key's holder, else the newest that had the key. That an
/// id may be of another namespace is for the caller to see, when it has read the row.
pub(super) fn resolve(conn: &Connection, namespace: &str, target: &Target) -> Result<Option<InstanceId>> {
    let key = match target {
        Target::Id(id) => return Ok(Some(*id)),
        Target::Key(key) => key,
    };
    for sql in [include_str!("key_holder.sql"), include_str!("find_key.sql")] {
        let id = conn.prepare_cached(sql)?.query_row((namespace, key), |row| row.get(0)).optional()?;
        if let Some(id) = id {
            return Ok(Some(InstanceId(id)));
        }
    }
    Ok(None)
}

/// A stored moment.
pub(super) fn timestamp(us: i64) -> Timestamp {
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::MAX)
}
