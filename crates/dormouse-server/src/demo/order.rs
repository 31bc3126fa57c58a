//! An order: paid or given up, approved or declined, picked and packed line by line, shipped.

use std::sync::Arc;
use std::time::Duration;

use dormouse::graph::Graph;
use dormouse::prelude::*;

use super::line_item::{LineItem, Parcel, Warehouse};
use super::meter::Meter;
use super::news::{Kind, News};

/// A customer pays.
pub(super) const PAYMENT: Signal<Payment> = Signal::named("payment");
/// A manager, or after a while the director, says yes or no.
pub(super) const APPROVAL: Signal<Approval> = Signal::named("approval");

/// Orders above this need an approval.
const APPROVAL_ABOVE_CENTS: u64 = 20_000;
const MANAGER_WITHIN: Duration = Duration::from_secs(8);
const DIRECTOR_WITHIN: Duration = Duration::from_secs(8);

/// The machine `order`.
pub(super) struct Shop {
    pub(super) meter: Arc<Meter>,
    pub(super) news: Arc<News>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    Placed(Basket),
    Payment(Basket),
    Approval(Review),
    Pick(Basket),
    Ship(Basket),
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Basket {
    pub(super) number: u64,
    pub(super) line_cents: Vec<u64>,
    pub(super) pay_within_s: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Review {
    pub(super) basket: Basket,
    pub(super) asked: Reviewer,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reviewer {
    Manager,
    Director,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Payment {
    pub(super) cents: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Approval {
    pub(super) granted: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Receipt {
    parcels: usize,
    grams: u64,
    cents: u64,
}

impl Machine for Shop {
    const NAME: &'static str = "order";
    type State = Order;
    type Output = Receipt;

    async fn step(&self, state: Order, cx: &Context) -> StepResult<Self> {
        match state {
            Order::Placed(basket) => {
                let within = Duration::from_secs(basket.pay_within_s);
                Ok(Outcome::await_signal(PAYMENT.timeout(within), Order::Payment(basket)))
            }
            Order::Payment(basket) => self.payment(basket, cx),
            Order::Approval(review) => self.approval(review, cx),
            Order::Pick(basket) => Ok(Outcome::spawn(line_items(&basket), Order::Ship(basket))),
            Order::Ship(basket) => self.ship(&basket, cx),
        }
    }

    fn accepts() -> Vec<dormouse::Accepts> {
        vec![PAYMENT.into(), APPROVAL.into()]
    }

    fn graph() -> Option<Graph> {
        let graph =
            Graph::new().step("Placed").awaits(PAYMENT, "Payment").sent_by("the customer").or_timeout();
        let graph = graph.step("Payment").case("small", "Pick").after_signal(PAYMENT);
        let graph =
            graph.awaits(APPROVAL, "Approval").sent_by("a manager").or_timeout().after_signal(PAYMENT);
        let graph = graph.fails().after_timeout();
        let graph = graph.step("Approval").case("granted", "Pick").after_signal(APPROVAL);
        let graph = graph.awaits(APPROVAL, "Approval").sent_by("the director").or_timeout().after_timeout();
        let graph = graph.fails();
        Some(graph.step("Pick").spawns("Ship").step("Ship").done().fails())
    }
}

impl Shop {
    fn payment(&self, basket: Basket, cx: &Context) -> StepResult<Self> {
        if cx.received(PAYMENT)?.is_empty() {
            self.news.tell(Kind::Unpaid, format!("{} was never paid: given up", basket.key()));
            return Ok(Outcome::stop("the payment never came"));
        }
        if basket.cents() <= APPROVAL_ABOVE_CENTS {
            return Ok(Outcome::next(Order::Pick(basket)));
        }
        let review = Review { basket, asked: Reviewer::Manager };
        Ok(Outcome::await_signal(APPROVAL.timeout(MANAGER_WITHIN), Order::Approval(review)))
    }

    fn approval(&self, Review { basket, asked }: Review, cx: &Context) -> StepResult<Self> {
        let (key, by) = (basket.key(), asked.word());
        let answer = cx.received(APPROVAL)?.into_iter().next();
        Ok(match (answer, asked) {
            (Some(Approval { granted: true }), _) => {
                let money = basket.money();
                self.news.tell(Kind::Approved, format!("{key} for {money} approved by the {by}"));
                Outcome::next(Order::Pick(basket))
            }
            (Some(Approval { granted: false }), _) => {
                self.news.tell(Kind::Declined, format!("{key} declined by the {by}"));
                Outcome::stop(format!("declined by the {by}"))
            }
            (None, Reviewer::Manager) => {
                self.news
                    .tell(Kind::Escalated, format!("{key} approval timed out: now the director is asked"));
                let review = Review { basket, asked: Reviewer::Director };
                Outcome::await_signal(APPROVAL.timeout(DIRECTOR_WITHIN), Order::Approval(review))
            }
            (None, Reviewer::Director) => {
                self.news.tell(Kind::Declined, format!("{key} approval timed out again: declined"));
                Outcome::stop("nobody approved it in time")
            }
        })
    }

    fn ship(&self, basket: &Basket, cx: &Context) -> StepResult<Self> {
        let parcels: Vec<Parcel> = cx.outputs()?;
        if parcels.len() < basket.line_cents.len() {
            return Ok(Outcome::stop("a line item could not be packed"));
        }
        let receipt = Receipt {
            parcels: parcels.len(),
            grams: parcels.iter().map(|parcel| parcel.grams).sum(),
            cents: basket.cents(),
        };
        let (key, lines) = (basket.key(), receipt.parcels);
        self.meter.shipped();
        self.news.tell(Kind::Shipped, format!("{key} shipped: {lines} of {lines} line items packed"));
        Ok(Outcome::done(receipt))
    }
}

impl Basket {
    /// The business identity of an order.
    pub(super) fn key(&self) -> String {
        format!("order:{}", self.number)
    }

    pub(super) fn cents(&self) -> u64 {
        self.line_cents.iter().sum()
    }

    pub(super) fn money(&self) -> String {
        format!("{}.{:02}", self.cents() / 100, self.cents() % 100)
    }
}

impl Reviewer {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Director => "director",
        }
    }
}

fn line_items(basket: &Basket) -> Vec<NewInstance> {
    let order = basket.number;
    (1..=basket.line_cents.len())
        .map(|line| {
            NewInstance::of::<Warehouse>(LineItem::Pick { order, line }).key(format!("item:{order}:{line}"))
        })
        .collect()
}
