//! Children with a quorum and a deadline: ask five carriers for a price, go on when three have answered or
//! ten seconds are over, and take the best offer.
//!
//! Spawning the children and parking on them is one commit, and so is each child's end and the count it takes
//! off its parent's barrier. Runs on the testing kit: the seconds take no time.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::testing::TestEngine;
use dormouse::{Status, Wake};

/// The child: a job that asks one carrier.
struct Quote;

#[derive(Clone, Serialize, Deserialize)]
struct Carrier {
    name: String,
    cents: u64,
    answers: bool,
}

impl Job for Quote {
    const NAME: &'static str = "quote";
    type Input = Carrier;
    type Output = u64;

    async fn run(&self, carrier: Carrier, _cx: &Context) -> Result<u64, BoxError> {
        if carrier.answers { Ok(carrier.cents) } else { Err(format!("{} is closed", carrier.name).into()) }
    }

    fn retry(&self) -> Retry {
        Retry::times(50).backoff(Duration::from_secs(30), Duration::from_secs(30))
    }
}

/// The parent.
struct Shipping;

#[derive(Serialize, Deserialize)]
enum Ship {
    Ask { carriers: Vec<Carrier> },
    Choose,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Choice {
    best_cents: Option<u64>,
    offers: usize,
    in_time: bool,
}

impl Machine for Shipping {
    const NAME: &'static str = "shipping";
    type State = Ship;
    type Output = Choice;

    async fn step(&self, state: Ship, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Ship::Ask { carriers } => {
                let quotes = Round::of(carriers.into_iter().map(NewInstance::job::<Quote>));
                Outcome::spawn(quotes.quorum(3).timeout(Duration::from_secs(10)), Ship::Choose)
            }
            Ship::Choose => {
                // Those that are still trying are in `children` too; only those that are done have outputs.
                let offers: Vec<u64> = cx.outputs()?;
                Outcome::done(Choice {
                    best_cents: offers.iter().copied().min(),
                    offers: offers.len(),
                    in_time: cx.wake() == Some(Wake::Children),
                })
            }
        })
    }
}

fn carriers(open: usize) -> Vec<Carrier> {
    let carrier = |number: usize| Carrier {
        name: format!("carrier {number}"),
        cents: 900 - 100 * number as u64,
        answers: number < open,
    };
    (0..5).map(carrier).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let test = TestEngine::start(|engine| engine.machine(Shipping).job(Quote)).await?;
    let client = test.client();

    let id = client.start::<Shipping>(Ship::Ask { carriers: carriers(3) }).await?;
    test.drain().await?;
    println!("a quorum: {}", client.wait_end(id, Duration::ZERO).await?.output.expect("a choice"));
    test.assert_output(id, Choice { best_cents: Some(700), offers: 3, in_time: true }).await;

    let id = client.start::<Shipping>(Ship::Ask { carriers: carriers(1) }).await?;
    test.drain().await?;
    println!("{}", client.explain(id).await?);
    test.assert_status(id, Status::AwaitingChildren).await;
    test.advance(Duration::from_secs(10)).await?;
    println!("a deadline: {}", client.wait_end(id, Duration::ZERO).await?.output.expect("a choice"));
    test.assert_output(id, Choice { best_cents: Some(900), offers: 1, in_time: false }).await;

    // The carriers that did not answer are still tried: a parent that goes on does not end its children.
    let left = test.drain().await?.scheduled;
    println!("{left} quotes are still being tried");
    assert_eq!(left, 2 + 4);
    Ok(())
}
