//! Traces by OTLP, to a small collector in this test.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// The caller's trace, and the span in it.
const TRACE: [u8; 16] = *b"a trace of mine!";
const PARENT: [u8; 8] = *b"my span!";

/// The shop's own queue must keep running, so this pauses an unknown one.
const EVEN_IF_UNKNOWN: &str = r#"{"even_if_unknown":true}"#;

#[test]
fn a_request_is_in_its_callers_trace_and_steps_are_told_before_the_end() {
    let (collector, told) = collect();
    let dir = tempfile::tempdir().expect("a directory");
    let mut shop = Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .arg("--db")
        .arg(dir.path().join("shop.db"))
        .args(["dev", "--bind", "127.0.0.1:0"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector)
        // Longer than the test, so that only the shutdown sends traces.
        .env("OTEL_BSP_SCHEDULE_DELAY", "600000")
        .env("OTEL_SERVICE_NAME", "a shop of mine")
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shop");
    let mut said = BufReader::new(shop.stdout.take().expect("what it says")).lines();
    let address = said.find_map(|line| Some(line.ok()?.trim().strip_prefix("http://")?.to_owned()));
    let address = address.expect("an address").trim_end_matches('/').to_owned();
    std::thread::spawn(move || said.for_each(drop));

    let traceparent = format!("00-{}-{}-01", hex(&TRACE), hex(&PARENT));
    let (status, _) = exchange(
        &address,
        &format!(
            "POST /v1/queues/nobody/pause HTTP/1.1\r\nHost: {address}\r\ntraceparent: {traceparent}\r\n\
            Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{EVEN_IF_UNKNOWN}",
            EVEN_IF_UNKNOWN.len()
        ),
    );
    assert!(status.contains("200"), "{status}");
    let id = start_order(&address, &traceparent);
    until_done(&address, &id);
    let killed = Command::new("kill").args(["-TERM", &shop.id().to_string()]).status().expect("kill");
    assert!(killed.success() && shop.wait().expect("its end").success());

    let told = told.lock().expect("what was told").clone();
    assert!(find(&told, b"a shop of mine").is_some());
    assert!(find(&told, b"step").is_some(), "no step was told");
    // In a span, the trace comes first, then its own id, its parent and its name.
    let begin = told.windows(TRACE.len()).enumerate().filter(|(_, window)| *window == TRACE);
    let spans: Vec<&[u8]> = begin.map(|(at, _)| &told[at..(at + 100).min(told.len())]).collect();
    let steps = spans.iter().filter(|span| find(span, b"step").is_some()).count();
    assert!(steps >= 5, "the order and its line item, but {steps} steps are in its trace");
    let span = &told[find(&told, &TRACE).expect("the trace of the request")..][..100];
    assert!(find(span, &PARENT).is_some(), "{span:?}");
    assert!(find(span, b"POST /v1/queues/{queue}/pause").is_some(), "{}", String::from_utf8_lossy(span));
}

/// Starts an order of one line with its payment, in the caller's trace.
fn start_order(address: &str, traceparent: &str) -> String {
    let body = r#"{"machine":"order","step":"Placed","key":"traced","state":{"number":1000001,"line_cents":[100],"pay_within_s":60},
        "signals":[{"name":"payment","payload":{"cents":100}}]}"#;
    let length = body.len();
    let (status, answer) = exchange(
        address,
        &format!(
            "POST /v1/instances HTTP/1.1\r\nHost: {address}\r\ntraceparent: {traceparent}\r\n\
            Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
    );
    assert!(status.contains("201"), "{status} {}", String::from_utf8_lossy(&answer));
    let started: serde_json::Value = serde_json::from_slice(&answer).expect("an answer");
    started["id"].to_string()
}

fn until_done(address: &str, id: &str) {
    let (status, result) = exchange(
        address,
        &format!("GET /v1/instances/{id}/result?wait=60s HTTP/1.1\r\nHost: {address}\r\n\r\n"),
    );
    let result = String::from_utf8_lossy(&result).into_owned();
    assert!(status.contains("200") && result.contains("done"), "{status} {result}");
}

/// Accepts everything that is posted to its traces.
fn collect() -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = told.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let (head, body) = read(&mut stream);
            assert!(head.starts_with("POST /v1/traces "), "{head}");
            kept.lock().expect("what was told").extend(body);
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("an answer");
        }
    });
    (url, told)
}

fn exchange(address: &str, request: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(request.as_bytes()).expect("a request");
    read(&mut BufReader::new(stream))
}

/// The head of a message, and its body.
fn read(stream: &mut BufReader<TcpStream>) -> (String, Vec<u8>) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).expect("text") > 0, "it broke off after {head}");
    }
    let lower = head.to_ascii_lowercase();
    let length =
        lower.split_once("content-length:").and_then(|(_, rest)| rest.lines().next()?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).expect("a body");
    (head, body)
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
