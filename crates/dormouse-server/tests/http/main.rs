//! The HTTP API over a real port and a real database: every route, and bad input.
//!
//! A test takes a [`kit::Site`], which is a server over a fresh database of some kind; [`suite!`] runs it on each
//! kind. A new store is one more line in that macro.

mod kit;
mod log;
#[path = "../postgres/mod.rs"]
mod postgres;

/// Runs each of these tests on every store.
macro_rules! suite {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(crate::kit::Database::sqlite()).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(crate::kit::Database::postgres()).await;
                }
            )+
        }
    };
}

mod access;
mod acts;
mod admin;
mod ahead;
mod bodies;
mod bounds;
mod browser;
mod closing;
mod doors;
mod elsewhere;
mod events;
mod input;
mod instances;
mod interactions;
mod kept;
mod namespaces;
mod operators;
mod overview;
mod pages;
mod probes;
mod refused;
mod repair;
mod repeat;
mod resume;
mod schedules;
mod search;
mod sessions;
mod shares;
mod strange;
mod versions;
