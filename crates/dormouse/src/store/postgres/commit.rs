//! Committing outcomes. The worker decides, from the head that its claim brought; the database compares what that was
//! decided by, fills in what only it knows, and applies. Where the row has moved, the worker decides again.
//!
//! Outcomes that run ahead are one statement, plain ends another, outcomes that concern only their own row a third, and
//! the rest a fourth.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use sqlx::postgres::PgRow;

use super::claim::signals;
use super::db::{Db, Statement};
use super::decided::{Answer, Decided, Moved, answers, decide, decided_alone};
use super::fault::lock_timed_out;
use super::marks::Memory;
use super::types::{Columns, batch};
use crate::rules::Head;
use crate::store::{Commit, Effects, Hold, Receipt, Written};
use crate::{InstanceId, Json, KeyScope, Result, Run, Transition, WorkerId};

const NEXT: &str = "select v.held, v.at from dormouse.commit_next($1, $2, $3, $4, $5, $6, $7, $8, $9) v";
const DONE: &str = "select v.done, v.at, (v.effects).* \
    from dormouse.commit_done($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) v";
const PLAIN: &str = "select v.ids, v.seqs, v.held, v.inboxes::text[], v.at, (v.effects).* \
    from dormouse.commit_plain($1, $2::json) v";
const COMMIT: &str = "select v.receipts, v.seqs, v.inboxes::text[], v.at, (v.effects).* \
    from dormouse.commit($1, $2::json, $3) v";
const OWN: &str = "select v.receipts, v.seqs, v.inboxes::text[], v.at, (v.effects).* \
    from dormouse.commit_own($1, $2::json) v";
const ASK: &str = "select v.receipts, v.seqs, v.inboxes::text[], v.at from dormouse.ask($1, $2::json) v";
const CANCEL: &str = "select v.done, (v.effects).* from dormouse.cancel_held($1, $2, $3) v";

/// How often an outcome is decided again before it waits for a better moment.
const DECIDED_MAX: usize = 8;

/// How long a group searches for the outcomes that hold it up. Outcomes that were not tried by then come again.
const SPLIT_FOR: Duration = Duration::from_millis(300);

pub(super) async fn commit(
    db: &Db,
    memory: &Memory,
    worker: WorkerId,
    commits: &[Commit],
) -> Result<Written<Vec<Receipt>>> {
    let mut group = Group {
        db,
        memory,
        worker,
        receipts: vec![None; commits.len()],
        moved: BTreeMap::new(),
        effects: Effects::default(),
    };
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
            group.effects.mail = commits.iter().any(|commit| !commit.mail.is_empty());
            // What another transaction holds, perhaps our own first try, is as unknown as before.
            memory.lost.remove(with(false));
            memory.busy.remove(with(false));
            memory.busy.add(with(true));
            Ok(Written { value: receipts, effects: group.effects })
        }
        Err(error) => {
            // Some of it may be committed: a second try finds out what happened.
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
    /// The rows that have moved since they were claimed, as they are now, by place.
    moved: BTreeMap<usize, Moved>,
    effects: Effects,
}

impl Group<'_> {
    async fn write(&mut self, commits: &[Commit]) -> Result<()> {
        let mut left: Vec<usize> = (0..commits.len()).collect();
        // One of each instance in a statement: it looks at all rows before it changes any.
        while !left.is_empty() {
            let mut ids = HashSet::with_capacity(left.len());
            let (first, again) = left.into_iter().partition(|index| ids.insert(commits[*index].head.id));
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
        let (mut ends, rest): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|index| !spawns && self.is_plain_end(&commits[*index]));
        let (mut plain, mut rest): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|index| self.is_plain(&commits[*index], spawns));
        // Rows are locked in the order of their ids, by everyone.
        ahead.sort_unstable_by_key(|index| commits[*index].head.id);
        ends.sort_unstable_by_key(|index| commits[*index].head.id);
        plain.sort_unstable_by_key(|index| commits[*index].head.id);
        rest.extend(self.write_ahead(commits, ahead).await?);
        rest.extend(self.write_ends(commits, ends).await?);
        rest.extend(self.write_plain(commits, plain).await?);
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
            && commit.lane.is_none()
            && commit.mail.is_empty()
            && self.is_new(commit)
    }

    fn is_plain_end(&self, commit: &Commit) -> bool {
        matches!(commit.transition, Transition::Done { .. })
            && commit.handed.signals as usize <= commit.received.len()
            && self.is_plain_row(commit)
    }

    /// Whether one statement can commit it that looks at its row alone.
    fn is_plain(&self, commit: &Commit, spawns: bool) -> bool {
        let ends = commit.transition.at().is_none();
        let inserts = matches!(commit.transition, Transition::Spawn(_) | Transition::Dispatch(_));
        let has_lane = commit.head.lane.is_some() || commit.lane.is_some();
        !inserts && !has_lane && (!ends || !spawns) && self.concerns_one_row(commit)
    }

    /// Whether no other row but the next in its lane depends on it.
    fn concerns_one_row(&self, commit: &Commit) -> bool {
        let ends = commit.transition.at().is_none();
        (!ends || commit.head.parent.is_none()) && self.is_plain_row(commit)
    }

    fn is_plain_row(&self, commit: &Commit) -> bool {
        commit.mail.is_empty() && commit.head.key_scope == KeyScope::Live && self.is_new(commit)
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
            let Head { id, seq, .. } = commits[*index].head;
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
        self.effects.merge(row.effects()?);
        let done = Ids::read(&row, "done")?;
        ends.retain(|index| {
            let id = commits[*index].head.id;
            let is_done = done.contains(id);
            if is_done {
                self.receipts[*index] = Some(Receipt::Released);
                self.effects.ended.push(id);
            }
            !is_done
        });
        Ok(ends)
    }

    /// Commits what concerns one row alone, and gives back the ones that are special in some way.
    async fn write_plain(&mut self, commits: &[Commit], plain: Vec<usize>) -> Result<Vec<usize>> {
        if plain.is_empty() {
            return Ok(plain);
        }
        let decided = self.decided(commits, &plain)?;
        let statement = || sqlx::query(PLAIN).bind(self.worker.0).bind(&decided);
        let Some(row) = self.unless_held_up(statement).await? else { return Ok(plain) };
        self.effects.merge(row.effects()?);
        let now = row.moment("at")?;
        let ids: Vec<i64> = row.value::<Option<_>>("ids")?.unwrap_or_default();
        let seqs: Vec<i64> = row.value::<Option<_>>("seqs")?.unwrap_or_default();
        let held: Vec<bool> = row.value::<Option<_>>("held")?.unwrap_or_default();
        let inboxes: Vec<Option<String>> = row.value::<Option<_>>("inboxes")?.unwrap_or_default();
        let mut receipts = HashMap::with_capacity(ids.len());
        for (((id, seq), held), inbox) in ids.into_iter().zip(seqs).zip(held).zip(inboxes) {
            let inbox = inbox.as_deref().map(signals).transpose()?.unwrap_or_default();
            let receipt =
                if held { Receipt::Held { seq: seq as u64, inbox, now } } else { Receipt::Released };
            receipts.insert(InstanceId(id), receipt);
        }
        let mut rest = Vec::new();
        for index in plain {
            self.receipts[index] = receipts.remove(&commits[index].head.id);
            if self.receipts[index].is_none() {
                rest.push(index);
            }
        }
        Ok(rest)
    }

    /// These outcomes, decided, as the database takes them.
    fn decided(&self, commits: &[Commit], outcomes: &[usize]) -> Result<String> {
        let decided = outcomes.iter().enumerate().map(|(place, index)| {
            let commit = &commits[*index];
            let (change, handed) = decide(commit, self.moved.get(index));
            (place, commit, change, handed)
        });
        let decided: Vec<_> = decided.collect();
        let lost = |commit| self.memory.lost.contains(commit);
        let rows = decided.iter().map(|(place, commit, change, handed)| {
            Decided::new(place + 1, commit, change, handed, lost(commit))
        });
        batch(&rows.collect::<Vec<_>>())
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

    /// Commits these outcomes in one statement; false if another transaction holds it up, and nothing has happened. Those
    /// whose rows have moved are decided again.
    async fn try_rest(&mut self, commits: &[Commit], rest: &[usize], wait: bool) -> Result<bool> {
        let mut left = rest.to_vec();
        for _ in 0..DECIDED_MAX {
            let decided = self.decided(commits, &left)?;
            let Some(row) = self.unless_held_up(|| statement(self.worker, &decided, wait)).await? else {
                // What was committed before is; of the others nothing has happened.
                let is_first = left.len() == rest.len();
                left.into_iter()
                    .filter(|_| !is_first)
                    .for_each(|index| self.receipts[index] = Some(Receipt::Busy));
                return Ok(!is_first);
            };
            self.effects.merge(row.effects()?);
            let mut moved = Vec::new();
            for (index, answer) in left.iter().zip(answers(&row)?) {
                self.receipts[*index] = Some(match answer {
                    Answer::Receipt(receipt) => receipt,
                    Answer::Cancel => self.cancel(&commits[*index]).await?,
                    Answer::Moved(fresh) => {
                        self.moved
                            .entry(*index)
                            .or_insert_with(|| Moved::of(&commits[*index]))
                            .meets(&commits[*index], fresh);
                        moved.push(*index);
                        Receipt::Busy
                    }
                });
            }
            if moved.is_empty() {
                return Ok(true);
            }
            left = moved;
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
    sqlx::query(CANCEL).bind(worker.0).bind(commit.head.id.0).bind(commit.head.seq as i64)
}

fn cancelled(row: &PgRow) -> Result<Written<Receipt>> {
    let value = if row.value("done")? { Receipt::Cancelled } else { Receipt::Stale };
    Ok(Written { value, effects: row.effects()? })
}

/// What became of a commit whose answer was lost; `None` if it did not happen.
pub(super) async fn ask(db: &Db, worker: WorkerId, commit: &Commit) -> Result<Option<Receipt>> {
    let decided = decided_alone(commit, None, true)?;
    let row = db.one(|| sqlx::query(ASK).bind(worker.0).bind(&decided)).await?;
    match answers(&row)?.pop() {
        Some(Answer::Receipt(receipt)) => Ok(Some(receipt)),
        _ => Ok(None),
    }
}

fn next<'q>(worker: WorkerId, commits: &'q [Commit], ahead: &[usize]) -> Statement<'q> {
    let of = |index: &usize| match &commits[*index].transition {
        Transition::Next { at, .. } => (&commits[*index], at),
        other => panic!("{other:?} does not run ahead"),
    };
    let columns = |read: fn(&Commit) -> i64| ahead.iter().map(|i| read(of(i).0)).collect::<Vec<_>>();
    sqlx::query(NEXT)
        .bind(worker.0)
        .bind(columns(|commit| commit.head.id.0))
        .bind(columns(|commit| commit.head.seq as i64))
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
    let parents: BTreeSet<i64> =
        ends.iter().filter_map(|i| commits[*i].head.parent).map(|(id, _)| id.0).collect();
    sqlx::query(DONE)
        .bind(worker.0)
        .bind(ends.iter().map(|i| commits[*i].head.id.0).collect::<Vec<_>>())
        .bind(ends.iter().map(|i| commits[*i].head.seq as i64).collect::<Vec<_>>())
        .bind(ends.iter().map(of).collect::<Vec<&str>>())
        .bind(runs(commits, ends, |run| Some(run.started_at.as_microsecond())))
        .bind(runs(commits, ends, |run| Some(run.took_us as i64)))
        .bind(runs(commits, ends, progress))
        .bind(ends.iter().map(|i| commits[*i].received.len() as i32).collect::<Vec<_>>())
        .bind((!parents.is_empty()).then(|| parents.into_iter().collect::<Vec<_>>()))
        .bind(ends.iter().any(|i| commits[*i].head.lane.is_some()))
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
