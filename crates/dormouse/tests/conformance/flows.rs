//! Flows on every store.

mod ahead;
mod cancelled;
mod children;
#[cfg(unix)]
mod killed;
mod parts;
mod sagas;
mod shop;
mod signals;
