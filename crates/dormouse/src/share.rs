//! Shares: whose turn it is. Work of one queue and priority is served by turns of its shares.

use serde::{Deserialize, Serialize};

use crate::limits::check_name;
use crate::{Error, Result};

/// The highest weight of a share.
pub const WEIGHT_MAX: u32 = 1000;
/// Stands between a namespace and the name of a share in it. No name holds a control character, so the shares of a
/// namespace are next to each other in order.
const SEPARATOR: char = '\u{1}';
/// How many priorities [`Turns`] remembers.
const PRIORITIES_MAX: usize = 16;

/// A share's turn: so many more rows of it are to be served before the next share of that priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The priority: each has turns of its own.
    pub priority: i32,
    /// The share, over all namespaces: see [`share_id`].
    pub share: String,
    /// How many more rows its turn has: its weight, less those served.
    pub left: u32,
}

/// The last turns that a worker served, one for each of the last 16 priorities. A worker hands them in with its claims,
/// so that each goes on where the one before stopped. Losing them costs a little fairness and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns(Vec<Turn>);

impl Turns {
    /// Notes a turn that was just served.
    pub fn served(&mut self, turn: &Turn) {
        self.0.retain(|other| other.priority != turn.priority);
        if self.0.len() == PRIORITIES_MAX {
            self.0.remove(0);
        }
        self.0.push(turn.clone());
    }

    /// The turns, those served last at the end.
    pub fn as_slice(&self) -> &[Turn] {
        &self.0
    }

    /// Where the turns of a priority go on: the first share that is not before this one in order. With none, at the
    /// first of all.
    pub fn start(&self, priority: i32) -> String {
        match self.0.iter().find(|turn| turn.priority == priority) {
            Some(turn) if turn.left > 0 => turn.share.clone(),
            Some(turn) => after(&turn.share),
            None => String::new(),
        }
    }

    /// How many rows this share may still have in the turn under way.
    pub fn left(&self, priority: i32, share: &str) -> u32 {
        let turn = self.0.iter().find(|turn| turn.priority == priority && turn.share == share);
        turn.map_or(0, |turn| turn.left)
    }
}

impl FromIterator<Turn> for Turns {
    fn from_iter<I: IntoIterator<Item = Turn>>(turns: I) -> Self {
        let mut all = Self::default();
        turns.into_iter().for_each(|turn| all.served(&turn));
        all
    }
}

/// The round in which a share serves one of its rows, and what its turn has left after that. `nth` counts the share's
/// rows from 0; `left` is what the turn under way has left for it.
pub(crate) fn round(nth: u32, left: u32, weight: u32) -> (u32, u32) {
    match nth.checked_sub(left) {
        None => (0, left - nth - 1),
        Some(nth) if left == 0 => (nth / weight, weight - 1 - nth % weight),
        Some(nth) => (1 + nth / weight, weight - 1 - nth % weight),
    }
}

/// A share over all namespaces: its namespace, and the name that it has there. Without a name, or with that of the
/// namespace, it is the namespace's own share.
pub fn share_id(namespace: &str, name: Option<&str>) -> String {
    match name {
        Some(name) if name != namespace => format!("{namespace}{SEPARATOR}{name}"),
        _ => namespace.to_owned(),
    }
}

/// A share as a row stores it: `None` for the namespace's own.
pub(crate) fn own_share(namespace: &str, name: Option<&str>) -> Option<String> {
    name.filter(|name| *name != namespace).map(|name| share_id(namespace, Some(name)))
}

/// The name of a share in its namespace; `None` for the namespace's own.
pub fn share_name(id: &str) -> Option<&str> {
    id.split_once(SEPARATOR).map(|(_, name)| name)
}

/// The namespace of a share.
pub(crate) fn share_namespace(id: &str) -> &str {
    id.split_once(SEPARATOR).map_or(id, |(namespace, _)| namespace)
}

/// The least text after a share, in order: no share is between them.
pub(crate) fn after(share: &str) -> String {
    format!("{share}{SEPARATOR}")
}

/// The least text after all shares of a namespace.
pub(crate) fn after_namespace(namespace: &str) -> String {
    format!("{namespace}\u{2}")
}

/// Refuses a share name or a weight that cannot be used.
pub(crate) fn check_weight(share: &str, weight: u32) -> Result<()> {
    check_name("share", share)?;
    if !(1..=WEIGHT_MAX).contains(&weight) {
        let reason = "it must be 1 to 1000; to hold a share back, pause its queue or its instances";
        return Err(Error::InvalidName { what: "weight", value: weight.to_string(), reason });
    }
    Ok(())
}

/// A share that has a weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareWeight {
    /// Its namespace.
    pub namespace: String,
    /// Its name; the namespace's own share has the name of the namespace.
    pub share: String,
    /// How many rows it is served in each of its turns.
    pub weight: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_as_many_rows_as_the_share_weighs() {
        let rounds = |left, weight| (0..6).map(|nth| round(nth, left, weight)).collect::<Vec<_>>();
        assert_eq!(rounds(0, 1), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
        assert_eq!(rounds(0, 3), [(0, 2), (0, 1), (0, 0), (1, 2), (1, 1), (1, 0)]);
        assert_eq!(
            rounds(1, 3),
            [(0, 0), (1, 2), (1, 1), (1, 0), (2, 2), (2, 1)],
            "a turn under way ends first"
        );
    }

    #[test]
    fn shares_of_a_namespace_are_next_to_each_other() {
        let mut ids = [
            share_id("a-b", None),
            share_id("a", Some("z")),
            share_id("a", None),
            share_id("a!", Some("b")),
            share_id("a", Some("b")),
        ];
        ids.sort_unstable();
        assert_eq!(ids, ["a", "a\u{1}b", "a\u{1}z", "a!\u{1}b", "a-b"]);
        assert!(after_namespace("a") > ids[2] && after_namespace("a") < ids[3]);
        assert!(after("a") > ids[0] && after("a") < ids[1]);
        assert_eq!(share_id("a", Some("a")), "a", "a namespace's own share may be named");
        assert_eq!((share_name("a\u{1}b"), share_name("a")), (Some("b"), None));
        assert_eq!((share_namespace("a\u{1}b"), share_namespace("a")), ("a", "a"));
    }

    #[test]
    fn the_last_turns_are_remembered_for_each_priority() {
        let turn = |priority, share: &str, left| Turn { priority, share: share.to_owned(), left };
        let mut turns: Turns = [turn(0, "a", 0), turn(5, "b", 2), turn(0, "c", 0)].into_iter().collect();
        assert_eq!(turns.as_slice(), [turn(5, "b", 2), turn(0, "c", 0)]);
        assert_eq!(
            (turns.start(0), turns.start(5), turns.start(9)),
            (after("c"), "b".to_owned(), String::new())
        );
        assert_eq!((turns.left(5, "b"), turns.left(0, "b")), (2, 0));
        (10..40).for_each(|priority| turns.served(&turn(priority, "x", 0)));
        assert_eq!(turns.as_slice().len(), PRIORITIES_MAX, "but not of every priority that there ever was");
    }
}
