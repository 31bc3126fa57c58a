//! Lanes: the orders of one customer are worked on one at a time and in order, while other customers go on
//! beside them.
//!
//! A lane is held from the moment a row can run until it parks or ends. Going on to the next step keeps it, so
//! both steps of an order come before the first step of the next one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::Engine;
use dormouse::prelude::*;

type Log = Arc<Mutex<Vec<(String, u32, &'static str)>>>;

struct Orders {
    log: Log,
}

#[derive(Serialize, Deserialize)]
enum Order {
    Reserve { customer: String, number: u32 },
    Charge { customer: String, number: u32 },
}

impl Machine for Orders {
    const NAME: &'static str = "order";
    type State = Order;
    type Output = ();

    async fn step(&self, state: Order, _cx: &Context) -> StepResult<Self> {
        match state {
            Order::Reserve { customer, number } => {
                self.work(&customer, number, "reserve").await;
                Ok(Outcome::next(Order::Charge { customer, number }))
            }
            Order::Charge { customer, number } => {
                self.work(&customer, number, "charge").await;
                Ok(Outcome::done(()))
            }
        }
    }
}

impl Orders {
    async fn work(&self, customer: &str, number: u32, what: &'static str) {
        // Without lanes, the pauses would let the orders of a customer overtake each other.
        tokio::time::sleep(Duration::from_millis(u64::from(5 - number) * 4)).await;
        self.log.lock().expect("the log").push((customer.to_owned(), number, what));
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let log = Log::default();
    let engine = Engine::open("sqlite::memory:").await?.machine(Orders { log: log.clone() }).start().await?;
    let client = engine.client();

    let customers = ["alice", "bob", "carol"];
    let orders = (1..=4).flat_map(|number| customers.map(|customer| (customer.to_owned(), number)));
    let orders = orders.map(|(customer, number)| {
        let lane = format!("customer:{customer}");
        NewInstance::of::<Orders>(Order::Reserve { customer, number }).lane(lane)
    });
    for started in client.start_many(orders).await? {
        client.wait::<Orders>(started.id(), Duration::from_secs(10)).await?;
    }

    engine.shutdown().await;

    let log = log.lock().expect("the log");
    for customer in customers {
        let own: Vec<_> =
            log.iter().filter(|(who, ..)| who == customer).map(|(_, n, what)| (*n, *what)).collect();
        println!("{customer}: {own:?}");
        let in_order: Vec<_> = (1..=4).flat_map(|n| [(n, "reserve"), (n, "charge")]).collect();
        assert_eq!(own, in_order, "a `next` keeps its lane, and the lane keeps its order");
    }
    let beside = log.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
    println!("the log changed from one customer to another {beside} times");
    assert!(beside > customers.len(), "customers do not wait for each other");
    Ok(())
}
