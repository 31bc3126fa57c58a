//! Where a search finds the rows that it looks at: the same on every store.

use crate::search::{LOOKED_MAX, Looked, Range};
use crate::store::Filter;
use crate::{InstanceId, Status};

/// Where a search may find its rows.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// In the index of a field, if its machine declares one.
    Field(FieldIndex<'a>),
    /// By the start of the key.
    Key { namespace: &'a str, prefix: &'a str },
    /// Among the children of an instance.
    Parent(InstanceId),
    /// By a tag.
    Tag { namespace: &'a str, tag: &'a str },
    /// Among what failed.
    Failed,
    /// Among all.
    All,
}

/// A part of the index of a field.
#[derive(Debug)]
pub(crate) struct FieldIndex<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) machine: &'a str,
    pub(crate) field: &'a str,
    pub(crate) is_of_number: bool,
    pub(crate) low: Option<String>,
    pub(crate) high: Option<String>,
}

/// The rows that a page of a search looks at.
#[derive(Debug)]
pub(crate) struct Candidates {
    pub(crate) ids: Vec<i64>,
    indexed: bool,
    /// Where the next page begins if this one is not full.
    pub(crate) goes_on_after: Option<InstanceId>,
}

/// Everything that may lead to what a filter finds, the narrowest first. All of it is in the last one.
pub(crate) fn sources(filter: &Filter) -> Vec<Source<'_>> {
    let mut sources = Vec::new();
    if let (Some(namespace), Some(machine)) = (&filter.namespace, &filter.machine) {
        for condition in &filter.conditions {
            let Some(Range { low, high }) = condition.range() else { continue };
            let (field, is_of_number) = (condition.field.as_str(), condition.is_of_number());
            sources.push(Source::Field(FieldIndex { namespace, machine, field, is_of_number, low, high }));
        }
    }
    if let (Some(namespace), Some(prefix)) = (&filter.namespace, &filter.key_prefix) {
        sources.push(Source::Key { namespace, prefix });
    }
    sources.extend(filter.parent.map(Source::Parent));
    if let (Some(namespace), Some(tag)) = (&filter.namespace, filter.tags.first()) {
        sources.push(Source::Tag { namespace, tag });
    }
    if filter.is_of_failed() {
        sources.push(Source::Failed);
    }
    sources.push(Source::All);
    sources
}

impl Source<'_> {
    /// Whether it has its rows in the order of the list, so that a page may begin where the one before ended.
    pub(crate) fn is_in_order(&self, filter: &Filter) -> bool {
        match self {
            Self::All => true,
            Self::Tag { .. } | Self::Failed => !filter.oldest_first,
            Self::Field(_) | Self::Key { .. } | Self::Parent(_) => false,
        }
    }

    /// Where to begin in it.
    pub(crate) fn after(&self, filter: &Filter) -> Option<i64> {
        filter.after.filter(|_| self.is_in_order(filter)).map(|id| id.0)
    }

    /// What it found, of up to one more than [`LOOKED_MAX`] rows; `None` if it has too many to be of use.
    pub(crate) fn candidates(&self, filter: &Filter, mut ids: Vec<i64>) -> Option<Candidates> {
        let has_more = ids.len() > LOOKED_MAX;
        if has_more && !self.is_in_order(filter) {
            return None;
        }
        ids.truncate(LOOKED_MAX);
        let goes_on_after = ids.last().copied().filter(|_| has_more).map(InstanceId);
        Some(Candidates { ids, indexed: !matches!(self, Self::All), goes_on_after })
    }
}

/// Which part of a search the index of a field, which has only instances after `since`, can answer.
pub(crate) fn is_indexed(filter: &Filter, since: i64) -> bool {
    let is_older = filter.after.is_some_and(|after| after.0 <= since.saturating_add(1));
    since == 0 || (!filter.oldest_first && !is_older)
}

impl Candidates {
    /// Leaves out what is not certainly in the index: the next page looks for it elsewhere.
    pub(crate) fn since(mut self, since: i64) -> Self {
        if since > 0 {
            self.ids.retain(|id| *id > since);
            self.goes_on_after = Some(InstanceId(since.saturating_add(1)));
        }
        self
    }

    pub(crate) fn looked(&self) -> Looked {
        Looked { rows: self.ids.len(), indexed: self.indexed }
    }
}

/// The words of the statuses, if there are any.
pub(crate) fn status_words(statuses: &[Status]) -> Option<Vec<&'static str>> {
    (!statuses.is_empty()).then(|| statuses.iter().map(|status| status.as_str()).collect())
}
