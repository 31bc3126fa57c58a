//! A PostgreSQL server, a PgBouncer in front of it, and a NATS server that a test starts for itself.
//!
//! They listen on a free port of 127.0.0.1 and admit everyone on this machine, so they are for tests only. They never
//! run as root. They end when their value is dropped, and also with the process that started them, however that ends.
#![cfg(unix)]

mod account;
mod binaries;
mod home;
mod nats;
mod pooler;
mod port;
mod process;
mod server;

pub use crate::binaries::Binaries;
pub use crate::nats::Nats;
pub use crate::pooler::Pooler;
pub use crate::server::Server;

/// The result of a call; an error is a message for the person who runs the tests.
pub type Result<T = ()> = std::result::Result<T, String>;
