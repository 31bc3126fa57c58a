//! A document is accepted when three of five people say so, and sent back when three say no. Whoever answers twice counts
//! once; after a week without an answer it is sent back too.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse::flow::{ActResult, Cx, Flow, act, branch, repeat, signal};
use dormouse::prelude::*;
use dormouse::testing::TestEngine;

const REVIEWERS: [&str; 5] = ["ada", "ben", "cleo", "dan", "eve"];
const NEEDED: usize = 3;

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Document {
    title: String,
    votes: BTreeMap<String, bool>,
    given_up: bool,
}

#[derive(Serialize, Deserialize)]
struct Vote {
    by: String,
    accepts: bool,
}

const VOTE: Signal<Vote> = Signal::named("vote");
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

pub(crate) fn review() -> Flow<Document> {
    let vote = |by: &str, accepts| Vote { by: by.to_owned(), accepts };
    let votes = signal(VOTE, count)
        .timeout(WEEK)
        .on_timeout(give_up)
        .timeout_gives(given_up)
        .such_as(&vote("ada", true))
        .such_as(&vote("ben", true))
        .such_as(&vote("cleo", true))
        .such_as(&vote("dan", false));
    Flow::new("review")
        .such_as(&Document::default())
        .then(repeat("votes", is_open, votes).at_most(20))
        .then(branch("verdict").case("accepted", is_accepted, act(publish)).otherwise(act(send_back)))
}

fn count(mut document: Document, vote: Vote) -> ActResult<Document> {
    if REVIEWERS.contains(&vote.by.as_str()) {
        document.votes.entry(vote.by).or_insert(vote.accepts);
    }
    Ok(document)
}

fn votes(document: &Document, accepts: bool) -> usize {
    document.votes.values().filter(|vote| **vote == accepts).count()
}

fn is_open(document: &Document) -> bool {
    !document.given_up && votes(document, true) < NEEDED && votes(document, false) < NEEDED
}

fn is_accepted(document: &Document) -> bool {
    votes(document, true) >= NEEDED
}

fn given_up(document: Document) -> Document {
    Document { given_up: true, ..document }
}

async fn give_up(document: Document, _: Cx<()>) -> ActResult<Document> {
    Ok(given_up(document))
}

async fn publish(document: Document, _: Cx<()>) -> ActResult<Document> {
    println!("{} is published", document.title);
    Ok(document)
}

async fn send_back(document: Document, _: Cx<()>) -> ActResult<Document> {
    println!("{} goes back to its author", document.title);
    Ok(document)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let flow = review().build(())?;
    let machine = flow.clone();
    let mut test = TestEngine::start(move |engine| engine.flow(&machine)).await?;
    let client = test.client();
    for key in ["handbook", "memo"] {
        let document = Document { title: format!("the {key}"), ..Document::default() };
        client.start_flow(&flow, &document).key(key).await?;
    }
    // Two of these are one person; she counts once.
    for (by, accepts) in [("ada", true), ("ada", true), ("ben", false), ("cleo", true), ("eve", true)] {
        client.signal("handbook", VOTE, Vote { by: by.to_owned(), accepts }).await?;
    }
    test.drain().await?;
    test.crash().await?;
    test.advance(WEEK).await?; // nobody has read the memo
    let handbook = client.wait_flow(&flow, "handbook", Duration::ZERO).await?;
    assert_eq!((votes(&handbook, true), votes(&handbook, false)), (3, 1));
    assert!(
        client.wait_end("memo", Duration::ZERO).await?.output.expect("done").as_str().contains("given_up")
    );
    Ok(())
}
