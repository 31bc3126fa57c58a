//! The testing kit: time that moves when told, and crashes on demand.
//!
//! This is what a test of a machine looks like. A subscription is renewed every 30 days; the process is
//! killed in the middle of a charge, and the step runs again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::testing::TestEngine;
use dormouse::{EventKind, Status};
use tokio::sync::Notify;

const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// Stands for the payment provider.
#[derive(Default)]
struct Bank {
    tries: AtomicU32,
    /// While it hangs, a charge does not return.
    hangs_at: AtomicU32,
    called: Notify,
}

struct Subscriptions {
    bank: Arc<Bank>,
}

#[derive(Serialize, Deserialize)]
enum Subscription {
    Charge { month: u32 },
}

impl Machine for Subscriptions {
    const NAME: &'static str = "subscription";
    type State = Subscription;
    type Output = u32;

    async fn step(&self, Subscription::Charge { month }: Subscription, _cx: &Context) -> StepResult<Self> {
        let this_try = self.bank.tries.fetch_add(1, Ordering::Relaxed) + 1;
        self.bank.called.notify_one();
        if this_try == self.bank.hangs_at.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(if month == 12 {
            Outcome::done(month)
        } else {
            Outcome::sleep(MONTH, Subscription::Charge { month: month + 1 })
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let bank = Arc::new(Bank::default());
    let setup_bank = bank.clone();
    let mut test =
        TestEngine::start(move |engine| engine.machine(Subscriptions { bank: setup_bank.clone() })).await?;
    let started_at = test.now();
    let id = test.client().start::<Subscriptions>(Subscription::Charge { month: 1 }).await?;

    test.advance(MONTH * 2).await?;
    println!("{}", test.client().explain(id).await?);
    test.assert_status(id, Status::Scheduled).await;
    assert_eq!(bank.tries.load(Ordering::Relaxed), 3, "months 1, 2 and 3");

    // A crash while it sleeps costs nothing.
    test.crash().await?;
    test.assert_status(id, Status::Scheduled).await;

    // The fourth charge hangs, and the process dies with it. `advance` waits for running steps to end, so it
    // is given up as soon as the bank is called; a call may also be an earlier one that nobody waited for.
    bank.hangs_at.store(4, Ordering::Relaxed);
    while bank.tries.load(Ordering::Relaxed) < 4 {
        let beside = tokio::time::timeout(Duration::from_millis(200), test.advance(MONTH));
        tokio::select! {
            () = bank.called.notified() => {}
            _ = beside => {}
        }
    }
    test.crash().await?;

    test.advance(MONTH * 12).await?;
    test.assert_output(id, 12).await;
    let tries = bank.tries.load(Ordering::Relaxed);
    println!("12 months, {tries} charges tried, {} of virtual time", test.now() - started_at);
    assert_eq!(tries, 13, "the one that died was tried again: a step runs at least once");

    let history = test.client().history(id).await?;
    let reaped = history.iter().filter(|event| event.kind == EventKind::Reaped).count();
    assert_eq!(reaped, 1, "the crash is in the history");
    Ok(())
}
