//! Flows on every store.

mod parts;
mod shop;
mod signals;
