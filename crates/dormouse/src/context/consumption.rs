//! Which of the signals that a step received its outcome consumes.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::UnreadSignal;
use crate::{InboxSignal, SignalId};

/// All that the step was handed and could read; of a flow's wait, the one signal that it chose.
#[derive(Debug, Default)]
pub(crate) struct Consumption {
    chosen: OnceLock<SignalId>,
    unread: Mutex<Vec<UnreadSignal>>,
}

impl Consumption {
    /// Consumes this signal alone; the others stay for another wait.
    pub(super) fn choose(&self, id: SignalId) {
        self.chosen.get_or_init(|| id);
    }

    /// Notes a signal that the step was handed and cannot read: it is not consumed.
    pub(super) fn cannot_read(&self, received: &InboxSignal, error: String) {
        let mut unread = self.lock();
        if unread.iter().all(|known| known.id != received.id) {
            unread.push(UnreadSignal { id: received.id, name: received.name.clone(), error });
        }
    }

    /// What could not be read, in order of arrival.
    pub(super) fn unread(&self) -> Vec<UnreadSignal> {
        let mut unread = self.lock().clone();
        unread.sort_by_key(|unread| unread.id);
        unread
    }

    /// Those that count as handed out: an outcome that waits again is not woken by them.
    pub(super) fn handed(&self, received: impl Iterator<Item = SignalId>) -> Vec<SignalId> {
        match self.chosen.get() {
            Some(chosen) => vec![*chosen],
            None => received.collect(),
        }
    }

    /// Those that an outcome which makes progress consumes.
    pub(super) fn consumed(&self, received: impl Iterator<Item = SignalId>) -> Vec<SignalId> {
        let unread = self.lock();
        let mut consumed = self.handed(received);
        consumed.retain(|id| unread.iter().all(|unread| unread.id != *id));
        consumed
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UnreadSignal>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
