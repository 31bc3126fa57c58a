//! Limits: how many instances of a lane run at a time.

use serde::{Deserialize, Serialize};

use crate::limits::check_name;
use crate::{Error, Result};

/// The largest width of a limit.
pub const WIDTH_MAX: u32 = 10_000;

/// How many instances of a lane run at a time. A lane without a limit runs one at a time.
///
/// A limit is set for a name ([`Client::set_limit`](crate::Client::set_limit)). The name is a lane, or a family: the part
/// of a lane before its first `/`. A limit of the family `partner` holds for each of `partner/acme` and `partner/globex` by
/// itself, unless that lane has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// How many run at a time: from 1 to [`WIDTH_MAX`].
    pub width: u32,
}

impl Limit {
    /// So many at a time.
    pub const fn width(width: u32) -> Self {
        Self { width }
    }

    /// Refuses a limit that lets nothing run, or more than can be counted.
    pub(crate) fn check(self, name: &str) -> Result<()> {
        let refused = |reason: String| Err(Error::InvalidLimit { name: name.to_owned(), reason });
        match self.width {
            0 => refused(
                "a width of 0 lets nothing run; use 1 or more, or pause the queue or the instances"
                    .to_owned(),
            ),
            1..=WIDTH_MAX => Ok(()),
            width => refused(format!(
                "a width of {width} is more than {WIDTH_MAX}; leave out the lane if nothing needs to be limited"
            )),
        }
    }
}

/// What an outcome does to its instance's lane: see [`Outcome::lane`](crate::Outcome::lane).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneChange {
    /// Goes to this lane, to the end of its line.
    To(String),
    /// Leaves its lane, and is in none.
    Leave,
}

impl LaneChange {
    /// The lane that it leads to.
    pub fn lane(&self) -> Option<&str> {
        match self {
            Self::To(lane) => Some(lane),
            Self::Leave => None,
        }
    }
}

/// Refuses a name that no lane can have.
pub(crate) fn check_limit_name(name: &str) -> Result<()> {
    check_name("limit", name)
}

/// The family of a lane: the part before its first `/`, or all of it.
pub(crate) fn family(lane: &str) -> &str {
    lane.split_once('/').map_or(lane, |(family, _)| family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lanes_family_is_what_stands_before_its_first_slash() {
        for (lane, of) in
            [("partner/acme", "partner"), ("partner/acme/eu", "partner"), ("partner", "partner")]
        {
            assert_eq!(family(lane), of);
        }
        assert_eq!(family("partner/"), "partner");
        assert_eq!(family("/acme"), "");
    }

    #[test]
    fn a_width_is_at_least_one_and_bounded() {
        for width in [1, 3, WIDTH_MAX] {
            Limit::width(width).check("partner").expect("a width");
        }
        for (width, told) in [(0, "lets nothing run"), (WIDTH_MAX + 1, "more than 10000")] {
            let refused = Limit::width(width).check("partner").expect_err("no width").to_string();
            assert!(refused.contains(told) && refused.contains("\"partner\""), "{refused}");
        }
    }
}
