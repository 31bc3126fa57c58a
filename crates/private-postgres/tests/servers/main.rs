//! Servers that start, answer, crash, restart and leave nothing behind.
#![cfg(unix)]

mod killed;
mod wire;

use std::fs::DirBuilder;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use private_postgres::{Binaries, Pooler, Server};

use crate::wire::Connection;

const QUICK: [(&str, &str); 1] = [("fsync", "off")];
const CHANGE_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

fn dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("servers").join(name)
}

fn start(name: &str) -> Server {
    Server::start(&Binaries::find().expect("PostgreSQL"), &dir(name), &QUICK).expect("a server")
}

fn ask(port: u16, sql: &str) -> Option<String> {
    Connection::open(port).expect("a connection").ask(sql).expect("an answer")
}

#[test]
fn a_server_answers_and_leaves_nothing() {
    let server = start("answers");
    let version = ask(server.port(), "show server_version_num").expect("a version");
    assert_eq!(version.parse::<u32>().expect("a number") / 10_000, server.binaries().major());
    assert_eq!(ask(server.port(), "show fsync").as_deref(), Some("off"));
    assert_eq!(ask(server.port(), "select datcollate from pg_database").as_deref(), Some("C"));
    assert!(server.log().contains("ready to accept connections"));
    assert_eq!(server.url("shop"), format!("postgres://postgres@127.0.0.1:{}/shop", server.port()));

    let port = server.port();
    drop(server);
    assert!(Connection::open(port).is_err());
    assert!(!dir("answers").exists());
}

#[test]
fn a_server_starts_where_only_its_owner_may_look() {
    let closed = dir("closed");
    DirBuilder::new().recursive(true).mode(0o700).create(&closed).expect("a directory");
    let server = start("closed/inner");
    assert_eq!(ask(server.port(), "select 1").as_deref(), Some("1"));
    // A server started by root runs as another user, and has its data elsewhere.
    let data = server.data().to_owned();
    assert_eq!(server.dir().join("data").canonicalize().expect("the data"), data);
    drop(server);
    assert!(!data.exists());
    std::fs::remove_dir(&closed).expect("nothing is left");
}

#[test]
fn what_was_committed_survives_an_immediate_stop() {
    let mut server = start("survives");
    let port = server.port();
    ask(port, "create table orders as select 42 as id");
    server.stop_immediate();
    assert!(Connection::open(port).is_err());

    server.start_again().expect("a second start");
    assert_eq!(server.port(), port);
    assert_eq!(ask(port, "select id from orders").as_deref(), Some("42"));
    assert!(server.log().contains("automatic recovery in progress"));
}

#[test]
fn a_restart_waits_for_its_port() {
    let mut server = start("waits");
    server.stop_immediate();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, server.port())).expect("the server's port");
    thread::scope(|scope| {
        let restart = scope.spawn(|| server.start_again());
        thread::sleep(Duration::from_millis(500)); // Long enough for a first try, which must fail.
        drop(taken);
        restart.join().expect("no panic").expect("a second start");
    });
    assert!(server.log().contains("could not bind"));
    assert_eq!(ask(server.port(), "select 1").as_deref(), Some("1"));
}

#[test]
fn servers_that_start_at_once_do_not_meet() {
    let starts = ["first", "second", "third"].map(|name| thread::spawn(move || start(name)));
    let servers = starts.map(|start| start.join().expect("a server"));
    for server in &servers {
        let port = server.port().to_string();
        assert_eq!(ask(server.port(), "show port").as_deref(), Some(port.as_str()));
    }
}

#[test]
fn a_directory_belongs_to_one_server() {
    let server = start("taken");
    let Err(error) = Server::start(server.binaries(), server.dir(), &QUICK) else {
        panic!("a second server started in the directory of the first");
    };
    assert!(error.contains("is in use"), "{error}");
    assert!(Connection::open(server.port()).is_ok());
}

#[test]
fn a_reload_takes_up_a_changed_setting() {
    let server = start("reload");
    ask(server.port(), "alter system set work_mem = '77MB'");
    server.reload().expect("a reload");
    let started = Instant::now();
    while ask(server.port(), "show work_mem").as_deref() != Some("77MB") {
        assert!(started.elapsed() < CHANGE_MAX, "the setting was not taken up: {}", server.log());
        thread::sleep(POLL);
    }
}

#[test]
fn a_setting_that_does_not_exist_is_told() {
    let binaries = Binaries::find().expect("PostgreSQL");
    let Err(error) = Server::start(&binaries, &dir("wrong"), &[("no_such_setting", "1")]) else {
        panic!("a server started with a setting that does not exist");
    };
    assert!(error.contains("no_such_setting"), "{error}");
    assert!(!dir("wrong").exists());
}

#[test]
fn the_connections_of_a_pooler_share_its_pool() {
    let server = start("pooled");
    let pooler = Pooler::start(&server, &dir("pooler"), &[("default_pool_size", "1")]).expect("a pooler");
    let mut clients = [(); 3].map(|()| Connection::open(pooler.port()).expect("a connection"));
    let backends = clients.each_mut().map(|client| client.ask("select pg_backend_pid()").expect("an answer"));
    assert!(backends[0].is_some());
    assert_eq!(backends[0], backends[1]);
    assert_eq!(backends[0], backends[2]);
    drop(pooler);
    assert!(!dir("pooler").exists());
}
