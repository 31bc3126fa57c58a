//! Units: opened by an outcome, resolved item by item, closed once. Each file here is a part of that life.
//!
//! A unit is open exactly while its instance is parked on its round, so whatever happens to a unit is a transition of
//! that instance, loaded, decided and saved like every other.

mod complete;
mod open;
mod outbox;
mod outboxes;
mod query;
mod resolve;

use std::time::Duration;

pub(super) use self::open::open;
pub(super) use self::resolve::{fire, has_unit, let_go, parked_on};
use super::SqliteStore;
use crate::store::{
    Assigned, Completed, Completion, InteractionCount, InteractionFilter, Namespaces, Outbox, OutboxDepth,
    Portion, Reply, SendReport, UnitStore, Which, Written,
};
use crate::{InstanceId, Interaction, InteractionId, UnitId, UnitView};

impl UnitStore for SqliteStore {
    fn complete(&self, batch: Vec<Completion>) -> Reply<'_, Written<Vec<Completed>>> {
        self.write(move |tx| batch.iter().map(|completion| complete::complete(tx, completion)).collect())
    }

    fn outbox(
        &self,
        transport: String,
        namespaces: Namespaces,
        rows_max: usize,
        lease: Duration,
    ) -> Reply<'_, Outbox> {
        // A resume token goes out with each send and is compared with the stored send, so this waits for the disk.
        super::quiet(self.write(move |tx| outbox::take(tx, &transport, &namespaces, rows_max, lease)))
    }

    fn sent(&self, batch: Vec<SendReport>) -> Reply<'_, Written<Vec<SendReport>>> {
        self.write(move |tx| {
            batch.iter().try_for_each(|report| outbox::sent(tx, report)).map(|()| Vec::new())
        })
    }

    fn assign(
        &self,
        namespace: String,
        id: InteractionId,
        assignee: String,
        lease: Duration,
    ) -> Reply<'_, Assigned> {
        super::quiet(self.write(move |tx| complete::assign(tx, &namespace, id, &assignee, lease)))
    }

    fn unit(&self, instance: InstanceId) -> Reply<'_, Option<UnitView>> {
        self.read(move |conn| query::unit(conn, instance))
    }

    fn items(&self, unit: UnitId, from_item: u32, items_max: usize) -> Reply<'_, Vec<Interaction>> {
        self.read(move |conn| query::items(conn, unit, from_item, items_max))
    }

    fn interaction(&self, namespace: String, which: Which) -> Reply<'_, Option<Interaction>> {
        let now = self.clock.now();
        self.read(move |conn| query::interaction(conn, &namespace, &which, now))
    }

    fn interactions(&self, filter: InteractionFilter) -> Reply<'_, Portion<Interaction>> {
        let now = self.clock.now();
        self.read(move |conn| query::interactions(conn, &filter, now))
    }

    fn outboxes(&self, namespace: Option<String>) -> Reply<'_, Vec<OutboxDepth>> {
        self.read(move |conn| outboxes::outboxes(conn, namespace.as_deref()))
    }

    fn count_interactions(&self, filter: InteractionFilter) -> Reply<'_, Vec<InteractionCount>> {
        let now = self.clock.now();
        self.read(move |conn| query::count_interactions(conn, &filter, now))
    }
}
