//! Pokes between processes: LISTEN and NOTIFY, sent after the commit, on their own, a few times a second at most for
//! each queue or event. Polling finds what a lost poke announced.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgListener;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connect::Address;
use super::db::Db;
use crate::InstanceId;
use crate::poke::Hub;
use crate::store::Effects;

const CHANNEL: &str = "dormouse";
/// Pokes within this time are sent as one.
const GATHER: Duration = Duration::from_millis(2);
/// How often the listener pokes itself, to notice that it is deaf.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long to wait before connecting again.
const FAULT_PAUSE: Duration = Duration::from_millis(500);
/// The database accepts payloads of up to 8,000 bytes; an id has up to 20.
const IDS_MAX: usize = 200;
const QUEUES_MAX: usize = 5;

/// What gathers for the next poke.
pub(super) struct Pokes {
    /// Distinguishes our own pokes from others'.
    from: u64,
    gathered: Mutex<Effects>,
    news: Arc<Notify>,
    /// Ends both tasks with the store, and their connections with them.
    _stop: DropGuard,
}

/// A poke on the wire.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Poke {
    from: u64,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    queues: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wake_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ended: Vec<InstanceId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cancel: Vec<InstanceId>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    braked: bool,
}

impl Pokes {
    /// Starts to send, and to listen if that can be done. Both end when the store is dropped.
    pub(super) fn start(db: Db, hub: &Arc<Hub>, listens_at: Option<Address>) -> Arc<Self> {
        let (news, stop) = (Arc::new(Notify::new()), CancellationToken::new());
        let pokes = Arc::new(Self {
            from: fastrand::u64(..),
            gathered: Mutex::default(),
            news: news.clone(),
            _stop: stop.clone().drop_guard(),
        });
        tokio::spawn(stop.clone().run_until_cancelled_owned(send(Arc::downgrade(&pokes), news, db)));
        if let Some(address) = listens_at {
            let listening = listen(pokes.from, Arc::downgrade(hub), address);
            tokio::spawn(stop.run_until_cancelled_owned(listening));
        }
        pokes
    }

    /// Adds to the next poke.
    pub(super) fn add(&self, effects: &Effects) {
        // Whoever sends mail delivers it: others need not look.
        let effects = Effects { mail: false, ..effects.clone() };
        if effects == Effects::default() {
            return;
        }
        self.lock().merge(effects);
        self.news.notify_one();
    }

    fn take(&self) -> Poke {
        let Effects { queues, wake_at, mut ended, mut cancel, braked, .. } =
            std::mem::take(&mut *self.lock());
        ended.truncate(IDS_MAX);
        cancel.truncate(IDS_MAX / 4);
        Poke { from: self.from, queues, wake_at, ended, cancel, braked }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Effects> {
        self.gathered.lock().expect("no code panics while it holds this lock")
    }
}

/// Sends what has gathered, a poke at a time.
async fn send(pokes: Weak<Pokes>, news: Arc<Notify>, db: Db) {
    loop {
        news.notified().await;
        let Some(poke) = pokes.upgrade().map(|pokes| pokes.take()) else { return };
        let texts = payloads(poke);
        let sql = "select pg_notify($1, payload) from unnest($2::text[]) payload";
        if let Err(error) = db.all(|| sqlx::query(sql).bind(CHANNEL).bind(&texts)).await {
            tracing::debug!(%error, "a poke was lost");
        }
        tokio::time::sleep(GATHER).await;
    }
}

/// A poke in pieces that the database takes.
fn payloads(poke: Poke) -> Vec<String> {
    let from = poke.from;
    let queues: Vec<String> = poke.queues.iter().cloned().collect();
    let mut pokes: Vec<Poke> = queues
        .chunks(QUEUES_MAX)
        .skip(1)
        .map(|chunk| Poke { from, queues: chunk.iter().cloned().collect(), ..Poke::default() })
        .collect();
    pokes.push(Poke { queues: queues.into_iter().take(QUEUES_MAX).collect(), ..poke });
    pokes.iter().map(|poke| serde_json::to_string(poke).expect("a poke can be written")).collect()
}

/// Passes on the pokes of others, and notices when the connection no longer receives any.
async fn listen(own: u64, hub: Weak<Hub>, address: Address) {
    let mut connected = None;
    loop {
        let Some(hub) = hub.upgrade() else { return };
        let listener = match &mut connected {
            Some(listener) => listener,
            None => match address.listen(CHANNEL).await {
                Ok(listener) => {
                    // Pokes that were sent meanwhile were missed.
                    hub.poke_all();
                    connected.insert(listener)
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot listen for pokes; polling meanwhile");
                    tokio::time::sleep(FAULT_PAUSE).await;
                    continue;
                }
            },
        };
        match tokio::time::timeout(HEARTBEAT, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => hear(own, &hub, notification.payload()),
            Ok(Ok(None)) => connected = None,
            Ok(Err(error)) => {
                tracing::debug!(%error, "lost the connection that listens for pokes");
                connected = None;
            }
            Err(_) if is_alive(listener).await => {}
            Err(_) => connected = None,
        }
    }
}

/// Whether a connection that was silent still answers.
async fn is_alive(listener: &mut PgListener) -> bool {
    use sqlx::Executor;
    let answer = tokio::time::timeout(FAULT_PAUSE * 4, listener.execute("select 1")).await;
    let alive = matches!(answer, Ok(Ok(_)));
    if !alive {
        tracing::info!("the connection that listens for pokes is dead: connecting again");
    }
    alive
}

fn hear(own: u64, hub: &Hub, payload: &str) {
    match serde_json::from_str::<Poke>(payload) {
        Ok(poke) if poke.from == own => {}
        Ok(Poke { queues, wake_at, ended, cancel, braked, .. }) => {
            hub.apply(&Effects { queues, wake_at, ended, cancel, braked, held_back: false, mail: false });
        }
        Err(error) => tracing::debug!(%error, "ignoring a poke that cannot be parsed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poke_of_many_names_fits_what_the_database_takes() {
        // A quote is two bytes on the way.
        let queues = (0..40).map(|n| format!("{n:\"<255}")).collect();
        let ended = (0..IDS_MAX as i64).map(|n| InstanceId(i64::MAX - n)).collect();
        let cancel = (0..IDS_MAX as i64 / 4).map(|n| InstanceId(i64::MAX - n)).collect();
        let poke = Poke { from: u64::MAX, queues, ended, cancel, ..Poke::default() };
        let payloads = payloads(poke);
        assert_eq!(payloads.len(), 8);
        assert!(payloads.iter().all(|payload| payload.len() < 8_000), "{}", payloads[7].len());
    }

    #[test]
    fn our_own_pokes_are_dropped_and_others_are_passed_on() {
        let hub = Hub::default();
        let mut cancels = hub.cancels();
        for (from, id) in [(1, 10), (2, 20), (1, 30), (2, 40)] {
            let poke = Poke { from, cancel: vec![InstanceId(id)], ..Poke::default() };
            payloads(poke).iter().for_each(|payload| hear(1, &hub, payload));
        }
        // A poke that cannot be parsed, perhaps from a newer version, is skipped.
        hear(1, &hub, "no JSON");
        hear(1, &hub, r#"{"from":2,"cancel":[50],"more":true}"#);
        let heard: Vec<_> = std::iter::from_fn(|| cancels.try_recv().ok()).collect();
        assert_eq!(heard, [20, 40, 50].map(InstanceId));
    }
}
