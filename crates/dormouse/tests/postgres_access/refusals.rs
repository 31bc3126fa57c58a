//! What is said when a database cannot be had: what is wrong, what to do, and no password.

use dormouse::{Engine, Error};

use crate::private::{ask_for_passwords, connect, execute, migrated, server};

#[tokio::test]
async fn what_is_wrong_is_said_and_the_password_is_not() {
    let server = server(&[]);
    let mut conn = connect(&server.url("postgres")).await;
    execute(&mut conn, "create role someone login password 'open sesame'").await;
    execute(&mut conn, "create database bare").await;
    migrated(&server, "whole").await;
    ask_for_passwords(&server, "host all all 127.0.0.1/32 scram-sha-256\n").await;
    let at = |password: &str, database: &str| {
        server.url(database).replace("postgres@", &format!("someone:{password}@"))
    };
    let right = "open%20sesame";

    let refused = refusal(&at("sesame", "whole")).await;
    assert!(
        matches!(refused, Error::CannotConnect { .. }) && says(&refused, "password authentication failed")
    );
    let refused = refusal(&at(right, "nowhere")).await;
    assert!(matches!(refused, Error::CannotConnect { .. }) && says(&refused, "\"nowhere\" does not exist"));
    let refused = refusal(&at(right, "bare")).await;
    assert!(matches!(refused, Error::OlderSchema { found: 0, .. }) && says(&refused, "dormouse migrate"));
    let refused = refusal(&at(right, "whole")).await;
    assert!(says(&refused, "permission denied") && says(&refused, "dormouse_engine"));
    let gone = at(right, "whole");
    let address = format!("127.0.0.1:{}", server.port());
    drop(server);
    let refused = refusal(&gone).await;
    assert!(matches!(refused, Error::CannotConnect { .. }) && says(&refused, &address));
    assert!(says(&refused, "refused"));
}

#[tokio::test]
async fn an_address_that_is_not_understood_is_not_told_with_its_password() {
    for url in [
        "postgres://someone:sesame@localhost:port/db",
        "postgres://someone:sesame@localhost/db?sslmode=perhaps",
        "postgres://someone:sesame@localhost/db?connections=one",
        "postgres://someone:sesame@[localhost/db",
        "postgress://someone:sesame@localhost/db",
        "mysql://someone:sesame@localhost/db",
    ] {
        refusal(url).await;
    }
}

async fn refusal(url: &str) -> Error {
    let error = Engine::open(url).await.err().unwrap_or_else(|| panic!("{url} is refused"));
    let said = format!("{error} {error:?}");
    assert!(!said.contains("sesame"), "{said}");
    error
}

fn says(error: &Error, words: &str) -> bool {
    let said = error.to_string();
    assert!(said.contains(words), "{said:?} does not say {words:?}");
    true
}
