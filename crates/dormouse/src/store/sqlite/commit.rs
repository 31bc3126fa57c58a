//! Committing outcomes. Every one proves its ownership by worker and `seq`; a stale one changes nothing.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::barrier;
use super::deliver::{SignalData, wake_by_signal};
use super::insert::{Parentage, insert};
use super::query::{inbox, inbox_signal};
use super::row::{End, Row, told_run};
use super::tx::Tx;
use super::units::park_on_unit;
use crate::clock::micros;
use crate::limits::storable;
use crate::outcome::Barrier;
use crate::store::{Commit, Hold, READ_WITH_CLAIM_MAX, Receipt};
use crate::{
    At, Delivered, EventKind, InboxSignal, Inserted, Json, NewSignal, Result, SignalId, Spawn, Status,
    Transition, Wake, When, WorkerId,
};

pub(super) fn commit(tx: &mut Tx<'_>, worker: WorkerId, commit: &Commit) -> Result<Receipt> {
    if let Some(receipt) = run_ahead(tx, worker, commit)? {
        return Ok(receipt);
    }
    let Some(mut row) = tx.load(commit.id)?.filter(|row| row.worker == Some(worker) && row.seq == commit.seq)
    else {
        return Ok(Receipt::Stale);
    };
    if row.cancel_requested {
        super::operate::cancel_row(tx, &mut row)?;
        return Ok(Receipt::Cancelled);
    }
    row.run.clone_from(&commit.run);
    // A version tells how to read the state, so it changes with it: an end leaves both as they were.
    if commit.transition.at().is_some() {
        row.version = commit.version;
    }
    match &commit.transition {
        Transition::Next { at, .. } => return next(tx, row, commit, at),
        Transition::Replay { at, delay, error } => {
            replay(tx, &mut row, at, *delay, error.as_deref().map(storable).as_deref())?;
        }
        Transition::Sleep { at, until } => sleep(tx, &mut row, &commit.received, at, *until)?,
        Transition::Await { at, names, timeout } => {
            let waiting = Waiting::new(names, *timeout, tx.now());
            park_on_signals(tx, &mut row, &commit.received, at, &waiting)?;
        }
        Transition::Spawn(spawn) => park_on_children(tx, &mut row, &commit.received, spawn)?,
        Transition::Dispatch(dispatch) => park_on_unit(tx, &mut row, &commit.received, dispatch)?,
        Transition::Done { output } => {
            tx.end(&mut row, &End::Done { output, received: &commit.received })?;
            return Ok(Receipt::Released);
        }
        Transition::Fail { error } => {
            tx.end(&mut row, &End::Failed(&storable(error)))?;
            return Ok(Receipt::Released);
        }
    }
    tx.save(&mut row)?;
    Ok(Receipt::Released)
}

/// The hot path: a `next` that keeps its claim and had nothing to consume is one guarded update.
/// Whatever is special about the row makes it match nothing, and the long way decides.
fn run_ahead(tx: &Tx<'_>, worker: WorkerId, commit: &Commit) -> Result<Option<Receipt>> {
    let Transition::Next { at, .. } = &commit.transition else { return Ok(None) };
    if commit.hold == Hold::Release || !commit.received.is_empty() {
        return Ok(None);
    }
    let (version, step, state) = (commit.version, &*at.step, at.state.as_str());
    let mut update = tx.sql(include_str!("commit_next.sql"))?;
    if update.execute(params![commit.id.0, commit.seq, worker.0, step, state, tx.now_us(), version])? == 0 {
        return Ok(None);
    }
    let seq = commit.seq + 1;
    if commit.keeps_history {
        let kind = EventKind::StepCompleted.as_str();
        let mut record = tx.sql(include_str!("record.sql"))?;
        let (started_at, took, progress) = told_run(commit.run.as_ref());
        let (id, now, data) = (commit.id.0, tx.now_us(), None::<&str>);
        record
            .execute(params![id, seq, kind, version, step, now, data, state, started_at, took, progress])?;
    }
    Ok(Some(Receipt::Held { seq, inbox: Vec::new(), now: tx.now() }))
}

fn next(tx: &mut Tx<'_>, mut row: Row, commit: &Commit, at: &At) -> Result<Receipt> {
    let consumed = consume(tx, &mut row, &commit.received)?;
    row.progress();
    row.go_to(at);
    let data = consumed.map(|consumed| with_consumed("{}".to_owned(), Some(consumed)));
    tx.record(&mut row, EventKind::StepCompleted, data)?;
    // One whose inbox is too large to come with a receipt is claimed again.
    if commit.hold == Hold::Keep && !row.paused && row.inbox_bytes <= READ_WITH_CLAIM_MAX {
        tx.save(&mut row)?;
        let inbox = if row.inbox > 0 { inbox(tx.conn(), row.id)? } else { Vec::new() };
        return Ok(Receipt::Held { seq: row.seq, inbox, now: tx.now() });
    }
    // In a lane it keeps its place: those behind it are meant to come after it.
    let place = if row.lane.is_some() { row.runnable_at } else { tx.now_us() };
    row.run_at(place);
    tx.save(&mut row)?;
    Ok(Receipt::Released)
}

fn replay(
    tx: &Tx<'_>,
    row: &mut Row,
    at: &At,
    delay: std::time::Duration,
    error: Option<&str>,
) -> Result<()> {
    row.attempt += 1;
    row.last_error = error.map(str::to_owned);
    row.go_to(at);
    let data =
        serde_json::json!({ "attempt": row.attempt, "delay_ms": micros(delay) / 1000, "error": error });
    tx.record(row, EventKind::StepRetried, Some(data.to_string()))?;
    if micros(delay) == 0 {
        row.run_at(tx.now_us());
    } else {
        row.park(Status::Scheduled, Some(When::In(delay).moment(tx.now())));
    }
    Ok(())
}

fn sleep(tx: &Tx<'_>, row: &mut Row, received: &[SignalId], at: &At, until: When) -> Result<()> {
    let until = until.moment(tx.now());
    let consumed = consume(tx, row, received)?;
    row.progress();
    row.go_to(at);
    let data = format!(r#"{{"sleep_until":"{until}"}}"#);
    tx.record(row, EventKind::StepCompleted, Some(with_consumed(data, consumed)))?;
    row.park(Status::Scheduled, Some(until));
    Ok(())
}

/// What a park on signals is about.
pub(super) struct Waiting {
    /// In order, each once.
    names: Vec<String>,
    pub(super) until: Option<Timestamp>,
}

impl Waiting {
    pub(super) fn new(names: &[String], timeout: Option<When>, now: Timestamp) -> Self {
        let mut names = names.to_vec();
        names.sort_unstable();
        names.dedup();
        Self { names, until: timeout.map(|timeout| timeout.moment(now)) }
    }

    /// The `awaits` column.
    pub(super) fn awaits(&self) -> String {
        serde_json::json!(self.names).to_string()
    }

    /// The event's data.
    pub(super) fn data(&self) -> String {
        serde_json::json!({ "names": self.names, "until": self.until.map(|at| at.to_string()) }).to_string()
    }
}

/// Parks on names, unless a matching signal is there that the parking step was not handed.
fn park_on_signals(
    tx: &Tx<'_>,
    row: &mut Row,
    received: &[SignalId],
    at: &At,
    waiting: &Waiting,
) -> Result<()> {
    row.progress();
    row.go_to(at);
    tx.record(row, EventKind::SignalWaiting, Some(waiting.data()))?;
    row.awaits = Some(waiting.awaits());
    match unseen(tx, row, received, &waiting.names)? {
        Some(InboxSignal { id, name, payload, dedup_key, .. }) => {
            wake_by_signal(tx, row, id, &NewSignal { name, payload, dedup_key })
        }
        None => {
            row.park(Status::AwaitingSignal, waiting.until);
            Ok(())
        }
    }
}

/// The first awaited signal in the inbox that the parking step was not handed.
fn unseen(tx: &Tx<'_>, row: &Row, received: &[SignalId], names: &[String]) -> Result<Option<InboxSignal>> {
    if row.inbox as usize <= received.len() {
        return Ok(None);
    }
    let mut sql = tx.sql("select id, name from signals where instance = ?1 and consumed = 0 order by id")?;
    let mut rows = sql.query([row.id.0])?;
    while let Some(found) = rows.next()? {
        let (id, name): (i64, String) = (found.get(0)?, found.get(1)?);
        if names.contains(&name) && !received.contains(&SignalId(id)) {
            return Ok(Some(tx.sql(include_str!("signal.sql"))?.query_row([id], inbox_signal)?));
        }
    }
    Ok(None)
}

/// Inserts the children and parks on their barrier, or runs on if there is nothing to wait for.
fn park_on_children(tx: &mut Tx<'_>, row: &mut Row, received: &[SignalId], spawn: &Spawn) -> Result<()> {
    let consumed = consume(tx, row, received)?;
    row.progress();
    row.go_to(&spawn.at);
    row.round += 1;
    let parentage = Parentage { parent: row.id, round: row.round, on_cancel: spawn.on_cancel };
    let mut inserted = 0_u32;
    let told = insert(tx, &spawn.children, Some(parentage))?;
    for (child, told) in spawn.children.iter().zip(told) {
        match told {
            Inserted::New(_) => inserted += 1,
            // This row is in our hands: what the store counted for it would be lost when we save it.
            Inserted::Taken { holder, signals } if holder == row.id => {
                let sent = child.signals.iter().zip(&signals);
                let taken = sent.filter(|(_, told)| matches!(told, Delivered::Accepted { .. }));
                taken.for_each(|(signal, _)| row.take_in(&signal.payload));
            }
            Inserted::Taken { .. } => {}
        }
    }
    let Barrier { ends, spare } = spawn.barrier(inserted);
    let until = spawn.timeout.map(|timeout| timeout.moment(tx.now()));
    let mut data = serde_json::json!({
        "round": row.round, "inserted": inserted, "dropped": spawn.children.len() - inserted as usize,
        "barrier": ends, "until": until.map(|at| at.to_string()),
    });
    if let Some(spare) = spare {
        data["spare"] = spare.into();
    }
    tx.record(row, EventKind::ChildrenSpawned, Some(with_consumed(data.to_string(), consumed)))?;
    row.barrier = Some(ends);
    barrier::raise(tx, row, spare, spawn.on_release)?;
    if ends == 0 {
        row.wake(Wake::Children, tx.now_us());
    } else {
        row.park(Status::AwaitingChildren, until);
    }
    Ok(())
}

/// Adds what was consumed to an event's data.
pub(super) fn with_consumed(mut data: String, consumed: Option<String>) -> String {
    if let Some(consumed) = consumed {
        let end = data.pop();
        assert_eq!(end, Some('}'), "an event's data is an object");
        let comma = if data.len() > 1 { "," } else { "" };
        data = format!(r#"{data}{comma}"consumed":{consumed}}}"#);
    }
    data
}

/// Consumes what the step received, by id; a dedup key outlives its signal. Tells what it was, as a JSON array.
pub(super) fn consume(tx: &Tx<'_>, row: &mut Row, received: &[SignalId]) -> Result<Option<String>> {
    if received.is_empty() {
        return Ok(None);
    }
    let (mut consumed, mut bytes) = (Vec::with_capacity(received.len()), 0);
    for id in received {
        let mut signal = None;
        for sql in [include_str!("consume.sql"), include_str!("consume_keep.sql")] {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Box<str>>(1)?));
            signal = tx.sql(sql)?.query_row((id.0, row.id.0), read).optional()?;
            if signal.is_some() {
                break;
            }
        }
        let (name, payload) = signal.expect("a received signal stays until its own step consumes it");
        let payload = Json::trusted(payload);
        bytes += payload.as_str().len() as u64;
        consumed.push(SignalData { id: *id, name: &name, payload: &payload, dedup_key: None }.to_text());
    }
    row.let_out(received.len() as u32, bytes);
    Ok(Some(format!("[{}]", consumed.join(","))))
}
