//! The till: a schedule counts it every half minute.

use std::time::Duration;

use dormouse::prelude::*;
use dormouse::{Overlap, Schedule};

/// How long counting takes.
const COUNTING: Duration = Duration::from_millis(300);

/// The job `count_till`.
pub(super) struct Till;

/// What was counted.
#[derive(Serialize, Deserialize)]
pub(super) struct Counted {
    scheduled_at: String,
    cents: u64,
}

impl Job for Till {
    const NAME: &'static str = "count_till";
    type Input = String;
    type Output = Counted;

    async fn run(&self, scheduled_at: String, _cx: &Context) -> Result<Counted, BoxError> {
        tokio::time::sleep(COUNTING).await;
        Ok(Counted { scheduled_at, cents: fastrand::u64(10_000..500_000) })
    }
}

/// At :00 and :30 of every minute, one after the other.
pub(super) fn every_half_minute() -> Schedule {
    Schedule::cron("count-till", "0,30 * * * * *")
        .start_job::<Till>("{{scheduled_at}}".to_owned())
        .overlap(Overlap::Wait)
}
