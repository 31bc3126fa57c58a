//! Activity: transitions of the last minutes, counted from the feed.
//!
//! It is one more watcher of the feed, and runs only while somebody looks at the overview.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use dormouse::EventKind;
use dormouse::jiff::Timestamp;
use dormouse::store::Change;
use tokio::sync::broadcast::error::RecvError;

use crate::feed::{Interest, Listener, News};
use crate::server::App;

/// The time span of one bar of a chart.
pub(super) const BAR_S: i64 = 5;
/// How far back the chart goes.
pub(super) const BARS: usize = 60;
/// Counting stops after this time without a visitor.
const UNSEEN_FOR: Duration = Duration::from_secs(300);
/// How many past transitions to read at the start, so that the first visitor sees something.
const SEED_ROWS: usize = 2_000;
/// How many namespaces are counted at once.
const NAMESPACES_MAX: usize = 256;

/// The counts of one time span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) transitions: u64,
    pub(super) started: u64,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) retried: u64,
}

#[derive(Default)]
pub(super) struct Pulse(Mutex<State>);

#[derive(Default)]
struct State {
    seen: Option<Instant>,
    is_counting: bool,
    counts: HashMap<String, VecDeque<(i64, Bar)>>,
}

impl Pulse {
    /// The bars of a namespace, oldest first; the last one is still growing. Starts counting at the first call.
    pub(super) async fn bars(app: &Arc<App>, namespace: &str, now: Timestamp) -> Vec<Bar> {
        let must_start = {
            let mut state = app.web.pulse.lock();
            state.seen = Some(Instant::now());
            !std::mem::replace(&mut state.is_counting, true)
        };
        if must_start {
            app.web.pulse.lock().counts.clear();
            let Some(live) = start(app).await else {
                app.web.pulse.lock().is_counting = false;
                return vec![Bar::default(); BARS];
            };
            tokio::spawn(count(app.clone(), live));
        }
        let state = app.web.pulse.lock();
        let counted = state.counts.get(namespace);
        let last = now.as_second() / BAR_S;
        let bar = |slot: i64| {
            let found = counted.and_then(|bars| bars.iter().find(|(at, _)| *at == slot));
            found.map(|(_, bar)| *bar).unwrap_or_default()
        };
        (last - BARS as i64 + 1..=last).map(bar).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

type Live = (Listener, i64);

/// Subscribes to the feed, and counts recent transitions.
async fn start(app: &Arc<App>) -> Option<Live> {
    let live = app.feed.listen(Interest::default()).await.ok()?;
    let store = &app.store;
    let end = store.changes(None, None, 0).await.ok()?.next;
    let from = end.saturating_sub(SEED_ROWS as i64).max(0);
    let before = store.changes(None, Some(from), SEED_ROWS).await.ok()?;
    let last = before.changes.last().map_or(end, |change| change.id);
    app.web.pulse.lock().add(&before.changes);
    Some((live, last))
}

async fn count(app: Arc<App>, (mut live, mut last): Live) {
    loop {
        let heard = tokio::time::timeout(UNSEEN_FOR, app.stopping.run_until_cancelled(live.recv())).await;
        let mut state = app.web.pulse.lock();
        let is_seen = state.seen.is_some_and(|seen| seen.elapsed() < UNSEEN_FOR);
        match heard {
            Ok(Some(Ok(News::Progress(_)))) if is_seen => {}
            Ok(Some(Ok(News::Changes(stretch)))) if is_seen => {
                let new: Vec<_> = stretch.iter().filter(|change| change.id > last).cloned().collect();
                last = new.last().map_or(last, |change| change.id);
                // An empty batch means that numbers start over.
                last = if stretch.is_empty() { 0 } else { last };
                state.add(&new);
            }
            Ok(Some(Err(RecvError::Lagged(_)))) | Err(_) if is_seen => {}
            _ => {
                state.is_counting = false;
                return;
            }
        }
    }
}

impl State {
    fn add(&mut self, changes: &[Change]) {
        for change in changes {
            if self.counts.len() >= NAMESPACES_MAX && !self.counts.contains_key(&change.namespace) {
                continue;
            }
            let bars = self.counts.entry(change.namespace.clone()).or_default();
            let slot = change.at.as_second() / BAR_S;
            if bars.back().is_none_or(|(last, _)| *last < slot) {
                bars.push_back((slot, Bar::default()));
                if bars.len() > BARS + 1 {
                    bars.pop_front();
                }
            }
            // A commit may be reported a moment after a later one began.
            if let Some((_, bar)) = bars.iter_mut().rev().find(|(at, _)| *at == slot) {
                bar.add(change.kind);
            }
        }
    }
}

impl Bar {
    fn add(&mut self, kind: EventKind) {
        self.transitions += 1;
        match kind {
            EventKind::Created => self.started += 1,
            EventKind::Done => self.done += 1,
            EventKind::Failed => self.failed += 1,
            EventKind::StepRetried => self.retried += 1,
            _ => {}
        }
    }
}
