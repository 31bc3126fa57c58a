//! Calls that come while others are under way share a statement: what many callers write one by one is written in
//! batches. Nobody waits for a batch to fill.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::fault::certainly_undone;
use crate::store::{Effects, Written};
use crate::{Error, Result};

/// Statements under way at a time.
const BATCHES_MAX: usize = 2;
/// Calls in one statement.
const CALLS_MAX: usize = 256;
/// A call of more items than this goes alone: it is a batch already.
const ITEMS_MAX: usize = 16;

/// Writes a batch, and gives an answer for each item. What calls share is not to wait long for a lock, as it would keep
/// all of them waiting.
pub(super) type Write<I, O> =
    Arc<dyn Fn(Vec<I>, Calls) -> Pin<Box<dyn Future<Output = Outcome<O>> + Send>> + Send + Sync>;

type Outcome<O> = Result<Written<Vec<O>>, sqlx::Error>;

/// How many calls a statement is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    One,
    Many,
}

/// The way in for calls that may share a statement.
pub(super) struct Gather<I, O> {
    write: Write<I, O>,
    calls: mpsc::Sender<Call<I, O>>,
}

struct Call<I, O> {
    items: Vec<I>,
    answer: oneshot::Sender<Result<Written<Vec<O>>>>,
}

impl<I: Clone + Send + 'static, O: Send + 'static> Gather<I, O> {
    pub(super) fn new(write: Write<I, O>) -> Self {
        let (calls, gathered) = mpsc::channel(CALLS_MAX);
        tokio::spawn(run(write.clone(), gathered));
        Self { write, calls }
    }

    pub(super) async fn call(&self, items: Vec<I>) -> Result<Written<Vec<O>>> {
        if items.is_empty() {
            return Ok(Written { value: Vec::new(), effects: Effects::default() });
        }
        if items.len() > ITEMS_MAX {
            return Ok((self.write)(items, Calls::One).await?);
        }
        let (answer, answered) = oneshot::channel();
        self.calls.send(Call { items, answer }).await.map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }
}

/// Sends what has gathered whenever there is room for another statement.
async fn run<I: Clone + Send + 'static, O: Send + 'static>(
    write: Write<I, O>,
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
                batches.spawn(write_together(write.clone(), calls));
            }
            Some(_) = batches.join_next() => {}
        }
    }
}

/// Writes calls in one statement; if the database refuses that, each in one of its own, so that whatever is wrong with
/// one, or keeps it waiting, is its own.
async fn write_together<I: Clone + Send + 'static, O: Send + 'static>(
    write: Write<I, O>,
    mut calls: Vec<Call<I, O>>,
) {
    if calls.len() == 1 {
        let Call { items, answer } = calls.remove(0);
        drop(answer.send(write(items, Calls::One).await.map_err(Error::from)));
        return;
    }
    let all: Vec<I> = calls.iter().flat_map(|call| call.items.iter().cloned()).collect();
    match write(all, Calls::Many).await {
        Ok(written) => hand_out(written, calls),
        Err(error) if certainly_undone(&error) => {
            for Call { items, answer } in calls {
                let write = write.clone();
                tokio::spawn(async move {
                    drop(answer.send(write(items, Calls::One).await.map_err(Error::from)));
                });
            }
        }
        // What was lost on the way may have happened: whether to send it again is the caller's choice.
        Err(error) => {
            let reason = error.to_string();
            for call in calls {
                drop(call.answer.send(Err(Error::Storage(reason.clone().into()))));
            }
        }
    }
}

fn hand_out<I, O>(written: Written<Vec<O>>, calls: Vec<Call<I, O>>) {
    let Written { value, mut effects } = written;
    let mut answers = value.into_iter();
    for call in calls {
        let value = answers.by_ref().take(call.items.len()).collect();
        // One caller's poke is enough for all of them; a caller that went away cannot give it.
        let written = Written { value, effects: std::mem::take(&mut effects) };
        if let Err(Ok(unsent)) = call.answer.send(Ok(written)) {
            effects = unsent.effects;
        }
    }
}
