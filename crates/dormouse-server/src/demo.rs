//! `dormouse demo`: a shop to watch, interrupt and start again.

mod frame;
mod line_item;
mod meter;
mod news;
mod order;
mod picture;
mod refund;
mod till;
mod view;
mod world;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse::store::Stats;
use dormouse::store::sqlite::SqliteStore;
use dormouse::{BoxError, Client, Engine, EngineBuilder, Limit, Result, Retention, Status};
use dormouse_server::Stop;
use dormouse_server::cli::Globals;

use self::line_item::Warehouse;
use self::meter::Meter;
use self::news::News;
use self::order::Shop;
use self::picture::{Picture, count};
use self::refund::Refunds;
use self::till::Till;
use self::view::View;

/// How long ended orders are kept, so that the file does not grow forever.
const ENDED_KEPT: Duration = Duration::from_secs(600);
/// How long a start waits to learn what a dead process left behind.
const TAKE_BACK_WITHIN: Duration = Duration::from_secs(1);

#[derive(clap::Parser)]
pub(crate) struct Args {
    /// How many orders a new database starts with.
    #[arg(long, value_name = "N", default_value_t = 300)]
    orders: u64,
    /// Stop after this long instead of at Ctrl-C.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Print one line per second; the default if the output is not a terminal.
    #[arg(long)]
    plain: bool,
}

pub(crate) async fn run(db: PathBuf, args: Args) -> Result<(), BoxError> {
    let mut stop = Stop::listen()?;
    let view = if args.plain || !std::io::stdout().is_terminal() { View::Plain } else { View::Live };
    log(view, &db)?;
    let client = Client::on(Arc::new(SqliteStore::open(&db).await?));
    let stage = Stage::new(client, Meter::install());
    let found = stage.client.stats().await?;
    let engine = stage.engine().await?.start().await?;
    stage.open(&found, args.orders).await?;
    let world = tokio::spawn(world::play(stage.clone()));

    let shown = stage.show(view, &db, &args, &mut stop).await;
    world.abort();
    tokio::select! {
        () = engine.shutdown() => {}
        () = stop.requested() => std::process::exit(130),
    }
    shown?;
    view.close(&view::summary(&stage.client.stats().await?, &db));
    Ok(())
}

/// The shop without its picture, for `dev`, which shows it on the dashboard.
pub(crate) struct Shopkeeper {
    engine: Engine,
    world: tokio::task::JoinHandle<()>,
    refunds: tokio::task::JoinHandle<()>,
}

impl Shopkeeper {
    /// Opens the shop, with this many orders if it is a new one.
    pub(crate) async fn open(globals: &Globals, client: Client, orders: u64) -> Result<Self> {
        let stage = Stage::new(client, Arc::default());
        let found = stage.client.stats().await?;
        let engine = globals.over(stage.engine().await?).start().await?;
        if count(&found, "order", |_| true) == 0 {
            world::place_orders(&stage.client, orders).await?;
        }
        refund::ask_first(&stage.client).await?;
        let refunds = tokio::spawn(refund::ask_now_and_then(stage.client.clone()));
        Ok(Self { engine, world: tokio::spawn(world::play(stage)), refunds })
    }

    /// A client that knows the shop's machines.
    pub(crate) fn client(&self) -> Client {
        self.engine.client()
    }

    /// Waits for running steps to end.
    pub(crate) async fn close(self) {
        self.world.abort();
        self.refunds.abort();
        self.engine.shutdown().await;
    }
}

/// What every part of the demo needs.
#[derive(Clone)]
struct Stage {
    client: Client,
    meter: Arc<Meter>,
    news: Arc<News>,
}

impl Stage {
    fn new(client: Client, meter: Arc<Meter>) -> Self {
        Self { client, meter, news: Arc::default() }
    }

    async fn engine(&self) -> Result<EngineBuilder> {
        self.client.set_limit("customer", Limit::width(2)).await?;
        Ok(Engine::on(self.client.store().clone())
            .machine(Shop { meter: self.meter.clone(), news: self.news.clone() })
            .machine(Warehouse { news: self.news.clone() })
            .machine(Refunds)
            .job(Till)
            .schedule(till::every_half_minute())
            .queue("default", 16)
            .queue("warehouse", 16)
            .lease(Duration::from_secs(6))
            .retention(Retention { ended: Some(ENDED_KEPT), events: None }, Duration::from_secs(30)))
    }

    /// Places the first orders in a new database, or reports what an existing one contains.
    async fn open(&self, found: &Stats, orders: u64) -> Result<()> {
        if count(found, "order", |_| true) == 0 {
            world::place_orders(&self.client, orders).await?;
            self.news.headline(format!("a new database: {orders} orders were placed"));
            return Ok(());
        }
        let live = count(found, "order", |status| !status.is_terminal());
        let mut headline = format!("carried on with {live} live orders");
        if found.count(Status::Executing) > 0 {
            match self.taken_back().await {
                0 => {}
                1 => headline += "; took back 1 step of the process that died",
                steps => headline += &format!("; took back {steps} steps of the process that died"),
            }
        }
        self.news.headline(headline);
        Ok(())
    }

    /// How many claims the engine took back. `None` if a live process holds them.
    async fn taken_back(&self) -> u64 {
        let deadline = Instant::now() + TAKE_BACK_WITHIN;
        while self.meter.counts().reaped == 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.meter.counts().reaped
    }

    /// Shows picture after picture until a request to stop, or until nobody reads the output any more.
    async fn show(&self, view: View, db: &Path, args: &Args, stop: &mut Stop) -> Result<()> {
        let mut picture = Picture::new(db.to_owned());
        let time_is_up = time_is_up(args.seconds);
        tokio::pin!(time_is_up);
        let mut frames = tokio::time::interval(view.every());
        frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut is_read = view.open(&self.news.latest().headline);
        while is_read {
            tokio::select! {
                () = stop.requested() => break,
                () = &mut time_is_up => break,
                _ = frames.tick() => {}
            }
            picture.update(self).await?;
            is_read = view.show(&picture);
        }
        Ok(())
    }
}

async fn time_is_up(seconds: Option<u64>) {
    match seconds {
        Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
        None => std::future::pending().await,
    }
}

/// Logs only on request, and never into the live picture.
fn log(view: View, db: &Path) -> Result<(), BoxError> {
    if std::env::var_os("RUST_LOG").is_none() {
        return Ok(());
    }
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env());
    if view == View::Live && std::io::stderr().is_terminal() {
        let file = std::fs::File::options().create(true).append(true).open(db.with_extension("log"))?;
        subscriber.with_ansi(false).with_writer(file).init();
    } else {
        subscriber.with_writer(std::io::stderr).init();
    }
    Ok(())
}
