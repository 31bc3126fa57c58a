//! A line item: picked from a shelf, carried to the packing table, packed. Some labels jam at first.

use std::sync::Arc;
use std::time::Duration;

use dormouse::prelude::*;

use super::news::{Kind, News};

/// The machine `line_item`, in a queue of its own, so that a full warehouse does not hold up payments.
pub(super) struct Warehouse {
    pub(super) news: Arc<News>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum LineItem {
    Pick { order: u64, line: usize },
    Pack { order: u64, line: usize },
}

#[derive(Serialize, Deserialize)]
pub(super) struct Parcel {
    pub(super) grams: u64,
}

impl Machine for Warehouse {
    const NAME: &'static str = "line_item";
    const QUEUE: &'static str = "warehouse";
    type State = LineItem;
    type Output = Parcel;

    async fn step(&self, state: LineItem, cx: &Context) -> StepResult<Self> {
        work().await;
        match state {
            LineItem::Pick { order, line } => {
                let walk = Duration::from_millis(fastrand::u64(500..3_000));
                Ok(Outcome::sleep(walk, LineItem::Pack { order, line }))
            }
            LineItem::Pack { order, line } if cx.attempt() == 0 && jams(order, line) => {
                let told = format!("order:{order} line {line}: the label jammed, packing is tried again");
                self.news.tell(Kind::Retried, told);
                Err("the label jammed".into())
            }
            LineItem::Pack { .. } => Ok(Outcome::done(Parcel { grams: fastrand::u64(100..3_000) })),
        }
    }

    fn retry(&self) -> Retry {
        Retry::times(5).backoff(Duration::from_secs(2), Duration::from_secs(10))
    }
}

/// Takes as long as hands would, so that there is something to interrupt.
async fn work() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(200..900))).await;
}

fn jams(order: u64, line: usize) -> bool {
    (order + line as u64).is_multiple_of(7)
}
