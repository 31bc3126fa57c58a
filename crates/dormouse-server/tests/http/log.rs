//! What this process logs, for tests that read it.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::io::Write;
use std::sync::{Mutex, Once};

static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// The lines of transports, which are few and read often.
static OF_TRANSPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Logged;

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        if line.contains("dormouse::transport") {
            OF_TRANSPORTS.lock().expect("no panic").push(line.into_owned());
        }
        LOGGED.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Keeps everything that this process logs from now on, at the most verbose level.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = "dormouse=trace,dormouse_server=trace,axum=trace,tower_http=trace,hyper=trace";
        let filter = tracing_subscriber::EnvFilter::new(filter);
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Logged).with_ansi(false).init();
    });
}

/// Everything that was logged so far.
pub fn logged() -> String {
    String::from_utf8_lossy(&LOGGED.lock().expect("no panic")).into_owned()
}

/// The line of a transport that contains all of these.
pub fn of_transport(words: &[&str]) -> Option<String> {
    let lines = OF_TRANSPORTS.lock().expect("no panic");
    lines.iter().find(|line| words.iter().all(|word| line.contains(word))).cloned()
}
