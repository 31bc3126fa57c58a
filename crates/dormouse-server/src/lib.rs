//! The server of dormouse: an HTTP API and a dashboard that any program can mount, and a command line.
//!
//! - [`Server`] is the API and the dashboard over a database, as an [`axum::Router`].
//! - [`main`] is the whole command line with your machines: `myshop serve`, `myshop worker`, `myshop ls`.

pub mod cli;

mod access;
mod api;
mod audited;
mod body;
mod connection;
mod cursor;
mod feed;
mod listen;
mod metrics;
mod openapi;
#[cfg(feature = "otlp")]
mod otlp;
mod patient;
mod places;
mod problem;
mod refusals;
mod repeat;
mod route;
mod server;
mod settings;
mod sight;
mod span;
mod stop;
mod tls;
mod traced;
mod turns;
mod view;
mod web;

pub use crate::access::Access;
pub use crate::cli::{Program, main};
pub use crate::listen::{Auth, access_at, listen};
pub use crate::metrics::Exporter;
pub use crate::places::AtOnce;
pub use crate::server::Server;
pub use crate::stop::Stop;
pub use crate::tls::Tls;
