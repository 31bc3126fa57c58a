//! Pokes inside a process: who can run, what was armed, who ended.
//!
//! Everything here is a hint. A lost one costs at most a poll interval.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use tokio::sync::{Notify, broadcast, watch};

use crate::InstanceId;

/// The value that a write returns, and the pokes that follow from it.
#[derive(Clone, Debug, Default)]
pub struct Written<T> {
    /// The answer.
    pub value: T,
    /// What to poke.
    pub effects: Effects,
}

/// Hints that follow a commit. Losing them costs time, never work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Queues in which a row became runnable.
    pub queues: BTreeSet<String>,
    /// The nearest moment that was armed.
    pub wake_at: Option<Timestamp>,
    /// Instances that ended.
    pub ended: Vec<InstanceId>,
    /// Executing instances that someone wants cancelled.
    pub cancel: Vec<InstanceId>,
    /// Something was paused: rows that are claimed and have not started must not start.
    pub braked: bool,
    /// A claim has left rows in lanes with a rate that must start at once: there was no place for them.
    pub held_back: bool,
    /// Mail was sent. Only this process is poked: it delivers what it sent, and others find what a crash left behind.
    pub mail: bool,
}

impl Effects {
    /// Notes a moment that was armed.
    pub fn arm(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |armed| armed.min(at)));
    }

    /// Adds another write's.
    pub fn merge(&mut self, other: Self) {
        let Self { queues, wake_at, ended, cancel, braked, held_back, mail } = other;
        self.queues.extend(queues);
        wake_at.into_iter().for_each(|at| self.arm(at));
        self.ended.extend(ended);
        self.cancel.extend(cancel);
        self.braked |= braked;
        self.held_back |= held_back;
        self.mail |= mail;
    }

    /// Notes that a row in this queue can run.
    pub fn runnable(&mut self, queue: &str) {
        if !self.queues.contains(queue) {
            self.queues.insert(queue.to_owned());
        }
    }
}

/// How many cancellation hints a slow engine may fall behind before it relies on its heartbeat.
const CANCELS_MAX: usize = 1024;

/// The switchboard of one store in one process.
#[derive(Debug)]
pub struct Hub {
    queues: Mutex<HashMap<String, watch::Sender<()>>>,
    waiters: Mutex<HashMap<InstanceId, Waiting>>,
    armed: Mutex<Option<Timestamp>>,
    timer: watch::Sender<()>,
    mail: watch::Sender<()>,
    cancels: broadcast::Sender<InstanceId>,
    changes: watch::Sender<()>,
    /// How many pauses there were: a row that was claimed before a pause is not started after it.
    brakes: AtomicU64,
    /// Instances that engines of this process have claimed and not started yet.
    ahead: Mutex<HashSet<InstanceId>>,
}

#[derive(Debug)]
struct Waiting {
    notify: Arc<Notify>,
    waiters: usize,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            queues: Mutex::default(),
            waiters: Mutex::default(),
            armed: Mutex::default(),
            timer: watch::Sender::new(()),
            mail: watch::Sender::new(()),
            cancels: broadcast::Sender::new(CANCELS_MAX),
            changes: watch::Sender::new(()),
            brakes: AtomicU64::new(0),
            ahead: Mutex::default(),
        }
    }
}

impl Hub {
    /// Wakes the loops and waiters that a commit's effects concern.
    pub fn apply(&self, effects: &Effects) {
        if !effects.queues.is_empty() {
            let queues = lock(&self.queues);
            effects.queues.iter().filter_map(|name| queues.get(name)).for_each(poke);
        }
        if let Some(at) = effects.wake_at {
            self.arm(at);
        }
        if effects.mail {
            poke(&self.mail);
        }
        if effects.braked {
            self.brakes.fetch_add(1, Ordering::Relaxed);
        }
        if !effects.ended.is_empty() {
            let waiters = lock(&self.waiters);
            if !waiters.is_empty() {
                effects.ended.iter().filter_map(|id| waiters.get(id)).for_each(|w| w.notify.notify_waiters());
            }
        }
        for id in &effects.cancel {
            // No receiver means that no engine runs here.
            let _ = self.cancels.send(*id);
        }
        self.changed();
    }

    /// Notifies those who wait for these instances that they were committed, and perhaps parked.
    pub(crate) fn moved(&self, ids: impl Iterator<Item = InstanceId>) {
        let waiters = lock(&self.waiters);
        if !waiters.is_empty() {
            ids.filter_map(|id| waiters.get(&id)).for_each(|waiting| waiting.notify.notify_waiters());
        }
    }

    /// Notes that something moved, for tests that wait until the store is at rest.
    pub fn changed(&self) {
        poke(&self.changes);
    }

    /// Pokes every queue and the timer, as after a reconnect or a move of the clock.
    pub fn poke_all(&self) {
        lock(&self.queues).values().for_each(poke);
        poke(&self.timer);
    }

    /// Whether an engine of this process serves a queue, or did.
    pub(crate) fn is_listened_to(&self) -> bool {
        !lock(&self.queues).is_empty()
    }

    /// What a queue's loop listens to.
    pub(crate) fn queue(&self, name: &str) -> watch::Receiver<()> {
        lock(&self.queues).entry(name.to_owned()).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// How many pauses are known here.
    pub(crate) fn brakes(&self) -> u64 {
        self.brakes.load(Ordering::Relaxed)
    }

    /// Notes that an instance is claimed and waits for its place.
    pub(crate) fn claimed_ahead(&self, id: InstanceId) {
        lock(&self.ahead).insert(id);
    }

    /// Notes that it no longer waits.
    pub(crate) fn starts(&self, id: InstanceId) {
        lock(&self.ahead).remove(&id);
    }

    /// Whether an engine of this process has claimed an instance and not started it yet.
    pub(crate) fn is_claimed_ahead(&self, id: InstanceId) -> bool {
        lock(&self.ahead).contains(&id)
    }

    /// What a timer listens to: a moment was set that is nearer than the one it sleeps for.
    pub(crate) fn timer(&self) -> watch::Receiver<()> {
        self.timer.subscribe()
    }

    /// What delivers mail listens to: some was sent.
    pub(crate) fn mail(&self) -> watch::Receiver<()> {
        self.mail.subscribe()
    }

    /// Executing instances that someone wants cancelled.
    pub(crate) fn cancels(&self) -> broadcast::Receiver<InstanceId> {
        self.cancels.subscribe()
    }

    /// Changes with everything that moves in this process: look, then wait for a change, then look again.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Sets the moment that timers sleep for; `None` while it is being read, so that every new moment wakes them.
    pub(crate) fn set_armed(&self, next: Option<Timestamp>) {
        *lock(&self.armed) = next;
    }

    /// Registers interest in what becomes of an instance: its end, and its commits in this process.
    pub(crate) fn wait_for(&self, id: InstanceId) -> Waiter<'_> {
        let mut waiters = lock(&self.waiters);
        let waiting = waiters.entry(id).or_insert_with(|| Waiting { notify: Arc::default(), waiters: 0 });
        waiting.waiters += 1;
        Waiter { hub: self, id, notify: waiting.notify.clone() }
    }

    /// **Timers need no sweep**: a timer that sleeps for the next moment is woken early by a nearer one, and by nothing
    /// else.
    fn arm(&self, at: Timestamp) {
        let mut armed = lock(&self.armed);
        if armed.is_none_or(|next| at < next) {
            *armed = Some(at);
            poke(&self.timer);
        }
    }
}

/// Interest in what becomes of one instance, given up when dropped.
pub(crate) struct Waiter<'a> {
    hub: &'a Hub,
    id: InstanceId,
    pub(crate) notify: Arc<Notify>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiters = lock(&self.hub.waiters);
        let Some(waiting) = waiters.get_mut(&self.id) else { return };
        waiting.waiters -= 1;
        if waiting.waiters == 0 {
            waiters.remove(&self.id);
        }
    }
}

/// Every listener is notified once, whether it waits now or looks later.
fn poke(listeners: &watch::Sender<()>) {
    listeners.send_replace(());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds a hub lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_need_no_sweep_as_a_nearer_moment_wakes_who_sleeps_for_a_later_one() {
        let hub = Hub::default();
        let second = |second| Timestamp::from_second(second).expect("a moment");
        let arm = |at| hub.apply(&Effects { wake_at: Some(second(at)), ..Effects::default() });
        let mut timer = hub.timer();
        let mut is_woken = || {
            let woken = timer.has_changed().expect("the hub lives");
            timer.borrow_and_update();
            woken
        };
        arm(30);
        assert!(is_woken(), "while the next moment is found out, every arming is news");
        hub.set_armed(Some(second(20)));
        arm(30);
        arm(20);
        assert!(!is_woken(), "it wakes by then anyway");
        arm(10);
        assert!(is_woken());
        arm(15);
        assert!(!is_woken(), "it sleeps for the nearer one now");
    }
}
