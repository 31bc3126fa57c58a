//! A nightly import: at two in the morning each row of a file becomes a child, at most four at a time; each child asks a
//! partner about its row by an await unit, and keeps what it answers. Rows that are refused do not stop the others.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use dormouse::flow::{ActResult, Cx, Flow, FlowMachine, act, dispatch, each, sleep};
use dormouse::jiff::{ToSpan, civil, tz::TimeZone};
use dormouse::prelude::*;
use dormouse::testing::TestEngine;
use dormouse::{Answers, ChildView, Interaction, Json, NewInstance, Sent, Status, Transport};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Import {
    day: civil::Date,
    rows: Vec<String>,
    kept: usize,
    refused: usize,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    text: String,
    code: Option<u32>,
}

/// What happens to one row.
pub(crate) fn row() -> Flow<Row> {
    let ask = |row: &Row| Unit::one(row.text.clone()).transport("partner").timeout(Duration::from_secs(3600));
    Flow::new("import_row").then(dispatch("look_up", ask, take)).then(act(keep))
}

fn take(row: Row, answers: Answers<u32>) -> ActResult<Row> {
    Ok(Row { code: Some(answers.one()?), ..row })
}

async fn keep(row: Row, _: Cx<()>) -> ActResult<Row> {
    println!("{} has code {}", row.text, row.code.unwrap_or_default());
    Ok(row)
}

/// What happens to a file.
pub(crate) fn import(rows: FlowMachine<Row, ()>) -> Flow<Import> {
    let at_two = |import: &Import| {
        let night = import.day.saturating_add(1.day()).at(2, 0, 0, 0);
        night
            .to_zoned(TimeZone::UTC)
            .map_or_else(|_| dormouse::jiff::Timestamp::MAX, |night| night.timestamp())
    };
    let children = move |import: &Import| import.rows.iter().map(|text| child(&rows, text)).collect();
    Flow::new("nightly_import")
        .then(sleep("until_two", at_two))
        .then(each("rows", children).in_flight(4).join(count))
        .then(act(report).gives(|import| import))
}

fn child(rows: &FlowMachine<Row, ()>, text: &str) -> NewInstance {
    rows.instance(&Row { text: text.to_owned(), code: None }).expect("a row is JSON")
}

fn count(mut import: Import, ended: &[ChildView]) -> ActResult<Import> {
    let kept = ended.iter().filter(|child| child.status == Status::Done).count();
    import.kept += kept;
    import.refused += ended.len() - kept;
    Ok(import)
}

async fn report(import: Import, _: Cx<()>) -> ActResult<Import> {
    println!("{} kept, {} refused", import.kept, import.refused);
    Ok(import)
}

/// Knows every row but one.
struct Partner;

impl Transport for Partner {
    fn send<'a>(&'a self, asked: &'a Interaction) -> Pin<Box<dyn Future<Output = Sent> + Send + 'a>> {
        let row = asked.request.as_str();
        let answer = match row.len() {
            len if row.contains("unicorn") => Sent::Rejected(format!("no such thing in {len} bytes")),
            len => Sent::Answered(Json::encode("output", &len).expect("a number is JSON")),
        };
        Box::pin(async { answer })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let rows = row().build(())?;
    let files = import(rows.clone()).build(())?;
    let (file, line) = (files.clone(), rows.clone());
    let test =
        TestEngine::start(move |engine| engine.flow(&file).flow(&line).transport("partner", Partner)).await?;
    let names = ["bolt", "nut", "washer", "unicorn", "screw", "rivet"].map(str::to_owned);
    let day = civil::date(2030, 1, 1);
    let file = Import { day, rows: names.to_vec(), kept: 0, refused: 0 };
    test.client().start_flow(&files, &file).key("file:1").await?;
    assert_eq!(test.drain().await?.scheduled, 1);
    test.advance(Duration::from_secs(26 * 3600)).await?;
    let import = test.client().wait_flow(&files, "file:1", Duration::from_secs(20)).await?;
    assert_eq!((import.kept, import.refused), (5, 1));
    Ok(())
}
