//! What a program tells while it runs: lines on its standard error, and traces where they are asked for.

use std::io::IsTerminal as _;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::Globals;

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Log {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Globals {
    /// Starts to log: always for what runs for long, otherwise if asked to. Traces are sent if the environment asks.
    pub fn log(&self, is_long: bool) {
        let is_asked_for = self.log.is_some() || std::env::var_os("RUST_LOG").is_some();
        let lines = (is_long || is_asked_for).then(|| lines(self.log));
        #[cfg(feature = "otlp")]
        let traces = crate::otlp::layer(&super::program());
        #[cfg(not(feature = "otlp"))]
        let traces = None::<tracing_subscriber::layer::Identity>;
        if lines.is_some() || traces.is_some() {
            // A program may have set up a log of its own before.
            let _ = Registry::default().with(lines).with(traces).try_init();
        }
    }
}

fn lines(form: Option<Log>) -> impl Layer<Registry> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match form {
        Some(Log::Json) => lines.json().with_filter(filter).boxed(),
        _ => lines.with_filter(filter).boxed(),
    }
}

/// Sends what is still to be sent.
pub(super) fn close() {
    #[cfg(feature = "otlp")]
    crate::otlp::close();
}
