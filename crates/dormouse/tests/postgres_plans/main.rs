//! What the verbs of the PostgreSQL store cost: their plans on a million rows, what they write, how many
//! statements they send, and the order in which they lock.

#![cfg(feature = "postgres")]

mod crowd;
mod explain;
mod hot;
mod locks;
#[path = "../private/mod.rs"]
mod private;
mod statements;
mod tour;
mod verbs;
