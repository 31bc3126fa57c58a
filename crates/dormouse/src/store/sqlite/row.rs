//! One instance's head, loaded, changed and saved within a write.
//!
//! Saving keeps what must hold between rows: a lane has one holder, a key has one holder, a parent's
//! barrier counts each end once, and whatever became possible is noted in the write's effects.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row as SqlRow, params};

use super::barrier;
use super::counts::Place;
use super::fault::strange;
use super::tx::{Tx, resolve, timestamp};
use super::units;
use crate::signal::CANCEL;
use crate::{At, EventKind, InstanceId, Json, Result, Run, SignalId, Status, Target, Wake, WorkerId};

pub(super) struct Row {
    pub(super) id: InstanceId,
    pub(super) namespace: String,
    pub(super) machine: String,
    pub(super) status: Status,
    pub(super) step: String,
    pub(super) seq: u64,
    pub(super) attempt: u32,
    pub(super) queue: String,
    pub(super) runnable_at: i64,
    pub(super) worker: Option<WorkerId>,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) wake: Option<Wake>,
    pub(super) awaits: Option<String>,
    pub(super) inbox: u32,
    pub(super) inbox_bytes: u64,
    pub(super) barrier: Option<u32>,
    pub(super) round: u32,
    pub(super) parent: Option<(InstanceId, u32)>,
    pub(super) joined: bool,
    pub(super) lane: Option<String>,
    blocked: bool,
    pub(super) paused: bool,
    pub(super) cancel_requested: bool,
    /// Why it is cancelled, and the ancestor that took it along.
    pub(super) cancel_reason: Option<String>,
    pub(super) cancelled_with: Option<InstanceId>,
    pub(super) keeps_history: bool,
    pub(super) key: Option<String>,
    key_scope: Option<String>,
    pub(super) version: u32,
    pub(super) last_error: Option<String>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) output: Option<Json>,
    /// The run of a step whose outcome is being committed: the next event tells it.
    pub(super) run: Option<Run>,
    /// How often the worker of its step died in a row, as of this `seq`.
    pub(super) crashes: u32,
    pub(super) crashes_seq: u64,
    /// Until when one that was cancelled had been parked on signals.
    pub(super) parked_until: Option<Timestamp>,
    /// The state to save, if it changes.
    state: Option<Json>,
    /// Whether an event has told that state.
    state_is_told: bool,
    /// Whether it held its lane, or could have been claimed, when it was loaded.
    was_open: bool,
    /// Where it was counted when it was loaded.
    was_at: (u32, String, Status),
}

/// How an instance ends.
pub(super) enum End<'a> {
    /// With an output, after a step that had received these.
    Done {
        output: &'a Json,
        received: &'a [SignalId],
    },
    Failed(&'a str),
    Cancelled,
}

impl Row {
    /// Moves it to another place. The next event tells the state, and those after it need not.
    pub(super) fn go_to(&mut self, at: &At) {
        self.step.clear();
        self.step.push_str(&at.step);
        self.state = Some(at.state.clone());
        self.state_is_told = false;
    }

    /// Forgets what the last park was about: the step has progressed.
    pub(super) fn progress(&mut self) {
        self.attempt = 0;
        self.wake = None;
        self.awaits = None;
        self.barrier = None;
        self.last_error = None;
    }

    /// Becomes runnable, at the end of its queue.
    pub(super) fn run_at(&mut self, now_us: i64) {
        self.status = Status::Runnable;
        self.runnable_at = now_us;
        self.worker = None;
        self.wake_at = None;
    }

    /// Becomes runnable because what it was parked on is there.
    pub(super) fn wake(&mut self, why: Wake, now_us: i64) {
        self.wake = Some(why);
        self.run_at(now_us);
    }

    /// Parks, perhaps with a moment at which the clock wakes it.
    pub(super) fn park(&mut self, status: Status, wake_at: Option<Timestamp>) {
        self.status = status;
        self.worker = None;
        self.wake_at = wake_at;
    }

    /// What the event of its cancel tells: the reason and the ancestor, if there are any.
    fn cancelled_data(&self) -> Option<String> {
        let mut data = serde_json::Map::new();
        data.extend(self.cancel_reason.as_ref().map(|reason| ("reason".to_owned(), reason.as_str().into())));
        data.extend(self.cancelled_with.map(|with| ("with".to_owned(), with.0.into())));
        (!data.is_empty()).then(|| serde_json::Value::from(data).to_string())
    }

    pub(super) fn awaited_names(&self) -> Result<Vec<String>> {
        Ok(names(self.awaits.as_deref())?)
    }

    /// Whether a scope of its own counts its key as taken in its status.
    fn scope_holds_key(&self) -> bool {
        let scope = self.key_scope.as_deref();
        scope.is_some_and(|scope| scope == "always" || scope.contains(self.status.as_str()))
    }

    pub(super) fn place<'a>(&'a self, version: u32, step: &'a str, status: Status) -> Place<'a> {
        let Self { namespace, queue, machine, .. } = self;
        Place { namespace, queue, machine, version, step, status }
    }

    /// Notes a signal that was stored in its inbox.
    pub(super) fn take_in(&mut self, payload: &Json) {
        self.inbox += 1;
        self.inbox_bytes += payload.as_str().len() as u64;
    }

    /// Notes that signals left its inbox.
    pub(super) fn let_out(&mut self, signals: u32, bytes: u64) {
        self.inbox = self.inbox.checked_sub(signals).expect("the inbox holds what leaves it");
        self.inbox_bytes = if self.inbox == 0 { 0 } else { self.inbox_bytes.saturating_sub(bytes) };
    }

    /// Whether it holds its lane and can be claimed, or is.
    fn is_open(&self) -> bool {
        match self.status {
            Status::Executing => true,
            Status::Runnable => !self.blocked && !self.paused,
            _ => false,
        }
    }
}

/// The names in a column that holds an array of them: `awaits` or `tags`.
pub(super) fn names(array: Option<&str>) -> rusqlite::Result<Vec<String>> {
    let names = array.map(|text| serde_json::from_str(text).map_err(|_| strange("list of names", text)));
    Ok(names.transpose()?.unwrap_or_default())
}

impl Tx<'_> {
    /// Writes how much waits in an inbox, where nothing else of its instance changes.
    pub(super) fn note_inbox(&self, row: &Row) -> Result<()> {
        let sql = "update instances set inbox = ?2, inbox_bytes = ?3 where id = ?1";
        self.sql(sql)?.execute((row.id.0, row.inbox, row.inbox_bytes))?;
        Ok(())
    }

    /// The instance that a target means in a namespace. One of another namespace is not there.
    pub(super) fn find(&self, namespace: &str, target: &Target) -> Result<Option<Row>> {
        let Some(id) = resolve(self.conn(), namespace, target)? else { return Ok(None) };
        Ok(self.load(id)?.filter(|row| row.namespace == namespace))
    }

    pub(super) fn load(&self, id: InstanceId) -> Result<Option<Row>> {
        Ok(self.sql(include_str!("load.sql"))?.query_row([id.0], read).optional()?)
    }

    /// Counts a transition and, if the instance keeps a history, records it.
    pub(super) fn record(&self, row: &mut Row, kind: EventKind, data: Option<String>) -> Result<()> {
        row.seq += 1;
        if row.keeps_history {
            let state = row.state.as_ref().filter(|_| !row.state_is_told).map(Json::as_str);
            let run = row.run.take();
            let (started_at, took_us, progress) = told_run(run.as_ref());
            self.sql(include_str!("record.sql"))?.execute(params![
                row.id.0,
                row.seq,
                kind.as_str(),
                row.version,
                row.step,
                self.now_us(),
                data,
                state,
                started_at,
                took_us,
                progress
            ])?;
            row.state_is_told = true;
        }
        Ok(())
    }

    /// Writes a changed row back, and notes its lane if it may need another holder.
    pub(super) fn save(&mut self, row: &mut Row) -> Result<()> {
        if let Some(holder) = self.key_rival(row)? {
            self.fail_for_taken_key(row, holder)?;
        }
        if let Some(lane) = &row.lane {
            // Whoever did not hold its lane stands behind it until the lane is settled.
            row.blocked = row.status == Status::Runnable && (row.paused || !row.was_open);
            if row.blocked || (row.was_open && !row.is_open()) {
                self.lanes.insert((row.namespace.clone(), lane.clone()));
            }
        }
        self.write(row)?;
        let (version, step, status) = &row.was_at;
        self.counts.add(row.place(*version, step, *status), -1);
        self.counts.add(row.place(row.version, &row.step, row.status), 1);
        self.note_effects(row);
        Ok(())
    }

    /// Ends an instance: its inbox goes, its parent hears of it, its lane and key are free.
    pub(super) fn end(&mut self, row: &mut Row, end: &End<'_>) -> Result<()> {
        if row.status == Status::AwaitingCompletion {
            units::cancel_unit(self, row)?;
        }
        let (status, kind, data) = match end {
            End::Done { output, received } => {
                let unread =
                    if row.inbox as usize > received.len() { self.unread(row.id, received)? } else { None };
                row.output = Some((*output).clone());
                row.last_error = None;
                // Nothing will ever read these: a `done` instance cannot be retried. The inbox of one that
                // failed or was cancelled is only out of sight, so that a retry finds its inputs again.
                self.sql("delete from signals where instance = ?1")?.execute([row.id.0])?;
                row.inbox = 0;
                row.inbox_bytes = 0;
                (Status::Done, EventKind::Done, unread)
            }
            End::Failed(error) => {
                row.last_error = Some((*error).to_owned());
                (Status::Failed, EventKind::Failed, Some(serde_json::json!({ "error": error }).to_string()))
            }
            End::Cancelled => (Status::Cancelled, EventKind::Cancelled, row.cancelled_data()),
        };
        row.park(status, None);
        row.cancel_requested = false;
        row.ended_at = Some(self.now());
        let joins = !std::mem::replace(&mut row.joined, true);
        self.record(row, kind, data)?;
        self.save(row)?;
        match row.parent {
            Some((parent, round)) if joins => barrier::join(self, parent, round, status),
            _ => Ok(()),
        }
    }

    /// What the event of an end tells of signals that no step has read: names and counts, the most first, bounded.
    fn unread(&self, id: InstanceId, received: &[SignalId]) -> Result<Option<String>> {
        let received = serde_json::to_string(received).expect("numbers can be written");
        let mut sql = self.sql(include_str!("unread.sql"))?;
        let unread: Option<String> = sql.query_row((id.0, received, CANCEL), |row| row.get(0))?;
        Ok(unread)
    }

    /// Another instance that holds the key this row would hold if it were saved.
    fn key_rival(&self, row: &Row) -> Result<Option<InstanceId>> {
        // The default scope never takes a key back, except by a retry, which asks before it comes here.
        let Some(key) = row.key.as_ref().filter(|_| row.scope_holds_key()) else { return Ok(None) };
        let holder = self.key_holder(&row.namespace, key)?;
        Ok(holder.filter(|holder| *holder != row.id))
    }

    pub(super) fn key_holder(&self, namespace: &str, key: &str) -> Result<Option<InstanceId>> {
        let mut sql = self.sql(include_str!("key_holder.sql"))?;
        Ok(sql.query_row((namespace, key), |row| row.get(0)).optional()?.map(InstanceId))
    }

    /// A status in which the key counts as taken cannot be entered while another holds it: this row
    /// alone fails, and lets go of its claim on the key if even `failed` could not be saved with it.
    fn fail_for_taken_key(&mut self, row: &mut Row, holder: InstanceId) -> Result<()> {
        let error = format!("it could not become {}: its key is taken by instance {holder}", row.status);
        if row.status.is_terminal() {
            row.key_scope = Some(String::new());
            return Ok(());
        }
        if row.status == Status::AwaitingCompletion {
            units::let_go_unit(self, row)?;
        }
        row.last_error = Some(error.clone());
        row.park(Status::Failed, None);
        if row.scope_holds_key() {
            row.key_scope = Some(String::new());
        }
        row.ended_at = Some(self.now());
        self.record(row, EventKind::Failed, Some(serde_json::json!({ "error": error }).to_string()))?;
        match row.parent {
            Some((parent, round)) if !std::mem::replace(&mut row.joined, true) => {
                barrier::join(self, parent, round, Status::Failed)
            }
            _ => Ok(()),
        }
    }

    /// Hands each lane that this write touched and nobody holds to the next in line. Once, at its end: of those
    /// that become runnable together, the lane's order decides who is first, and not the order of the batch.
    pub(super) fn settle_lanes(&mut self) -> Result<()> {
        for (namespace, lane) in std::mem::take(&mut self.lanes) {
            if self.sql(include_str!("lane_holder.sql"))?.exists((&namespace, &lane, 0))? {
                continue;
            }
            let next: Option<(i64, String)> = self
                .sql(include_str!("lane_next.sql"))?
                .query_row((&namespace, &lane), |next| Ok((next.get(0)?, next.get(1)?)))
                .optional()?;
            if let Some((next, queue)) = next {
                self.sql("update instances set blocked = 0 where id = ?1")?.execute([next])?;
                self.effects.runnable(&queue);
            }
        }
        Ok(())
    }

    fn note_effects(&mut self, row: &Row) {
        if row.status == Status::Runnable && row.is_open() {
            self.effects.runnable(&row.queue);
        }
        if let Some(at) = row.wake_at {
            self.effects.arm(at);
        }
        if row.status.is_terminal() {
            self.effects.ended.push(row.id);
        }
    }

    fn write(&self, row: &Row) -> Result<()> {
        let us = |at: Option<Timestamp>| at.map(Timestamp::as_microsecond);
        let changed = self.sql(include_str!("save.sql"))?.execute(params![
            row.id.0,
            row.status.as_str(),
            row.step,
            row.seq,
            row.attempt,
            row.runnable_at,
            row.worker.map(|worker| worker.0),
            us(row.wake_at),
            row.wake.map(Wake::as_str),
            row.awaits,
            row.inbox,
            row.barrier,
            row.round,
            row.joined,
            row.blocked,
            row.paused,
            row.cancel_requested,
            row.version,
            row.last_error,
            us(row.ended_at),
            self.now_us(),
            row.key_scope,
            row.output.as_ref().map(Json::as_str),
            row.state.as_ref().map(Json::as_str),
            row.cancel_reason,
            row.cancelled_with.map(|with| with.0),
            row.crashes,
            row.crashes_seq,
            row.inbox_bytes,
        ])?;
        assert_eq!(changed, 1, "a loaded row is still there");
        Ok(())
    }
}

fn read(row: &SqlRow<'_>) -> rusqlite::Result<Row> {
    let parent: Option<i64> = row.get(15)?;
    let parent_round: Option<u32> = row.get(16)?;
    let mut read = Row {
        id: InstanceId(row.get(0)?),
        namespace: row.get(1)?,
        status: status(row.get_ref(2)?.as_str()?)?,
        step: row.get(3)?,
        seq: row.get(4)?,
        attempt: row.get(5)?,
        queue: row.get(6)?,
        runnable_at: row.get(7)?,
        worker: row.get::<_, Option<i64>>(8)?.map(WorkerId),
        wake_at: row.get::<_, Option<i64>>(9)?.map(timestamp),
        wake: wake(row.get_ref(10)?.as_str_or_null()?)?,
        awaits: row.get(11)?,
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
        key_scope: row.get(24)?,
        version: row.get(25)?,
        last_error: row.get(26)?,
        ended_at: row.get::<_, Option<i64>>(27)?.map(timestamp),
        output: None,
        run: None,
        state: None,
        state_is_told: false,
        was_open: false,
        machine: row.get(28)?,
        cancel_reason: row.get(29)?,
        cancelled_with: row.get::<_, Option<i64>>(30)?.map(InstanceId),
        crashes: row.get(31)?,
        crashes_seq: row.get(32)?,
        parked_until: row.get::<_, Option<i64>>(33)?.map(timestamp),
        was_at: (0, String::new(), Status::Runnable),
    };
    read.was_at = (read.version, read.step.clone(), read.status);
    read.was_open = read.is_open();
    Ok(read)
}

/// A run in the columns of its event.
pub(super) fn told_run(run: Option<&Run>) -> (Option<i64>, Option<i64>, Option<&str>) {
    let progress = run.and_then(|run| run.progress.as_ref()).map(Json::as_str);
    (run.map(|run| run.started_at.as_microsecond()), run.map(|run| run.took_us as i64), progress)
}

/// The status of a stored word.
pub(super) fn status(word: &str) -> rusqlite::Result<Status> {
    Status::parse(word).ok_or_else(|| strange("status", word))
}

/// The wake reason of a stored word.
pub(super) fn wake(word: Option<&str>) -> rusqlite::Result<Option<Wake>> {
    word.map(|word| Wake::parse(word).ok_or_else(|| strange("wake reason", word))).transpose()
}
