//! Errands: work with nothing that makes a second time harmless. They are started without a key, and told news without a
//! dedup key; they stand in lanes, their waits time out, people stop them and set them going again, and they end when two
//! of three children have. Each sends a postcard by mail, which starts an album by mail and sends it a card, perhaps before
//! the album is there: once. While one stands in its lane it occupies a place, and the books say from when to when.
//! Whatever is lost or done twice shows. Beside them a schedule ticks every second, and no second may
//! be left out or start twice.
//!
//! Shared by the audits of both stores.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::Filter;
use dormouse::{
    CatchUp, Client, EngineBuilder, Error, Instance, InstanceId, Limit, Overlap, Result, SCHEDULE_MACHINE,
    Schedule, Status,
};

const NEWS: Signal<u64> = Signal::named("news");
const CARD: Signal<u64> = Signal::named("card");
const ENOUGH: Signal<()> = Signal::named("enough");
/// Children of each, and how many of them it waits for.
const LEGS: u64 = 3;
const LEGS_AWAITED: u32 = 2;
/// How often a wait for news times out before it becomes a long one.
const IMPATIENT_WAITS: u32 = 2;
/// Limits of the lanes that they stand in: set again and again, while they run.
const LIMITS: [(&str, u32); 3] = [("lane", 2), ("lane/0", 1), ("lane/1", 3)];
/// How long an errand may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);
/// Between two looks, and two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// Where a test writes numbers of its own.
pub trait Books: Send + Sync + 'static {
    /// Writes a number in the transaction that commits the step's outcome, and from when to when the step occupied a place
    /// in its lane: a while, all of it before that commit.
    fn book(
        &self,
        number: Option<u64>,
        lane: &str,
        cx: &Context,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}

/// How long a step occupies its place at least.
pub const WHILE: Duration = Duration::from_millis(2);

/// A place in a lane that a step occupied whose outcome was committed, and from when to when, by one clock.
pub type Place = (String, i64, i64);

pub struct Errand<B>(B);

#[derive(Serialize, Deserialize)]
pub enum Doing {
    Start { number: u64, lane: String },
    Wait { number: u64, lane: String, waits: u32 },
    End { number: u64, lane: String, heard: Vec<u64> },
}

impl<B: Books> Machine for Errand<B> {
    const NAME: &'static str = "errand";
    // What it writes by itself goes over a connection that may go deaf, and nobody but this ends such a wait.
    const STEP_TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));
    type State = Doing;
    /// Its number, and what it heard.
    type Output = (u64, Vec<u64>);

    async fn step(&self, state: Doing, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Doing::Start { number, lane } => {
                self.0.book(Some(number), &lane, cx).await?;
                wait(number, lane, 0).start(NewInstance::of::<Postcard>(Writing::Write { number }))
            }
            Doing::Wait { number, lane, waits } => {
                // To wait on consumes nothing.
                if cx.received(ENOUGH)?.is_empty() {
                    return Ok(wait(number, lane, waits + 1));
                }
                let heard = cx.received(NEWS)?;
                let legs = (0..LEGS).map(NewInstance::job::<Leg>);
                Outcome::spawn(Round::of(legs).quorum(LEGS_AWAITED), Doing::End { number, lane, heard })
            }
            Doing::End { number, lane, heard } => {
                self.0.book(None, &lane, cx).await?;
                Outcome::done((number, heard))
            }
        })
    }

    fn retry(&self) -> Retry {
        Retry::times(1000).backoff(Duration::from_millis(10), Duration::from_millis(100))
    }
}

fn wait<B: Books>(number: u64, lane: String, waits: u32) -> Outcome<Errand<B>> {
    let timeout = if waits < IMPATIENT_WAITS { Duration::from_millis(30) } else { Duration::from_secs(3600) };
    Outcome::await_signal(NEWS.or(ENOUGH).timeout(timeout), Doing::Wait { number, lane, waits })
}

/// Sent by mail, with no key: a second one would show.
struct Postcard;

#[derive(Serialize, Deserialize)]
enum Writing {
    Write { number: u64 },
    Written { number: u64 },
}

impl Machine for Postcard {
    const NAME: &'static str = "postcard";
    type State = Writing;
    type Output = u64;

    async fn step(&self, state: Writing, _cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Writing::Write { number } if is_early(number) => {
                let card =
                    Mail::signal(album_key(number), CARD, &number)?.keep_for(Duration::from_secs(3600));
                Outcome::next(Writing::Written { number }).mail(card)
            }
            Writing::Write { number } => {
                let next = Outcome::next(Writing::Written { number });
                next.start(album(number)).signal(album_key(number), CARD, number)
            }
            Writing::Written { number } if is_early(number) => Outcome::done(number).start(album(number)),
            Writing::Written { number } => Outcome::done(number),
        })
    }
}

/// Whether the card is sent before its album is started: then it is kept for it.
fn is_early(number: u64) -> bool {
    number.is_multiple_of(2)
}

fn album_key(number: u64) -> String {
    format!("album:{number}")
}

fn album(number: u64) -> NewInstance {
    NewInstance::of::<Album>(Pasting::Open).key(album_key(number))
}

/// Waits for its card. A second card, or none, would show: undelivered mail is an event after the sender's end.
struct Album;

#[derive(Serialize, Deserialize)]
enum Pasting {
    Open,
    Paste,
}

impl Machine for Album {
    const NAME: &'static str = "album";
    type State = Pasting;
    type Output = Vec<u64>;

    async fn step(&self, state: Pasting, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Pasting::Open => Outcome::await_signal(CARD, Pasting::Paste),
            Pasting::Paste => Outcome::done(cx.received(CARD)?),
        })
    }
}

/// One of them always needs a second try.
struct Leg;

impl Job for Leg {
    const NAME: &'static str = "leg";
    type Input = u64;
    type Output = u64;

    async fn run(&self, leg: u64, cx: &Context) -> Result<u64, BoxError> {
        if leg == 1 && cx.attempt() == 0 { Err("missed the bus".into()) } else { Ok(leg) }
    }

    fn retry(&self) -> Retry {
        Retry::times(1000).backoff(Duration::from_millis(2), Duration::from_millis(10))
    }
}

/// What the schedule starts.
struct Tick;

impl Job for Tick {
    const NAME: &'static str = "tick";
    type Input = ();
    type Output = ();

    async fn run(&self, (): (), _cx: &Context) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Every second; those that nobody was there for are made up for.
fn ticking() -> Schedule {
    let window = Duration::from_secs(3600).try_into().expect("an hour");
    let every = Schedule::every("ticking", Duration::from_secs(1)).start_job::<Tick>(());
    every.overlap(Overlap::Allow).catch_up(CatchUp::Within(window)).queue("default")
}

pub fn machines(engine: EngineBuilder, books: impl Books) -> EngineBuilder {
    let engine = engine.machine(Errand(books)).job(Leg).machine(Postcard).machine(Album);
    engine.job(Tick).schedule(ticking())
}

/// Whether an instance is one of these, and not one of what else a test runs.
pub fn is_one(row: &Instance) -> bool {
    ["errand", "leg", "postcard", "album", "tick", SCHEDULE_MACHINE].contains(&row.machine.as_str())
}

/// Whether each errand's postcard has come to its album. Until then mail is under way.
pub fn mail_arrived(rows: &[Instance]) -> bool {
    let count = |machine: &str| rows.iter().filter(|row| row.machine == machine).count();
    count("postcard") >= count("errand") && count("album") >= count("errand")
}

/// What the library acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Started(u64, InstanceId),
    News(u64, InstanceId),
    Enough(InstanceId),
    /// More than a limit lets had a place in a lane.
    OverLimit(InstanceId),
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(number, id) => write!(f, "errand {id} started {number}"),
            Self::News(number, id) => write!(f, "errand {id} news {number}"),
            Self::Enough(id) => write!(f, "errand {id} enough"),
            Self::OverLimit(id) => write!(f, "errand {id} over"),
        }
    }
}

impl Told {
    /// Reads a line that another process wrote.
    pub fn parse(line: &str) -> Option<Self> {
        // The test harness writes its own text in front of a child's first line.
        let mut words = line.split_whitespace().skip_while(|word| *word != "errand").skip(1);
        let id = InstanceId(words.next()?.parse().ok()?);
        match words.next()? {
            "started" => Some(Self::Started(words.next()?.parse().ok()?, id)),
            "news" => Some(Self::News(words.next()?.parse().ok()?, id)),
            "enough" => Some(Self::Enough(id)),
            "over" => Some(Self::OverLimit(id)),
            _ => None,
        }
    }
}

/// One errand from its start to its end. No call is made again, as nobody knows whether it happened: an error ends
/// this, and the audit does the rest.
pub async fn run<B: Books>(client: &Client, tell: &(dyn Fn(Told) + Send + Sync)) -> Result<()> {
    let number = some_number();
    for (name, width) in LIMITS {
        client.set_limit(name, Limit::width(width)).await?;
    }
    let lane = format!("lane/{}", fastrand::u8(..4));
    let share = format!("s{}", number % 3);
    let id = client.start::<Errand<B>>(Doing::Start { number, lane: lane.clone() });
    let id = id.lane(lane).share(share).await?;
    tell(Told::Started(number, id));
    for _ in 0..3 {
        match fastrand::u8(..6) {
            0 => {
                client.cancel(id).reason("an audit").await?;
                set_going(client, id).await?;
            }
            1 => {
                client.pause(id).await?;
                client.resume(id).await?;
            }
            _ => {}
        }
        let news = some_number();
        client.signal(id, NEWS, news).await?;
        tell(Told::News(news, id));
    }
    for limit in client.list_limits().await? {
        if limit.lanes == 1 && limit.held > limit.limit.width.into() {
            tell(Told::OverLimit(id));
        }
    }
    client.signal(id, ENOUGH, ()).dedup("enough").await?;
    tell(Told::Enough(id));
    // A lane takes only so many: the next one is started when this one is through.
    client.wait_end(id, SOON).await.map(drop)
}

/// Within what a float can hold, should anyone look at it in a browser.
fn some_number() -> u64 {
    fastrand::u64(..1 << 53)
}

/// Retries an instance that is cancelled, or will be once its step has ended.
async fn set_going(client: &Client, id: InstanceId) -> Result<()> {
    loop {
        match client.retry(id).await {
            Ok(_) => return Ok(()),
            Err(Error::WrongStatus { .. }) => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error),
        }
    }
}

/// Everything that was told.
#[derive(Default)]
pub struct Errands {
    started: BTreeMap<u64, InstanceId>,
    news: BTreeMap<InstanceId, BTreeSet<u64>>,
    enough: BTreeSet<InstanceId>,
}

impl Errands {
    pub fn note(&mut self, told: Told) {
        match told {
            Told::Started(number, id) => {
                let before = self.started.insert(number, id);
                assert_eq!(before, None, "errand {number} was started twice");
            }
            Told::News(number, id) => assert!(self.news.entry(id).or_default().insert(number)),
            Told::Enough(id) => assert!(self.enough.insert(id)),
            Told::OverLimit(id) => panic!("more than a limit lets ran when errand {id} looked"),
        }
    }

    /// Those that must end without another word from anyone.
    pub fn complete(&self) -> Vec<InstanceId> {
        self.enough.iter().copied().collect()
    }

    /// Holds what became of them against what was told, and against the books.
    pub fn check(&self, rows: &[Instance], booked: &BTreeMap<u64, usize>, places: &[Place]) {
        let mut numbers = BTreeMap::new();
        for row in rows.iter().filter(|row| row.machine == "errand") {
            let output = row.output.as_ref().expect("an output");
            let (number, heard): (u64, Vec<u64>) = output.decode("output").expect("an errand's output");
            let twin = numbers.insert(number, row.id);
            assert_eq!(twin, None, "errand {number} was started once, and is there as {} too", row.id);
            let distinct: BTreeSet<u64> = heard.iter().copied().collect();
            assert_eq!(distinct.len(), heard.len(), "{} heard something twice: {heard:?}", row.id);
            let owed = self.news.get(&row.id).cloned().unwrap_or_default();
            assert!(owed.is_subset(&distinct), "{} was told {owed:?} and heard {heard:?}", row.id);
            let legs = rows.iter().filter(|leg| leg.parent == Some(row.id)).count();
            assert_eq!(legs as u64, LEGS, "the children of {}", row.id);
            assert_eq!(booked.get(&number), Some(&1), "errand {number}, {}, is booked once", row.id);
        }
        for machine in ["postcard", "album"] {
            let mut sent: Vec<u64> = Vec::new();
            for row in rows.iter().filter(|row| row.machine == machine) {
                let output = row.output.as_ref().expect("an output");
                match machine {
                    "postcard" => sent.push(output.decode("output").expect("a postcard's output")),
                    _ => sent.extend(output.decode::<Vec<u64>>("output").expect("an album's output")),
                }
            }
            sent.sort_unstable();
            assert_eq!(sent, numbers.keys().copied().collect::<Vec<_>>(), "one {machine} for each errand");
        }
        for (number, id) in &self.started {
            assert_eq!(numbers.get(number), Some(id), "errand {number} was acknowledged");
        }
        for number in booked.keys() {
            assert!(numbers.contains_key(number), "errand {number} is booked, and is not there");
        }
        check_ticks(rows);
        check_places(places);
    }
}

/// Never did more occupy a lane at a time than its limit lets.
fn check_places(places: &[Place]) {
    assert!(!places.is_empty(), "there was load");
    let lanes: BTreeSet<&str> = places.iter().map(|(lane, ..)| &**lane).collect();
    for lane in lanes {
        let of_lane = || places.iter().filter(|(other, ..)| other == lane);
        let enter = of_lane().map(|(_, entered, _)| (*entered, 1));
        let leave = of_lane().map(|(_, _, left)| (*left, -1));
        // Who leaves at the moment at which another enters leaves first.
        let mut moves: Vec<(i64, i64)> = enter.chain(leave).collect();
        moves.sort_unstable();
        let occupied = moves.iter().scan(0, |occupied, (_, by)| {
            *occupied += by;
            Some(*occupied)
        });
        let own = LIMITS.iter().find(|(name, _)| *name == lane);
        let (_, width) = own.unwrap_or(&LIMITS[0]);
        let most = occupied.max().unwrap_or_default();
        assert!(most <= (*width).into(), "{most} occupied {lane}, which lets {width}: {places:?}");
    }
}

/// When all have ended, nothing holds a place or waits for one, and nothing is kept.
pub async fn nothing_is_left(client: &Client) {
    for limit in client.list_limits().await.expect("the store is healthy") {
        assert_eq!((limit.held, limit.waiting), (0, 0), "{limit:?}");
    }
    assert_eq!(
        client.count_kept().await.expect("the store is healthy").signals,
        0,
        "each card has its album"
    );
}

/// Each second from the first to the last was started once.
fn check_ticks(rows: &[Instance]) {
    let key = |row: &Instance| {
        row.key.as_deref()?.strip_prefix("ticking@")?.parse::<dormouse::jiff::Timestamp>().ok()
    };
    let mut seconds: Vec<i64> = rows
        .iter()
        .filter(|row| row.machine == "tick")
        .filter_map(key)
        .map(dormouse::jiff::Timestamp::as_second)
        .collect();
    seconds.sort_unstable();
    let (first, last) = (seconds.first().expect("it ticked"), seconds.last().expect("it ticked"));
    let expected: Vec<i64> = (*first..=*last).collect();
    assert_eq!(seconds, expected, "no second is left out, and none was started twice");
}

/// Lets the schedule start what is due, and ends it.
async fn stop_ticking(client: &Client) -> Result<()> {
    let is_up_to_date =
        |view: dormouse::ScheduleView, now| view.started > 0 && view.next.is_some_and(|next| next > now);
    loop {
        let now = client.store().about().await?.now;
        match client.schedules().get("ticking").await? {
            Some(view) if view.status.is_terminal() => return Ok(()),
            Some(view) if is_up_to_date(view.clone(), now) => {
                // It has started more than that, so it is done.
                client.schedules().change(ticking().runs_max(1)).await?;
                client.wait_end(view.id, SOON).await?;
            }
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Ends those whose caller did not: they are set going if they were stopped, and told that it is enough.
pub async fn finish(client: &Client) -> Result<()> {
    stop_ticking(client).await?;
    let filter = Filter { limit: 1_000_000, machine: Some("errand".to_owned()), ..Filter::default() };
    for row in client.list(filter).await?.instances {
        match row.status {
            Status::Done => continue,
            Status::Cancelled => drop(client.retry(row.id).await?),
            _ if row.cancel_requested => set_going(client, row.id).await?,
            _ => {}
        }
        if row.paused {
            client.resume(row.id).await?;
        }
        match client.signal(row.id, ENOUGH, ()).dedup("enough").await {
            Ok(_) | Err(Error::NoTarget(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
