//! Turns for work that may take long on a processor: reading and writing large documents, lists and pages.
//!
//! The work runs on separate threads, so that the threads that answer everybody stay free. A namespace has a bounded
//! number of turns at once: its other requests wait in its own line, not in front of another tenant's.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tracing::Span;

use crate::problem::Problem;

/// The most turns at once. The runtime has 512 threads for such work, and the store needs some for each turn.
const AT_ONCE_MAX: usize = 64;
/// The minimum for one namespace. A namespace has a turn for each core; more would not be faster and would slow down
/// others.
const PER_NAMESPACE_MIN: usize = 2;

pub(crate) struct Turns {
    all: Arc<Semaphore>,
    per_namespace: usize,
    lines: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A namespace's line, removed when nobody waits in it.
struct Line {
    turns: Arc<Turns>,
    namespace: String,
    line: Arc<Semaphore>,
}

impl Turns {
    pub(crate) fn new() -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(PER_NAMESPACE_MIN, usize::from);
        let per_namespace = cores.clamp(PER_NAMESPACE_MIN, AT_ONCE_MAX / 2);
        Arc::new(Self { all: Arc::new(Semaphore::new(AT_ONCE_MAX)), per_namespace, lines: Mutex::default() })
    }

    /// Runs the work when it is the namespace's turn. Once begun, it runs to its end even if the caller has gone.
    pub(crate) async fn take<T: Send + 'static>(
        self: &Arc<Self>,
        namespace: &str,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        let line = self.line(namespace);
        let turn = line.line.clone().acquire_owned().await.expect("a line is never closed");
        let place = self.all.clone().acquire_owned().await.expect("places are never closed");
        let (runtime, span) = (Handle::current(), Span::current());
        let done = tokio::task::spawn_blocking(move || {
            let done = span.in_scope(|| runtime.block_on(work));
            drop((turn, place));
            drop(line);
            done
        });
        done.await.unwrap_or_else(|error| Err(Problem::panicked(&error)))
    }

    fn line(self: &Arc<Self>, namespace: &str) -> Line {
        let mut lines = self.lock();
        let line = lines.entry(namespace.to_owned());
        let line = line.or_insert_with(|| Arc::new(Semaphore::new(self.per_namespace)));
        Line { turns: self.clone(), namespace: namespace.to_owned(), line: line.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Semaphore>>> {
        self.lines.lock().expect("no code panics while it holds this lock")
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut lines = self.turns.lock();
        // One reference is the table's, one is this one. A turn has another, but ends before its line is dropped.
        if Arc::strong_count(&self.line) == 2 {
            lines.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_namespace_that_has_all_its_turns_waits_in_its_own_line() {
        let turns = Turns::new();
        let begin = |namespace: &'static str| {
            let ((begun, has_begun), (end, ends)) = (oneshot::channel(), oneshot::channel::<()>());
            let turns = turns.clone();
            let done = tokio::spawn(async move {
                let work = async move {
                    begun.send(()).expect("it is waited for");
                    ends.await.map_err(|_| Problem::invalid("nobody ended it"))
                };
                turns.take(namespace, work).await
            });
            (has_begun, end, done)
        };
        let mut held = Vec::new();
        for _ in 0..turns.per_namespace {
            let (has_begun, end, done) = begin("noisy");
            has_begun.await.expect("it has a turn");
            held.push((end, done));
        }
        let (mut waits, end_last, last) = begin("noisy");
        let (has_begun, end, done) = begin("quiet");
        has_begun.await.expect("another namespace has its turn");
        end.send(()).expect("it waits for this");
        done.await.expect("no panic").expect("it is done");
        assert!(waits.try_recv().is_err(), "it waits for its own");
        for (end, done) in held {
            end.send(()).expect("it waits for this");
            done.await.expect("no panic").expect("it is done");
        }
        waits.await.expect("it has a turn now");
        end_last.send(()).expect("it waits for this");
        last.await.expect("no panic").expect("it is done");
        assert!(turns.lock().is_empty(), "nothing is kept of who has left");
    }
}
