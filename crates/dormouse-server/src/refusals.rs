//! Refusals in the audit log. They are counted, so that nobody can fill the log.
//!
//! The first refusal of a kind is recorded at once. Those of the same kind within a minute are counted, and recorded
//! in one entry when the minute is over. A kind is who was refused, what they wanted, of which target, and why.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dormouse::store::{NewAudit, ServerStore};

/// How long refusals of one kind are counted before they are recorded together.
const COUNTED_FOR: Duration = Duration::from_secs(60);
/// How many kinds from authenticated callers of one namespace are counted separately; further ones are counted together,
/// so that a tenant who is refused often takes nothing from the others' entries.
const KNOWN_MAX: usize = 256;
/// The same for all other callers, who can use any number of addresses.
const STRANGERS_MAX: usize = 8;
/// The name in the entry when there are too many callers to name.
const OTHERS: &str = "others";

/// Refusals of the last minute.
#[derive(Clone)]
pub(crate) struct Refusals {
    /// In one namespace.
    kinds_max: usize,
    counts: Arc<Mutex<HashMap<Kind, u64>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Kind {
    namespace: String,
    who: String,
    what: String,
    target: Option<String>,
    result: String,
}

impl Refusals {
    /// Refusals of authenticated callers.
    pub(crate) fn of_known() -> Self {
        Self { kinds_max: KNOWN_MAX, counts: Arc::default() }
    }

    /// Refusals of everybody else.
    pub(crate) fn of_strangers() -> Self {
        Self { kinds_max: STRANGERS_MAX, counts: Arc::default() }
    }

    /// Records a refusal, or counts it. If the store cannot record it, the request is refused all the same.
    pub(crate) async fn note(&self, store: &Arc<dyn ServerStore>, entry: NewAudit) {
        self.note_for(COUNTED_FOR, store, entry).await;
    }

    async fn note_for(&self, counted_for: Duration, store: &Arc<dyn ServerStore>, entry: NewAudit) {
        let Some((kind, entry)) = self.first(entry) else { return };
        record(&**store, entry).await;
        let (counts, store) = (self.clone(), store.clone());
        tokio::spawn(async move {
            tokio::time::sleep(counted_for).await;
            let more = counts.lock().remove(&kind).unwrap_or_default();
            if more > 0 {
                let result = format!("{} ({more} more)", kind.result);
                let Kind { namespace, who, what, target, .. } = kind;
                record(&*store, NewAudit { namespace, who, what, target, result }).await;
            }
        });
    }

    /// The entry to record if this refusal is the first of its kind; otherwise counts it.
    fn first(&self, entry: NewAudit) -> Option<(Kind, NewAudit)> {
        let NewAudit { namespace, who, what, target, result } = entry.clone();
        let kind = Kind { namespace, who, what, target, result };
        let mut counts = self.lock();
        if let Some(more) = counts.get_mut(&kind) {
            *more += 1;
            return None;
        }
        if counts.keys().filter(|other| other.namespace == kind.namespace).count() < self.kinds_max {
            counts.insert(kind.clone(), 0);
            return Some((kind, entry));
        }
        let others = Kind {
            namespace: kind.namespace,
            who: OTHERS.to_owned(),
            what: "request".to_owned(),
            target: None,
            result: "refused".to_owned(),
        };
        if let Some(more) = counts.get_mut(&others) {
            *more += 1;
            return None;
        }
        counts.insert(others.clone(), 0);
        let Kind { namespace, who, what, target, result } = others.clone();
        Some((others, NewAudit { namespace, who, what, target, result }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Kind, u64>> {
        self.counts.lock().expect("no code panics while it holds this lock")
    }
}

async fn record(store: &dyn ServerStore, entry: NewAudit) {
    if let Err(error) = store.record_audit(vec![entry]).await {
        tracing::warn!(%error, "a refusal could not be recorded in the audit log");
    }
}

#[cfg(test)]
mod tests {
    use dormouse::store::AuditFilter;

    use super::*;

    fn entry(who: &str) -> NewAudit {
        NewAudit {
            namespace: "default".to_owned(),
            who: who.to_owned(),
            what: "instance.cancel".to_owned(),
            target: Some("7".to_owned()),
            result: "forbidden".to_owned(),
        }
    }

    async fn recorded(store: &Arc<dyn ServerStore>, count: usize) -> Vec<(String, String)> {
        loop {
            let filter = AuditFilter { limit: 500, ..AuditFilter::default() };
            let entries = store.audit(filter).await.expect("a read");
            if entries.len() >= count {
                return entries.into_iter().rev().map(|told| (told.entry.who, told.entry.result)).collect();
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn the_first_is_recorded_at_once_and_the_others_of_its_minute_in_one_entry() {
        let store = dormouse::Client::open("sqlite::memory:")
            .await
            .expect("a client")
            .server_store()
            .expect("a store");
        let refusals = Refusals::of_strangers();
        for _ in 0..1000 {
            refusals.note_for(Duration::from_millis(300), &store, entry("reader")).await;
        }
        let told = |result: &str| ("reader".to_owned(), result.to_owned());
        assert_eq!(recorded(&store, 2).await, [told("forbidden"), told("forbidden (999 more)")]);
        assert!(refusals.lock().is_empty(), "what was recorded is forgotten");
    }

    #[tokio::test]
    async fn more_kinds_than_can_be_told_apart_are_one() {
        let store = dormouse::Client::open("sqlite::memory:")
            .await
            .expect("a client")
            .server_store()
            .expect("a store");
        let refusals = Refusals::of_strangers();
        for number in 0..1000 {
            refusals.note(&store, entry(&format!("source {number}"))).await;
        }
        let told = recorded(&store, STRANGERS_MAX + 1).await;
        assert_eq!(told.len(), STRANGERS_MAX + 1);
        assert_eq!(told.last(), Some(&(OTHERS.to_owned(), "refused".to_owned())));
        assert_eq!(refusals.lock().len(), STRANGERS_MAX + 1);
    }
}
