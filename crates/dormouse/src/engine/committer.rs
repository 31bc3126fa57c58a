//! Commit: outcomes that gather while one group is being written are the next group. No delay timer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{FAULT_PAUSE, Shared, effects};
use crate::store::{Commit, Receipt, Written};
use crate::{Error, Result, Transition};

/// Outcomes in one group.
const GROUP_MAX: usize = 1024;
/// Bytes of documents in one group, unless a single outcome has more.
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How often an outcome is tried before it fails on a store that is healthy.
const TRIES_MAX: u32 = 3;
/// How long an outcome whose row another transaction holds is put off.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The way in: hands an outcome over and waits for its receipt.
pub(super) struct Committer {
    commits: mpsc::Sender<Pending>,
}

/// An outcome on its way to the store.
pub(super) struct Pending {
    commit: Box<Commit>,
    receipt: oneshot::Sender<Receipt>,
}

impl Committer {
    pub(super) fn new() -> (Self, mpsc::Receiver<Pending>) {
        let (commits, pending) = mpsc::channel(GROUP_MAX);
        (Self { commits }, pending)
    }

    /// Resolves when the outcome is durable or refused; `None` if the engine is gone.
    pub(super) async fn commit(&self, commit: Box<Commit>) -> Option<Receipt> {
        let (receipt, committed) = oneshot::channel();
        self.commits.send(Pending { commit, receipt }).await.ok()?;
        committed.await.ok()
    }
}

/// Writes group after group: at once if the store has room for another; otherwise outcomes gather until it has.
pub(super) async fn run(shared: Arc<Shared>, mut pending: mpsc::Receiver<Pending>) {
    let groups_max = shared.store.groups_max();
    let mut writing = JoinSet::new();
    // Outcomes whose rows another transaction held: they are tried again in a moment.
    let mut busy: Vec<Pending> = Vec::new();
    let mut busy_until = Instant::now();
    loop {
        let mut group = Vec::new();
        tokio::select! {
            first = pending.recv(), if writing.len() < groups_max => match first {
                None => return,
                Some(first) => gather(first, &mut pending, &mut group),
            },
            // A moment, not a pause in the load: that may never come.
            () = tokio::time::sleep_until(busy_until), if !busy.is_empty() && writing.len() < groups_max => {
                group.append(&mut busy);
            }
            Some(written) = writing.join_next() => {
                if busy.is_empty() {
                    busy_until = Instant::now() + BUSY_PAUSE;
                }
                busy.extend(written.expect("a write does not panic"));
                continue;
            }
        }
        writing.spawn(write_group(shared.clone(), group));
    }
}

/// Adds the outcomes that have gathered behind the first, up to the limits of a group.
fn gather(first: Pending, pending: &mut mpsc::Receiver<Pending>, group: &mut Vec<Pending>) {
    let mut bytes = bytes_of(&first.commit);
    group.push(first);
    while group.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX {
        let Ok(next) = pending.try_recv() else { return };
        bytes += bytes_of(&next.commit);
        group.push(next);
    }
}

/// About how many bytes the documents of an outcome and its mail take.
fn bytes_of(commit: &Commit) -> usize {
    commit.transition.bytes() + commit.mail.iter().map(crate::Mail::bytes).sum::<usize>()
}

/// Writes a group and hands out its receipts; those that could not be written yet are left over.
async fn write_group(shared: Arc<Shared>, group: Vec<Pending>) -> Vec<Pending> {
    let split = |Pending { commit, receipt }| (commit, receipt);
    let (commits, waiting): (Vec<_>, Vec<_>) = group.into_iter().map(split).unzip();
    let commits: Arc<[Commit]> = commits.into_iter().map(|commit| *commit).collect();
    let receipts = write(&shared, commits.clone()).await;
    assert_eq!(receipts.len(), waiting.len(), "every outcome has a receipt");
    let mut busy = Vec::new();
    for ((answer, receipt), commit) in receipts.into_iter().zip(waiting).zip(commits.iter()) {
        match answer {
            Receipt::Busy => busy.push(Pending { commit: Box::new(commit.clone()), receipt }),
            // A step that was abandoned meanwhile does not wait for its receipt.
            answer => drop(receipt.send(answer)),
        }
    }
    busy
}

/// Writes a group, and its outcomes one by one if the whole fails. An outcome that the store cannot write now is `Busy`
/// and is tried again.
async fn write(shared: &Shared, commits: Arc<[Commit]>) -> Vec<Receipt> {
    match write_once(shared, commits.clone()).await {
        Ok(receipts) => receipts,
        Err(error) => {
            if is_healthy(shared, &error).await {
                tracing::warn!(%error, outcomes = commits.len(), "could not commit a group: trying its outcomes one by one");
            }
            let mut receipts = Vec::with_capacity(commits.len());
            for commit in commits.iter() {
                let Some(receipt) = write_alone(shared, commit.clone()).await else { break };
                receipts.push(receipt);
            }
            receipts.resize(commits.len(), Receipt::Busy);
            receipts
        }
    }
}

/// Writes one outcome; `None` if no write succeeds at the moment. An outcome that a healthy store cannot write fails
/// its own instance only; one that cannot be written now, such as after a timeout, is not blamed.
async fn write_alone(shared: &Shared, mut commit: Commit) -> Option<Receipt> {
    let mut tries = 0;
    let mut is_given_up = false;
    loop {
        let error = match write_once(shared, [commit.clone()].into()).await {
            // Its runner has another outcome in mind, which came to nothing.
            Ok(_) if is_given_up => {
                effects::report_ends(shared, &[commit.head.id]).await;
                return Some(Receipt::Stale);
            }
            Ok(mut receipts) => return Some(receipts.pop().expect("one outcome, one receipt")),
            Err(error) => error,
        };
        tries += 1;
        tokio::time::sleep(FAULT_PAUSE).await;
        let is_healthy = is_healthy(shared, &error).await;
        if is_healthy {
            tracing::warn!(%error, id = %commit.head.id, tries, "an outcome could not be committed");
        }
        if matches!(error, Error::Busy(_)) {
            return is_healthy.then_some(Receipt::Busy);
        }
        if tries >= TRIES_MAX && is_healthy {
            let error = format!("its outcome could not be committed: {error}");
            commit.transition = Transition::Fail { error };
            commit.mail.clear();
            is_given_up = true;
        }
    }
}

/// Whether other writes succeed: then this outcome itself is at fault. Otherwise it is an outage.
async fn is_healthy(shared: &Shared, error: &Error) -> bool {
    let is_healthy = shared.store.heartbeat(shared.worker, shared.config.lease).await.is_ok();
    if is_healthy {
        shared.outage.succeeded("commit");
    } else {
        shared.outage.failed("commit", error);
    }
    is_healthy
}

async fn write_once(shared: &Shared, commits: Arc<[Commit]>) -> Result<Vec<Receipt>> {
    metrics::histogram!("dormouse_commit_group").record(commits.len() as f64);
    let Written { value: receipts, effects } = shared.store.commit(shared.worker, commits.clone()).await?;
    shared.outage.succeeded("commit");
    effects::apply(shared, &receipts, &effects);
    shared.store.hub().moved(commits.iter().map(|commit| commit.head.id));
    Ok(receipts)
}
