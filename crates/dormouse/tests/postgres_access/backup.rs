//! Backups: a dump that is made while an engine works, restored into another database.

use std::process::Command;

use dormouse::Engine;
use dormouse::store::postgres::PostgresStore;
use private_postgres::Server;

use crate::backups;
use crate::private::{connect, dir, execute, migrated, server};

fn run(server: &Server, program: &str, args: &[&str]) {
    let mut command = Command::new(server.binaries().dir().join(program));
    let output = command.args(args).output().expect("a run");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

async fn engine(url: &str) -> Engine {
    let store = PostgresStore::connect(url).await.expect("it opens");
    backups::with_machine(Engine::on(std::sync::Arc::new(store))).start().await.expect("an engine")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_made_under_load_goes_on() {
    let server = server(&[]);
    let url = migrated(&server, "shop").await;
    let file = dir("dump");
    let file = file.to_str().expect("a path");
    backups::copied_under_load(engine(&url).await, async || {
        run(&server, "pg_dump", &["--format=custom", "--file", file, &url]);
    })
    .await;
    execute(&mut connect(&server.url("postgres")).await, "create database restored").await;
    let restored = server.url("restored");
    run(&server, "pg_restore", &["--exit-on-error", "--dbname", &restored, file]);
    std::fs::remove_file(file).expect("it is there");
    backups::goes_on(engine(&restored).await).await;
}
