//! The rules of the design and the races it must survive, on every store.
//!
//! A test takes a [`kit::Kit`], which is a fresh store of some kind; [`suite!`] runs it on each kind. A new
//! store is one more line in that macro. Tests use the store trait where an interleaving has to be exact,
//! and the public API elsewhere.

mod counted;
mod faulty;
mod kit;
#[cfg(feature = "postgres")]
mod postgres;
mod slow;
#[cfg(feature = "postgres")]
mod twins;

/// Runs each of these tests on every store.
macro_rules! suite {
    ($($test:ident),+ $(,)?) => {
        mod sqlite_file {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(crate::kit::Kit::sqlite_file().await).await;
                }
            )+
        }
        mod sqlite_memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(crate::kit::Kit::sqlite_memory()).await;
                }
            )+
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(crate::kit::Kit::postgres().await).await;
                }
            )+
        }
    };
}

mod access;
mod attempts;
mod barriers;
mod checked;
mod children;
mod claimed_ahead;
mod claims;
mod crashes;
mod decided;
mod declared;
mod edits;
mod encoding;
mod explain;
mod family;
mod finals;
mod flows;
mod groups;
mod history;
mod inboxes;
mod input;
mod kept;
mod keys;
mod lanes;
mod limits;
mod logged;
mod longest;
mod mail;
mod metrics;
mod operate;
mod operators;
mod order;
mod rates;
mod reads;
mod runs;
#[cfg(feature = "schedules")]
mod schedules;
mod search;
mod shares;
mod signals;
mod steps;
mod tags;
mod time;
mod traces;
mod units;
mod unread;
mod versions;
