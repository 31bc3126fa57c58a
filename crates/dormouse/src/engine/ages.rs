//! Ageing priorities: so that urgent work does not keep the rest waiting forever, later priorities get a part of the rows.

use crate::store::Claimed;

/// What a queue knows of its claims. It counts rows and not time, so that the part is the same under any load.
pub(super) struct Ages {
    /// One row in so many is of a later priority; `None`: priorities are strict.
    every_rows: Option<usize>,
    /// Rows claimed since the last one of a later priority.
    rows: usize,
    /// The most urgent priority of the last claim.
    urgent: Option<i32>,
    /// The later priority that was served last: they take turns.
    served: Option<i32>,
}

impl Ages {
    pub(super) fn new(every_rows: Option<usize>) -> Self {
        Self { every_rows, rows: 0, urgent: None, served: None }
    }

    /// How many rows the next claim may take at most.
    pub(super) fn rows_max(&self) -> usize {
        self.every_rows.map_or(usize::MAX, |every| every.saturating_sub(self.rows + 1).max(1))
    }

    /// If the next row is to be of a later priority: later than this one.
    pub(super) fn later_than(&self) -> Option<i32> {
        let is_due = self.every_rows.is_some_and(|every| self.rows + 1 >= every);
        if is_due {
            self.urgent.map(|urgent| self.served.map_or(urgent, |served| served.max(urgent)))
        } else {
            None
        }
    }

    /// Notes a claim that asked for rows of any priority, or only for later ones.
    pub(super) fn claimed(&mut self, later_than: Option<i32>, rows: &[Claimed]) {
        let first = rows.first().map(|row| row.turn.priority);
        match later_than {
            None => {
                self.rows += rows.len();
                self.urgent = first.or(self.urgent);
            }
            Some(_) if first.is_none() && self.served.is_some() => self.served = None,
            Some(_) => (self.rows, self.served) = (0, first),
        }
    }
}
