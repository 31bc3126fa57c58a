//! A server in a separate process, and cheap callers.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The limit of long polls and of event streams. One namespace gets half of them, and one key a quarter.
pub const WAITS: usize = 256;
pub const STREAMS: usize = 512;

/// How long any response may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

pub struct Server {
    process: Child,
    address: String,
    db: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(db: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command.env_remove("RUST_LOG").env_remove("DORMOUSE_AUTH").args(["--db", db]);
    command
}

impl Server {
    pub fn start(db: &str) -> Self {
        assert!(command(db).arg("migrate").output().expect("it runs").status.success());
        key_in(db, "operators");
        let (waits, streams) = (WAITS.to_string(), STREAMS.to_string());
        let mut command = command(db);
        command.args(["--log", "json", "serve", "--bind", "127.0.0.1:0", "--auth", "keys"]);
        command.args(["--waits-max", &waits, "--streams-max", &streams]);
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
        Self { process, address, db: db.to_owned() }
    }

    /// Its peak memory, in bytes.
    pub fn peak(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
    }

    pub fn make_key(&self, namespace: &str) -> String {
        key_in(&self.db, namespace)
    }

    /// The cookie of a new session.
    pub fn sign_in(&self, key: &str) -> String {
        let form = Caller::connect(self).ask(&get("/login", "")).text();
        let token = form.split_once(r#"name="csrf" value=""#).expect("a form").1;
        let token = token.split('"').next().expect("a token");
        let answer = Caller::connect(self).ask(&post("/login", "", &format!("key={key}&csrf={token}")));
        assert_eq!(answer.status, 303, "{}", answer.text());
        let cookie = answer.head.split_once("set-cookie: ").expect("a cookie").1;
        cookie.split(';').next().expect("a cookie").to_owned()
    }
}

fn key_in(db: &str, namespace: &str) -> String {
    let mut command = command(db);
    command.args(["--namespace", namespace, "keys", "create", "--label", "test", "--scope", "operate"]);
    let made = command.output().expect("it runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).expect("text").trim().to_owned()
}

pub fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").into_bytes()
}

pub fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let media = if path == "/login" { "application/x-www-form-urlencoded" } else { "application/json" };
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media}\r\n");
    format!("{head}content-length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    /// Its first part.
    body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }
}

/// How much of a response is kept: enough for the tests.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// A connection that sends one request after the other.
pub struct Caller<'a> {
    server: &'a Server,
    stream: TcpStream,
    part: Vec<u8>,
}

impl<'a> Caller<'a> {
    pub fn connect(server: &'a Server) -> Self {
        let stream = TcpStream::connect(&server.address).expect("a connection");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        stream.set_nodelay(true).expect("a setting");
        Self { server, stream, part: vec![0; 256 * 1024] }
    }

    pub fn ask(&mut self, request: &[u8]) -> Answer {
        self.ask_within(request, SOON).expect("an answer in time")
    }

    /// `None` if no response arrived in time.
    pub fn ask_within(&mut self, request: &[u8], within: Duration) -> Option<Answer> {
        self.stream.set_read_timeout(Some(within)).expect("a limit");
        self.stream.write_all(request).expect("it is sent");
        let (mut kept, mut read) = (Vec::new(), 0);
        let (mut whole, mut head_end) = (usize::MAX, 0);
        while read < whole {
            let more = match self.stream.read(&mut self.part) {
                Ok(more) => more,
                Err(error) if read == 0 && is_timeout(error.kind()) => return None,
                Err(error) => panic!("after {read} bytes of {whole}: {error}"),
            };
            assert!(more > 0, "it ended after {read} bytes of {whole}");
            read += more;
            let room = KEPT_BYTES_MAX.saturating_sub(kept.len()).min(more);
            kept.extend_from_slice(&self.part[..room]);
            if whole == usize::MAX
                && let Some(end) = kept.windows(4).position(|part| part == b"\r\n\r\n")
            {
                head_end = end + 4;
                whole = head_end + length(&String::from_utf8_lossy(&kept[..end]));
            }
        }
        let head = String::from_utf8_lossy(&kept[..head_end]).into_owned();
        let status = head[9..12].parse().expect("a status");
        if head.contains("connection: close") {
            *self = Self::connect(self.server);
        }
        Some(Answer { status, body: kept.split_off(head_end), head })
    }

    /// A connection whose answer has begun, and goes on. Places of a round before may still be taken.
    pub fn opened(mut self, request: &[u8]) -> TcpStream {
        let started = Instant::now();
        loop {
            self.stream.write_all(request).expect("it is sent");
            let read = self.stream.read(&mut self.part).expect("an answer");
            let head = String::from_utf8_lossy(&self.part[..read]);
            if head.starts_with("HTTP/1.1 200") {
                return self.stream;
            }
            assert!(started.elapsed() < SOON, "{head}");
            self = Self::connect(self.server);
        }
    }

    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn length(head: &str) -> usize {
    let line = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    line.unwrap_or_else(|| panic!("an answer without a length: {head}")).parse().expect("a number")
}
