//! Callers that start orders and pay them, and do not give up when the store fails for a while.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use dormouse::{Client, Error, InstanceId, KeyScope, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::SOON;
use super::errands;
use super::shop::{Fact, Ledger, Order, Ordering, PAID, PAYMENTS, Picking, Tell};

const CALLERS: usize = 3;
/// Between two tries of a call that the store could not answer, and between two jobs.
const PAUSE: Duration = Duration::from_millis(20);

/// Callers at work.
pub struct Load {
    stop: CancellationToken,
    callers: Vec<JoinHandle<()>>,
    acknowledged: watch::Receiver<usize>,
    refused: Arc<AtomicUsize>,
}

impl Load {
    pub fn start(client: &Client, tell: Tell) -> Self {
        let stop = CancellationToken::new();
        let (counter, acknowledged) = watch::channel(0);
        let refused = Arc::new(AtomicUsize::new(0));
        let tell: Tell = Arc::new(move |fact| {
            tell(fact);
            counter.send_modify(|count| *count += 1);
        });
        let caller = || Caller { client: client.clone(), tell: tell.clone(), refused: refused.clone() };
        let mut callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (caller, stop) = (caller(), stop.clone());
                tokio::spawn(async move {
                    while !stop.is_cancelled() {
                        caller.one_order().await;
                    }
                })
            })
            .collect();
        // One waits for nothing, and so meets whatever there is to meet.
        let (caller, stopped) = (caller(), stop.clone());
        callers.push(tokio::spawn(async move {
            while !stopped.is_cancelled() {
                caller.one_job().await;
                tokio::time::sleep(PAUSE).await;
            }
        }));
        let (client, stopped, tell) = (client.clone(), stop.clone(), tell.clone());
        callers.push(tokio::spawn(async move {
            let tell = move |told| tell(Fact::Errand(told));
            while !stopped.is_cancelled() {
                if let Err(error) = errands::run::<Ledger>(&client, &tell).await {
                    assert!(error.is_transient(), "an errand's call: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }));
        Self { stop, callers, acknowledged, refused }
    }

    /// Resolves when this many more calls were acknowledged.
    pub async fn moved(&mut self, calls: usize) {
        let goal = *self.acknowledged.borrow() + calls;
        let moved = self.acknowledged.wait_for(|count| *count >= goal);
        let moved = tokio::time::timeout(SOON, moved).await;
        moved.expect("the load goes on without anyone's help").expect("the callers live");
    }

    /// Resolves when this many more calls met a fault of the store.
    pub async fn refused(&self, calls: usize) {
        let goal = self.refused.load(SeqCst) + calls;
        let refused = async {
            while self.refused.load(SeqCst) < goal {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, refused).await.expect("the fault is felt");
    }

    /// Lets every caller finish what it is at.
    pub async fn stop(self) {
        self.stop.cancel();
        for caller in self.callers {
            tokio::time::timeout(SOON, caller).await.expect("it finishes").expect("it did not panic");
        }
    }
}

struct Caller {
    client: Client,
    tell: Tell,
    refused: Arc<AtomicUsize>,
}

impl Caller {
    /// Starts an order, pays it, and sees it end; or leaves a payment to the audit.
    async fn one_order(&self) {
        let key = format!("order:{:016x}", fastrand::u64(..));
        // Some stand in line with others.
        let lane = format!("lane:{}", fastrand::u8(..4));
        let started = || async {
            let share = format!("s{}", fastrand::u8(..3));
            let start = self.client.start::<Order>(Ordering::Start).key(&key).share(share);
            taken_is_there(if lane == "lane:0" { start.await } else { start.lane(&lane).await })
        };
        let id = self.persist(started).await.expect("a new key is free");
        (self.tell)(Fact::Inserted(key.clone(), id));
        let mut paid = true;
        for dedup in PAYMENTS {
            let pays = fastrand::u8(..10) > 0;
            paid &= pays;
            // Some are sent twice.
            for _ in 0..if pays { fastrand::usize(1..3) } else { 0 } {
                self.pay(&key, dedup).await;
            }
        }
        if paid {
            self.persist(|| self.client.wait_end(id, SOON)).await.expect("it ends");
        }
    }

    async fn one_job(&self) {
        let key = format!("job:{:016x}", fastrand::u64(..));
        let started = || async {
            let start = self.client.start_job::<Picking>(fastrand::u64(..2)).key(&key);
            // It may end before it is asked for again.
            taken_is_there(start.key_scope(KeyScope::Always).await)
        };
        let id = self.persist(started).await.expect("a new key is free");
        (self.tell)(Fact::Inserted(key, id));
    }

    async fn pay(&self, key: &str, dedup: &str) {
        let sent = || async {
            match self.client.signal(key, PAID, dedup.to_owned()).dedup(dedup).await {
                // An order that has all its payments may have ended before the last is sent again.
                Err(Error::NoTarget(_)) => Ok(()),
                other => other.map(drop),
            }
        };
        self.persist(sent).await.expect("a payment is taken");
        (self.tell)(Fact::Signalled(key.to_owned(), dedup.to_owned()));
    }

    /// Calls again while the store cannot answer.
    async fn persist<T, F: Future<Output = Result<T>>>(&self, call: impl Fn() -> F) -> Result<T> {
        loop {
            match call().await {
                Err(error) if error.is_transient() => {
                    self.refused.fetch_add(1, SeqCst);
                    tokio::time::sleep(PAUSE).await;
                }
                other => return other,
            }
        }
    }
}

/// An insert whose answer was lost has happened if its key, which nobody else has, is taken.
fn taken_is_there(started: Result<InstanceId>) -> Result<InstanceId> {
    match started {
        Err(Error::KeyTaken { holder, .. }) => Ok(holder),
        other => other,
    }
}
