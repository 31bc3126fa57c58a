//! Nobody waits for a stranger: while somebody's transaction holds something, every verb goes on for all who have
//! nothing to do with it.

#![cfg(feature = "postgres")]

#[path = "../conformance/postgres.rs"]
mod database;
mod kept;
mod others;
mod scene;
mod table;
mod tenants;
#[path = "../postgres_plans/verbs.rs"]
mod verbs;
