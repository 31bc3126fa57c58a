//! Whose turn it is: claims over many namespaces, machines and versions.

use std::time::Duration;

use dormouse::NewInstance;
use dormouse::store::{Brake, Claim, Namespaces};
use fastrand::Rng;

use crate::kit::*;

suite![
    a_claim_takes_the_first_rows_over_all_namespaces_machines_and_versions,
    a_queue_that_is_paused_in_one_namespace_holds_up_no_other,
    a_line_that_has_all_the_first_rows_gives_them_all,
];

const MACHINES: [(&str, u32); 5] = [("m", 1), ("m", 2), ("n", 1), ("o", 7), ("unknown", 1)];
const NAMESPACES: [&str; 9] = ["default", "a", "b", "c", "d", "e", "f", "g", "h"];

/// A row as a model of the queue knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    priority: i32,
    place: usize,
    namespace: &'static str,
    machine: (&'static str, u32),
}

fn within(namespace: &str, mut new: NewInstance) -> NewInstance {
    namespace.clone_into(&mut new.namespace);
    new
}

/// Inserts rows one moment after the other, and gives them in the order of their turns, with their ids.
async fn crowd(kit: &Kit, rng: &mut Rng, rows: usize) -> Vec<(Row, dormouse::InstanceId)> {
    let mut all = Vec::new();
    for place in 0..rows {
        // Few namespaces have many rows, and some none.
        let mut few = |of: usize| (rng.usize(0..of)).min(rng.usize(0..of));
        let (namespace, machine) = (NAMESPACES[few(NAMESPACES.len())], MACHINES[few(MACHINES.len())]);
        let row = Row { priority: rng.i32(-1..=1), place, namespace, machine };
        let new = within(namespace, NewInstance::named(machine.0, machine.1, at("start")));
        let id = kit.insert(new.priority(row.priority)).await;
        all.push((row, id));
        if rng.bool() {
            kit.advance(Duration::from_millis(1));
        }
    }
    all.sort_unstable();
    all
}

async fn a_claim_takes_the_first_rows_over_all_namespaces_machines_and_versions(kit: Kit) {
    let seed = fastrand::u64(..);
    let mut rng = Rng::with_seed(seed);
    let worker = kit.worker("w").await;
    let mut waiting = crowd(&kit, &mut rng, 150).await;
    for paused in [&NAMESPACES[4], &NAMESPACES[1]] {
        kit.store.pause_queue((*paused).to_owned(), "default".to_owned(), Brake::On).await.expect("a write");
    }
    for round in 0..40 {
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
        let served: Vec<&str> = NAMESPACES.into_iter().filter(|_| rng.bool()).collect();
        let namespaces = match rng.u8(0..3) {
            0 => Namespaces::Only(served.iter().chain(served.first()).map(ToString::to_string).collect()),
            _ => Namespaces::All,
        };
        let machines: Vec<_> = MACHINES[..4].iter().copied().filter(|_| rng.u8(0..3) > 0).collect();
        let rows_max = rng.usize(1..12);
        let expected: Vec<_> = waiting
            .iter()
            .filter(|(row, _)| machines.contains(&row.machine) && namespaces.contains(row.namespace))
            .filter(|(row, _)| !is_paused(row.namespace))
            .take(rows_max)
            .map(|(_, id)| *id)
            .collect();
        let claim = Claim {
            worker,
            queue: "default".to_owned(),
            namespaces,
            machines: machines.into_iter().map(|(name, version)| (name.to_owned(), version)).collect(),
            rows_max,
        };
        let claimed = kit.store.claim(claim.clone()).await.expect("a claim").value;
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
