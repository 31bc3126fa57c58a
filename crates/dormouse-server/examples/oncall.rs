//! A shop to be on call for: the program of the four stories in docs/guide/operating.md.
//!
//! `cargo run -p dormouse-server --all-features --example oncall -- --db shop.db serve --create`
//!
//! What is wrong with it is in its environment: `TYPO=1` asks a transport that does not exist, `BUG=1` is a bad deploy
//! that cannot ship by van. Its partner, the carrier, is the command `carrier`.

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use dormouse::prelude::*;
use dormouse::{Sending, Targets, Webhook};
use dormouse_server::Program;
use dormouse_server::cli::clap::Command;

const CARRIER: &str = "127.0.0.1:7979";
const SECRET: &str = "whsec_b25lIHNlY3JldCBmb3IgdGhlIGNhcnJpZXI=";

struct Shop;

#[derive(Clone, Serialize, Deserialize)]
struct Parcel {
    customer: String,
    cents: u64,
    by: String,
}

#[derive(Serialize, Deserialize)]
enum Order {
    Placed(Parcel),
    Booked(Parcel),
}

impl Machine for Shop {
    const NAME: &'static str = "order";
    type State = Order;
    type Output = String;

    fn indexes() -> Vec<String> {
        vec!["customer".to_owned(), "cents".to_owned()]
    }

    async fn step(&self, state: Order, cx: &Context) -> StepResult<Self> {
        match state {
            Order::Placed(parcel) => {
                if parcel.by == "van" && env::var_os("BUG").is_some() {
                    return Err("no price for a parcel by van".into());
                }
                let transport = if env::var_os("TYPO").is_some() { "carier" } else { "carrier" };
                let unit = Unit::one(parcel.clone()).transport(transport);
                Ok(Outcome::dispatch(unit, Order::Booked(parcel)))
            }
            Order::Booked(_) => Ok(Outcome::done(cx.unit::<String>().await?.one()?)),
        }
    }
}

/// An invoice is printed slowly.
struct Invoice;

#[derive(Serialize, Deserialize)]
enum Printing {
    Print { customer: String },
}

impl Machine for Invoice {
    const NAME: &'static str = "invoice";
    const QUEUE: &'static str = "printer";
    type State = Printing;
    type Output = ();

    fn indexes() -> Vec<String> {
        vec!["customer".to_owned()]
    }

    async fn step(&self, state: Printing, _: &Context) -> StepResult<Self> {
        let Printing::Print { .. } = state;
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(Outcome::done(()))
    }
}

/// Answers every request at once.
async fn carrier() -> std::io::Result<()> {
    let booked = || async { r#"{"output":"tracking number 17"}"# };
    let listener = tokio::net::TcpListener::bind(CARRIER).await?;
    axum::serve(listener, Router::new().route("/book", post(booked))).await
}

#[tokio::main]
async fn main() -> ExitCode {
    Program::new(|engine| {
        let webhook =
            Webhook::new(&format!("http://{CARRIER}/book"), SECRET).expect("an address and a secret");
        let sending = Sending { backoff_cap: Duration::from_secs(5), ..Sending::default() };
        let engine = engine.machine(Shop).machine(Invoice).watch_every(Duration::from_secs(2));
        let engine = engine.transport_with("carrier", webhook.targets(Targets::Any), sending);
        engine.queue("default", 16).queue("printer", 4)
    })
    .name("shop")
    .command(Command::new("carrier").about("Be the partner"), |_, _| async {
        carrier().await.map_err(|error| error.to_string())?;
        Ok(ExitCode::SUCCESS)
    })
    .run()
    .await
}
