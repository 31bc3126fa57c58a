//! What a running step reaches through its context: the store, and the reports of its progress.

use std::sync::Arc;

use super::progress::Reported;
use crate::context::{Behind, Rider};
use crate::store::{Reply, Store};
use crate::{InstanceId, Interaction, Json, UnitId, UnitView};

/// The engine's side of every context.
pub(super) struct BehindSteps {
    pub(super) store: Arc<dyn Store>,
    pub(super) reported: Arc<Reported>,
}

impl Behind for BehindSteps {
    fn unit(&self, of: InstanceId) -> Reply<'_, Option<UnitView>> {
        self.store.unit(of)
    }

    fn items(&self, unit: UnitId, from_item: u32, items_max: usize) -> Reply<'_, Vec<Interaction>> {
        self.store.items(unit, from_item, items_max)
    }

    fn begin(&self) -> Reply<'_, Rider> {
        self.store.begin()
    }

    fn runs_closures(&self) -> bool {
        self.store.runs_closures()
    }

    fn report(&self, of: InstanceId, seq: u64, progress: Json) {
        self.reported.add(of, seq, progress);
    }
}
