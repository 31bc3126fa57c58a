//! People answer: an order waits until somebody in the kitchen accepts it. Two cooks look at the same list; whoever claims an
//! order answers it, and an order that nobody takes in time is given back.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::{Assigned, InteractionFilter};
use dormouse::testing::TestEngine;
use dormouse::{Client, Error, Interaction};

struct Orders;

#[derive(Serialize, Deserialize)]
enum Order {
    Placed { dish: String },
    Answered { dish: String },
}

#[derive(Serialize, Deserialize)]
struct Accepted {
    minutes: u32,
}

impl Machine for Orders {
    const NAME: &'static str = "order";
    type State = Order;
    type Output = String;

    async fn step(&self, state: Order, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Order::Placed { dish } => {
                let unit = Unit::one(dish.clone()).timeout(Duration::from_secs(600));
                Outcome::dispatch(unit, Order::Answered { dish })
            }
            Order::Answered { dish } => match cx.unit::<Accepted>().await?.one() {
                Ok(Accepted { minutes }) => Outcome::done(format!("{dish} in {minutes} minutes")),
                Err(Error::NoOutput { reason, .. }) => Outcome::done(format!("no {dish}: {reason}")),
                Err(error) => return Err(error.into()),
            },
        })
    }
}

async fn open_orders(client: &Client) -> dormouse::Result<Vec<Interaction>> {
    let orders = InteractionFilter { machine: Some("order".to_owned()), ..Default::default() };
    Ok(client.interactions(orders).await?.items)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let test = TestEngine::start(|engine| engine.machine(Orders)).await?;
    let client = test.client();
    let mut orders = Vec::new();
    for dish in ["soup", "fish", "cake"] {
        orders.push(client.start::<Orders>(Order::Placed { dish: dish.to_owned() }).await?);
    }
    test.drain().await?;

    let list = open_orders(&client).await?;
    let [soup, fish, _cake] = &list[..] else { return Err("three orders are open".into()) };
    let minute = Duration::from_secs(60);
    client.claim_interaction(soup.id, "ann", minute).await?;
    let second = client.claim_interaction(soup.id, "bob", minute).await?;
    assert!(matches!(second, Assigned::Taken { by, .. } if by == "ann"));
    client.complete_as("ann", soup.id, &Accepted { minutes: 15 }).await?;
    client.fail(fish.id, "we are out of fish").await?;
    test.advance(Duration::from_secs(600)).await?;

    test.assert_output(orders[0], "soup in 15 minutes").await;
    test.assert_output(orders[1], "no fish: we are out of fish").await;
    test.assert_output(orders[2], "no cake: it was not answered in time").await;
    assert!(client.complete(list[2].id, &Accepted { minutes: 5 }).await.is_err(), "that is too late");
    println!("three orders, three answers");
    Ok(())
}
