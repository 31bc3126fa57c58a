//! Routes for transports: what limits their sends, over all workers and namespaces.

use std::time::Duration;

use dormouse::jiff::Timestamp;
use dormouse::store::{BreakerStatus, Held, TransportView as View};
use dormouse::{Breaker, DEFAULT_NAMESPACE, SendRate, Setting, TransportChange, TransportLimits as Limits};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::instances::limit as rows;
use crate::access::Caller;
use crate::problem::{Cause, Problem};
use crate::route::{Answer, Call, Nothing};
use crate::span;

/// Transports, in the order of their names.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Transports")]
pub(super) struct TransportsView {
    transports: Vec<TransportView>,
    /// The `after` of the next page, if there is one.
    next: Option<String>,
}

/// A transport, what limits its sends, and how much of that is in use.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Transport")]
pub(super) struct TransportView {
    name: String,
    /// What limits it.
    limits: LimitsView,
    /// What code declares; null if no engine has had it yet.
    declared: Option<LimitsView>,
    /// What an operator set in place of that: some of `rate`, `in_flight` and `breaker`.
    changed: Vec<String>,
    changed_at: Option<Timestamp>,
    /// Requests that are being sent, or are sent and not answered, counted up to 10,000.
    in_flight: u64,
    /// What the next request waits for: `rate`, `in_flight` or `breaker`.
    #[schemars(with = "Option<String>")]
    held: Option<Held>,
    /// Until when, if the clock alone lets it go.
    held_until: Option<Timestamp>,
    breaker: BreakerView,
}

/// What limits the sends of a transport; null where nothing does.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TransportLimits")]
struct LimitsView {
    rate: Option<RateView>,
    in_flight: Option<u32>,
    breaker: Option<BreakerLimits>,
}

/// How many are sent in a period, and how many at once.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SendRate")]
struct RateView {
    count: u32,
    period_ms: u64,
    burst: u32,
}

/// When sending stops because it fails, and for how long.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Breaker")]
struct BreakerLimits {
    failures: u32,
    open_for_ms: u64,
    open_cap_ms: u64,
}

/// Whether a transport sends.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BreakerState")]
struct BreakerView {
    /// `closed` (it sends), `open` (it does not) or `half_open` (it sends one request as a probe).
    #[schemars(with = "String")]
    status: BreakerStatus,
    /// Failures in a row.
    failures: u32,
    opened_at: Option<Timestamp>,
    /// When the next probe is sent.
    open_until: Option<Timestamp>,
    /// How the last send failed.
    error: Option<String>,
}

impl From<Limits> for LimitsView {
    fn from(limits: Limits) -> Self {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            rate: limits.rate.map(|rate| RateView {
                count: rate.count,
                period_ms: ms(rate.period),
                burst: rate.burst,
            }),
            in_flight: limits.in_flight,
            breaker: limits.breaker.map(|breaker| BreakerLimits {
                failures: breaker.failures,
                open_for_ms: ms(breaker.open_for),
                open_cap_ms: ms(breaker.open_cap),
            }),
        }
    }
}

impl From<View> for TransportView {
    fn from(view: View) -> Self {
        let breaker = view.breaker;
        Self {
            name: view.name,
            limits: view.limits.into(),
            declared: view.declared.map(Into::into),
            changed: view.changed,
            changed_at: view.changed_at,
            in_flight: view.in_flight,
            held: view.held,
            held_until: view.held_until,
            breaker: BreakerView {
                status: breaker.status,
                failures: breaker.failures,
                opened_at: breaker.opened_at,
                open_until: breaker.open_until,
                error: breaker.error,
            },
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportsQuery {
    /// Only names after this one: the `next` of the previous page.
    after: Option<String>,
    /// At most this many; 50 by default, up to 500.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

pub(super) async fn list(call: Call<TransportsQuery>) -> Result<Answer<TransportsView>, Problem> {
    let TransportsQuery { after, limit } = call.query;
    let limit = rows(limit)?;
    let mut found = call.client.store().transports(after, limit + 1).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| has_more).map(|last| last.name.clone());
    Answer::ok(TransportsView { transports: found.into_iter().map(Into::into).collect(), next })
}

/// What limits a transport from now on. A field that is left out stays as it is; null means no limit, whatever code
/// declares.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetTransport")]
pub(super) struct SetBody {
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<RateBody>")]
    rate: Option<Option<RateBody>>,
    /// How many requests are sent and not answered, at a time.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<u32>", range(min = 1, max = 10_000))]
    in_flight: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<BreakerBody>")]
    breaker: Option<Option<BreakerBody>>,
    /// Fields that go by what code declares again: some of `rate`, `in_flight` and `breaker`.
    #[serde(default)]
    reset: Vec<Field>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TransportField")]
enum Field {
    Rate,
    InFlight,
    Breaker,
}

/// How many are sent in a period, by all workers together.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetRate")]
struct RateBody {
    #[schemars(range(min = 1, max = 1_000_000))]
    count: u32,
    /// Such as `1s` or `1m`; a second by default.
    period: Option<String>,
    /// How many at once after a pause; what a tenth of a second adds by default, and at least 1.
    #[schemars(range(min = 1, max = 1_000_000))]
    burst: Option<u32>,
}

/// When sending stops because it fails.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SetBreaker")]
struct BreakerBody {
    /// After so many failures in a row.
    #[schemars(range(min = 1, max = 1_000_000))]
    failures: u32,
    /// For how long at first, such as `5s`, which is the default.
    open_for: Option<String>,
    /// For how long at most; a minute by default.
    open_cap: Option<String>,
}

/// Keeps a null apart from a field that is left out.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

impl SetBody {
    fn change(self) -> Result<TransportChange, Problem> {
        let rate = self.rate.map(|rate| rate.map(RateBody::rate).transpose()).transpose()?;
        let breaker =
            self.breaker.map(|breaker| breaker.map(BreakerBody::breaker).transpose()).transpose()?;
        let reset = |field| self.reset.contains(&field);
        let change = TransportChange::new()
            .rate(setting(rate, reset(Field::Rate))?)
            .in_flight(setting(self.in_flight, reset(Field::InFlight))?)
            .breaker(setting(breaker, reset(Field::Breaker))?);
        if change == TransportChange::new() {
            return Err(Problem::invalid("it changes nothing: name a rate, in_flight, a breaker or a reset"));
        }
        Ok(change)
    }
}

fn setting<T>(given: Option<Option<T>>, is_reset: bool) -> Result<Setting<T>, Problem> {
    match (given, is_reset) {
        (Some(_), true) => Err(Problem::invalid("a field is set or reset, not both")),
        (None, true) => Ok(Setting::Declared),
        (None, false) => Ok(Setting::Keep),
        (Some(None), false) => Ok(Setting::Off),
        (Some(Some(value)), false) => Ok(Setting::To(value)),
    }
}

impl RateBody {
    fn rate(self) -> Result<SendRate, Problem> {
        let period = duration(self.period.as_deref(), Duration::from_secs(1))?;
        let rate = SendRate::new(self.count, period);
        Ok(self.burst.map_or(rate, |burst| rate.burst(burst)))
    }
}

impl BreakerBody {
    fn breaker(self) -> Result<Breaker, Problem> {
        let breaker = Breaker::after(self.failures);
        let open_for = duration(self.open_for.as_deref(), breaker.open_for)?;
        let open_cap = duration(self.open_cap.as_deref(), breaker.open_cap.max(open_for))?;
        Ok(breaker.open_for(open_for, open_cap))
    }
}

fn duration(text: Option<&str>, default: Duration) -> Result<Duration, Problem> {
    text.map_or(Ok(default), |text| span::parse(text).map_err(Problem::invalid))
}

pub(super) async fn set(call: Call<Nothing, SetBody>) -> Result<Answer<TransportView>, Problem> {
    of_the_house(&call.caller)?;
    let name = call.path("transport").to_owned();
    Answer::ok(call.client.set_transport(name, call.body.change()?).await?.into())
}

/// Whether a breaker was closed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BreakerClosed")]
pub(super) struct BreakerClosed {
    transport: String,
    /// Whether it was open.
    closed: bool,
}

pub(super) async fn close(call: Call<Nothing, Nothing>) -> Result<Answer<BreakerClosed>, Problem> {
    of_the_house(&call.caller)?;
    let transport = call.path("transport").to_owned();
    let closed = call.client.close_breaker(&*transport).await?;
    let told = BreakerClosed { transport, closed };
    if closed { Answer::ok(told) } else { Answer::unchanged(told) }
}

/// A transport is shared by all namespaces, so no tenant's key changes it.
fn of_the_house(caller: &Caller) -> Result<(), Problem> {
    if caller.namespace == DEFAULT_NAMESPACE {
        return Ok(());
    }
    let told =
        format!("transports are shared by all namespaces: use a key of namespace {DEFAULT_NAMESPACE:?}");
    Err(Problem::new(Cause::Forbidden, told))
}
