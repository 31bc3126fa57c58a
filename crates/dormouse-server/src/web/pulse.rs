//! Activity: transitions of the last minutes, counted from the feed.
//!
//! It is one more watcher of the feed, and runs only while somebody looks at the overview.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use dormouse::EventKind;
use dormouse::jiff::Timestamp;
use dormouse::store::{Change, ServerStore};
use tokio::sync::broadcast::error::RecvError;

use super::pace::{Of, Pace, Paces};
use crate::feed::{Interest, Listener, News};
use crate::server::App;

/// The time span of one bar of a chart.
pub(super) const BAR_S: i64 = 5;
/// How far back the chart goes.
pub(super) const BARS: usize = 60;
/// Counting stops after this time without a visitor.
const UNSEEN_FOR: Duration = Duration::from_secs(300);
/// How many past transitions are read at a time.
const ROWS_MAX: usize = 4_000;
/// How long a page waits for past transitions to be counted. What is not counted by then appears a little later.
const COUNTED_WITHIN: Duration = Duration::from_secs(1);
/// Where a moment is looked for in the feed, it is looked for this much earlier: the feed is nearly in the order of time.
const MARGIN_S: i64 = 10;
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
    /// How many stretches of the past are being counted.
    behind: usize,
    counts: HashMap<String, BTreeMap<i64, Bar>>,
    paces: Paces,
}

/// The bars of a namespace, oldest first; the last one is still growing.
pub(super) struct Bars {
    pub(super) bars: Vec<Bar>,
    /// Whether some of what happened is not counted yet.
    pub(super) is_behind: bool,
}

impl Pulse {
    /// The bars of a namespace.
    pub(super) async fn bars(app: &Arc<App>, namespace: &str, now: Timestamp) -> Bars {
        if !Self::counts(app, now).await {
            return Bars { bars: vec![Bar::default(); BARS], is_behind: true };
        }
        let state = app.web.pulse.lock();
        let counted = state.counts.get(namespace);
        let last = now.as_second() / BAR_S;
        let bar = |slot: i64| counted.and_then(|bars| bars.get(&slot)).copied().unwrap_or_default();
        Bars { bars: (last - BARS as i64 + 1..=last).map(bar).collect(), is_behind: state.behind > 0 }
    }

    /// The paces of machines or queues of a namespace, in the order of their names.
    pub(super) async fn paces<'a>(
        app: &Arc<App>,
        namespace: &str,
        now: Timestamp,
        of: Of,
        names: impl Iterator<Item = &'a str>,
    ) -> Vec<Pace> {
        Self::counts(app, now).await;
        let state = app.web.pulse.lock();
        names.map(|name| state.paces.of(of, namespace, name, now)).collect()
    }

    /// Starts counting at the first call, with the transitions of the last minutes. Returns false if that cannot be done
    /// now.
    async fn counts(app: &Arc<App>, now: Timestamp) -> bool {
        let must_start = {
            let mut state = app.web.pulse.lock();
            state.seen = Some(Instant::now());
            !std::mem::replace(&mut state.is_counting, true)
        };
        if must_start {
            app.web.pulse.lock().forget();
            let Some((live, end)) = start(app).await else {
                app.web.pulse.lock().is_counting = false;
                return false;
            };
            let past = tokio::spawn(count_past(app.clone(), now, end));
            tokio::spawn(count(app.clone(), live, end));
            let _ = tokio::time::timeout(COUNTED_WITHIN, past).await;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

/// Subscribes to the feed; returns the position before which everything is past.
async fn start(app: &Arc<App>) -> Option<(Listener, i64)> {
    let live = app.feed.listen(Interest::default()).await.ok()?;
    let end = app.store.changes(None, None, 0).await.ok()?.next;
    Some((live, end))
}

/// Counts the transitions of the last minutes up to a position.
async fn count_past(app: Arc<App>, now: Timestamp, end: i64) {
    let _behind = Behind::new(&app);
    let since = now.as_second() - BARS as i64 * BAR_S - MARGIN_S;
    match position_at(&*app.store, since, end).await {
        Ok(from) => count_between(app.clone(), from, end).await,
        Err(error) => tracing::debug!(%error, "the start of the last minutes could not be found"),
    }
}

/// Counts the transitions after one position, up to another. If the store fails, the rest is left out.
async fn count_between(app: Arc<App>, mut position: i64, end: i64) {
    let _behind = Behind::new(&app);
    while position < end {
        let read = match app.store.changes(None, Some(position), ROWS_MAX).await {
            Ok(read) => read,
            Err(error) => return tracing::debug!(%error, "past transitions could not be counted"),
        };
        let past: Vec<_> = read.changes.into_iter().filter(|change| change.id <= end).collect();
        app.web.pulse.lock().add(&past);
        if read.next <= position || !read.more {
            return;
        }
        position = read.next;
    }
}

/// While it exists, some of the past is not counted yet.
struct Behind(Arc<App>);

impl Behind {
    fn new(app: &Arc<App>) -> Self {
        app.web.pulse.lock().behind += 1;
        Self(app.clone())
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.0.web.pulse.lock().behind -= 1;
    }
}

/// A position in the feed after which everything since this second is found: by halves, so that it costs the same
/// however much has happened since.
async fn position_at(store: &dyn ServerStore, second: i64, end: i64) -> dormouse::Result<i64> {
    let (mut before, mut after) = (0, end);
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        let read = store.changes(None, Some(middle), 1).await?;
        match read.changes.first() {
            Some(change) if change.at.as_second() >= second => after = middle,
            // Nothing follows, or it belongs to an instance that is gone, which is of the past.
            _ if read.next >= after => after = middle,
            _ => before = read.next.max(middle),
        }
    }
    Ok(before)
}

async fn count(app: Arc<App>, mut live: Listener, mut last: i64) {
    // Whether changes after `last` were missed because there were too many at once.
    let mut has_lagged = false;
    loop {
        let heard = tokio::time::timeout(UNSEEN_FOR, app.stopping.run_until_cancelled(live.recv())).await;
        let is_seen = app.web.pulse.lock().seen.is_some_and(|seen| seen.elapsed() < UNSEEN_FOR);
        match heard {
            Ok(Some(Ok(News::Progress(_)))) if is_seen => {}
            Ok(Some(Ok(News::Changes(stretch)))) if is_seen => {
                let new: Vec<_> = stretch.iter().filter(|change| change.id > last).cloned().collect();
                if let Some(first) = new.first().filter(|_| has_lagged) {
                    tokio::spawn(count_between(app.clone(), last, first.id - 1));
                    has_lagged = false;
                }
                last = new.last().map_or(last, |change| change.id);
                // An empty batch means that numbers start over.
                last = if stretch.is_empty() { 0 } else { last };
                app.web.pulse.lock().add(&new);
            }
            Ok(Some(Err(RecvError::Lagged(_)))) if is_seen => has_lagged = true,
            Err(_) if is_seen => {}
            _ => {
                app.web.pulse.lock().is_counting = false;
                return;
            }
        }
    }
}

impl State {
    fn forget(&mut self) {
        self.counts.clear();
        self.paces.clear();
    }

    fn add(&mut self, changes: &[Change]) {
        for change in changes {
            self.paces.add(change);
            if self.counts.len() >= NAMESPACES_MAX && !self.counts.contains_key(&change.namespace) {
                continue;
            }
            let bars = self.counts.entry(change.namespace.clone()).or_default();
            let slot = change.at.as_second() / BAR_S;
            let newest = bars.last_key_value().map_or(slot, |(newest, _)| *newest);
            // What is older than the chart is counted by nobody.
            if slot > newest - BARS as i64 - 1 {
                bars.entry(slot).or_default().add(change.kind);
            }
            while bars.first_key_value().is_some_and(|(first, _)| *first < newest - BARS as i64) {
                bars.pop_first();
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
