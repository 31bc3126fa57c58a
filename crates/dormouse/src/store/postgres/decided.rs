//! An outcome as the worker decides it, on its way to the database and back.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::postgres::PgRow;

use super::claim::signals;
use super::insert::Arrival;
use super::mail::Sent;
use super::types::{Columns, batch, parse, when};
use super::units::Unit;
use crate::rules::{self, Change, Handed, Head, Input, Returned};
use crate::store::{Commit, Hold, Receipt};
use crate::{Children, InboxSignal, Json, Quorum, Result, Status, Transition, Wake};

/// The moment at which a worker decides: the database puts its own in its place.
const NOW: Timestamp = Timestamp::MAX;

/// A row that has moved since it was claimed, as it is now.
pub(super) struct Moved {
    head: Head,
    handed: Handed,
}

/// What has moved, as the database answers it.
#[derive(Deserialize)]
pub(super) struct Fresh {
    paused: bool,
    inbox_bytes: u64,
    arrived: Option<Box<RawValue>>,
}

impl Moved {
    pub(super) fn of(commit: &Commit) -> Self {
        Self { head: commit.head.clone(), handed: commit.handed.clone() }
    }

    pub(super) fn meets(&mut self, commit: &Commit, (fresh, arrived): (Fresh, Vec<InboxSignal>)) {
        self.handed.meets(&arrived, &commit.transition, &commit.received);
        let Fresh { paused, inbox_bytes, .. } = fresh;
        self.head = Head { paused, inbox_bytes, inbox: self.handed.signals, ..commit.head.clone() };
    }
}

/// The new row, and the facts of the inbox by which it was decided.
pub(super) fn decide<'c>(commit: &'c Commit, moved: Option<&'c Moved>) -> (Change, &'c Handed) {
    let (head, handed) = match moved {
        Some(Moved { head, handed }) => (head, handed),
        None => (&commit.head, &commit.handed),
    };
    let Commit { transition, version, received, hold, mail, .. } = commit;
    let hold = if commit.lane.is_some() { Hold::Release } else { *hold };
    let facts = handed.facts(transition, received);
    let returned = Returned { transition, version: *version, hold, received, mail, facts };
    let mut change = rules::decide(head.clone(), Input::Outcome(returned), NOW);
    if let Some(lane) = &commit.lane {
        rules::change_lane(&mut change, lane, NOW);
    }
    (change, handed)
}

/// One outcome as the database takes it.
pub(super) fn decided_alone(commit: &Commit, moved: Option<&Moved>, again: bool) -> Result<String> {
    let (change, handed) = decide(commit, moved);
    batch(&[Decided::new(1, commit, &change, handed, again)])
}

/// A decided outcome: the type `dormouse.decided`, by name.
#[derive(Serialize)]
pub(super) struct Decided<'a> {
    ord: usize,
    id: i64,
    seq: u64,
    again: bool,
    inbox_seen: Option<u32>,
    seen_last: Option<i64>,
    status: &'static str,
    version: u32,
    step: &'a str,
    state: Option<&'a str>,
    attempt: u32,
    keeps_place: bool,
    at_us: Option<i64>,
    in_us: Option<i64>,
    arms: bool,
    wake: Option<&'static str>,
    awaits: Option<&'a [String]>,
    barrier: Option<u32>,
    round: u32,
    last_error: Option<&'a str>,
    output: Option<&'a str>,
    consumes: Option<Vec<i64>>,
    drops_inbox: bool,
    kind: &'static str,
    data: Option<String>,
    moment: Option<&'a str>,
    then_kind: Option<&'static str>,
    then_data: Option<String>,
    started_us: Option<i64>,
    took_us: Option<u64>,
    progress: Option<&'a str>,
    #[serde(flatten)]
    spawn: Option<Spawned<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<Unit<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    moves: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mail: Option<Vec<Sent<'a>>>,
}

/// The children of a spawn, and what their barrier counts: how many are inserted, the database finds out.
#[derive(Serialize)]
struct Spawned<'a> {
    children: Option<Vec<Arrival<'a>>>,
    quorum: Option<u32>,
    counts_done: bool,
    fail_fast: bool,
    cancels_rest: bool,
    cascade: bool,
}

impl<'a> Decided<'a> {
    pub(super) fn new(
        ord: usize,
        commit: &'a Commit,
        change: &'a Change,
        handed: &Handed,
        again: bool,
    ) -> Self {
        let Change { head, state, output, events, consumes, .. } = change;
        let [first, others @ ..] = &events[..] else { panic!("an outcome is a transition") };
        let moment = first.data.as_ref().and_then(|data| data.moment.as_ref());
        let (at_us, in_us) = when(moment.map_or(change.arms, |(_, moment)| *moment));
        let data = |data: &rules::Data| data.fields_text();
        let run = commit.run.as_ref();
        let by_inbox = Handed::decides(&commit.transition);
        Self {
            ord,
            id: head.id.0,
            seq: commit.head.seq,
            again,
            inbox_seen: by_inbox.then_some(handed.signals),
            seen_last: handed.last.filter(|_| by_inbox).map(|id| id.0),
            status: head.status.as_str(),
            version: head.version,
            step: &head.step,
            state: state.as_ref().map(Json::as_str),
            attempt: head.attempt,
            keeps_place: head.status != Status::Runnable || head.runnable_at == commit.head.runnable_at,
            at_us,
            in_us,
            arms: change.arms.is_some(),
            wake: head.wake.map(Wake::as_str),
            awaits: (!head.awaits.is_empty()).then_some(&head.awaits[..]),
            barrier: head.barrier,
            round: head.round,
            last_error: head.last_error.as_deref(),
            output: output.as_ref().map(Json::as_str),
            consumes: (!consumes.is_empty()).then(|| consumes.iter().map(|id| id.0).collect()),
            drops_inbox: change.drops_inbox,
            kind: first.kind.as_str(),
            data: first.data.as_ref().map(data),
            moment: moment.map(|(name, _)| &**name),
            then_kind: others.first().map(|event| event.kind.as_str()),
            then_data: others.first().and_then(|event| event.data.as_ref()).map(data),
            started_us: run.map(|run| run.started_at.as_microsecond()),
            took_us: run.map(|run| run.took_us),
            progress: run.and_then(|run| run.progress.as_ref()).map(Json::as_str),
            spawn: match &commit.transition {
                Transition::Spawn(spawn) => Some(Spawned::new(spawn)),
                _ => None,
            },
            unit: match &commit.transition {
                Transition::Dispatch(dispatch) => Some(Unit::new(dispatch)),
                _ => None,
            },
            moves: head.lane != commit.head.lane,
            lane: head.lane.as_deref().filter(|_| head.lane != commit.head.lane),
            mail: (!change.mail.is_empty()).then(|| change.mail.iter().map(Sent::new).collect()),
        }
    }
}

impl<'a> Spawned<'a> {
    fn new(spawn: &'a crate::Spawn) -> Self {
        let children: Vec<_> = spawn.children.iter().enumerate().map(Arrival::new).collect();
        Self {
            children: if children.is_empty() { None } else { Some(children) },
            quorum: spawn.quorum.map(|quorum| quorum.count().min(spawn.children.len() as u32)),
            counts_done: matches!(spawn.quorum, Some(Quorum::Done(_))),
            fail_fast: spawn.fail_fast,
            cancels_rest: spawn.on_release == Children::Cancel,
            cascade: spawn.on_cancel == Children::Cancel,
        }
    }
}

/// What the database answers to an outcome.
pub(super) enum Answer {
    Receipt(Receipt),
    /// Somebody wants the instance cancelled: that comes first.
    Cancel,
    /// The facts by which it was decided have changed.
    Moved((Fresh, Vec<InboxSignal>)),
}

/// The answers to a batch, in its order.
pub(super) fn answers(row: &PgRow) -> Result<Vec<Answer>> {
    let words: Vec<String> = row.value("receipts")?;
    let seqs: Vec<Option<i64>> = row.value("seqs")?;
    let inboxes: Vec<Option<String>> = row.value("inboxes")?;
    let now = row.moment("at")?;
    let answer = |((word, seq), inbox): ((String, Option<i64>), Option<String>)| {
        Ok(Answer::Receipt(match word.as_str() {
            "held" => Receipt::Held {
                seq: seq.expect("a held row is there") as u64,
                inbox: inbox.as_deref().map(signals).transpose()?.unwrap_or_default(),
                now,
            },
            "released" => Receipt::Released,
            "cancelled" => Receipt::Cancelled,
            "stale" => Receipt::Stale,
            "busy" => Receipt::Busy,
            "cancel" => return Ok(Answer::Cancel),
            "moved" => {
                let fresh: Fresh =
                    parse("fresh head", &inbox.expect("a row that moved comes with its head"))?;
                let arrived = fresh.arrived.as_deref().map(|arrived| signals(arrived.get())).transpose()?;
                return Ok(Answer::Moved((fresh, arrived.unwrap_or_default())));
            }
            other => panic!("{other:?} is not a receipt"),
        }))
    };
    words.into_iter().zip(seqs).zip(inboxes).map(answer).collect()
}
