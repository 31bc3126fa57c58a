//! **A rate holds at the claim**: a lane with a rate has a bucket of starts, and a claim takes from it what it starts.
//!
//! The bucket is one moment, at which all that was taken will have been filled in again (the theoretical arrival time of
//! GCRA). It is written by claims alone. Whoever settles a lane reads it, to let no more rows be claimed than it holds.

/// How long after its claim a step may start whose place was not free: see [`Bucket::ahead_ns`].
pub(crate) const AHEAD_NS: i64 = 50_000_000;
/// A bucket that takes at least this long to fill has room for starts that are claimed ahead of their places.
const AHEAD_SIZE_MIN_NS: i64 = 1_000_000_000;

/// A lane's bucket, as its limit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// How long it takes to be filled with one start.
    pub interval_ns: i64,
    /// How many it holds.
    pub burst: u32,
    /// Since when its limit says so.
    pub since_ns: i64,
}

/// What was taken from a lane's bucket, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// When all of it will have been filled in again.
    pub until_ns: i64,
    /// The interval by which that was reckoned.
    pub interval_ns: i64,
    /// When it was last taken from.
    pub at_ns: i64,
}

impl Bucket {
    /// How long it takes to fill.
    pub fn size_ns(self) -> i64 {
        self.interval_ns * i64::from(self.burst)
    }

    /// What a row takes. One that costs more than the bucket holds takes all of it.
    pub fn cost_ns(self, cost: u32) -> i64 {
        self.interval_ns * i64::from(cost.min(self.burst))
    }

    /// How much of it is spent now. If the rate was changed after it was taken from, it was filled at the old rate until
    /// then, what was spent stays spent by the count, and it is filled at the new rate since. After the clock was turned
    /// back, or the burst made smaller, no more is spent than the bucket holds.
    pub fn spent_ns(self, spent: Option<Spent>, now_ns: i64) -> i64 {
        let Some(spent) = spent else { return 0 };
        let left_ns = if spent.interval_ns == self.interval_ns {
            i128::from(spent.until_ns - now_ns)
        } else {
            let changed_ns = self.since_ns.max(spent.at_ns).min(now_ns);
            let then_ns = i128::from((spent.until_ns - changed_ns).max(0));
            let (from_ns, to_ns) = (i128::from(spent.interval_ns), i128::from(self.interval_ns));
            (then_ns * to_ns + from_ns - 1) / from_ns - i128::from(now_ns - changed_ns)
        };
        left_ns.clamp(0, i128::from(self.size_ns())) as i64
    }

    /// What is spent, if it must be written anew: it was reckoned by another rate, or is more than the bucket holds, which
    /// would not become less with time.
    pub fn mended(self, spent: Spent, now_ns: i64) -> Option<Spent> {
        let is_right = spent.interval_ns == self.interval_ns && spent.until_ns <= now_ns + self.size_ns();
        (!is_right).then(|| Spent {
            until_ns: now_ns + self.spent_ns(Some(spent), now_ns),
            interval_ns: self.interval_ns,
            at_ns: now_ns,
        })
    }

    /// What is spent after a start that may be later than its claim by `AHEAD_NS`, if there is room for it: it counts as
    /// if it were that late, and must fit as if it were not. Whenever those start then, no stretch of time has too many.
    pub fn ahead_ns(self, spent_ns: i64, cost_ns: i64) -> Option<i64> {
        let after_ns = spent_ns.max(AHEAD_NS) + cost_ns;
        (self.size_ns() >= AHEAD_SIZE_MIN_NS && after_ns <= self.size_ns()).then_some(after_ns)
    }

    /// How long from now it takes until so much can be taken.
    pub fn wait_ns(self, spent_ns: i64, cost_ns: i64) -> i64 {
        spent_ns + cost_ns - self.size_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN_A_SECOND: Bucket = Bucket { interval_ns: 100, burst: 5, since_ns: 0 };

    fn spent(until_ns: i64) -> Option<Spent> {
        Some(Spent { until_ns, interval_ns: 100, at_ns: 1_000 })
    }

    #[test]
    fn what_is_spent_is_filled_in_with_time() {
        assert_eq!(TEN_A_SECOND.spent_ns(spent(1_300), 1_000), 300);
        assert_eq!(TEN_A_SECOND.spent_ns(spent(1_300), 1_250), 50);
        assert_eq!(TEN_A_SECOND.spent_ns(spent(1_300), 2_000), 0);
        assert_eq!(TEN_A_SECOND.spent_ns(None, 2_000), 0);
        assert_eq!(TEN_A_SECOND.wait_ns(300, 300), 100, "two are there, three are asked for");
    }

    #[test]
    fn a_clock_that_was_turned_back_empties_the_bucket_and_no_more() {
        assert_eq!(TEN_A_SECOND.spent_ns(spent(1_000_000), 1_000), 500);
        let mended = TEN_A_SECOND.mended(spent(1_000_000).expect("one"), 1_000).expect("it is mended");
        assert_eq!(TEN_A_SECOND.spent_ns(Some(mended), 1_100), 400, "and then it is filled again");
        assert_eq!(TEN_A_SECOND.mended(mended, 1_100), None);
    }

    #[test]
    fn another_rate_keeps_the_count_of_what_was_spent() {
        let slower = Bucket { interval_ns: 1_000, burst: 5, since_ns: 1_000 };
        assert_eq!(slower.spent_ns(spent(1_300), 1_000), 3_000);
        assert_eq!(slower.spent_ns(spent(1_300), 1_900), 2_100, "it is filled at the new rate since");
        let later = Bucket { since_ns: 1_200, ..slower };
        assert_eq!(later.spent_ns(spent(1_300), 1_200), 1_000, "and was filled at the old one before");
        assert_eq!(Bucket { burst: 2, ..slower }.spent_ns(spent(1_300), 1_000), 2_000);
        let faster = Bucket { interval_ns: 7, burst: 5, since_ns: 1_050 };
        assert_eq!(faster.spent_ns(spent(1_300), 1_050), 18, "2.5 are rounded up");
        let long_ago = Bucket { since_ns: 0, ..faster };
        assert_eq!(
            long_ago.spent_ns(spent(1_300), 1_010),
            11,
            "by another limit: from when it was taken from"
        );
    }

    #[test]
    fn what_costs_more_than_the_bucket_holds_takes_all_of_it() {
        assert_eq!(TEN_A_SECOND.cost_ns(3), 300);
        assert_eq!(TEN_A_SECOND.cost_ns(9), 500);
    }

    /// Claims at random moments, each started at a random moment up to its bound: in no stretch do more start than the
    /// bucket allows.
    #[test]
    fn whenever_starts_happen_that_were_claimed_ahead_no_stretch_has_too_many() {
        let bucket = Bucket { interval_ns: 20_000_000, burst: 60, since_ns: 0 };
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut now, mut spent, mut starts) = (0, None, Vec::new());
            for _ in 0..400 {
                now += random.i64(0..60_000_000);
                let (is, cost) = (bucket.spent_ns(spent, now), bucket.cost_ns(1));
                let is_ahead = random.bool();
                let after = match bucket.ahead_ns(is, cost) {
                    Some(after) if is_ahead => after,
                    _ if !is_ahead && bucket.wait_ns(is, cost) <= 0 => is + cost,
                    _ => continue,
                };
                spent = Some(Spent { until_ns: now + after, interval_ns: bucket.interval_ns, at_ns: now });
                starts.push(now + if is_ahead { random.i64(..=AHEAD_NS) } else { 0 });
            }
            starts.sort_unstable();
            for (first, from) in starts.iter().enumerate() {
                for (last, to) in starts.iter().enumerate().skip(first) {
                    let count = (last - first + 1) as i64;
                    let allowed = i64::from(bucket.burst) + (to - from) / bucket.interval_ns;
                    assert!(count <= allowed, "seed {seed}: {count} in {} ns", to - from);
                }
            }
        }
    }
}
