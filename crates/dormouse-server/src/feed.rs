//! The feed of changes: one reader of the history for any number of watchers.
//!
//! Watchers with the same filter form a group, and only changes that match the filter wake a group. A thousand pages
//! that are open on a thousand sleeping instances cost a busy engine only the lookup in a table.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dormouse::store::{Change, Progress, Reports, ServerStore};
use dormouse::{InstanceId, Result};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// Changes read at a time.
pub(crate) const ROWS_MAX: usize = 500;
/// How many batches a slow watcher may fall behind before it has to read the history itself: for many instances, and
/// for one.
const BEHIND_MAX: usize = 64;
const BEHIND_ONE_MAX: usize = 8;
/// How long to gather changes that arrive together.
const GATHER: Duration = Duration::from_millis(50);
/// How often to look for changes made by other processes.
const POLL: Duration = Duration::from_secs(1);

pub(crate) struct Feed {
    store: Arc<dyn ServerStore>,
    listeners: Mutex<Listeners>,
}

/// The filter of a listener: everything, unless something is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) namespace: Option<String>,
    pub(crate) machine: Option<String>,
    pub(crate) instance: Option<i64>,
    pub(crate) queue: Option<String>,
}

impl Interest {
    pub(crate) fn is_in(&self, change: &Change) -> bool {
        self.is(&change.namespace, &change.machine, &change.queue, change.instance)
    }

    fn is_in_report(&self, report: &Progress) -> bool {
        self.is(&report.namespace, &report.machine, &report.queue, report.instance)
    }

    fn is(&self, namespace: &str, machine: &str, queue: &str, instance: InstanceId) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        is(&self.namespace, namespace)
            && is(&self.machine, machine)
            && is(&self.queue, queue)
            && self.instance.is_none_or(|wanted| wanted == instance.0)
    }
}

/// What a listener receives.
#[derive(Clone)]
pub(crate) enum News {
    /// The changes of a batch that match the filter; an empty batch means that positions start over.
    Changes(Stretch),
    /// The progress of a running step.
    Progress(Arc<Progress>),
}

/// A batch of changes that were read together.
#[derive(Clone)]
pub(crate) struct Stretch {
    changes: Arc<[Change]>,
    /// The indexes of those that match the filter, in order.
    told: Arc<[usize]>,
}

impl Stretch {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Change> {
        self.told.iter().map(|index| &self.changes[*index])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The number of its last change, whether it matches the filter or not.
    pub(crate) fn last(&self) -> Option<i64> {
        self.changes.last().map(|change| change.id)
    }
}

#[derive(Default)]
struct Listeners {
    is_read: bool,
    /// Groups by the instance in their filter, if it names one.
    groups: HashMap<Option<i64>, Vec<Group>>,
}

/// Listeners with the same filter.
struct Group {
    interest: Interest,
    sender: broadcast::Sender<News>,
    /// The indexes of the current batch that match the filter.
    told: Vec<usize>,
}

/// A subscription to the feed, until it is dropped.
pub(crate) struct Listener {
    feed: Arc<Feed>,
    interest: Interest,
    receiver: broadcast::Receiver<News>,
}

impl Listener {
    pub(crate) async fn recv(&mut self) -> std::result::Result<News, RecvError> {
        self.receiver.recv().await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = self.feed.lock();
        let Some(groups) = listeners.groups.get_mut(&self.interest.instance) else { return };
        // The count still includes this listener's own receiver.
        groups.retain(|group| group.interest != self.interest || group.sender.receiver_count() > 1);
        if groups.is_empty() {
            listeners.groups.remove(&self.interest.instance);
        }
    }
}

impl Feed {
    pub(crate) fn new(store: Arc<dyn ServerStore>) -> Self {
        Self { store, listeners: Mutex::default() }
    }

    /// Subscribes to every change from now on that matches the filter. The reader runs while anyone listens.
    pub(crate) async fn listen(self: &Arc<Self>, interest: Interest) -> Result<Listener> {
        if let Some(receiver) = self.lock().join_reader(&interest) {
            return Ok(Listener { feed: self.clone(), interest, receiver });
        }
        let position = self.store.changes(None, None, 0).await?.next;
        let reported = self.store.reports(Reports::Newest, 1).await?.first().map_or(0, |report| report.place);
        let mut listeners = self.lock();
        // Another listener may have started the reader in the meantime.
        if !listeners.is_read {
            listeners.is_read = true;
            tokio::spawn(self.clone().read(position, reported));
        }
        let receiver = listeners.join(&interest);
        Ok(Listener { feed: self.clone(), interest, receiver })
    }

    async fn read(self: Arc<Self>, mut position: i64, mut reported: i64) {
        let mut moved = self.store.hub().changes();
        // An outage is logged when it begins and when it is over, not at each try.
        let mut fails = false;
        loop {
            moved.borrow_and_update();
            match self.store.changes(None, Some(position), ROWS_MAX).await {
                Ok(read) => {
                    if !read.changes.is_empty() {
                        self.lock().tell(read.changes.into());
                    } else if read.next < position {
                        self.lock().start_over();
                    }
                    position = read.next;
                    if read.more {
                        continue;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut fails, true) {
                        tracing::warn!(%error, "could not read changes; trying again");
                    }
                    tokio::time::sleep(POLL).await;
                    continue;
                }
            }
            if std::mem::take(&mut fails) {
                tracing::warn!("changes can be read again");
            }
            match self.store.reports(Reports::After(reported), ROWS_MAX).await {
                Ok(reports) => {
                    reported = reports.last().map_or(reported, |report| report.place);
                    self.lock().tell_reports(reports);
                }
                Err(error) => tracing::debug!(%error, "could not read the progress of steps"),
            }
            {
                let mut listeners = self.lock();
                if listeners.groups.is_empty() {
                    listeners.is_read = false;
                    return;
                }
            }
            let _ = tokio::time::timeout(POLL, moved.changed()).await;
            tokio::time::sleep(GATHER).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().expect("no code panics while it holds this lock")
    }
}

impl Listeners {
    /// `None` if no reader runs.
    fn join_reader(&mut self, interest: &Interest) -> Option<broadcast::Receiver<News>> {
        self.is_read.then(|| self.join(interest))
    }

    fn join(&mut self, interest: &Interest) -> broadcast::Receiver<News> {
        let groups = self.groups.entry(interest.instance).or_default();
        if let Some(group) = groups.iter().find(|group| group.interest == *interest) {
            return group.sender.subscribe();
        }
        let behind_max = if interest.instance.is_some() { BEHIND_ONE_MAX } else { BEHIND_MAX };
        let (sender, receiver) = broadcast::channel(behind_max);
        groups.push(Group { interest: interest.clone(), sender, told: Vec::new() });
        receiver
    }

    fn tell(&mut self, changes: Arc<[Change]>) {
        let mut concerned = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            for of in [None, Some(change.instance.0)] {
                let groups = self.groups.get_mut(&of).into_iter().flatten();
                for group in groups.filter(|group| group.interest.is_in(change)) {
                    if group.told.is_empty() {
                        concerned.push(of);
                    }
                    group.told.push(index);
                }
            }
        }
        for of in concerned {
            for group in self.groups.get_mut(&of).into_iter().flatten().filter(|group| !group.told.is_empty())
            {
                let told = std::mem::take(&mut group.told).into();
                // Sending fails if the last listener of the group has just left.
                let _ = group.sender.send(News::Changes(Stretch { changes: changes.clone(), told }));
            }
        }
    }

    fn tell_reports(&self, reports: Vec<Progress>) {
        for report in reports.into_iter().map(Arc::new) {
            for of in [None, Some(report.instance.0)] {
                let groups = self.groups.get(&of).into_iter().flatten();
                for group in groups.filter(|group| group.interest.is_in_report(&report)) {
                    let _ = group.sender.send(News::Progress(report.clone()));
                }
            }
        }
    }

    fn start_over(&self) {
        for group in self.groups.values().flatten() {
            let nothing = Stretch { changes: Arc::new([]), told: Arc::new([]) };
            let _ = group.sender.send(News::Changes(nothing));
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse::jiff::Timestamp;
    use dormouse::{EventKind, Status};

    use super::*;

    fn change(id: i64, instance: i64) -> Change {
        Change {
            id,
            instance: InstanceId(instance),
            namespace: "default".to_owned(),
            machine: "shop".to_owned(),
            key: None,
            queue: "default".to_owned(),
            status: Status::Runnable,
            kind: EventKind::Created,
            seq: 1,
            step: "Start".to_owned(),
            at: Timestamp::UNIX_EPOCH,
            ran: None,
        }
    }

    fn heard(receiver: &mut broadcast::Receiver<News>) -> Vec<i64> {
        match receiver.try_recv() {
            Ok(News::Changes(stretch)) => stretch.iter().map(|change| change.id).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn each_hears_of_what_it_wants_to_and_nobody_is_woken_by_anything_else() {
        let mut listeners = Listeners::default();
        let of = |instance| Interest { instance: Some(instance), ..Interest::default() };
        let in_queue = Interest { queue: Some("other".to_owned()), ..of(1) };
        let wanted = [Interest::default(), of(1), of(1), in_queue, of(2)];
        let mut receivers = wanted.map(|interest| listeners.join(&interest));
        listeners.tell([change(10, 1), change(11, 3), change(12, 1)].into());
        let none: [i64; 0] = [];
        assert_eq!(receivers.each_mut().map(heard), [&[10, 11, 12][..], &[10, 12], &[10, 12], &none, &none]);
        listeners.start_over();
        assert!(
            receivers.iter_mut().all(
                |receiver| matches!(receiver.try_recv(), Ok(News::Changes(stretch)) if stretch.is_empty())
            )
        );
    }
}
