//! Accumulating a pack of signals: readings are gathered until there are four, or a minute is over, and are
//! then worked on together.
//!
//! Awaiting consumes nothing. A step that awaits again keeps what it has and is woken by the next one, so the
//! pack grows in the inbox and needs no place in the state. Going on to the next step consumes it.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::testing::TestEngine;
use dormouse::{NewSignal, Started};

struct Averages;

#[derive(Serialize, Deserialize)]
enum Average {
    Open,
    Gather,
    Close { sum: i64, count: usize },
}

const READING: Signal<i64> = Signal::named("reading");
const PACK: usize = 4;

impl Machine for Averages {
    const NAME: &'static str = "average";
    type State = Average;
    type Output = (i64, usize);

    async fn step(&self, state: Average, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Average::Open => gather(),
            Average::Gather => {
                let readings = cx.received(READING)?;
                if readings.len() < PACK && !cx.timed_out() {
                    return Ok(gather());
                }
                Outcome::next(Average::Close { sum: readings.iter().sum(), count: readings.len() })
            }
            Average::Close { sum, count } => Outcome::done((sum, count)),
        })
    }
}

/// Each reading sets the deadline anew: it closes a minute after the last one.
fn gather() -> Outcome<Averages> {
    Outcome::await_signal(READING.timeout(Duration::from_secs(60)), Average::Gather)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let test = TestEngine::start(|engine| engine.machine(Averages)).await?;
    let client = test.client();

    let full = client.start::<Averages>(Average::Open).key("sensor:1").await?;
    for reading in [3, 5, 7] {
        client.signal(full, READING, reading).await?;
        test.drain().await?;
    }
    println!("three of four: {} in the inbox", client.inbox(full).await?.len());
    assert_eq!(client.inbox(full).await?.len(), 3);
    client.signal(full, READING, 9).await?;
    test.assert_output(full, (24, 4)).await;

    // Whoever has a reading starts the pack, or adds to the one that is open: one call, no race.
    let mut pack = None;
    for reading in [10, 20] {
        let reading = NewSignal::new(READING.name(), dormouse::Json::encode("reading", &reading)?);
        let open = NewInstance::of::<Averages>(Average::Open).key("sensor:2");
        match client.start_and_signal(open, reading).await? {
            Started::New(id) => pack = Some(id),
            Started::Signalled(id, delivered) => println!("instance {id} was open: {delivered:?}"),
        }
    }
    let pack = pack.expect("the first reading opened it");
    test.advance(Duration::from_secs(60)).await?;
    println!("a minute later: {}", client.wait_end(pack, Duration::ZERO).await?.output.expect("an average"));
    test.assert_output(pack, (30, 2)).await;
    Ok(())
}
