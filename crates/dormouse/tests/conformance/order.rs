//! Whose turn it is: claims over many shares, namespaces, machines and versions.

use std::collections::HashMap;
use std::time::Duration;

use dormouse::NewInstance;
use dormouse::store::{Brake, Claim, Namespaces, Turns, share_id};
use fastrand::Rng;

use crate::kit::*;

suite![
    a_claim_takes_the_first_rows_over_all_shares_machines_and_versions,
    a_queue_that_is_paused_in_one_namespace_holds_up_no_other,
    a_line_that_has_all_the_first_rows_gives_them_all,
];

const MACHINES: [(&str, u32); 5] = [("m", 1), ("m", 2), ("n", 1), ("o", 7), ("unknown", 1)];
const NAMESPACES: [&str; 9] = ["default", "a", "b", "c", "d", "e", "f", "g", "h"];

const SHARES: [&str; 3] = ["x", "y", "z"];

/// A row as a model of the queue knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    priority: i32,
    place: usize,
    namespace: &'static str,
    share: String,
    machine: (&'static str, u32),
}

/// The last turns as a model knows them: for each priority the share, and what its turn has left.
type Served = HashMap<i32, (String, u32)>;

/// The row that is next: the most urgent, of the share whose turn it is. A turn has as many rows as its share weighs.
fn next(
    waiting: &[(Row, dormouse::InstanceId)],
    served: &mut Served,
    weights: &HashMap<String, u32>,
) -> usize {
    let priority = waiting.iter().map(|(row, _)| row.priority).min().expect("a row");
    let shares = waiting.iter().filter(|(row, _)| row.priority == priority).map(|(row, _)| &row.share);
    let mut shares: Vec<&String> = shares.collect();
    shares.sort_unstable();
    let last = served.get(&priority).cloned();
    let goes_on = last.filter(|(share, left)| *left > 0 && shares.contains(&share));
    let (share, left) = goes_on.unwrap_or_else(|| {
        let last = served.get(&priority).map(|(share, _)| share);
        let share = shares.iter().find(|share| last.is_none_or(|last| **share > last)).unwrap_or(&shares[0]);
        ((*share).clone(), weights.get(*share).copied().unwrap_or(1))
    });
    let of_share = |(row, _): &&(Row, _)| row.priority == priority && row.share == share;
    let first = waiting.iter().filter(of_share).map(|(row, _)| row.place).min().expect("a row of the share");
    served.insert(priority, (share, left - 1));
    waiting.iter().position(|(row, _)| row.place == first).expect("it is there")
}

fn within(namespace: &str, mut new: NewInstance) -> NewInstance {
    namespace.clone_into(&mut new.namespace);
    new
}

/// Inserts rows one moment after the other, and gives them with their ids.
async fn crowd(kit: &Kit, rng: &mut Rng, rows: usize) -> Vec<(Row, dormouse::InstanceId)> {
    let mut all = Vec::new();
    for place in 0..rows {
        // Few namespaces have many rows, and some none.
        let mut few = |of: usize| (rng.usize(0..of)).min(rng.usize(0..of));
        let (namespace, machine) = (NAMESPACES[few(NAMESPACES.len())], MACHINES[few(MACHINES.len())]);
        let name = (few(2) > 0).then(|| SHARES[few(SHARES.len())]);
        let (priority, share) = (rng.i32(-1..=1), share_id(namespace, name));
        let row = Row { priority, place, namespace, share, machine };
        let mut new = within(namespace, NewInstance::named(machine.0, machine.1, at("start")));
        new.share = name.map(str::to_owned);
        let id = kit.insert(new.priority(row.priority)).await;
        all.push((row, id));
        if rng.bool() {
            kit.advance(Duration::from_millis(1));
        }
    }
    all
}

async fn a_claim_takes_the_first_rows_over_all_shares_machines_and_versions(kit: Kit) {
    let seed = fastrand::u64(..);
    let mut rng = Rng::with_seed(seed);
    let worker = kit.worker("w").await;
    let mut waiting = crowd(&kit, &mut rng, 200).await;
    for paused in [&NAMESPACES[4], &NAMESPACES[1]] {
        kit.store.pause_queue((*paused).to_owned(), "default".to_owned(), Brake::On).await.expect("a write");
    }
    let (mut served, mut after, mut weights) = (Served::new(), Turns::default(), HashMap::new());
    for round in 0..40 {
        if round % 5 == 0 {
            let (namespace, share, weight) = (rng.choice(NAMESPACES), rng.choice(SHARES), rng.u32(1..5));
            let (namespace, share) = (namespace.expect("some"), share.expect("some"));
            kit.store.weigh(namespace.to_owned(), share.to_owned(), weight).await.expect("a write");
            weights.insert(share_id(namespace, Some(share)), weight);
        }
        if round % 13 == 12 {
            (served, after) = (Served::new(), Turns::default());
        }
        if round == 20 {
            let resume = kit.store.pause_queue(NAMESPACES[1].to_owned(), "default".to_owned(), Brake::Off);
            resume.await.expect("a write");
        }
        if round == 30 {
            let resume = kit.store.pause_queue(NAMESPACES[4].to_owned(), "default".to_owned(), Brake::Off);
            resume.await.expect("a write");
        }
        let is_paused = |namespace| {
            (round < 20 && namespace == NAMESPACES[1]) || (round < 30 && namespace == NAMESPACES[4])
        };
        let some: Vec<&str> = NAMESPACES.into_iter().filter(|_| rng.bool()).collect();
        let namespaces = match rng.u8(0..3) {
            0 => Namespaces::Only(some.iter().chain(some.first()).map(ToString::to_string).collect()),
            _ => Namespaces::All,
        };
        let machines: Vec<_> = MACHINES[..4].iter().copied().filter(|_| rng.u8(0..3) > 0).collect();
        let rows_max = rng.usize(1..12);
        let later_than = if rng.u8(0..5) == 0 { Some(rng.i32(-2..=1)) } else { None };
        let is_later = |row: &Row| later_than.is_none_or(|than| row.priority > than);
        let can_run = |row: &Row| {
            let is_served = machines.contains(&row.machine) && namespaces.contains(row.namespace);
            is_served && !is_paused(row.namespace) && is_later(row)
        };
        let mut able: Vec<_> = waiting.iter().filter(|(row, _)| can_run(row)).cloned().collect();
        let mut expected = Vec::new();
        while expected.len() < rows_max && !able.is_empty() {
            let next = next(&able, &mut served, &weights);
            expected.push(able.remove(next).1);
        }
        let claim = Claim {
            worker,
            queue: "default".to_owned(),
            namespaces,
            machines: machines.into_iter().map(|(name, version)| (name.to_owned(), version)).collect(),
            after: after.clone(),
            later_than,
            rows_max,
            places: usize::MAX,
        };
        let claimed = kit.store.claim(claim.clone()).await.expect("a claim").value;
        claimed.iter().for_each(|row| after.served(&row.turn));
        let claimed: Vec<_> = claimed.iter().map(|row| row.id).collect();
        assert_eq!(claimed, expected, "seed {seed}, round {round}, {claim:?}");
        waiting.retain(|(_, id)| !claimed.contains(id));
    }
}

async fn a_queue_that_is_paused_in_one_namespace_holds_up_no_other(kit: Kit) {
    let worker = kit.worker("w").await;
    kit.insert_many(vec![within("paused", m().priority(-5)); 50]).await;
    let other = kit.insert(within("other", m())).await;
    let brake = |brake| kit.store.pause_queue("paused".to_owned(), "default".to_owned(), brake);
    brake(Brake::On).await.expect("a write");
    let claimed: Vec<_> = kit.claim(worker, 10).await.iter().map(|row| row.id).collect();
    assert_eq!(claimed, [other]);
    brake(Brake::Off).await.expect("a write");
    assert_eq!(kit.claim(worker, 100).await.len(), 50);
}

async fn a_line_that_has_all_the_first_rows_gives_them_all(kit: Kit) {
    let worker = kit.worker("w").await;
    let machines: Vec<(String, u32)> = (1..=40).map(|version| ("m".to_owned(), version)).collect();
    let of = |version: u32| NewInstance::named("m", version, at("start"));
    kit.insert_many((1..=40).map(|version| of(version).priority(1)).collect()).await;
    let first = kit.insert_many(vec![of(17); 100]).await;
    let names: Vec<_> = machines.iter().map(|(name, version)| (name.as_str(), *version)).collect();
    let claimed: Vec<_> =
        kit.claim_from(worker, "default", &names, 100).await.iter().map(|row| row.id).collect();
    assert_eq!(claimed, first.iter().map(dormouse::Inserted::id).collect::<Vec<_>>());
    assert_eq!(kit.claim_from(worker, "default", &names, 100).await.len(), 40);
}
