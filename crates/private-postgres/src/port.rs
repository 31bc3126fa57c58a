//! Ports that nobody listens on.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

/// Below the range that systems use for outgoing connections: otherwise a client that keeps trying the port of a
/// stopped server could get that very port, and connect to itself.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// How many ports may be taken by others between the check and the use.
const TRIES_MAX: usize = 20;

/// Ports of 127.0.0.1 that were free a moment ago, starting at a random one.
pub(crate) fn free() -> impl Iterator<Item = u16> {
    let start = RandomState::new().build_hasher().finish() % u64::from(COUNT);
    let start = u16::try_from(start).expect("a remainder below COUNT");
    let all = (0..COUNT).map(move |offset| FIRST + (start + offset) % COUNT);
    all.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).take(TRIES_MAX)
}
