//! A server whose owner is killed with `kill -9`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use private_postgres::{Binaries, Server};

use crate::wire::Connection;

/// Set for the process to kill: this program again, running the test below that only waits.
const OWNER_DIR: &str = "PRIVATE_POSTGRES_OWNER_DIR";
const PORT_PREFIX: &str = "port=";
const END_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

fn homes() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("killed")
}

fn start(dir: &Path) -> Server {
    Server::start(&Binaries::find().expect("PostgreSQL"), dir, &[("fsync", "off")]).expect("a server")
}

#[test]
fn a_server_ends_with_its_owner_and_the_next_one_removes_its_data() {
    let orphan = homes().join("orphan");
    let mut owner = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "killed::the_owner_that_is_killed", "--nocapture"])
        .env(OWNER_DIR, &orphan)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts again");
    let port = BufReader::new(owner.stdout.take().expect("its output"))
        .lines()
        .find_map(|line| line.expect("a line").split_once(PORT_PREFIX)?.1.parse::<u16>().ok())
        .expect("the owner tells its port");
    assert!(Connection::open(port).is_ok());

    owner.kill().expect("the owner is killed");
    owner.wait().expect("the owner has ended");
    let killed = Instant::now();
    while Connection::open(port).is_ok() {
        assert!(killed.elapsed() < END_MAX, "the server outlives its owner");
        thread::sleep(POLL);
    }
    assert!(orphan.exists());
    let _next = start(&homes().join("next"));
    assert!(!orphan.exists());
}

#[test]
fn the_owner_that_is_killed() {
    let Some(dir) = std::env::var_os(OWNER_DIR) else { return };
    let server = start(Path::new(&dir));
    println!("{PORT_PREFIX}{}", server.port());
    loop {
        thread::park();
    }
}
