//! Behind PgBouncer in transaction mode, where each transaction may find another server connection.

use private_postgres::{Pooler, Server};

use crate::journey::{engine, everything};
use crate::private::{dir, migrated, server};

#[tokio::test]
async fn an_engine_does_everything_through_a_pooler_and_says_once_that_pokes_are_off() {
    let server = server(&[]);
    migrated(&server, "pooled").await;
    let pooler = pooler(&server, &[("default_pool_size", "3")]);
    said::listen();
    let engine = engine(&pooler.url("pooled")).await;
    everything(&engine.client()).await;
    engine.shutdown().await;
    let said = said::here();
    let about_pokes: Vec<_> = said.lines().filter(|line| line.contains("poke")).collect();
    assert_eq!(about_pokes.len(), 1, "{said}");
    assert!(about_pokes[0].contains("WARN") && about_pokes[0].contains("transaction-mode pooler"), "{said}");
    no_statement_was_missed(&server, &pooler);
}

#[tokio::test]
async fn statements_that_go_to_another_server_connection_each_time_are_understood() {
    let server = server(&[]);
    migrated(&server, "robin").await;
    let pooler = pooler(&server, &[("default_pool_size", "4"), ("server_round_robin", "1")]);
    let engine = engine(&pooler.url("robin")).await;
    let client = engine.client();
    let others: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    client.stats().await.expect("counts");
                }
            })
        })
        .collect();
    everything(&client).await;
    for other in others {
        other.await.expect("nobody panics");
    }
    engine.shutdown().await;
    no_statement_was_missed(&server, &pooler);
}

#[tokio::test]
async fn two_server_connections_are_enough_for_two_engines() {
    let server = server(&[]);
    migrated(&server, "narrow").await;
    let pooler = pooler(&server, &[("default_pool_size", "2")]);
    let url = pooler.url("narrow");
    let first = engine(&url).await;
    let second = dormouse::Engine::open(&url).await.expect("the store opens");
    everything(&first.client()).await;
    drop(second);
    first.shutdown().await;
    no_statement_was_missed(&server, &pooler);
}

fn pooler(server: &Server, settings: &[(&str, &str)]) -> Pooler {
    Pooler::start(server, &dir("pooler"), settings).unwrap_or_else(|error| panic!("{error}"))
}

/// What was prepared on one server connection must never be asked of another, nor be prepared twice on one.
fn no_statement_was_missed(server: &Server, pooler: &Pooler) {
    for log in [server.log(), pooler.log()] {
        let missed = log.lines().find(|line| {
            line.contains("prepared statement") || line.contains("ERROR:") || line.contains("FATAL:")
        });
        assert_eq!(missed, None);
    }
}

/// What the program logs, apart for each test: each has a thread of its own, and its runtime no other.
///
/// One subscriber for all, as one of a single thread misses what another thread was the first to say.
mod said {
    use std::cell::RefCell;
    use std::io;
    use std::sync::Once;

    thread_local! {
        static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    struct Lines;

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            LINES.with_borrow_mut(|lines| lines.extend_from_slice(bytes));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    pub(super) fn listen() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing_subscriber::fmt().with_writer(|| Lines).with_ansi(false).init());
    }

    pub(super) fn here() -> String {
        LINES.with_borrow(|lines| String::from_utf8_lossy(lines).into_owned())
    }
}
