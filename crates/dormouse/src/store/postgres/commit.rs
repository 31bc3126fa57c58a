//! Committing outcomes: those that run ahead in one statement, all others in another.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde::Serialize;
use sqlx::postgres::PgRow;

use super::claim::signals;
use super::db::{Db, Statement};
use super::fault::lock_timed_out;
use super::insert::Arrival;
use super::marks::Memory;
use super::types::{Columns, batch, when};
use super::units::Unit;
use crate::clock::micros;
use crate::limits::sorted;
use crate::limits::storable;
use crate::store::{Commit, Effects, Hold, Receipt, Written};
use crate::{Children, InstanceId, Json, Quorum, Result, Run, Transition, WorkerId};

const NEXT: &str = "select v.held, v.at from dormouse.commit_next($1, $2, $3, $4, $5, $6, $7, $8, $9) v";
const DONE: &str = "select v.done, v.at from dormouse.commit_done($1, $2, $3, $4, $5, $6, $7, $8) v";
const COMMIT: &str = "select v.receipts, v.seqs, v.inboxes::text[], v.at, (v.effects).* \
    from dormouse.commit($1, $2::json, $3) v";
const OWN: &str = "select v.receipts, v.seqs, v.inboxes::text[], v.at, (v.effects).* \
    from dormouse.commit_own($1, $2::json) v";
const ASK: &str = "select v.receipts, v.seqs, v.inboxes::text[], v.at from dormouse.ask($1, $2::json) v";
const CANCEL: &str = "select v.done, (v.effects).* from dormouse.cancel_held($1, $2, $3) v";

/// How long a group looks for those of its outcomes that hold it up. What is not tried by then comes again.
const SPLIT_FOR: Duration = Duration::from_millis(300);

pub(super) async fn commit(
    db: &Db,
    memory: &Memory,
    worker: WorkerId,
    commits: &[Commit],
) -> Result<Written<Vec<Receipt>>> {
    let mut group =
        Group { db, memory, worker, receipts: vec![None; commits.len()], effects: Effects::default() };
    let committed = group.write(commits).await;
    match committed {
        Ok(()) => {
            let receipts = group.receipts.into_iter().map(|receipt| receipt.expect("each has one"));
            let receipts: Vec<_> = receipts.collect();
            let with = |busy: bool| {
                let answered = commits.iter().zip(&receipts);
                let wanted = answered.filter(move |(_, receipt)| matches!(receipt, Receipt::Busy) == busy);
                wanted.map(|(commit, _)| commit)
            };
            // What another transaction holds, perhaps our own first try, is as unknown as before.
            memory.lost.remove(with(false));
            memory.busy.remove(with(false));
            memory.busy.add(with(true));
            Ok(Written { value: receipts, effects: group.effects })
        }
        Err(error) => {
            // Some of it may be committed: whoever asks again is answered with what happened.
            memory.lost.add(commits);
            Err(error)
        }
    }
}

/// Outcomes on their way to the database.
struct Group<'a> {
    db: &'a Db,
    memory: &'a Memory,
    worker: WorkerId,
    receipts: Vec<Option<Receipt>>,
    effects: Effects,
}

impl Group<'_> {
    async fn write(&mut self, commits: &[Commit]) -> Result<()> {
        let mut left: Vec<usize> = (0..commits.len()).collect();
        // One of each instance in a statement: it looks at all rows before it changes any.
        while !left.is_empty() {
            let mut ids = HashSet::with_capacity(left.len());
            let (first, again) = left.into_iter().partition(|index| ids.insert(commits[*index].id));
            self.write_distinct(commits, first).await?;
            left = again;
        }
        Ok(())
    }

    async fn write_distinct(&mut self, commits: &[Commit], outcomes: Vec<usize>) -> Result<()> {
        let (mut ahead, rest): (Vec<_>, Vec<_>) =
            outcomes.into_iter().partition(|index| self.runs_ahead(&commits[*index]));
        // An end lets go of a key that a child in the same group may want: those stay in their order.
        let spawns = rest.iter().any(|index| matches!(commits[*index].transition, Transition::Spawn(_)));
        let (mut ends, mut rest): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|index| !spawns && self.is_plain_end(&commits[*index]));
        // Rows are locked in the order of their ids, by everyone.
        ahead.sort_unstable_by_key(|index| commits[*index].id);
        ends.sort_unstable_by_key(|index| commits[*index].id);
        rest.extend(self.write_ahead(commits, ahead).await?);
        rest.extend(self.write_ends(commits, ends).await?);
        rest.sort_unstable();
        if !rest.is_empty() {
            self.write_rest(commits, &rest).await?;
        }
        Ok(())
    }

    fn runs_ahead(&self, commit: &Commit) -> bool {
        matches!(commit.transition, Transition::Next { .. })
            && commit.hold == Hold::Keep
            && commit.received.is_empty()
            && self.is_new(commit)
    }

    fn is_plain_end(&self, commit: &Commit) -> bool {
        matches!(commit.transition, Transition::Done { .. }) && self.is_new(commit)
    }

    /// Whether it is sent for the first time.
    fn is_new(&self, commit: &Commit) -> bool {
        !self.memory.lost.contains(commit) && !self.memory.busy.contains(commit)
    }

    /// Commits those that run on, and gives back the ones that are special in some way.
    async fn write_ahead(&mut self, commits: &[Commit], mut ahead: Vec<usize>) -> Result<Vec<usize>> {
        if ahead.is_empty() {
            return Ok(ahead);
        }
        let Some(row) = self.unless_held_up(|| next(self.worker, commits, &ahead)).await? else {
            return Ok(ahead);
        };
        let (held, now) = (Ids::read(&row, "held")?, row.moment("at")?);
        ahead.retain(|index| {
            let Commit { id, seq, .. } = commits[*index];
            let is_held = held.contains(id);
            if is_held {
                let inbox = Vec::new();
                self.receipts[*index] = Some(Receipt::Held { seq: seq + 1, inbox, now });
            }
            !is_held
        });
        Ok(ahead)
    }

    /// Commits plain ends, and gives back the ones that are special in some way.
    async fn write_ends(&mut self, commits: &[Commit], mut ends: Vec<usize>) -> Result<Vec<usize>> {
        if ends.is_empty() {
            return Ok(ends);
        }
        let Some(row) = self.unless_held_up(|| done(self.worker, commits, &ends)).await? else {
            return Ok(ends);
        };
        let done = Ids::read(&row, "done")?;
        ends.retain(|index| {
            let id = commits[*index].id;
            let is_done = done.contains(id);
            if is_done {
                self.receipts[*index] = Some(Receipt::Released);
                self.effects.ended.push(id);
            }
            !is_done
        });
        Ok(ends)
    }

    /// Sends a statement; none if another transaction holds one of its rows, and nothing has happened.
    async fn unless_held_up<'q>(&self, statement: impl Fn() -> Statement<'q>) -> Result<Option<PgRow>> {
        match self.db.raw_one(statement).await {
            Err(error) if lock_timed_out(&error) => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    /// Commits any outcomes. A row that another transaction holds for long must not hold up the others: it is left for
    /// later. So is one whose child has a key that another transaction inserts: only a try by itself shows which that is.
    async fn write_rest(&mut self, commits: &[Commit], rest: &[usize]) -> Result<()> {
        let wait = !rest.iter().any(|index| self.memory.busy.contains(&commits[*index]));
        if wait && self.try_rest(commits, rest, true).await? {
            return Ok(());
        }
        let (mut suspects, others): (Vec<usize>, Vec<usize>) =
            rest.iter().partition(|index| inserts_keys(&commits[**index]));
        // Each has its turn at being among the first.
        fastrand::shuffle(&mut suspects);
        let mut parts: Vec<Vec<usize>> = suspects.into_iter().map(|index| vec![index]).collect();
        parts.push(others);
        let until = Instant::now() + SPLIT_FOR;
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            if Instant::now() < until && self.try_rest(commits, &part, false).await? {
                continue;
            }
            if part.len() > 1 && Instant::now() < until {
                parts.push(part.split_off(part.len() / 2));
                parts.push(part);
            } else {
                part.into_iter().for_each(|index| self.receipts[index] = Some(Receipt::Busy));
            }
        }
        Ok(())
    }

    /// Commits these outcomes in one statement; false if another transaction holds it up, and nothing has happened.
    async fn try_rest(&mut self, commits: &[Commit], rest: &[usize], wait: bool) -> Result<bool> {
        let outcomes = rest.iter().enumerate().map(|(place, index)| {
            let commit = &commits[*index];
            Outcome::new(place + 1, commit, self.memory.lost.contains(commit))
        });
        let outcomes = batch(&outcomes.collect::<Vec<_>>())?;
        let Some(row) = self.unless_held_up(|| statement(self.worker, &outcomes, wait)).await? else {
            return Ok(false);
        };
        self.effects.merge(row.effects()?);
        for (index, receipt) in rest.iter().zip(receipts(&row)?) {
            let receipt = match receipt {
                Some(receipt) => receipt,
                None => self.cancel(&commits[*index]).await?,
            };
            self.receipts[*index] = Some(receipt);
        }
        Ok(true)
    }

    /// Cancels an instance whose step has ended, in place of its outcome.
    async fn cancel(&mut self, commit: &Commit) -> Result<Receipt> {
        let Some(row) = self.unless_held_up(|| cancelling(self.worker, commit)).await? else {
            return Ok(Receipt::Busy);
        };
        let Written { value, effects } = cancelled(&row)?;
        self.effects.merge(effects);
        Ok(value)
    }
}

/// Whether it may wait for a key that another transaction inserts.
fn inserts_keys(commit: &Commit) -> bool {
    match &commit.transition {
        Transition::Spawn(spawn) => spawn.children.iter().any(|child| child.key.is_some()),
        _ => false,
    }
}

/// Cancels an instance whose step has ended, in place of its outcome.
pub(super) async fn cancel(db: &Db, worker: WorkerId, commit: &Commit) -> Result<Written<Receipt>> {
    cancelled(&db.one(|| cancelling(worker, commit)).await?)
}

fn cancelling(worker: WorkerId, commit: &Commit) -> Statement<'_> {
    sqlx::query(CANCEL).bind(worker.0).bind(commit.id.0).bind(commit.seq as i64)
}

fn cancelled(row: &PgRow) -> Result<Written<Receipt>> {
    let value = if row.value("done")? { Receipt::Cancelled } else { Receipt::Stale };
    Ok(Written { value, effects: row.effects()? })
}

/// What became of a commit whose answer was lost; `None` if it did not happen.
pub(super) async fn ask(db: &Db, worker: WorkerId, commit: &Commit) -> Result<Option<Receipt>> {
    let outcomes = batch(&[Outcome::new(1, commit, true)])?;
    let row = db.one(|| sqlx::query(ASK).bind(worker.0).bind(&outcomes)).await?;
    Ok(receipts(&row)?.pop().flatten())
}

fn next<'q>(worker: WorkerId, commits: &'q [Commit], ahead: &[usize]) -> Statement<'q> {
    let of = |index: &usize| match &commits[*index].transition {
        Transition::Next { at, .. } => (&commits[*index], at),
        other => panic!("{other:?} does not run ahead"),
    };
    let columns = |read: fn(&Commit) -> i64| ahead.iter().map(|i| read(of(i).0)).collect::<Vec<_>>();
    sqlx::query(NEXT)
        .bind(worker.0)
        .bind(columns(|commit| commit.id.0))
        .bind(columns(|commit| commit.seq as i64))
        .bind(ahead.iter().map(|i| of(i).0.version as i32).collect::<Vec<_>>())
        .bind(ahead.iter().map(|i| &*of(i).1.step).collect::<Vec<&str>>())
        .bind(ahead.iter().map(|i| of(i).1.state.as_str()).collect::<Vec<&str>>())
        .bind(runs(commits, ahead, |run| Some(run.started_at.as_microsecond())))
        .bind(runs(commits, ahead, |run| Some(run.took_us as i64)))
        .bind(runs(commits, ahead, progress))
}

/// A column of the runs that gave these outcomes.
fn runs<'q, T>(commits: &'q [Commit], of: &[usize], read: impl Fn(&'q Run) -> Option<T>) -> Vec<Option<T>> {
    of.iter().map(|index| commits[*index].run.as_ref().and_then(&read)).collect()
}

fn progress(run: &Run) -> Option<&str> {
    run.progress.as_ref().map(Json::as_str)
}

fn done<'q>(worker: WorkerId, commits: &'q [Commit], ends: &[usize]) -> Statement<'q> {
    let of = |index: &usize| match &commits[*index].transition {
        Transition::Done { output } => output.as_str(),
        other => panic!("{other:?} is no plain end"),
    };
    sqlx::query(DONE)
        .bind(worker.0)
        .bind(ends.iter().map(|i| commits[*i].id.0).collect::<Vec<_>>())
        .bind(ends.iter().map(|i| commits[*i].seq as i64).collect::<Vec<_>>())
        .bind(ends.iter().map(of).collect::<Vec<&str>>())
        .bind(runs(commits, ends, |run| Some(run.started_at.as_microsecond())))
        .bind(runs(commits, ends, |run| Some(run.took_us as i64)))
        .bind(runs(commits, ends, progress))
        .bind(ends.iter().map(|i| commits[*i].received.len() as i32).collect::<Vec<_>>())
}

/// Ids in an answer.
struct Ids(Vec<i64>);

impl Ids {
    fn read(row: &PgRow, name: &str) -> Result<Self> {
        let mut ids: Vec<i64> = row.value::<Option<_>>(name)?.unwrap_or_default();
        ids.sort_unstable();
        Ok(Self(ids))
    }

    fn contains(&self, id: InstanceId) -> bool {
        self.0.binary_search(&id.0).is_ok()
    }
}

/// The statement that commits a batch of any outcomes.
fn statement(worker: WorkerId, outcomes: &str, wait: bool) -> Statement<'_> {
    sqlx::query(COMMIT).bind(worker.0).bind(outcomes).bind(wait)
}

/// The statement that commits one outcome in its step's own transaction.
pub(super) fn own(worker: WorkerId, outcome: &str) -> Statement<'_> {
    sqlx::query(OWN).bind(worker.0).bind(outcome)
}

/// The receipts in an answer; `None` for what is to be cancelled first.
pub(super) fn receipts(row: &PgRow) -> Result<Vec<Option<Receipt>>> {
    let words: Vec<String> = row.value("receipts")?;
    let seqs: Vec<Option<i64>> = row.value("seqs")?;
    let inboxes: Vec<Option<String>> = row.value("inboxes")?;
    let now = row.moment("at")?;
    let receipt = |((word, seq), inbox): ((String, Option<i64>), Option<String>)| {
        Ok(Some(match word.as_str() {
            "held" => Receipt::Held {
                seq: seq.expect("a held row is there") as u64,
                inbox: inbox.as_deref().map(signals).transpose()?.unwrap_or_default(),
                now,
            },
            "released" => Receipt::Released,
            "cancelled" => Receipt::Cancelled,
            "stale" => Receipt::Stale,
            "busy" => Receipt::Busy,
            "cancel" => return Ok(None),
            other => panic!("{other:?} is no receipt"),
        }))
    };
    words.into_iter().zip(seqs).zip(inboxes).map(receipt).collect()
}

/// An outcome as the database takes it: the type `dormouse.outcome`.
#[derive(Default, Serialize)]
pub(super) struct Outcome<'a> {
    ord: usize,
    id: i64,
    seq: u64,
    version: u32,
    kind: &'static str,
    step: Option<&'a str>,
    state: Option<&'a str>,
    hold: bool,
    received: Option<Vec<i64>>,
    at_us: Option<i64>,
    in_us: Option<i64>,
    error: Option<Cow<'a, str>>,
    names: Option<Vec<&'a str>>,
    output: Option<&'a str>,
    children: Option<Vec<Arrival<'a>>>,
    quorum: Option<u32>,
    counts_done: bool,
    fail_fast: bool,
    cancels_rest: bool,
    cascade: Option<bool>,
    again: bool,
    unit: Option<Unit<'a>>,
    started_us: Option<i64>,
    took_us: Option<u64>,
    progress: Option<&'a str>,
}

impl<'a> Outcome<'a> {
    pub(super) fn new(ord: usize, commit: &'a Commit, again: bool) -> Self {
        let received: Vec<i64> = commit.received.iter().map(|id| id.0).collect();
        let at = commit.transition.at();
        let mut outcome = Self {
            ord,
            id: commit.id.0,
            seq: commit.seq,
            version: commit.version,
            step: at.map(|at| &*at.step),
            state: at.map(|at| at.state.as_str()),
            hold: commit.hold == Hold::Keep,
            received: if received.is_empty() { None } else { Some(received) },
            again,
            started_us: commit.run.as_ref().map(|run| run.started_at.as_microsecond()),
            took_us: commit.run.as_ref().map(|run| run.took_us),
            progress: commit.run.as_ref().and_then(progress),
            ..Self::default()
        };
        let mut moment = |given| (outcome.at_us, outcome.in_us) = when(given);
        outcome.kind = match &commit.transition {
            Transition::Next { .. } => "next",
            Transition::Replay { delay, error, .. } => {
                outcome.in_us = Some(micros(*delay));
                outcome.error = error.as_deref().map(storable);
                "replay"
            }
            Transition::Sleep { until, .. } => {
                moment(Some(*until));
                "sleep"
            }
            Transition::Await { names, timeout, .. } => {
                moment(*timeout);
                outcome.names = Some(sorted(names));
                "await"
            }
            Transition::Spawn(spawn) => {
                moment(spawn.timeout);
                let children: Vec<_> = spawn.children.iter().enumerate().map(Arrival::new).collect();
                outcome.children = if children.is_empty() { None } else { Some(children) };
                outcome.quorum = spawn.quorum.map(|quorum| quorum.count().min(spawn.children.len() as u32));
                outcome.counts_done = matches!(spawn.quorum, Some(Quorum::Done(_)));
                outcome.fail_fast = spawn.fail_fast;
                outcome.cancels_rest = spawn.on_release == Children::Cancel;
                outcome.cascade = Some(spawn.on_cancel == Children::Cancel);
                "spawn"
            }
            Transition::Dispatch(dispatch) => {
                moment(dispatch.timeout);
                outcome.unit = Some(Unit::new(dispatch));
                "dispatch"
            }
            Transition::Done { output } => {
                outcome.output = Some(output.as_str());
                "done"
            }
            Transition::Fail { error } => {
                outcome.error = Some(storable(error));
                "fail"
            }
        };
        outcome
    }
}
