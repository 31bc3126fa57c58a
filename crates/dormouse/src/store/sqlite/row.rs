//! One instance within a write: its head is loaded, the rules decide a change, and that is saved.
//!
//! Saving keeps what must hold between rows: a lane has no more holders than its width, a key has one holder, a parent's barrier counts each end
//! once; and what became possible is noted in the write's effects.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row as SqlRow, params};

use super::barrier;
use super::counts::Place;
use super::fault::strange;
use super::tx::{Tx, resolve, timestamp};
use super::units;
use crate::rules::{self, Change, Head};
use crate::{InstanceId, Json, KeyScope, LaneChange, Result, Run, Status, Target, Wake, WorkerId};

pub(super) struct Row {
    /// What becomes of it: nothing yet, when it is loaded.
    pub(super) change: Change,
    /// Whether it held its lane, or could have been claimed, when it was loaded.
    was_open: bool,
    /// Where it was counted when it was loaded.
    was_at: (u32, String, Status),
}

impl Row {
    fn of(head: Head) -> Self {
        let (was_open, was_at) = (head.is_open(), (head.version, head.step.clone(), head.status));
        Self { change: Change::of(head), was_open, was_at }
    }

    pub(super) fn head(&self) -> &Head {
        &self.change.head
    }

    pub(super) fn id(&self) -> InstanceId {
        self.change.head.id
    }
}

/// Where a head is counted.
pub(super) fn place<'a>(head: &'a Head, version: u32, step: &'a str, status: Status) -> Place<'a> {
    let Head { namespace, queue, machine, .. } = head;
    Place { namespace, queue, machine, version, step, status }
}

/// The names in a column that holds an array of them: `awaits` or `tags`.
pub(super) fn names(array: Option<&str>) -> rusqlite::Result<Vec<String>> {
    let names = array.map(|text| serde_json::from_str(text).map_err(|_| strange("list of names", text)));
    Ok(names.transpose()?.unwrap_or_default())
}

/// An array of names as a column holds it: null if there are none.
pub(super) fn names_text<N: AsRef<str> + serde::Serialize>(names: &[N]) -> Option<String> {
    (!names.is_empty()).then(|| serde_json::to_string(names).expect("names can be written"))
}

impl Tx<'_> {
    /// Writes how much waits in an inbox, where nothing else of its instance changes.
    pub(super) fn note_inbox(&self, head: &Head) -> Result<()> {
        let sql = "update instances set inbox = ?2, inbox_bytes = ?3 where id = ?1";
        self.sql(sql)?.execute((head.id.0, head.inbox, head.inbox_bytes))?;
        Ok(())
    }

    /// The instance that a target means in a namespace. One of another namespace is not there.
    pub(super) fn find(&self, namespace: &str, target: &Target) -> Result<Option<Row>> {
        let Some(id) = resolve(self.conn(), namespace, target)? else { return Ok(None) };
        Ok(self.load(id)?.filter(|row| row.head().namespace == namespace))
    }

    pub(super) fn load(&self, id: InstanceId) -> Result<Option<Row>> {
        Ok(self.sql(include_str!("load.sql"))?.query_row([id.0], read).optional()?.map(Row::of))
    }

    /// Writes a change, and notes its lane if it may need another holder. An end is taken off the parent's barrier.
    pub(super) fn save(&mut self, row: &mut Row) -> Result<()> {
        if let Some(holder) = self.key_rival(row.head())? {
            rules::fail_for_taken_key(&mut row.change, holder, self.now());
        }
        if let Some(status) = row.change.closes_unit.take() {
            units::let_go(self, row.head(), status)?;
        }
        if rules::settle(row.was_open, &mut row.change.head) {
            let Head { namespace, lane, .. } = row.head();
            let lane = lane.clone().expect("only a lane is settled");
            self.lanes.insert((namespace.clone(), lane));
        }
        self.record(&mut row.change)?;
        self.write(&row.change)?;
        let head = &row.change.head;
        let (version, step, status) = &row.was_at;
        self.counts.add(place(head, *version, step, *status), -1);
        self.counts.add(place(head, head.version, &head.step, head.status), 1);
        self.note_effects(head);
        match row.change.joins.take() {
            Some(join) => barrier::join(self, join),
            None => Ok(()),
        }
    }

    /// Moves a row to another lane, or out of its lane, with a change that is about to be saved: it waits for the new one.
    pub(super) fn change_lane(&mut self, row: &mut Row, to: &LaneChange) -> Result<()> {
        let from = row.head().lane.clone();
        rules::change_lane(&mut row.change, to, self.now());
        let Head { id, namespace, lane, .. } = row.head();
        if *lane == from {
            return Ok(());
        }
        self.sql("update instances set lane = ?2 where id = ?1")?.execute((id.0, lane))?;
        self.lanes.extend(from.map(|from| (namespace.clone(), from)));
        row.was_open = false;
        Ok(())
    }

    /// Records the events of a change, if its instance keeps a history. The first one holds the new state and the run.
    pub(super) fn record(&self, change: &mut Change) -> Result<()> {
        let events = std::mem::take(&mut change.events);
        let Change { head, state, run, .. } = change;
        if !head.keeps_history || events.is_empty() {
            return Ok(());
        }
        let mut sql = self.sql(include_str!("record.sql"))?;
        let (mut state, mut run) = (state.as_ref().map(Json::as_str), run.take());
        let first = head.seq + 1 - events.len() as u64;
        for (seq, event) in (first..).zip(events) {
            let data = event.data.map(|data| data.text(self.now()));
            let (started_at, took_us, progress) = run_columns(run.as_ref());
            sql.execute(params![
                head.id.0,
                seq,
                event.kind.as_str(),
                head.version,
                head.step,
                self.now_us(),
                data,
                state.take(),
                started_at,
                took_us,
                progress
            ])?;
            run = None;
        }
        Ok(())
    }

    /// Another instance that holds the key this row would hold if it were saved.
    fn key_rival(&self, head: &Head) -> Result<Option<InstanceId>> {
        let Some(key) = rules::takes_key(head) else { return Ok(None) };
        let holder = self.key_holder(&head.namespace, key)?;
        Ok(holder.filter(|holder| *holder != head.id))
    }

    pub(super) fn key_holder(&self, namespace: &str, key: &str) -> Result<Option<InstanceId>> {
        let mut sql = self.sql(include_str!("key_holder.sql"))?;
        Ok(sql.query_row((namespace, key), |row| row.get(0)).optional()?.map(InstanceId))
    }

    fn note_effects(&mut self, head: &Head) {
        if head.status == Status::Runnable && head.is_open() {
            self.effects.runnable(&head.queue);
        }
        if let Some(at) = head.wake_at {
            self.effects.arm(at);
        }
        if head.status.is_terminal() {
            self.effects.ended.push(head.id);
        }
    }

    fn write(&self, change: &Change) -> Result<()> {
        let us = |at: Option<Timestamp>| at.map(Timestamp::as_microsecond);
        let Change { head, state, output, .. } = change;
        let changed = self.sql(include_str!("save.sql"))?.execute(params![
            head.id.0,
            head.status.as_str(),
            head.step,
            head.seq,
            head.attempt,
            head.runnable_at.as_microsecond(),
            head.worker.map(|worker| worker.0),
            us(head.wake_at),
            head.wake.map(Wake::as_str),
            names_text(&head.awaits),
            head.inbox,
            head.barrier,
            head.round,
            head.joined,
            head.blocked,
            head.paused,
            head.cancel_requested,
            head.version,
            head.last_error,
            us(head.ended_at),
            self.now_us(),
            head.key_scope.to_text(),
            output.as_ref().map(Json::as_str),
            state.as_ref().map(Json::as_str),
            head.cancel_reason,
            head.cancelled_with.map(|with| with.0),
            head.crashes,
            head.crashes_seq,
            head.inbox_bytes,
            us(head.parked_until),
        ])?;
        assert_eq!(changed, 1, "a loaded row is still there");
        Ok(())
    }
}

fn read(row: &SqlRow<'_>) -> rusqlite::Result<Head> {
    let parent: Option<i64> = row.get(15)?;
    let parent_round: Option<u32> = row.get(16)?;
    let moment = |index: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(timestamp));
    Ok(Head {
        id: InstanceId(row.get(0)?),
        namespace: row.get(1)?,
        status: status(row.get_ref(2)?.as_str()?)?,
        step: row.get(3)?,
        seq: row.get(4)?,
        attempt: row.get(5)?,
        queue: row.get(6)?,
        runnable_at: timestamp(row.get(7)?),
        worker: row.get::<_, Option<i64>>(8)?.map(WorkerId),
        wake_at: moment(9)?,
        wake: wake(row.get_ref(10)?.as_str_or_null()?)?,
        awaits: names(row.get_ref(11)?.as_str_or_null()?)?,
        inbox: row.get(12)?,
        inbox_bytes: row.get(34)?,
        barrier: row.get(13)?,
        round: row.get(14)?,
        parent: parent.map(InstanceId).zip(parent_round),
        joined: row.get(17)?,
        lane: row.get(18)?,
        blocked: row.get(19)?,
        paused: row.get(20)?,
        cancel_requested: row.get(21)?,
        keeps_history: row.get(22)?,
        key: row.get(23)?,
        key_scope: key_scope(row.get_ref(24)?.as_str_or_null()?)?,
        version: row.get(25)?,
        last_error: row.get(26)?,
        ended_at: moment(27)?,
        machine: row.get(28)?,
        cancel_reason: row.get(29)?,
        cancelled_with: row.get::<_, Option<i64>>(30)?.map(InstanceId),
        crashes: row.get(31)?,
        crashes_seq: row.get(32)?,
        parked_until: moment(33)?,
    })
}

/// A run in the columns of its event.
pub(super) fn run_columns(run: Option<&Run>) -> (Option<i64>, Option<i64>, Option<&str>) {
    let progress = run.and_then(|run| run.progress.as_ref()).map(Json::as_str);
    (run.map(|run| run.started_at.as_microsecond()), run.map(|run| run.took_us as i64), progress)
}

/// The status of a stored word.
pub(super) fn status(word: &str) -> rusqlite::Result<Status> {
    word.parse().map_err(|_| strange("status", word))
}

/// The wake reason of a stored word.
pub(super) fn wake(word: Option<&str>) -> rusqlite::Result<Option<Wake>> {
    word.map(|word| word.parse().map_err(|_| strange("wake reason", word))).transpose()
}

/// The scope of a stored text.
pub(super) fn key_scope(text: Option<&str>) -> rusqlite::Result<KeyScope> {
    KeyScope::from_text(text).ok_or_else(|| strange("key scope", text.unwrap_or_default()))
}
