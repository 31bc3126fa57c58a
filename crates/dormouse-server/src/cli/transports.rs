//! `transports`: what limits their sends, over all workers.

use serde_json::{Map, Value, json};

use super::Failure;
use super::conn::{Conn, encode, with_query};
use super::output::{Output, items, line, table, text};

/// What to do with transports.
#[derive(Debug, clap::Subcommand)]
pub enum Transports {
    /// List the transports, what limits them, and what they wait for
    Ls {
        /// Show at most this many
        #[arg(long)]
        limit: Option<usize>,
        /// Continue after this name
        #[arg(long)]
        after: Option<String>,
    },
    /// Limit the sends of a transport, for all workers and namespaces; what is not named stays as it is
    Set {
        /// The name of the transport
        name: String,
        /// How many are sent in a period, such as `10/s`, `100/m` or `5/10s`; `off`; or `declared`, as the code says
        #[arg(long)]
        rate: Option<String>,
        /// How many of the rate may be sent at once
        #[arg(long, requires = "rate")]
        burst: Option<u32>,
        /// How many may be sent and not answered at a time; `off`; or `declared`
        #[arg(long)]
        in_flight: Option<String>,
        /// After how many failures in a row sending stops for a while; `off`; or `declared`
        #[arg(long)]
        breaker: Option<String>,
        /// How long it stops at first
        #[arg(long, requires = "breaker")]
        open_for: Option<String>,
        /// How long it stops at most
        #[arg(long, requires = "breaker")]
        open_cap: Option<String>,
    },
    /// Close the breaker of a transport: its requests are sent at once
    Close {
        /// The name of the transport
        name: String,
    },
}

pub(super) async fn transports(conn: &Conn, output: Output, command: Transports) -> Result<(), Failure> {
    match command {
        Transports::Ls { limit, after } => {
            let limit = limit.map(|limit| limit.to_string());
            let path = with_query("/v1/transports", &[("after", after), ("limit", limit)]);
            output.show(&conn.get(&path).await?, print);
        }
        Transports::Set { name, rate, burst, in_flight, breaker, open_for, open_cap } => {
            let mut body = Body::default();
            body.add("rate", rate.as_deref(), |text| {
                let (count, period) = text.split_once('/').unwrap_or((text, "s"));
                let period = if period.starts_with(|c: char| c.is_ascii_digit()) {
                    period.to_owned()
                } else {
                    format!("1{period}")
                };
                Ok(json!({ "count": number(count)?, "period": period, "burst": burst }))
            })?;
            body.add("in_flight", in_flight.as_deref(), |text| Ok(json!(number(text)?)))?;
            body.add("breaker", breaker.as_deref(), |text| {
                Ok(json!({ "failures": number(text)?, "open_for": open_for, "open_cap": open_cap }))
            })?;
            let set = conn.post(&format!("/v1/transports/{}", encode(&name)), &body.into_value()).await?;
            output.show(&set, |set| {
                line(&format!("transport {}: {}", text(set, "name"), limits(&set["limits"])));
                if set["declared"].is_null() {
                    line("warning: no engine has had a transport of this name yet; is it spelled right?");
                }
            });
        }
        Transports::Close { name } => {
            let closed = conn.post(&format!("/v1/transports/{}/close", encode(&name)), &json!({})).await?;
            output.show(&closed, |told| {
                let how = if told["closed"] == true { "is closed" } else { "was not open" };
                line(&format!("the breaker of transport {} {how}", text(told, "transport")));
            });
        }
    }
    Ok(())
}

/// A change as the API takes it.
#[derive(Default)]
struct Body {
    fields: Map<String, Value>,
    reset: Vec<&'static str>,
}

impl Body {
    fn add(
        &mut self,
        field: &'static str,
        given: Option<&str>,
        value: impl FnOnce(&str) -> Result<Value, Failure>,
    ) -> Result<(), Failure> {
        match given {
            None => {}
            Some("off") => drop(self.fields.insert(field.to_owned(), Value::Null)),
            Some("declared") => self.reset.push(field),
            Some(text) => drop(self.fields.insert(field.to_owned(), value(text)?)),
        }
        Ok(())
    }

    fn into_value(mut self) -> Value {
        self.fields.insert("reset".to_owned(), json!(self.reset));
        Value::Object(self.fields)
    }
}

fn number(text: &str) -> Result<u32, Failure> {
    let told = || Failure::usage(format!("{text:?} is not a number; write a number, `off` or `declared`"));
    text.trim().parse().map_err(|_| told())
}

fn print(value: &Value) {
    let row = |transport: &Value| {
        let breaker = &transport["breaker"];
        let held = match transport["held"].as_str() {
            None => String::new(),
            Some(held) => match transport["held_until"].as_str() {
                None => held.to_owned(),
                Some(until) => format!("{held} until {until}"),
            },
        };
        let error = breaker["error"].as_str().unwrap_or_default();
        vec![
            text(transport, "name"),
            limits(&transport["limits"]),
            text(transport, "in_flight"),
            text(breaker, "status"),
            held,
            error.chars().take(60).collect(),
        ]
    };
    let rows: Vec<_> = items(value, "transports").map(row).collect();
    let headers = ["TRANSPORT", "LIMITS", "IN FLIGHT", "BREAKER", "WAITS FOR", "LAST FAILURE"];
    table(&headers, &rows, "no transports: no engine has had one, and none is limited");
    if let Some(next) = value.get("next").and_then(Value::as_str) {
        line(&format!("\nmore with --after {next}"));
    }
}

/// Limits in one line.
fn limits(limits: &Value) -> String {
    let mut told = Vec::new();
    if let rate @ Value::Object(_) = &limits["rate"] {
        let period = rate["period_ms"].as_u64().unwrap_or_default();
        let period = if period % 1_000 == 0 { format!("{}s", period / 1_000) } else { format!("{period}ms") };
        told.push(format!("{} in {period}, {} at once", rate["count"], rate["burst"]));
    }
    if let Some(in_flight) = limits["in_flight"].as_u64() {
        told.push(format!("{in_flight} in flight"));
    }
    match &limits["breaker"] {
        breaker @ Value::Object(_) => told.push(format!("opens after {} failures", breaker["failures"])),
        _ => told.push("no breaker".to_owned()),
    }
    told.join("; ")
}
