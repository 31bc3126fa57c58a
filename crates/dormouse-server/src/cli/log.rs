//! Logging: lines on standard error, and traces if they are configured.

use std::io::IsTerminal as _;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::Globals;

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Log {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Log {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        [Self::Text, Self::Json].into_iter().find(|log| log.word() == word)
    }
}

impl Globals {
    /// Starts logging: always for long-running commands, otherwise only on request. Sends traces if the environment
    /// configures them.
    pub fn log(&self, is_long: bool) {
        let filter = self.settings.text("log.filter");
        let is_asked_for = self.log.is_some() || filter.is_some();
        let lines = (is_long || is_asked_for).then(|| lines(self.log, filter));
        #[cfg(feature = "otlp")]
        let traces = crate::otlp::layer(&super::program());
        #[cfg(not(feature = "otlp"))]
        let traces = None::<tracing_subscriber::layer::Identity>;
        if lines.is_some() || traces.is_some() {
            // The program may have set up its own subscriber already.
            let _ = Registry::default().with(lines).with(traces).try_init();
        }
    }
}

fn lines(form: Option<Log>, filter: Option<&str>) -> impl Layer<Registry> + use<> {
    let filter = EnvFilter::try_new(filter.unwrap_or("info")).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match form {
        Some(Log::Json) => lines.json().with_filter(filter).boxed(),
        _ => lines.with_filter(filter).boxed(),
    }
}

/// Sends the traces that are still buffered.
pub(super) fn close() {
    #[cfg(feature = "otlp")]
    crate::otlp::close();
}
