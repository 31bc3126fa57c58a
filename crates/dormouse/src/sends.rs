//! How much a transport may send: its rate, what is in flight, and its circuit breaker.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::micros;
use crate::limit::WIDTH_MAX;
use crate::limits::check_name;
use crate::unit::INTERACTION_API;
use crate::{Error, Result};

/// The most sends in a period, and at once.
pub const SENDS_MAX: u32 = 1_000_000;
const PERIOD_MIN: Duration = Duration::from_millis(1);
const PERIOD_MAX: Duration = Duration::from_secs(31 * 24 * 3600);
const OPEN_MAX: Duration = Duration::from_secs(24 * 3600);

/// So many sends in a period, over all workers together.
///
/// It is a bucket: a send takes one of `burst` places, and places come back evenly, `count` in each `period`. So no window
/// of time has more than `burst` sends plus those that its length adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SendRate {
    /// How many.
    pub count: u32,
    /// In how long: from 1 ms to 31 days.
    #[serde(rename = "period_us", with = "in_micros")]
    pub period: Duration,
    /// How many may be sent at once after a pause.
    pub burst: u32,
}

impl SendRate {
    /// So many in a period. At once goes what a tenth of a second adds, and at least one: [`SendRate::burst`] changes that.
    pub fn new(count: u32, period: Duration) -> Self {
        let tenth = u128::from(count) * 100_000 / u128::from(period.as_micros().max(1) as u64);
        Self { count, period, burst: u32::try_from(tenth).unwrap_or(SENDS_MAX).clamp(1, SENDS_MAX) }
    }

    /// So many in each second.
    pub fn per_second(count: u32) -> Self {
        Self::new(count, Duration::from_secs(1))
    }

    /// So many in each minute.
    pub fn per_minute(count: u32) -> Self {
        Self::new(count, Duration::from_secs(60))
    }

    /// How many may be sent at once.
    pub const fn burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }
}

/// When a transport stops sending because its sends fail, and for how long.
///
/// The breaker opens after so many failures in a row, of all workers together: sends that the transport reports as
/// [`Sent::Retry`](crate::Sent), that took too long or that panicked. What the other side rejects is no failure. While it is
/// open nothing is sent. After `open_for` one request is sent as a probe: if the other side responds, the breaker closes;
/// else it stays open for twice as long, up to `open_cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Breaker {
    /// Failures in a row that open it.
    pub failures: u32,
    /// How long it stays open at first.
    #[serde(rename = "open_us", with = "in_micros")]
    pub open_for: Duration,
    /// How long it stays open at most before the next probe.
    #[serde(rename = "cap_us", with = "in_micros")]
    pub open_cap: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::after(10)
    }
}

impl Breaker {
    /// Opens after so many failures in a row, for 5 seconds at first and a minute at most.
    pub const fn after(failures: u32) -> Self {
        Self { failures, open_for: Duration::from_secs(5), open_cap: Duration::from_secs(60) }
    }

    /// How long it stays open at first, and at most.
    pub const fn open_for(self, first: Duration, cap: Duration) -> Self {
        Self { open_for: first, open_cap: cap, ..self }
    }
}

/// What limits the sends of a transport. What is `None` is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportLimits {
    /// How many are sent in a period.
    pub rate: Option<SendRate>,
    /// How many are sent and not answered, at a time: from 1 to [`WIDTH_MAX`].
    pub in_flight: Option<u32>,
    /// When sending stops for a while.
    pub breaker: Option<Breaker>,
}

impl TransportLimits {
    /// Refuses limits that let nothing out, or that nobody can have meant.
    pub(crate) fn check(&self, transport: &str) -> Result<()> {
        let refused = |reason: String| Err(Error::InvalidLimit { name: transport.to_owned(), reason });
        if let Some(SendRate { count, period, burst }) = self.rate {
            if count == 0 || burst == 0 {
                return refused("a rate or a burst of 0 sends nothing; use 1 or more".to_owned());
            }
            if count > SENDS_MAX || burst > SENDS_MAX {
                return refused(format!(
                    "a rate and a burst are at most {SENDS_MAX}; leave the rate out instead"
                ));
            }
            if !(PERIOD_MIN..=PERIOD_MAX).contains(&period) {
                return refused(format!("the period of a rate is from 1 ms to 31 days, not {period:?}"));
            }
        }
        match self.in_flight {
            Some(0) => return refused("0 requests in flight send nothing; use 1 or more".to_owned()),
            Some(width) if width > WIDTH_MAX => {
                return refused(format!(
                    "{width} requests in flight are more than {WIDTH_MAX}; leave it out instead"
                ));
            }
            _ => {}
        }
        if let Some(Breaker { failures, open_for, open_cap }) = self.breaker {
            if failures == 0 || failures > SENDS_MAX {
                return refused(format!("a breaker opens after 1 to {SENDS_MAX} failures, not {failures}"));
            }
            if !(PERIOD_MIN..=OPEN_MAX).contains(&open_for) || !(open_for..=OPEN_MAX).contains(&open_cap) {
                return refused(format!(
                    "a breaker stays open for 1 ms to 24 hours, and at most no shorter than at first, not {open_for:?} \
                     up to {open_cap:?}"
                ));
            }
        }
        Ok(())
    }

    /// As it is stored: a field for each, null where there is none.
    pub(crate) fn document(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            other => panic!("limits are an object, not {other:?}"),
        }
    }

    /// What holds: what code declares, where no operator said something else.
    pub(crate) fn effective(declared: &Map<String, Value>, set: &Map<String, Value>) -> Result<Self> {
        let mut fields = declared.clone();
        fields.extend(set.clone());
        serde_json::from_value(Value::Object(fields)).map_err(|error| Error::Storage(error.into()))
    }
}

/// What becomes of one setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setting<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is this, whatever code declares.
    To(T),
    /// There is none, whatever code declares.
    Off,
    /// It is what code declares.
    Declared,
}

impl<T> From<T> for Setting<T> {
    fn from(value: T) -> Self {
        Self::To(value)
    }
}

/// What an operator changes about a transport's limits: see [`Client::set_transport`](crate::Client::set_transport).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportChange {
    /// How many are sent in a period.
    pub rate: Setting<SendRate>,
    /// How many are sent and not answered, at a time.
    pub in_flight: Setting<u32>,
    /// When sending stops for a while.
    pub breaker: Setting<Breaker>,
}

impl TransportChange {
    /// Changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes the rate.
    pub fn rate(self, rate: impl Into<Setting<SendRate>>) -> Self {
        Self { rate: rate.into(), ..self }
    }

    /// Changes how many may be in flight.
    pub fn in_flight(self, in_flight: impl Into<Setting<u32>>) -> Self {
        Self { in_flight: in_flight.into(), ..self }
    }

    /// Changes the breaker.
    pub fn breaker(self, breaker: impl Into<Setting<Breaker>>) -> Self {
        Self { breaker: breaker.into(), ..self }
    }

    /// What it sets, by field, and which fields are declared by code again.
    pub(crate) fn document(&self) -> (Map<String, Value>, Vec<&'static str>) {
        let (mut set, mut unset) = (Map::new(), Vec::new());
        let mut note = |field: &'static str, setting: Setting<Value>| match setting {
            Setting::Keep => {}
            Setting::To(value) => drop(set.insert(field.to_owned(), value)),
            Setting::Off => drop(set.insert(field.to_owned(), Value::Null)),
            Setting::Declared => unset.push(field),
        };
        note("rate", self.rate.as_value());
        note("in_flight", self.in_flight.as_value());
        note("breaker", self.breaker.as_value());
        (set, unset)
    }

    /// Refuses settings that let nothing out.
    pub(crate) fn check(&self, transport: &str) -> Result<()> {
        check_transport_name(transport)?;
        let (rate, in_flight, breaker) = (self.rate.set(), self.in_flight.set(), self.breaker.set());
        TransportLimits { rate, in_flight, breaker }.check(transport)
    }
}

impl<T: Copy + Serialize> Setting<T> {
    fn set(&self) -> Option<T> {
        if let Self::To(value) = self { Some(*value) } else { None }
    }

    fn as_value(&self) -> Setting<Value> {
        match self {
            Self::To(value) => Setting::To(serde_json::to_value(value).expect("numbers only")),
            Self::Keep => Setting::Keep,
            Self::Off => Setting::Off,
            Self::Declared => Setting::Declared,
        }
    }
}

/// Refuses a name that no transport can have.
pub(crate) fn check_transport_name(name: &str) -> Result<()> {
    check_name("transport", name)?;
    if name == INTERACTION_API {
        let reason = "it is the interaction API, which sends nothing".to_owned();
        return Err(Error::InvalidLimit { name: name.to_owned(), reason });
    }
    Ok(())
}

/// Durations as whole microseconds, which both databases count in.
mod in_micros {
    use super::*;

    pub(super) fn serialize<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(micros(*duration))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_micros(u64::deserialize(from)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_rate_lets_out_a_tenth_of_a_second_at_once_unless_it_says_otherwise() {
        let bursts = [1, 10, 25, 1_000].map(|count| SendRate::per_second(count).burst);
        assert_eq!(bursts, [1, 1, 2, 100]);
        assert_eq!(SendRate::per_minute(600).burst, 1);
        assert_eq!(SendRate::per_second(5).burst(7).burst, 7);
    }

    #[test]
    fn limits_that_let_nothing_out_are_refused() {
        let rate = |rate| TransportLimits { rate: Some(rate), ..TransportLimits::default() };
        let flight = |width| TransportLimits { in_flight: Some(width), ..TransportLimits::default() };
        let breaker = |breaker| TransportLimits { breaker: Some(breaker), ..TransportLimits::default() };
        for (limits, told) in [
            (rate(SendRate::per_second(0)), "0 sends nothing"),
            (rate(SendRate::per_second(5).burst(0)), "0 sends nothing"),
            (rate(SendRate::per_second(SENDS_MAX + 1)), "at most 1000000"),
            (rate(SendRate::new(5, Duration::ZERO)), "from 1 ms to 31 days"),
            (flight(0), "0 requests in flight"),
            (flight(WIDTH_MAX + 1), "more than 10000"),
            (breaker(Breaker::after(0)), "after 1 to"),
            (breaker(Breaker::after(3).open_for(SECOND * 2, SECOND)), "no shorter"),
            (breaker(Breaker::after(3).open_for(Duration::ZERO, SECOND)), "1 ms"),
        ] {
            let refused = limits.check("bank").expect_err("no limits").to_string();
            assert!(refused.contains(told) && refused.contains("\"bank\""), "{refused}");
        }
        let all = TransportLimits {
            rate: Some(SendRate::per_second(SENDS_MAX).burst(SENDS_MAX)),
            in_flight: Some(WIDTH_MAX),
            breaker: Some(Breaker::default()),
        };
        all.check("bank").expect("limits");
        for name in ["", "a\u{7}b", "api"] {
            TransportChange::new().check(name).expect_err("no name of a transport");
        }
    }

    #[test]
    fn what_an_operator_set_holds_before_what_code_declares() {
        let declared = TransportLimits {
            rate: Some(SendRate::per_second(5)),
            in_flight: Some(3),
            breaker: Some(Breaker::default()),
        };
        let change = TransportChange::new().rate(SendRate::per_minute(1)).in_flight(Setting::Off);
        let (set, unset) = change.document();
        let holds = TransportLimits::effective(&declared.document(), &set).expect("limits");
        assert_eq!(
            holds,
            TransportLimits { rate: Some(SendRate::per_minute(1)), in_flight: None, ..declared }
        );
        assert!(unset.is_empty());
        let (set, unset) = TransportChange::new().breaker(Setting::Declared).document();
        assert!(set.is_empty());
        assert_eq!(unset, ["breaker"]);
    }
}
