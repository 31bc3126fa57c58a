use std::time::Duration;

use dormouse::{Engine, prelude::*};

struct Shop; // What the steps need from outside, such as a payment client, would be a field here.

#[derive(Serialize, Deserialize)]
enum Checkout {
    Start { order: u64 },
    Ship { order: u64 },
}
const PAID: Signal<u64> = Signal::named("payment_confirmed");
const HOUR: Duration = Duration::from_secs(3600);

impl Machine for Shop {
    const NAME: &'static str = "checkout";
    type State = Checkout;
    type Output = String;
    async fn step(&self, state: Checkout, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Checkout::Start { order } => Outcome::await_signal(PAID.timeout(HOUR), Checkout::Ship { order }),
            Checkout::Ship { order } => match cx.received(PAID)?.first() {
                Some(cents) => Outcome::done(format!("order {order} shipped for {cents} cents")),
                None => Outcome::stop("the payment never came"),
            },
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let engine = Engine::open("sqlite:shop.db").await?.machine(Shop).queue("default", 64).start().await?;
    let client = engine.client();
    let id = client.start::<Shop>(Checkout::Start { order: 42 }).key("order:42").await?;
    client.signal("order:42", PAID, 1999).dedup("evt-7").await?;
    println!("{}", client.wait::<Shop>(id, Duration::from_secs(5)).await?);
    engine.shutdown().await;
    Ok(())
}
