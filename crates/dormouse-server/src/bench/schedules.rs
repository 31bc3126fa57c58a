//! Many schedules that are due at the same moment.

use std::sync::Arc;
use std::time::Duration;

use dormouse::jiff::SignedDuration;
use dormouse::store::Filter;
use dormouse::{BoxError, Client, Schedule};

use super::load::Noop;

/// How many callers create them.
const CALLERS: u64 = 256;
/// Schedules that are surely created in a second.
const CREATED_PER_S: u64 = 400;

/// How late the runs of schedules start that are all due at once: the median and the last, in milliseconds.
pub(super) async fn due_at_once(client: &Client, count: u64) -> Result<(f64, f64), BoxError> {
    let now = client.store().about().await?.now;
    let due = now + SignedDuration::from_secs((5 + count / CREATED_PER_S) as i64);
    let client = Arc::new(client.clone());
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let client = client.clone();
            tokio::spawn(async move {
                for number in (caller..count).step_by(CALLERS as usize) {
                    let schedule = Schedule::every(format!("due-{number}"), Duration::from_secs(3600));
                    let schedule = schedule.from(due).start_job::<Noop>(number).runs_max(1);
                    client.schedules().create(schedule).await?;
                }
                Ok::<_, dormouse::Error>(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    assert!(client.store().about().await?.now < due, "they were created in time");
    let mut late = Vec::new();
    while late.len() < count as usize {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let filter = Filter {
            key_prefix: Some("due-".to_owned()),
            limit: count as usize,
            heads_only: true,
            ..Filter::default()
        };
        let runs = client.list(filter).await?.instances;
        late = runs.iter().map(|run| run.created_at.duration_since(due).as_secs_f64() * 1000.0).collect();
    }
    late.sort_by(f64::total_cmp);
    Ok((late[late.len() / 2], late[late.len() - 1]))
}
