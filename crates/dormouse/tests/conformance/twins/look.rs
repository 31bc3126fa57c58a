//! Reading all there is to see, and comparing it.

use dormouse::store::{Bounds, Events, KeptFilter};
use dormouse::{Instance, InstanceId, KeptSignal};

use super::names::{Ids, Told, told};
use super::pair::{Difference, Pair};

impl Pair {
    /// Reads everything, and pairs what is new.
    pub(super) async fn learn(&mut self) {
        self.lists = (self.left.list(Default::default()).await, self.right.list(Default::default()).await);
        let pairs = &mut self.names.instances;
        let new_left =
            self.lists.0.iter().rev().map(|instance| instance.id).filter(|id| !pairs.knows_left(id.0));
        let new_right =
            self.lists.1.iter().rev().map(|instance| instance.id).filter(|id| !pairs.knows_right(id.0));
        let new: Vec<_> = new_left.zip(new_right).collect();
        for (left, right) in new {
            pairs.add(left.0, right.0);
            self.instances.push(left);
        }
        self.inboxes.clear();
        for instance in self.lists.0.iter().filter(|instance| self.seen.get(&instance.id) != Some(*instance))
        {
            let right = InstanceId(self.names.instances.right(instance.id.0));
            let left =
                self.left.store.inbox(instance.id, None, Bounds::rows(1000)).await.expect("a read").items;
            let right = self.right.store.inbox(right, None, Bounds::rows(1000)).await.expect("a read").items;
            for (left, right) in left.iter().zip(&right) {
                if !self.names.signals.knows_left(left.id.0) {
                    self.names.signals.add(left.id.0, right.id.0);
                }
            }
            self.inboxes.push((left, right));
        }
        self.learn_units().await;
    }

    /// Reads the units of those that changed, and pairs what is new.
    async fn learn_units(&mut self) {
        self.units.clear();
        let changed = |instance: &&Instance| self.seen.get(&instance.id) != Some(*instance);
        let ids: Vec<_> = self.lists.0.iter().filter(changed).map(|instance| instance.id).collect();
        for id in ids {
            let left = self.left.store.unit(id).await.expect("a read");
            let right = InstanceId(self.names.instances.right(id.0));
            let right = self.right.store.unit(right).await.expect("a read");
            let mut items = (Vec::new(), Vec::new());
            if let (Some(left), Some(right)) = (&left, &right) {
                self.names.units.add(left.id.0, right.id.0);
                items.0 = self.left.store.items(left.id, 0, 100).await.expect("a read");
                items.1 = self.right.store.items(right.id, 0, 100).await.expect("a read");
            }
            for (left, right) in items.0.iter().zip(&items.1) {
                if !self.names.interactions.knows_left(left.id.0) {
                    self.names.interactions.add(left.id.0, right.id.0);
                    self.interactions.push(left.id);
                }
            }
            self.units.push(((left, items.0), (right, items.1)));
        }
    }

    /// Compares all there is to see.
    pub(super) async fn look(&mut self) -> Result<(), Difference> {
        if !self.learned {
            self.learn().await;
        }
        self.learned = false;
        let (left, right) = std::mem::take(&mut self.lists);
        let here = Ids(None);
        let there = Ids(Some(&self.names));
        let changed = |instance: &&Instance| self.seen.get(&instance.id) != Some(*instance);
        for instance in left.iter().filter(changed) {
            let rival = instance.last_error.as_ref().is_some_and(|error| error.contains("its key is taken"));
            let met = [
                ("blocked", instance.lane_blocked),
                ("rival", rival),
                ("child", instance.parent.is_some()),
                ("tagged", !instance.tags.is_empty()),
                ("cancel_reason", instance.cancel_reason.is_some()),
                ("cancelled_with", instance.cancelled_with.is_some()),
            ];
            for (word, _) in met.into_iter().filter(|(_, met)| *met) {
                *self.met.entry(word.to_owned()).or_default() += 1;
            }
        }
        for (left, right) in left.iter().zip(&right) {
            let what = format!("instance {}", left.id);
            same(&what, &told(Ok(left.clone()), &here), &told(Ok(right.clone()), &there))?;
        }
        same("instances", &left.len().to_string(), &right.len().to_string())?;
        for (left, right) in std::mem::take(&mut self.inboxes) {
            same("inbox", &told(Ok(left), &here), &told(Ok(right), &there))?;
        }
        for ((left, left_items), (right, right_items)) in std::mem::take(&mut self.units) {
            same("unit", &told(Ok(left), &here), &told(Ok(right), &there))?;
            same("items", &told(Ok(left_items), &here), &told(Ok(right_items), &there))?;
        }
        for namespace in ["default", "other"] {
            let (mut left, mut right) = self.kept(namespace).await;
            let kept = left.iter_mut().chain(&mut right);
            kept.for_each(|kept| kept.id = dormouse::KeptId(0));
            same("kept", &format!("{left:#?}"), &format!("{right:#?}"))?;
        }
        let [left_counts, right_counts] = [&self.left, &self.right].map(|kit| kit.store.kept_counts(None));
        let counts = (left_counts.await.expect("a read"), right_counts.await.expect("a read"));
        same("kept counts", &format!("{:#?}", counts.0), &format!("{:#?}", counts.1))?;
        for instance in left.iter().filter(changed) {
            let id_there = InstanceId(self.names.instances.right(instance.id.0));
            let left = self.left.store.history(instance.id, Events::After(0), Bounds::rows(1000)).await;
            let right = self.right.store.history(id_there, Events::After(0), Bounds::rows(1000)).await;
            let [left, right] = [left, right].map(|read| read.map(|read| read.items));
            for event in left.iter().flatten().filter(|event| event.at == instance.changed_at) {
                *self.met.entry(event.kind.to_string()).or_default() += 1;
            }
            let what = format!("history of {}", instance.id);
            same(&what, &told(left, &here), &told(right, &there))?;
        }
        self.seen = left.into_iter().map(|instance| (instance.id, instance)).collect();
        Ok(())
    }

    /// What is kept in a namespace, on both.
    pub(super) async fn kept(&self, namespace: &str) -> (Vec<KeptSignal>, Vec<KeptSignal>) {
        let [left, right] = [&self.left, &self.right]
            .map(|kit| kit.store.kept(namespace.to_owned(), KeptFilter::default(), Bounds::rows(100)));
        (left.await.expect("a read").items, right.await.expect("a read").items)
    }

    /// Compares the feeds of changes: each instance's events are told in their order. That of events of several
    /// instances, written together, is not promised.
    pub(super) async fn compare_feeds(&mut self) -> Result<(), Difference> {
        self.learn().await;
        let left = self.left.feed(self.starts[0], 0).await;
        let right = self.right.feed(self.starts[1], left.len()).await;
        let [left, right] = [(left, Ids(None)), (right, Ids(Some(&self.names)))].map(|(changes, ids)| {
            let mut changes = changes.told(&ids);
            changes.sort_by_key(|change| change.instance);
            format!("{changes:#?}")
        });
        same("feed", &left, &right)
    }

    /// Counts the words of an answer that tell one kind of it from another.
    pub(super) fn note_words(&mut self, answer: &str) {
        const WORDS: [&str; 29] = [
            "Admitted",
            "Repeat",
            "Unknown",
            "Late",
            "OtherNamespace",
            "Ambiguous",
            "Claimed)",
            "NotAList",
            "NotOpen",
            "taken: [\n",
            "Taken {",
            "Duplicate",
            "NoTarget",
            "woke: true",
            "Held {",
            "Released",
            "Cancelled",
            "Stale",
            "Lost",
            "Requested",
            "AlreadyEnded",
            "KeyTaken",
            "WrongStatus",
            "NotFound",
            "StaleSeq",
            "NoSignal",
            "at most 8 tags",
            "Kept {",
            "KeptFull",
        ];
        for word in WORDS.into_iter().filter(|word| answer.contains(word)) {
            *self.met.entry(word.to_owned()).or_default() += 1;
        }
    }
}

/// The first lines in which two texts differ, if they do.
pub fn same(what: &str, left: &str, right: &str) -> Result<(), Difference> {
    if left == right {
        return Ok(());
    }
    let (left, right): (Vec<_>, Vec<_>) = (left.lines().collect(), right.lines().collect());
    let from = left.iter().zip(&right).take_while(|(left, right)| left == right).count();
    let part = |lines: &[&str]| {
        lines.iter().skip(from.saturating_sub(6)).take(40).copied().collect::<Vec<_>>().join("\n")
    };
    Err(format!("{what}, on SQLite:\n{}\n{what}, on PostgreSQL:\n{}", part(&left), part(&right)))
}
