//! The state of the shop at one moment, read from the database.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use dormouse::store::{Filter, Stats};
use dormouse::{Client, Error, InstanceId, Result, Status};

use super::Stage;
use super::meter::Window;
use super::news::Latest;
use super::order::APPROVAL;

/// How long a followed order that has ended stays in the picture.
const END_SHOWN: Duration = Duration::from_secs(4);

pub(super) struct Picture {
    pub(super) db: PathBuf,
    pub(super) up: Duration,
    pub(super) stats: Stats,
    pub(super) rates: Window,
    pub(super) latest: Latest,
    pub(super) followed: Option<Followed>,
}

/// One order in detail.
pub(super) struct Followed {
    id: InstanceId,
    ended: Option<Instant>,
    pub(super) key: String,
    pub(super) explanation: String,
    /// Its history so far, by the words for its events.
    pub(super) trail: Vec<&'static str>,
}

impl Picture {
    pub(super) fn new(db: PathBuf) -> Self {
        Self {
            db,
            up: Duration::ZERO,
            stats: Stats::default(),
            rates: Window::default(),
            latest: Latest::default(),
            followed: None,
        }
    }

    pub(super) async fn update(&mut self, Stage { client, meter, news }: &Stage) -> Result<()> {
        self.up = news.up();
        self.stats = client.stats().await?;
        self.rates.add(meter.counts());
        self.latest = news.latest();
        let shown_long_enough = |order: &Followed| order.ended.is_some_and(|at| at.elapsed() > END_SHOWN);
        if self.followed.as_ref().is_none_or(shown_long_enough) {
            self.followed = choose(client).await?;
        }
        if let Some(followed) = &mut self.followed {
            match followed.update(client).await {
                // The order was collected, for example after a long suspend of the computer.
                Err(Error::NotFound(_)) => self.followed = None,
                updated => updated?,
            }
        }
        Ok(())
    }

    /// What sleeping instances sleep for, and how many of them.
    pub(super) fn parked(&self) -> Vec<(String, u64)> {
        let signals = self
            .stats
            .awaiting
            .iter()
            .map(|(names, count)| (format!("signal {}", names.join(" or ")), *count));
        let children = self.stats.count(Status::AwaitingChildren);
        let clock = self.stats.count(Status::Scheduled);
        let rest =
            [("children: line items".to_owned(), children), ("clock: a sleep or a retry".to_owned(), clock)];
        signals.chain(rest).collect()
    }
}

impl Followed {
    async fn update(&mut self, client: &Client) -> Result<()> {
        self.explanation = client.explain(self.id).await?;
        let history = client.history(self.id).await?;
        self.trail = history.iter().map(|event| event.kind.as_str()).collect();
        if self.ended.is_none() && client.get(self.id).await?.is_some_and(|order| order.status.is_terminal())
        {
            self.ended = Some(Instant::now());
        }
        Ok(())
    }
}

/// How many instances of a machine are in one of these statuses.
pub(super) fn count(stats: &Stats, machine: &str, is: impl Fn(Status) -> bool) -> u64 {
    stats.instances.iter().filter(|row| row.machine == machine && is(row.status)).map(|row| row.count).sum()
}

/// One that has been paid has the most to show: it is about to be approved, picked, packed and shipped.
async fn choose(client: &Client) -> Result<Option<Followed>> {
    let orders = || Filter { machine: Some("order".to_owned()), limit: 1, ..Filter::default() };
    let wishes = [
        Filter { awaiting: Some(APPROVAL.name().to_owned()), ..orders() },
        Filter { status: Some(Status::AwaitingChildren), ..orders() },
        Filter { status: Some(Status::AwaitingSignal), ..orders() },
    ];
    for wish in wishes {
        if let Some(order) = client.list(wish).await?.instances.into_iter().next() {
            return Ok(Some(Followed {
                id: order.id,
                ended: None,
                key: order.key.unwrap_or_default(),
                explanation: String::new(),
                trail: Vec::new(),
            }));
        }
    }
    Ok(None)
}
