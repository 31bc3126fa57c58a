//! Backups: a dump that is made while an engine works, restored into another database; and a recovery to a moment.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use dormouse::Engine;
use dormouse::store::postgres::PostgresStore;
use private_postgres::Server;
use sqlx::Row as _;

use crate::backups;
use crate::private::{connect, dir, execute, migrated, number, server};

/// The log goes to a directory beside the server's files, which is where this command runs.
const ARCHIVE: [(&str, &str); 3] = [
    ("full_page_writes", "on"),
    ("archive_mode", "on"),
    ("archive_command", "mkdir -p archived && cp %p archived/%f"),
];

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_recovered_to_a_moment_goes_on() {
    let server = server(&ARCHIVE);
    let url = migrated(&server, "shop").await;
    let base = dir("base");
    let base = base.to_str().expect("a path");
    run(
        &server,
        "pg_basebackup",
        &["--pgdata", base, "--checkpoint=fast", "--dbname", &server.url("postgres")],
    );
    let mut moment = String::new();
    backups::copied_under_load(engine(&url).await, async || moment = text(&url, "clock_timestamp()").await)
        .await;
    archived(&url).await;
    let mut restored = crate::private::server(&[]);
    restored.stop_immediate();
    recover(base, &restored, &format!("cp {}/archived/%f %p", server.data().display()), &moment);
    restored.start_again().expect("it recovers");
    std::fs::remove_dir_all(base).expect("it is there");
    backups::goes_on(engine(&restored.url("shop")).await).await;
}

/// Waits until the log up to now is in the archive.
async fn archived(url: &str) {
    let last = text(url, "pg_walfile_name(pg_switch_wal())").await;
    let is_there = format!("select count(*) from pg_stat_archiver where last_archived_wal >= '{last}'");
    let mut conn = connect(url).await;
    while number(&mut conn, &is_there).await == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Puts a base backup in the place of a stopped server's files, to be recovered at its start.
fn recover(base: &str, server: &Server, restore_command: &str, moment: &str) {
    let data = server.data();
    let owner = std::fs::metadata(data).expect("a directory");
    for entry in std::fs::read_dir(data).expect("a directory") {
        let path = entry.expect("an entry").path();
        let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        removed.expect("it is there");
    }
    shell(&["cp", "-R", &format!("{base}/."), data.to_str().expect("a path")]);
    std::fs::write(data.join("recovery.signal"), "").expect("a file");
    let settings = data.join("postgresql.conf");
    let mut settings = std::fs::File::options().append(true).open(settings).expect("a file");
    let added = format!(
        "archive_mode = off\nrestore_command = '{restore_command}'\nrecovery_target_time = '{moment}'\n\
         recovery_target_action = promote\n"
    );
    settings.write_all(added.as_bytes()).expect("a write");
    shell(&["chown", "-R", &format!("{}:{}", owner.uid(), owner.gid()), data.to_str().expect("a path")]);
}

fn shell(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().expect("a run");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The one text that an expression gives.
async fn text(url: &str, expression: &str) -> String {
    let mut conn = connect(url).await;
    let query = sqlx::AssertSqlSafe(format!("select ({expression})::text"));
    let row = sqlx::query(query).fetch_one(&mut conn).await.expect("a read");
    row.try_get(0).expect("a text")
}
