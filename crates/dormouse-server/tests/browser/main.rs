//! The dashboard in a real browser, on each store: what a person sees, and what becomes of what they do.

#[path = "../http/kit.rs"]
#[allow(dead_code, reason = "the tests of the API use more of it")]
mod kit;
#[path = "../postgres/mod.rs"]
mod postgres;

mod driver;

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

mod hostile;
