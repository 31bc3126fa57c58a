//! What the library logs while the tests of this process run.

use std::io::Write;
use std::sync::{Mutex, Once};

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LINES.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Notes all of it from now on.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = tracing_subscriber::EnvFilter::new("dormouse=trace");
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Lines).with_ansi(false).init();
    });
}

pub fn lines() -> String {
    String::from_utf8_lossy(&LINES.lock().expect("no panic")).into_owned()
}
