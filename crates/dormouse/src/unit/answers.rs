//! The answers to a unit, as the step that was parked on it reads them.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{Interaction, InteractionStatus, UnitStatus, UnitView};
use crate::context::Behind;
use crate::{Error, Result};

/// Interactions read at a time, so that a large unit is never in memory as a whole.
const PAGE_ITEMS: usize = 256;

/// How one item ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict<T> {
    /// It was answered.
    Completed(T),
    /// It was answered with a failure, refused by its receiver, or given up.
    Failed(String),
    /// It was not answered in time.
    TimedOut,
    /// It was cancelled: its unit was closed without it.
    Cancelled,
}

impl<T> Verdict<T> {
    /// The output, if there is one.
    pub fn output(&self) -> Option<&T> {
        match self {
            Self::Completed(output) => Some(output),
            _ => None,
        }
    }
}

/// The unit that a step was parked on, with a verdict per item, in item order.
///
/// A unit that asks for a list has one item per output of that list, once it is answered.
#[derive(Clone, Debug)]
pub struct Answers<T> {
    /// How the unit was closed.
    pub status: UnitStatus,
    /// How each item ended, in item order.
    pub verdicts: Vec<Verdict<T>>,
}

impl<T> Answers<T> {
    /// The one output; without it, an error that says why.
    pub fn one(self) -> Result<T> {
        let status = self.status;
        let no_output = move |reason: String| Err(Error::NoOutput { status, reason });
        match self.verdicts.into_iter().next() {
            Some(Verdict::Completed(output)) => Ok(output),
            Some(Verdict::Failed(reason)) => no_output(reason),
            Some(Verdict::TimedOut) => no_output("it was not answered in time".to_owned()),
            Some(Verdict::Cancelled) => {
                no_output("it was cancelled: its unit was closed without it".to_owned())
            }
            None => no_output("the unit had no requests".to_owned()),
        }
    }

    /// The outputs of those items that completed, in item order.
    pub fn outputs(self) -> Vec<T> {
        let completed = |verdict| match verdict {
            Verdict::Completed(output) => Some(output),
            _ => None,
        };
        self.verdicts.into_iter().filter_map(completed).collect()
    }
}

/// The verdicts of a unit, read a page at a time.
pub struct VerdictStream<T> {
    behind: Arc<dyn Behind>,
    unit: UnitView,
    next_item: u32,
    page: VecDeque<Verdict<T>>,
    output: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> VerdictStream<T> {
    pub(crate) fn new(behind: Arc<dyn Behind>, unit: UnitView) -> Self {
        Self { behind, unit, next_item: 0, page: VecDeque::new(), output: PhantomData }
    }

    /// The unit.
    pub fn unit(&self) -> &UnitView {
        &self.unit
    }

    /// The next item's verdict, in item order; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Verdict<T>>> {
        while self.page.is_empty() && self.next_item < self.unit.interactions {
            let items = self.behind.items(self.unit.id, self.next_item, PAGE_ITEMS).await?;
            let Some(last) = items.last() else { break };
            self.next_item = last.item + 1;
            for item in items {
                self.read(item)?;
            }
        }
        Ok(self.page.pop_front())
    }

    /// All of them.
    pub(crate) async fn all(mut self) -> Result<Answers<T>> {
        let mut verdicts = Vec::with_capacity(self.unit.interactions as usize);
        while let Some(verdict) = self.next().await? {
            verdicts.push(verdict);
        }
        Ok(Answers { status: self.unit.status, verdicts })
    }

    fn read(&mut self, item: Interaction) -> Result<()> {
        let verdict = match (item.status, item.output) {
            (InteractionStatus::Completed, Some(output)) if self.unit.shape.answers_with_a_list() => {
                let list: Vec<T> = output.decode("unit's output")?;
                self.page.extend(list.into_iter().map(Verdict::Completed));
                return Ok(());
            }
            (InteractionStatus::Completed, Some(output)) => {
                Verdict::Completed(output.decode("unit's output")?)
            }
            (InteractionStatus::Failed, _) => {
                Verdict::Failed(item.error.unwrap_or_else(|| "no reason was given".to_owned()))
            }
            (InteractionStatus::TimedOut, _) => Verdict::TimedOut,
            _ => Verdict::Cancelled,
        };
        self.page.push_back(verdict);
        Ok(())
    }
}
