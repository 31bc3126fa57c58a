//! How much memory a server needs to answer: its process's peak, as the kernel counts it.
#![cfg(target_os = "linux")]

mod postgres;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use dormouse::{At, Client, InstanceId, Json, NewInstance, NewSignal};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::postgres::Postgres;

const MIB: usize = 1024 * 1024;
/// How much one response may add: several times a page of 4 MiB, as read, as text, and while it is sent.
const ANSWER_MAX: usize = 48 * MIB;

macro_rules! suite {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let dir = super::TempDir::new().expect("a directory");
                super::$test(&format!("sqlite:{}", dir.path().join("test.db").display())).await;
            })+
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let database = super::Postgres::create();
                super::$test(database.url()).await;
            })+
        }
    };
}

suite![
    a_long_history_of_large_states_is_read_in_part,
    a_list_reads_no_documents,
    a_page_writes_no_more_of_a_document_than_it_shows,
    an_inbox_is_read_as_far_as_it_is_asked_for,
    a_watcher_takes_less_than_eight_kilobytes,
];

/// A server in a process of its own.
struct Server {
    process: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(db: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        command.env_remove("RUST_LOG").env_remove("DORMOUSE_AUTH");
        command.args(["--db", db, "--log", "json", "serve", "--bind", "127.0.0.1:0"]);
        let mut process = command.stderr(Stdio::piped()).spawn().expect("a server");
        let mut log = BufReader::new(process.stderr.take().expect("its log")).lines();
        let address = loop {
            let line = log.next().expect("a line before the log ends").expect("text");
            let entry: Value = serde_json::from_str(&line).expect("a line of JSON");
            if let Some(address) = entry["fields"]["address"].as_str() {
                break address.to_owned();
            }
        };
        std::thread::spawn(move || log.for_each(drop));
        Self { process, address }
    }

    /// The size of the response in bytes.
    fn get(&self, path: &str) -> usize {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..200]));
        answer.len()
    }

    /// Its peak memory, in bytes.
    fn peak(&self) -> usize {
        self.memory("VmHWM:")
    }

    fn memory(&self, which: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix(which)).expect("a figure");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
    }

    /// Watches one instance, and waits until the stream has started.
    fn watch(&self, instance: usize) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        let request = format!("GET /v1/events?instance={instance} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is sent");
        let (mut heard, mut part) = (Vec::new(), [0; 1024]);
        while !String::from_utf8_lossy(&heard).contains(": watching") {
            let read = stream.read(&mut part).expect("it goes on");
            assert!(read > 0, "{}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&part[..read]);
        }
        stream
    }

    /// Makes a request, and checks how much memory it adds to the previous peak.
    #[track_caller]
    fn get_within(&self, path: &str, bytes_max: usize) -> usize {
        let before = self.peak();
        let answered = self.get(path);
        let more = self.peak() - before;
        assert!(more <= bytes_max, "{path}: {} MiB in addition", more / MIB);
        answered
    }
}

/// An instance that no worker runs, with a state of 1 MiB.
fn large() -> NewInstance {
    idle(Json::from(json!("x".repeat(MIB - 1000))))
}

fn idle(state: Json) -> NewInstance {
    NewInstance::named("nobodys", 1, At { step: "Start".into(), state }).even_if_unknown()
}

async fn client(db: &str) -> Client {
    Client::open(db).await.expect("it opens")
}

async fn start(client: &Client, new: NewInstance) -> InstanceId {
    client.start_many([new]).await.expect("a start")[0].id()
}

async fn a_long_history_of_large_states_is_read_in_part(db: &str) {
    let client = client(db).await;
    let id = start(&client, large()).await;
    for _ in 0..40 {
        client.cancel(id).await.expect("it is live");
        client.retry(id).await.expect("it has ended");
    }
    let server = Server::start(db);
    server.get(&format!("/v1/instances/{id}"));
    let answered = server.get_within(&format!("/v1/instances/{id}/history?limit=500"), ANSWER_MAX);
    assert!(answered < 6 * MIB, "{answered} bytes");
}

async fn a_list_reads_no_documents(db: &str) {
    let client = client(db).await;
    for _ in 0..60 {
        start(&client, large()).await;
    }
    let server = Server::start(db);
    server.get("/v1/instances?limit=1");
    server.get_within("/v1/instances?limit=500", 16 * MIB);
    server.get_within("/instances", 16 * MIB);
}

async fn a_page_writes_no_more_of_a_document_than_it_shows(db: &str) {
    let client = client(db).await;
    let deep = format!("{}{}{}", "[".repeat(60), vec!["1"; 500_000].join(","), "]".repeat(60));
    let id = start(&client, idle(Json::parse("state", deep).expect("JSON"))).await;
    let server = Server::start(db);
    server.get(&format!("/v1/instances/{id}"));
    // Indented as a whole, it is 62 MB.
    let answered = server.get_within(&format!("/instances/{id}"), ANSWER_MAX);
    assert!(answered < MIB / 4, "{answered} bytes");
}

async fn an_inbox_is_read_as_far_as_it_is_asked_for(db: &str) {
    let client = client(db).await;
    let id = start(&client, large()).await;
    for _ in 0..7 {
        let signal = NewSignal::new("hello", Json::from(json!("x".repeat(MIB - 1000))));
        client.signal_raw(id, signal).await.expect("it is delivered");
    }
    let server = Server::start(db);
    server.get("/v1/about");
    server.get_within(&format!("/v1/instances/{id}/inbox?limit=1"), 8 * MIB);
}

/// hyper alone would take two buffers of 8 KiB for each.
async fn a_watcher_takes_less_than_eight_kilobytes(db: &str) {
    let _migrated = client(db).await;
    let server = Server::start(db);
    // Each watches a different instance, as the pages of a dashboard do; the limit of open files bounds their number.
    let few: Vec<_> = (0..100).map(|instance| server.watch(instance)).collect();
    let before = server.memory("RssAnon:");
    let many: Vec<_> = (100..800).map(|instance| server.watch(instance)).collect();
    let each = server.memory("RssAnon:").saturating_sub(before) / many.len();
    assert!(each < 8_000, "{each} bytes");
    drop(few);
}
