//! Real processes on one database file, killed at random moments, stopped, and run out of disk; then an
//! audit: nothing that was acknowledged is lost, doubled or stuck.
//!
//! The children are this very test binary, run again with an environment variable.

#![allow(unreachable_pub, reason = "a test target has no outside")]

#[path = "crash/child.rs"]
mod child;
mod errands;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use dormouse::store::{Filter, InteractionFilter};
use dormouse::{
    Client, Delivered, Engine, Error, EventKind, Instance, InstanceId, InteractionStatus, Status,
};
use tempfile::TempDir;

use self::child::{Order, Picking, machines};
use self::errands::{Errands, Place, Told};

/// How long anything that must happen may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// How often a process is killed.
const KILLS: usize = 60;

/// A child and what it said.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(database: &Path, mode: &str) -> Self {
        let program = std::env::current_exe().expect("this binary");
        let mut command = Command::new(program);
        command.args([
            "--exact",
            "child::the_child_does_as_it_is_told",
            "--nocapture",
            "--test-threads",
            "1",
        ]);
        Self::run(command.env(child::DATABASE, database).env(child::MODE, mode))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("a process");
        let stdout = child.stdout.take().expect("a pipe");
        Self { child, lines: BufReader::new(stdout).lines() }
    }

    /// Its next acknowledgement; `None` when it has ended.
    fn next_ack(&mut self) -> Option<Ack> {
        loop {
            let line = self.lines.next()?.ok()?;
            if let Some(ack) = Ack::parse(&line) {
                return Some(ack);
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    fn end(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Kills it with -9 and reads what it had managed to say.
    fn kill(mut self, acks: &mut Acks) {
        self.end();
        while let Some(ack) = self.next_ack() {
            acks.note(ack);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a child says once the library told it that something is durable.
enum Ack {
    Inserted(String, InstanceId),
    Signalled(String, String),
    Errand(Told),
    Failed,
}

impl Ack {
    fn parse(line: &str) -> Option<Self> {
        if let Some(told) = Told::parse(line) {
            return Some(Self::Errand(told));
        }
        let mut words = line.split_whitespace();
        // The test harness writes its own text in front of a child's first line.
        let word = words.find(|word| ["inserted", "signalled", "failed"].contains(word))?;
        let first = words.next()?.to_owned();
        match word {
            "inserted" => Some(Self::Inserted(first, InstanceId(words.next()?.parse().ok()?))),
            "signalled" => Some(Self::Signalled(first, words.next()?.to_owned())),
            _ => Some(Self::Failed),
        }
    }
}

/// Everything that was acknowledged.
#[derive(Default)]
struct Acks {
    inserted: BTreeMap<String, InstanceId>,
    signalled: BTreeMap<String, BTreeSet<String>>,
    errands: Errands,
    failed: usize,
}

impl Acks {
    /// The instances that were sent all they wait for.
    fn complete(&self) -> Vec<InstanceId> {
        let paid = self.signalled.iter().filter(|(_, dedups)| dedups.len() == child::PAYMENTS.len());
        let paid = paid.filter_map(|(key, _)| self.inserted.get(key).copied());
        paid.chain(self.errands.complete()).collect()
    }

    fn note(&mut self, ack: Ack) {
        match ack {
            Ack::Inserted(key, id) => {
                let before = self.inserted.insert(key.clone(), id);
                assert!(before.is_none_or(|before| before == id), "{key} was inserted twice");
            }
            Ack::Signalled(key, dedup) => {
                self.signalled.entry(key).or_default().insert(dedup);
            }
            Ack::Errand(told) => self.errands.note(told),
            Ack::Failed => self.failed += 1,
        }
    }
}

#[test]
fn killing_processes_at_random_moments_loses_doubles_and_sticks_nothing() {
    let dir = TempDir::new().expect("a directory");
    let database = dir.path().join("crash.db");
    let mut acks = Acks::default();
    let mut processes = vec![Process::start(&database, "load"), Process::start(&database, "load")];
    for _ in 0..KILLS {
        let mut victim = processes.swap_remove(fastrand::usize(..processes.len()));
        // Somewhere between its first sign of life and the middle of everything.
        for _ in 0..fastrand::usize(1..40) {
            acks.note(victim.next_ack().expect("it runs until it is killed"));
        }
        victim.kill(&mut acks);
        processes.push(Process::start(&database, "load"));
    }
    for process in processes {
        process.kill(&mut acks);
    }
    assert!(acks.inserted.len() > KILLS / 2 && !acks.signalled.is_empty(), "there was load");
    runtime().block_on(audit(&database, &acks));
}

#[test]
fn a_process_that_is_stopped_for_longer_than_its_lease_finds_out_and_goes_on() {
    let dir = TempDir::new().expect("a directory");
    let database = dir.path().join("stop.db");
    let mut stopped = Process::start(&database, "hold");
    let Some(Ack::Inserted(key, id)) = stopped.next_ack() else { panic!("it holds a step first") };
    runtime().block_on(async {
        let mut builder = None;
        while builder.is_none() {
            stopped.signal("-STOP");
            // A process that is stopped within a write keeps the file locked: that is no one's lease.
            builder = Engine::open(&url(&database)).await.ok();
            if builder.is_none() {
                stopped.signal("-CONT");
            }
        }
        let builder = machines(builder.expect("it opens"), &database).lease(Duration::from_millis(300));
        let engine = builder.start().await.expect("it starts");
        let ended = engine.client().wait_end(id, SOON).await.expect("its step is taken over");
        assert_eq!((ended.status, ended.attempt), (Status::Done, 1));
        engine.shutdown().await;
        stopped.signal("-CONT");
        let Some(Ack::Signalled(seen, _)) = stopped.next_ack() else { panic!("it sees how the step ended") };
        assert_eq!(seen, key);
        let Some(Ack::Inserted(_, next)) = stopped.next_ack() else { panic!("it goes on by itself") };
        let client = Client::open(&url(&database)).await.expect("it opens");
        assert_eq!(client.wait_end(next, SOON).await.expect("it ends").status, Status::Done);
        for id in [id, next] {
            check_history(&client, &client.get(id).await.expect("a read").expect("it is there")).await;
        }
    });
}

#[test]
fn a_full_disk_is_told_and_once_there_is_room_again_work_goes_on_without_a_restart() {
    let dir = TempDir::new().expect("a directory");
    let database = dir.path().join("full.db");
    let program = std::env::current_exe().expect("this binary");
    // Files of this process may not grow past 1,000 blocks of 1,024 bytes, of which the schema takes some 320. Writing more
    // fails as on a full disk.
    let script = r#"trap "" XFSZ; ulimit -S -f 1000; exec "$0" --exact child::the_child_does_as_it_is_told --nocapture"#;
    let mut command = Command::new("bash");
    command.args(["-c", script]).arg(program).env(child::DATABASE, &database).env(child::MODE, "load");
    let mut process = Process::run(&mut command);
    let mut acks = Acks::default();
    while acks.failed < 5 {
        acks.note(process.next_ack().expect("it goes on though its writes fail"));
    }
    let room = Command::new("prlimit")
        .args(["--pid", &process.child.id().to_string(), "--fsize=unlimited:unlimited"])
        .status()
        .expect("prlimit runs");
    assert!(room.success());
    let before = acks.inserted.len();
    while acks.inserted.len() < before + 20 {
        acks.note(process.next_ack().expect("it goes on"));
    }
    process.kill(&mut acks);
    runtime().block_on(audit(&database, &acks));
}

/// Lets everything end, and checks it against what was acknowledged.
async fn audit(database: &Path, acks: &Acks) {
    integrity_check(database);
    let builder = machines(Engine::open(&url(database)).await.expect("it opens"), database);
    let engine = builder.start().await.expect("it starts");
    let client = engine.client();
    // Before anything is sent, which would also wake those whose wake-up was lost.
    for id in acks.complete() {
        client.wait_end(id, SOON).await.expect("it has all it waits for");
    }
    check_signals(&client, acks).await;
    pay_all(&client).await;
    errands::finish(&client).await.expect("the store is healthy");
    until(&client, "everything has ended", |rows| {
        rows.iter().all(|row| row.status == Status::Done) && errands::mail_arrived(rows)
    })
    .await;
    engine.shutdown().await;

    let rows = all(&client).await;
    let ledger = ledger(database);
    let by_key: BTreeMap<&str, &Instance> =
        rows.iter().filter_map(|row| Some((row.key.as_deref()?, row))).collect();
    for (key, id) in &acks.inserted {
        assert_eq!(by_key.get(key.as_str()).map(|row| row.id), Some(*id), "{key} was acknowledged");
    }
    for row in &rows {
        check_history(&client, row).await;
        if errands::is_one(row) {
            continue;
        }
        if row.machine == <Order as dormouse::Machine>::NAME {
            check_order(row, &rows);
            assert_eq!(ledger.get(&row.id), Some(&1), "{} is booked once", row.id);
        } else {
            assert_eq!(row.machine, <Picking as dormouse::Job>::NAME);
        }
    }
    acks.errands.check(&rows, &booked_errands(database), &places(database));
    errands::nothing_is_left(&client).await;
    check_bank(&client, database).await;
    integrity_check(database);
}

/// Whatever was asked was sent at least once, always with one idempotency key, which is no other's; and answered once.
async fn check_bank(client: &Client, database: &Path) {
    let notes = std::fs::read_to_string(child::notes(database)).expect("the bank was asked");
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (id, key) in notes.lines().filter_map(|line| line.split_once(' ')) {
        keys.entry(id).or_default().insert(key);
    }
    let filter = InteractionFilter { limit: 1_000_000, ..InteractionFilter::default() };
    let asked = client.interactions(filter).await.expect("a read").items;
    assert!(!asked.is_empty());
    for interaction in &asked {
        assert_eq!(interaction.status, InteractionStatus::Completed, "{interaction:?}");
        let noted = keys.get(interaction.id.to_string().as_str());
        let one_key = BTreeSet::from([interaction.idempotency_key.as_str()]);
        assert_eq!(noted, Some(&one_key), "{interaction:?}");
    }
    let distinct: BTreeSet<_> = keys.values().flatten().collect();
    assert_eq!(distinct.len(), keys.len(), "no two requests have one key");
}

/// Every acknowledged signal is still known: sent again, it is a duplicate, unless its order has ended, which it
/// does with all its payments alone. Asked before the audit sends any itself, which would hide a loss.
async fn check_signals(client: &Client, acks: &Acks) {
    for (key, dedups) in &acks.signalled {
        for dedup in dedups {
            let again = client.signal(key.as_str(), child::PAID, dedup.clone()).dedup(dedup).await;
            let known = matches!(again, Ok(Delivered::Duplicate) | Err(Error::NoTarget(_)));
            assert!(known, "the payment {dedup} of {key} was acknowledged and is lost: {again:?}");
        }
    }
}

/// Those that are owed a payment get it, and those whose insert was durable but whose acknowledgement was cut off must end
/// too. What was delivered before is a duplicate, or finds an order that has ended.
async fn pay_all(client: &Client) {
    for row in all(client).await.into_iter().filter(|row| row.machine == <Order as dormouse::Machine>::NAME) {
        for dedup in child::PAYMENTS {
            let _ = client.signal(row.id, child::PAID, dedup.to_owned()).dedup(dedup).await;
        }
    }
}

/// One terminal event, the last one; numbers without a gap.
async fn check_history(client: &Client, row: &Instance) {
    let history = client.history(row.id).await.expect("a history");
    let numbers: Vec<u64> = history.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=row.seq).collect::<Vec<_>>(), "the history of {} has a gap", row.id);
    let ends = history.iter().filter(|event| event.kind == EventKind::Done).count();
    assert_eq!(ends, 1, "instance {} ended {ends} times", row.id);
    assert_eq!(history.last().map(|event| event.kind), Some(EventKind::Done));
    assert_eq!((row.worker, row.inbox, row.wake_at, row.lane_blocked), (None, 0, None, false));
}

/// Every payment counted once, every item picked once.
fn check_order(row: &Instance, rows: &[Instance]) {
    let output = row.output.as_ref().expect("an output");
    let (payments, items): (Vec<String>, usize) = output.decode("output").expect("an order's output");
    assert_eq!(payments, child::PAYMENTS, "the payments of {}", row.id);
    let children = rows.iter().filter(|child| child.parent == Some(row.id)).count();
    assert_eq!((items, children), (child::ITEMS, child::ITEMS), "the items of {}", row.id);
}

/// How often each order was booked in the table that orders write with their last commit.
fn ledger(database: &Path) -> BTreeMap<InstanceId, usize> {
    let conn = rusqlite::Connection::open(database).expect("it opens");
    let mut sales = conn.prepare("select sale from ledger").expect("a table");
    let mut ledger = BTreeMap::new();
    for sale in sales.query_map([], |row| row.get(0)).expect("a read") {
        *ledger.entry(InstanceId(sale.expect("a number"))).or_default() += 1;
    }
    ledger
}

/// How often each errand was booked.
fn booked_errands(database: &Path) -> BTreeMap<u64, usize> {
    let conn = rusqlite::Connection::open(database).expect("it opens");
    let mut numbers = conn.prepare("select number from errands").expect("a table");
    let mut booked = BTreeMap::new();
    for number in numbers.query_map([], |row| row.get::<_, i64>(0)).expect("a read") {
        *booked.entry(number.expect("a number") as u64).or_default() += 1;
    }
    booked
}

/// The places in lanes that steps occupied, and from when to when.
fn places(database: &Path) -> Vec<Place> {
    let conn = rusqlite::Connection::open(database).expect("it opens");
    let mut places = conn.prepare("select lane, entered, left from places").expect("a table");
    let places = places.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("a read");
    places.collect::<Result<_, _>>().expect("places")
}

fn integrity_check(database: &Path) {
    let conn = rusqlite::Connection::open(database).expect("it opens");
    let verdict: String = conn.query_row("pragma integrity_check", [], |row| row.get(0)).expect("a verdict");
    assert_eq!(verdict, "ok");
}

async fn until(client: &Client, what: &str, reached: impl Fn(&[Instance]) -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let rows = all(client).await;
        if reached(&rows) {
            return;
        }
        if tokio::time::Instant::now() > deadline {
            let mut why = Vec::new();
            for row in rows.iter().filter(|row| !row.status.is_terminal()).take(5) {
                why.push(client.explain(row.id).await.expect("a read"));
            }
            panic!("not yet: {what}; {why:#?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn all(client: &Client) -> Vec<Instance> {
    client.list(Filter { limit: 1_000_000, ..Filter::default() }).await.expect("a read").instances
}

fn url(database: &Path) -> String {
    format!("sqlite:{}", database.display())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}
