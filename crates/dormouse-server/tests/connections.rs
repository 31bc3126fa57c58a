//! Connections as `listen` serves them: endless responses, callers that do not read, and shutdown.

use std::net::SocketAddr;
use std::time::Duration;

use dormouse::{At, Client, Json, NewInstance};
use dormouse_server::{Access, AtOnce, Server, Stop, listen};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// How long anything that must happen may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

struct Site {
    client: Client,
    address: SocketAddr,
    _dir: TempDir,
}

/// A server over a new database, open to anyone on this host.
async fn site(set: impl FnOnce(Server) -> Server) -> Site {
    let dir = TempDir::new().expect("a directory");
    let client = Client::open(&format!("sqlite:{}", dir.path().join("test.db").display())).await;
    let client = client.expect("it opens");
    let server = Server::new(client.clone(), Access::open_on_loopback()).expect("a store for servers");
    let server = set(server);
    let mut stop = Stop::listen().expect("signals can be heard");
    let (ready, address) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let bind = SocketAddr::from(([127, 0, 0, 1], 0));
        listen(server, bind, &mut stop, |address| ready.send(address).expect("it is waited for")).await
    });
    Site { client, address: address.await.expect("it listens"), _dir: dir }
}

impl Site {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// Makes this many changes.
    async fn change(&self, times: usize) {
        let at = || At { step: "Start".into(), state: Json::null() };
        let new = || NewInstance::named("nobodys", 1, at()).even_if_unknown();
        self.client.start_many((0..times).map(|_| new())).await.expect("starts");
    }
}

/// A request to this path, with more lines in its head.
fn request(method: &str, path: &str, more: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n").into_bytes()
}

/// Reads until this text has arrived.
async fn heard(stream: &mut TcpStream, text: &str) -> String {
    let (mut heard, mut part) = (Vec::new(), vec![0; 16 * 1024]);
    let reads = async {
        let mut looked = 0;
        while !heard[looked..].windows(text.len()).any(|part| part == text.as_bytes()) {
            looked = heard.len().saturating_sub(text.len());
            let read = stream.read(&mut part).await.expect("it goes on");
            assert!(read > 0, "it ended after {} bytes", heard.len());
            heard.extend_from_slice(&part[..read]);
        }
    };
    tokio::time::timeout(SOON, reads).await.unwrap_or_else(|_| panic!("{text:?} has not come"));
    String::from_utf8(heard).expect("text")
}

#[tokio::test]
async fn a_stream_of_events_tells_what_changes_until_its_caller_hangs_up() {
    let site =
        site(|server| server.streams_at_once(AtOnce { in_all: 1, per_namespace: 1, per_key: 1 })).await;
    let mut watcher = site.connect().await;
    watcher.write_all(&request("GET", "/v1/events", "")).await.expect("it is sent");
    let head = heard(&mut watcher, ": watching").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"), "{head}");
    assert!(head.contains("\r\nconnection: close\r\n") && head.contains(" GMT\r\n"), "{head}");
    assert!(head.contains("\r\ncache-control: no-cache\r\n") && head.contains("nosniff"), "{head}");
    // Later requests on this connection get no response and do no harm.
    watcher.write_all(&request("GET", "/v1/about", "")).await.expect("it is sent");
    site.change(1).await;
    heard(&mut watcher, "event: change").await;
    let mut second = site.connect().await;
    second.write_all(&request("GET", "/v1/events", "")).await.expect("it is sent");
    heard(&mut second, "too-many-at-once").await;
    // A place is free as soon as its holder hangs up, without a change or a keep-alive in between.
    drop(watcher);
    until_a_place_is_free(&site).await;
}

/// Requests a stream again and again until it gets one.
async fn until_a_place_is_free(site: &Site) {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let mut watcher = site.connect().await;
        watcher.write_all(&request("GET", "/v1/events", "")).await.expect("it is sent");
        if heard(&mut watcher, "\r\n\r\n").await.starts_with("HTTP/1.1 200") {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "no place came back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_head_of_a_stream_is_a_whole_answer_and_a_connection_goes_on_after_it() {
    let site = site(|server| server).await;
    let mut caller = site.connect().await;
    caller.write_all(&request("HEAD", "/v1/events", "")).await.expect("it is sent");
    let head = heard(&mut caller, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    caller.write_all(&request("GET", "/healthz", "")).await.expect("it is sent");
    heard(&mut caller, "\"ok\"").await;
}

#[tokio::test]
async fn a_stream_that_is_asked_for_before_earlier_answers_were_read_comes_after_them() {
    const EARLIER: usize = 2000;
    let site = site(|server| server).await;
    let mut caller = site.connect().await;
    let all = [request("HEAD", "/healthz", "").repeat(EARLIER), request("GET", "/v1/events", "")].concat();
    caller.write_all(&all).await.expect("it is sent");
    let all = heard(&mut caller, ": watching").await;
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), EARLIER + 1);
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_hung_up_on() {
    let one = AtOnce { in_all: 1, per_namespace: 1, per_key: 1 };
    let site = site(|server| server.streams_at_once(one).answer_within(Duration::from_millis(500))).await;
    for _ in 0..40 {
        site.change(1000).await;
    }
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a size");
    let mut deaf = socket.connect(site.address).await.expect("a connection");
    deaf.write_all(&request("GET", "/v1/events?after=0", "")).await.expect("it is sent");
    heard(&mut deaf, "HTTP/1.1 200").await;
    until_a_place_is_free(&site).await;
    drop(deaf);
}
