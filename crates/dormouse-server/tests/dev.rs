//! `dormouse dev` as a person uses it: an address to open, a live page, and something to decide.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Within this time after its start, a person can have decided something.
const DECIDED_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn within_ten_seconds_a_person_has_a_page_with_living_instances_and_approves_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let started = Instant::now();
    let dev = Dev::start(&dir.path().join("shop.db"));
    let overview = dev.get("/");
    assert!(overview.contains("live instances") && overview.contains("Inbox"), "{overview}");
    let waiting = dev.get("/instances?status=awaiting_signal");
    assert!(waiting.contains("data-status=\"awaiting_signal\""), "{waiting}");

    let inbox = dev.get("/inbox");
    let question = between(&inbox, "data-interaction=\"", "\"").expect("a question waits");
    let page = dev.get(&format!("/inbox/{question}"));
    let token = between(&page, "name=\"csrf\" value=\"", "\"").expect("a form");
    let form = format!("csrf={token}&typed=yes&output.approved.is=true&output.note.is=fine");
    let taken = dev.post(&format!("/inbox/{question}/complete"), &form);
    assert!(taken.contains(&format!("location: /inbox/{question}?notice=answered")), "{taken}");
    let answered = dev.get(&format!("/inbox/{question}?notice=answered"));
    assert!(answered.contains("Your answer was accepted.") && answered.contains("completed"), "{answered}");
    assert!(started.elapsed() < DECIDED_WITHIN, "it took {:?}", started.elapsed());
}

struct Dev {
    process: Child,
    address: String,
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Dev {
    fn start(db: &std::path::Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_dormouse"))
            .args(["dev", "--orders", "20", "--bind", "127.0.0.1:0", "--db"])
            .arg(db)
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shop");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let address = loop {
            let line = lines.next().expect("an address before the output ends").expect("readable output");
            if let Some(address) = line.trim().strip_prefix("http://") {
                break address.trim_end_matches('/').to_owned();
            }
        };
        // Drain the rest of its output.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    fn get(&self, path: &str) -> String {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\nConnection: close\r\n\r\n",
            self.address
        ))
    }

    fn post(&self, path: &str, form: &str) -> String {
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{form}",
            self.address,
            form.len()
        ))
    }

    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split(after).next()
}
