//! A deploy: version 1 waits for a reply, version 2 stores its state in another form and takes the rows over.
//!
//! Before anything is let loose, `unreadable` tells as a dry run which live rows the new code could not read. An
//! engine that serves a queue which nobody uses claims nothing meanwhile.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::testing::TestEngine;
use dormouse::{At, Json};

const REPLY: Signal<String> = Signal::named("reply");

/// What runs today.
mod v1 {
    use super::*;

    pub(super) struct Tickets;

    #[derive(Serialize, Deserialize)]
    pub(super) enum Ticket {
        Open { subject: String },
        Answered { subject: String },
    }

    impl Machine for Tickets {
        const NAME: &'static str = "ticket";
        type State = Ticket;
        type Output = String;

        async fn step(&self, state: Ticket, _cx: &Context) -> StepResult<Self> {
            Ok(match state {
                Ticket::Open { subject } => Outcome::await_signal(REPLY, Ticket::Answered { subject }),
                Ticket::Answered { subject } => Outcome::done(subject),
            })
        }
    }
}

/// What is about to be deployed: `Answered` is now `Close`, and keeps a list of subjects.
mod v2 {
    use super::*;

    pub(super) struct Tickets;

    #[derive(Serialize, Deserialize)]
    pub(super) enum Ticket {
        Open { subjects: Vec<String> },
        Close { subjects: Vec<String> },
    }

    #[derive(Deserialize)]
    struct Before {
        subject: String,
    }

    impl Machine for Tickets {
        const NAME: &'static str = "ticket";
        const VERSION: u32 = 2;
        const MIGRATES_FROM: u32 = 1;
        type State = Ticket;
        type Output = String;

        async fn step(&self, state: Ticket, cx: &Context) -> StepResult<Self> {
            Ok(match state {
                Ticket::Open { subjects } => Outcome::await_signal(REPLY, Ticket::Close { subjects }),
                Ticket::Close { subjects } => {
                    let replies = cx.received(REPLY)?.join(" ");
                    Outcome::done(format!("{}: {replies}", subjects.join(", ")))
                }
            })
        }

        fn migrate(&self, _from_version: u32, at: At) -> Result<At, BoxError> {
            let step = match &*at.step {
                "Answered" => "Close",
                "Open" => "Open",
                other => return Err(format!("version 1 had no step {other:?}").into()),
            };
            let Before { subject } = at.state.decode("state of version 1")?;
            let state = Json::encode("state", &serde_json::json!({ "subjects": [subject] }))?;
            Ok(At { step: step.into(), state })
        }
    }
}

/// A build in which someone forgot `MIGRATES_FROM`.
struct Forgetful;

impl Machine for Forgetful {
    const NAME: &'static str = "ticket";
    const VERSION: u32 = 2;
    type State = v2::Ticket;
    type Output = String;

    async fn step(&self, _state: v2::Ticket, _cx: &Context) -> StepResult<Self> {
        unreachable!("version 2 alone claims no row of version 1")
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let mut test = TestEngine::start(|engine| engine.machine(v1::Tickets)).await?;
    let parked =
        test.client().start::<v1::Tickets>(v1::Ticket::Open { subject: "the door".to_owned() }).await?;
    test.drain().await?;

    test.crash_and_deploy(|engine| engine.machine(Forgetful).queue("dry-run", 1)).await?;
    let unreadable = test.engine().unreadable(100).await?;
    println!("dry run: {} at {:?}: {}", unreadable[0].id, unreadable[0].step, unreadable[0].reason);
    assert_eq!(unreadable.len(), 1);

    // One way out: both versions side by side, each row run by the code it started with.
    test.crash_and_deploy(|engine| engine.machine(v1::Tickets).machine(Forgetful).queue("dry-run", 1))
        .await?;
    assert_eq!(test.engine().unreadable(100).await?, []);

    // Another: the code that lifts them.
    test.crash_and_deploy(|engine| engine.machine(v2::Tickets).queue("dry-run", 1)).await?;
    assert_eq!(test.engine().unreadable(100).await?, []);
    test.crash_and_deploy(|engine| engine.machine(v2::Tickets)).await?;
    // A parked row is lifted when it wakes. Until then it keeps its version.
    assert_eq!(test.client().get(parked).await?.expect("the ticket").version, 1);
    test.client().signal(parked, REPLY, "It is open again.".to_owned()).await?;
    let output = test.client().wait::<v2::Tickets>(parked, Duration::from_secs(10)).await?;
    println!("{output}");
    assert_eq!(output, "the door: It is open again.");

    let started = test.client().start::<v2::Tickets>(v2::Ticket::Open { subjects: vec![] }).await?;
    assert_eq!(test.client().get(started).await?.expect("the ticket").version, 2);
    Ok(())
}
