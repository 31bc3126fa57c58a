//! The world outside: customers who order and pay, managers who approve, all of them unreliable.

use std::time::Duration;

use dormouse::store::Filter;
use dormouse::{Client, Delivered, Error, Instance, KeyScope, NewInstance, Result, Signal};
use serde::Serialize;

use super::Stage;
use super::news::Kind;
use super::order::{APPROVAL, Approval, Basket, Order, PAYMENT, Payment, Review, Reviewer, Shop};

const TICK: Duration = Duration::from_millis(200);
/// Far more than ever wait at once.
const WAITING_MAX: usize = 5_000;
const FIRST_NUMBER: u64 = 1_001;
const CUSTOMERS: u64 = 40;
const ORDERS_PER_SECOND: f64 = 4.0;
const PAYMENT_AFTER_S: f64 = 40.0;
const APPROVAL_AFTER_S: f64 = 4.0;

/// Plays until it is aborted.
pub(super) async fn play(stage: Stage) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = stage.turn().await {
            stage.news.tell(Kind::Trouble, format!("the world stumbled: {error}"));
        }
    }
}

/// Places this many orders at once.
pub(super) async fn place_orders(client: &Client, orders: u64) -> Result<()> {
    let first = next_number(client).await?;
    let new = (first..first + orders).map(|number| {
        let basket = fill_basket(number);
        let key = basket.key();
        NewInstance::of::<Shop>(Order::Placed(basket)).key(key).key_scope(KeyScope::Always).lane(lane(number))
    });
    client.start_many(new).await.map(drop)
}

impl Stage {
    async fn turn(&self) -> Result<()> {
        for order in self.waiting_for(PAYMENT).await? {
            let basket: Basket = order.state.decode("basket")?;
            if happens(PAYMENT_AFTER_S) && !is_forgotten(basket.number) {
                self.pay(&basket).await?;
            }
        }
        for order in self.waiting_for(APPROVAL).await? {
            let review: Review = order.state.decode("review")?;
            if happens(APPROVAL_AFTER_S) && !is_on_leave(&review) {
                self.approve(&review).await?;
            }
        }
        if happens(1.0 / ORDERS_PER_SECOND) {
            self.place().await?;
        }
        Ok(())
    }

    async fn waiting_for<T>(&self, signal: Signal<T>) -> Result<Vec<Instance>> {
        Ok(self.client.find_waiting(signal, WAITING_MAX).await?.instances)
    }

    /// The dedup key is the payment's, so a sender that is unsure can simply send it again.
    async fn pay(&self, basket: &Basket) -> Result<()> {
        let (key, money) = (basket.key(), basket.money());
        let dedup = format!("payment-of-{}", basket.number);
        let send = || self.send(&key, PAYMENT, Payment { cents: basket.cents() }, &dedup);
        if !matches!(send().await?, Delivered::Accepted { .. }) {
            return Ok(());
        }
        if fastrand::u32(..5) > 0 {
            self.news.tell(Kind::Paid, format!("{key} paid {money}"));
        } else if send().await? == Delivered::Duplicate {
            self.news.tell(Kind::PaidTwice, format!("{key} paid {money} (sent twice, counted once)"));
        }
        Ok(())
    }

    async fn approve(&self, review: &Review) -> Result<()> {
        let dedup = format!("answer-of-{}-{}", review.asked.word(), review.basket.number);
        let approval = Approval { granted: fastrand::u32(..8) > 0 };
        self.send(&review.basket.key(), APPROVAL, approval, &dedup).await.map(drop)
    }

    async fn send<T: Serialize>(
        &self,
        key: &str,
        signal: Signal<T>,
        payload: T,
        dedup: &str,
    ) -> Result<Delivered> {
        self.meter.signal_sent();
        let delivered = match self.client.signal(key, signal, payload).dedup(dedup).await {
            // The deadline came first: the payment is too late.
            Err(Error::NoTarget(_)) => Delivered::NoTarget,
            delivered => delivered?,
        };
        if delivered == Delivered::Duplicate {
            self.meter.duplicate_refused();
        }
        Ok(delivered)
    }

    /// If another demo on the same file takes a number first, tries the next one.
    async fn place(&self) -> Result<()> {
        let mut number = next_number(&self.client).await?;
        loop {
            let basket = fill_basket(number);
            let key = basket.key();
            let order = self.client.start::<Shop>(Order::Placed(basket)).key(key);
            match order.key_scope(KeyScope::Always).lane(lane(number)).await {
                Err(Error::KeyTaken { .. }) => number += 1,
                placed => return placed.map(drop),
            }
        }
    }
}

/// The lane of the customer who placed an order: the steps of two orders of a customer run at a time.
fn lane(number: u64) -> String {
    format!("customer/{}", number % CUSTOMERS)
}

/// One more than the newest order in the database.
async fn next_number(client: &Client) -> Result<u64> {
    let newest = Filter { key_prefix: Some("order:".to_owned()), limit: 1, ..Filter::default() };
    let page = client.list(newest).await?;
    let key = page.instances.first().and_then(|order| order.key.as_deref());
    let number = key.and_then(|key| key.strip_prefix("order:")?.parse::<u64>().ok());
    Ok(number.map_or(FIRST_NUMBER, |number| number + 1))
}

fn fill_basket(number: u64) -> Basket {
    let line_cents = (0..fastrand::usize(1..=4)).map(|_| fastrand::u64(950..12_000)).collect();
    // A viewer should see some unpaid orders time out within a minute.
    let pay_within_s = if is_forgotten(number) { 10..=60 } else { 60..=180 };
    Basket { number, line_cents, pay_within_s: fastrand::u64(pay_within_s) }
}

/// Whether something that takes this long on average happens within this tick.
fn happens(after_s: f64) -> bool {
    fastrand::f64() < TICK.as_secs_f64() / after_s
}

fn is_forgotten(number: u64) -> bool {
    number % 9 == 4
}

fn is_on_leave(review: &Review) -> bool {
    let number = review.basket.number;
    match review.asked {
        Reviewer::Manager => number.is_multiple_of(4),
        Reviewer::Director => number.is_multiple_of(8),
    }
}
