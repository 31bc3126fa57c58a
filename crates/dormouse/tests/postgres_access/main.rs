//! Getting to a PostgreSQL: through a pooler, with no more rights than needed, encrypted; and what is said when
//! it cannot be had.

#![cfg(feature = "postgres")]

mod backup;
#[path = "../backups/mod.rs"]
mod backups;
mod journey;
mod pooler;
#[path = "../private/mod.rs"]
mod private;
mod refusals;
mod roles;
mod tls;
mod upgrade;
