//! Every way in refuses the same bad input with the same problem, and stores nothing of it: see the table.

#![allow(unreachable_pub, reason = "a test target has no outside")]

mod stored;
mod table;
mod ways;
mod world;

use dormouse::Status;

use self::stored::stored;
use self::table::{ALL, Bad, Cell, Door, Place, Takes, doors};
use self::ways::{To, Verdict, document};
use self::world::World;
use crate::kit::Database;

suite![every_door_refuses_the_same_in_the_same_words_and_stores_nothing];

async fn every_door_refuses_the_same_in_the_same_words_and_stores_nothing(database: Database) {
    let world = World::open(database).await;
    let mut faults = Vec::new();
    for door in doors() {
        for place in door.way.places(world.is_postgres()) {
            tried(&world, &door, *place, &mut faults).await;
        }
    }
    world.engine.shutdown().await;
    assert!(faults.is_empty(), "{} cells of the table do not hold:\n{}", faults.len(), faults.join("\n"));
}

/// Tries every bad input on one way in, and then a good one: the instance still works.
async fn tried(world: &World, door: &Door, place: Place, faults: &mut Vec<String>) {
    let subject = world.set(door.scene).await;
    let url = world.site.database();
    let try_it = async |bad: Option<Bad>| {
        let document = document(door.takes, bad);
        let is_unknown = bad == Some(Bad::UnknownName);
        let to = To { world, place, subject: &subject, document: &document, is_unknown };
        door.way.tried(to).await
    };
    for bad in ALL {
        // Input that cannot arrive this way is in the table with its reason, and is not tried.
        let Cell::Refused(word) = door.cell(bad) else { continue };
        let before = stored(url).await;
        let verdict = try_it(Some(bad)).await;
        let mut fault = |what: String| faults.push(format!("{} ({place:?}), {bad:?}: {what}", door.name));
        if verdict != Verdict::Refused(word.to_owned()) {
            fault(format!("{verdict:?} instead of {word}"));
        }
        let after = stored(url).await;
        for (table, rows) in after.iter().filter(|(table, rows)| before[*table] != **rows) {
            fault(format!("{table} changed: {} rows became {}", before[table].len(), rows.len()));
        }
    }
    let good = try_it(None).await;
    if good != Verdict::Taken {
        return faults.push(format!("{} ({place:?}), good: {good:?}", door.name));
    }
    let (status, output) = world.works(door.scene, &subject).await;
    let expected = match door.takes {
        Takes::State | Takes::Payload => (Status::Done, Some("7")),
        Takes::Output => (Status::Done, Some("4")),
        Takes::Reason => (Status::Failed, None),
    };
    if (status, output.as_ref().map(dormouse::Json::as_str)) != expected {
        faults.push(format!("{} ({place:?}), good: it ended as {status} with {output:?}", door.name));
    }
}
