//! The first machine: an order that sleeps until its payment comes, or an hour has passed.
//!
//! The same machine as in the README, with a dependency of its own, on a file that outlives the engine: the
//! payment arrives while no engine runs at all.

use std::sync::Mutex;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Client, Engine, Status};

#[derive(Default)]
struct Shop {
    warehouse: Mutex<Vec<u64>>,
}

#[derive(Serialize, Deserialize)]
enum Checkout {
    Start { order: u64 },
    Ship { order: u64 },
}

#[derive(Serialize, Deserialize)]
struct Payment {
    cents: u64,
}

const PAID: Signal<Payment> = Signal::named("payment_confirmed");
const HOUR: Duration = Duration::from_secs(3600);

impl Machine for Shop {
    const NAME: &'static str = "checkout";
    type State = Checkout;
    type Output = String;

    async fn step(&self, state: Checkout, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Checkout::Start { order } => Outcome::await_signal(PAID.timeout(HOUR), Checkout::Ship { order }),
            Checkout::Ship { order } => match cx.received(PAID)?.first() {
                Some(payment) => Outcome::done(self.ship(order, payment)),
                None => Outcome::stop("the payment never came"),
            },
        })
    }
}

impl Shop {
    /// A crash after this and before the commit would run it again: it ships an order at most once.
    fn ship(&self, order: u64, payment: &Payment) -> String {
        let mut shipped = self.warehouse.lock().expect("the warehouse is open");
        if !shipped.contains(&order) {
            shipped.push(order);
        }
        format!("order {order} shipped for {} cents", payment.cents)
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite:{}", dir.path().join("shop.db").display());

    let engine = Engine::open(&url).await?.machine(Shop::default()).start().await?;
    let id = engine.client().start::<Shop>(Checkout::Start { order: 42 }).key("order:42").await?;
    while engine.client().waiting(id).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{}", engine.client().explain(id).await?);
    engine.shutdown().await;

    // Nothing runs now. A client needs the file and no engine.
    let client = Client::open(&url).await?;
    client.signal("order:42", PAID, Payment { cents: 1999 }).dedup("evt-7").await?;
    client.signal("order:42", PAID, Payment { cents: 1999 }).dedup("evt-7").await?; // a redelivery: no-op
    println!("{}", client.explain(id).await?);
    assert_eq!(client.inbox(id).await?.len(), 1);
    drop(client);

    let engine = Engine::open(&url).await?.machine(Shop::default()).start().await?;
    let receipt = engine.client().wait::<Shop>(id, Duration::from_secs(10)).await?;
    println!("{receipt}");
    assert_eq!(receipt, "order 42 shipped for 1999 cents");
    let ended = engine.client().get("order:42").await?.expect("the order");
    assert_eq!(ended.status, Status::Done);
    engine.shutdown().await;
    Ok(())
}
