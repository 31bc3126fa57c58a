//! Flows on every store.

mod ahead;
mod parts;
mod shop;
mod signals;
