//! Calls that come while others are under way share a statement: writes of many callers are sent in batches. No call
//! waits for a batch to fill, or for a lock that only another call needs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::db::Db;
use super::fault::{certainly_undone, lock_timed_out};
use crate::store::{Effects, Written};
use crate::{Error, Result};

/// Statements under way at a time.
const BATCHES_MAX: usize = 2;
/// Calls in one statement.
const CALLS_MAX: usize = 256;
/// A call of more items than this goes alone: it is a batch already.
const ITEMS_MAX: usize = 16;

/// Writes a batch of calls, and gives the answers of each item, in one list; none for the items of a call that another
/// transaction keeps waiting, of which nothing is done.
pub(super) type Write<I, O> =
    Arc<dyn Fn(Vec<Vec<I>>, Wait) -> Pin<Box<dyn Future<Output = Outcome<O>> + Send>> + Send + Sync>;

type Outcome<O> = Result<Written<Vec<Option<O>>>, sqlx::Error>;

/// How a statement goes about locks that another transaction holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// It waits for as long as others may be kept waiting with it.
    Shared,
    /// It writes the calls that need not wait. Where a verb cannot tell them apart, the lock is refused.
    ForNobody,
    /// It waits for a moment, alone.
    Alone,
    /// It waits for each lock of a large call.
    Large,
}

impl Wait {
    /// The longest wait for one lock.
    pub(super) fn ms(self) -> i32 {
        match self {
            Self::Shared => 250,
            Self::ForNobody | Self::Alone => 100,
            Self::Large => 1_000,
        }
    }
}

/// The way in for calls that may share a statement.
pub(super) struct Gather<I, O> {
    writer: Writer<I, O>,
    calls: mpsc::Sender<Call<I, O>>,
}

struct Writer<I, O> {
    db: Db,
    write: Write<I, O>,
}

impl<I, O> Clone for Writer<I, O> {
    fn clone(&self) -> Self {
        Self { db: self.db.clone(), write: self.write.clone() }
    }
}

struct Call<I, O> {
    items: Vec<I>,
    answer: oneshot::Sender<Result<Written<Vec<O>>>>,
}

impl<I: Clone + Send + Sync + 'static, O: Send + 'static> Gather<I, O> {
    pub(super) fn new(db: Db, write: Write<I, O>) -> Self {
        let (calls, gathered) = mpsc::channel(CALLS_MAX);
        let writer = Writer { db, write };
        tokio::spawn(run(writer.clone(), gathered));
        Self { writer, calls }
    }

    pub(super) async fn call(&self, items: Vec<I>) -> Result<Written<Vec<O>>> {
        if items.is_empty() {
            return Ok(Written { value: Vec::new(), effects: Effects::default() });
        }
        if items.len() > ITEMS_MAX {
            return self.writer.write_large(items).await;
        }
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call { items, answer }).await.map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }
}

/// Sends what has gathered whenever there is room for another statement.
async fn run<I: Clone + Send + Sync + 'static, O: Send + 'static>(
    writer: Writer<I, O>,
    mut gathered: mpsc::Receiver<Call<I, O>>,
) {
    let mut batches = JoinSet::new();
    loop {
        let mut calls = Vec::new();
        tokio::select! {
            taken = gathered.recv_many(&mut calls, CALLS_MAX), if batches.len() < BATCHES_MAX => {
                if taken == 0 {
                    return;
                }
                batches.spawn(writer.clone().write_together(calls));
            }
            Some(_) = batches.join_next() => {}
        }
    }
}

impl<I: Clone + Send + Sync + 'static, O: Send + 'static> Writer<I, O> {
    /// Writes calls in one statement. A call that must wait for a lock, or that the database refuses, is then sent in a
    /// statement of its own, so that it does not affect the others.
    async fn write_together(self, mut calls: Vec<Call<I, O>>) {
        let mut written = self.try_together(&calls, Wait::Shared).await;
        if calls.len() > 1 && written.as_ref().is_err_and(lock_timed_out) {
            written = self.try_together(&calls, Wait::ForNobody).await;
        }
        match written {
            Ok(written) => self.hand_out(written, calls),
            Err(error) if lock_timed_out(&error) || (calls.len() > 1 && certainly_undone(&error)) => {
                calls.into_iter().for_each(|call| self.leave_alone(call));
            }
            Err(error) if certainly_undone(&error) => {
                let call = calls.pop().expect("there is one");
                drop(call.answer.send(Err(error.into())));
            }
            // A call whose answer was lost may have happened: the caller decides whether to send it again.
            Err(error) => {
                let reason = error.to_string();
                calls
                    .into_iter()
                    .for_each(|call| drop(call.answer.send(Err(Error::Busy(reason.clone().into())))));
            }
        }
    }

    async fn try_together(&self, calls: &[Call<I, O>], wait: Wait) -> Outcome<O> {
        (self.write)(calls.iter().map(|call| call.items.clone()).collect(), wait).await
    }

    fn hand_out(&self, written: Written<Vec<Option<O>>>, calls: Vec<Call<I, O>>) {
        let Written { value, mut effects } = written;
        let mut answers = value.into_iter();
        for call in calls {
            let value: Option<Vec<O>> = answers.by_ref().take(call.items.len()).collect();
            let Some(value) = value else {
                self.leave_alone(call);
                continue;
            };
            // One caller's poke is enough for all of them; a caller that went away cannot give it.
            let written = Written { value, effects: std::mem::take(&mut effects) };
            if let Err(Ok(unsent)) = call.answer.send(Ok(written)) {
                effects = unsent.effects;
            }
        }
    }

    /// Writes a call by itself, as long as its caller waits, without a place that others need.
    fn leave_alone(&self, mut call: Call<I, O>) {
        let writer = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                written = writer.write_alone(std::mem::take(&mut call.items)) => drop(call.answer.send(written)),
                () = call.answer.closed() => {}
            }
        });
    }

    async fn write_alone(&self, items: Vec<I>) -> Result<Written<Vec<O>>> {
        Ok(all_answers(self.db.again(|| (self.write)(vec![items.clone()], Wait::Alone)).await?))
    }

    async fn write_large(&self, items: Vec<I>) -> Result<Written<Vec<O>>> {
        let attempt = || (self.write)(vec![items.clone()], Wait::Large);
        match attempt().await {
            Err(error) if lock_timed_out(&error) => Ok(all_answers(self.db.again(attempt).await?)),
            other => Ok(all_answers(other?)),
        }
    }
}

/// The answers of a statement that waited for what it needed.
fn all_answers<O>(written: Written<Vec<Option<O>>>) -> Written<Vec<O>> {
    let Written { value, effects } = written;
    let value = value.into_iter().map(|answer| answer.expect("whoever waits has an answer")).collect();
    Written { value, effects }
}
