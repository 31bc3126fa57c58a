//! Flows on every store.

mod ahead;
#[cfg(unix)]
mod killed;
mod parts;
mod shop;
mod signals;
