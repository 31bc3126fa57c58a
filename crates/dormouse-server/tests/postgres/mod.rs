//! A separate database for each test, on the PostgreSQL server that tests may use.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::future::Future;

use dormouse::store::postgres::Bench;

/// What the tests run against, set by `cargo xtask test`.
const SERVER: &str = "DORMOUSE_TEST_POSTGRES";

/// A migrated database that is removed after the test.
pub struct Postgres(Option<Bench>);

impl Postgres {
    pub fn create() -> Self {
        let server = std::env::var(SERVER).unwrap_or_else(|_| {
            panic!("{SERVER} is not set: run `cargo xtask test`, or set it to a server's address that tests may use")
        });
        Self(Some(wait(async move { Bench::create(&server).await }).expect("a new database")))
    }

    pub fn url(&self) -> &str {
        self.0.as_ref().expect("it is there until it is dropped").url()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(database) = self.0.take() {
            // Ignore a failure to remove the database: the test's own failure matters more.
            let _ = wait(database.remove());
        }
    }
}

/// Runs a future to its end from synchronous code.
fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let waiting = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(future)
    });
    waiting.join().expect("it does not panic")
}
