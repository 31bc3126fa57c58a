//! Two stores, one truth: whatever is done to SQLite and to PostgreSQL alike, there is no telling them apart.
//!
//! Each seed is a random sequence of every verb there is. After each of them, all answers and all there is to see
//! are compared. A sequence that tells the two apart is cut down to what is needed for that, and printed.
//!
//! `DORMOUSE_TWINS_SEEDS=500` runs that many random seeds; `DORMOUSE_TWINS_SEED=7` runs one again.

#![allow(unreachable_pub, reason = "a test target has no outside")]

mod generate;
mod look;
mod names;
mod op;
mod pair;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::op::Op;
use self::pair::{Difference, Pair};

/// Seeds that are always run.
const SEEDS: u64 = 40;
/// Others, each time new ones.
const NEW_SEEDS: usize = 4;
/// Operations in a sequence.
const OPS: usize = 220;
/// Sequences under way at a time.
const AT_ONCE: usize = 4;
/// How long a difference may take to be cut down.
const SHRINK_MAX: Duration = Duration::from_secs(30);
/// Differences to report at a time.
const REPORTS_MAX: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_and_postgres_cannot_be_told_apart() {
    let mut seeds = seeds().into_iter();
    let mut running = tokio::task::JoinSet::new();
    for seed in seeds.by_ref().take(AT_ONCE) {
        running.spawn(tell_apart(seed));
    }
    let mut failed = Vec::new();
    let mut met = Met::new();
    while let Some(ran) = running.join_next().await {
        let (told_apart, on_the_way) = ran.expect("a run");
        failed.extend(told_apart);
        on_the_way.into_iter().for_each(|(what, times)| *met.entry(what).or_default() += times);
        if failed.len() < REPORTS_MAX
            && let Some(seed) = seeds.next()
        {
            running.spawn(tell_apart(seed));
        }
    }
    println!("met: {met:?}");
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    // Else the sequences have lost their way.
    let kinds = [
        "children.joined",
        "children.timeout",
        "signal.received",
        "signal.timeout",
        "timer.fired",
        "reaped",
        "unit.completed",
        "unit.failed",
        "unit.timed_out",
        "unit.cancelled",
        "interaction.dispatched",
        "interaction.timed_out",
        "Repeat",
        "retried",
        "cancel_reason",
        "cancelled_with",
        "StaleSeq",
        "tagged",
        "at most 8 tags",
        "Kept {",
    ];
    assert!(
        number("DORMOUSE_TWINS_SEED").is_some() || kinds.iter().all(|kind| met.contains_key(*kind)),
        "{met:?}"
    );
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn seeds() -> Vec<u64> {
    if let Some(seed) = number("DORMOUSE_TWINS_SEED") {
        return vec![seed];
    }
    let many = number("DORMOUSE_TWINS_SEEDS").map_or(NEW_SEEDS, |seeds| seeds as usize);
    let new: Vec<u64> = (0..many).map(|_| fastrand::u64(..)).collect();
    println!("new seeds: {new:?}");
    (0..SEEDS).chain(new).collect()
}

/// What sequences came by, and how often.
type Met = BTreeMap<String, usize>;

/// A report, if a sequence tells the two apart.
async fn tell_apart(seed: u64) -> (Option<String>, Met) {
    let mut ops = generate::sequence(seed, OPS);
    let (told_apart, met) = run(&ops).await;
    let Some((at, difference)) = told_apart else { return (None, met) };
    ops.truncate(at + 1);
    let (ops, difference) = shrink(ops, difference).await;
    let told: Vec<_> = ops.iter().enumerate().map(|(at, op)| format!("{at:3}  {op:?}")).collect();
    (Some(format!("seed {seed} tells them apart by:\n{}\n{difference}", told.join("\n"))), met)
}

/// The first operation that tells the two apart, and how.
async fn run(ops: &[Op]) -> (Option<(usize, Difference)>, Met) {
    let mut pair = Pair::new().await;
    for (at, op) in ops.iter().enumerate() {
        if let Err(difference) = pair.run(op).await {
            return (Some((at, difference)), pair.met);
        }
    }
    let told_apart = pair.compare_feeds().await.err().map(|difference| (ops.len(), difference));
    (told_apart, pair.met)
}

/// Leaves out whatever is not needed for a difference, in ever smaller parts.
async fn shrink(mut ops: Vec<Op>, mut difference: Difference) -> (Vec<Op>, Difference) {
    let until = Instant::now() + SHRINK_MAX;
    let mut part = ops.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from < ops.len() && Instant::now() < until {
            let to = (from + part).min(ops.len());
            let rest = [&ops[..from], &ops[to..]].concat();
            match run(&rest).await.0 {
                Some((at, other)) => {
                    ops = rest;
                    ops.truncate(at + 1);
                    difference = other;
                }
                None => from = to,
            }
        }
        part /= 2;
    }
    (ops, difference)
}
