//! Whether the sends of a transport keep failing: logged when it begins, and when it ends.

use std::sync::atomic::{AtomicU32, Ordering};

/// Sends that fail in a row, before it is said that they keep failing: a single one may fail by chance.
const FAILURES_MIN: u32 = 3;

/// The sends of one transport by this process.
pub(super) struct Health {
    transport: String,
    /// How many have failed since the last one that did not.
    failures: AtomicU32,
}

impl Health {
    pub(super) fn new(transport: &str) -> Self {
        Self { transport: transport.to_owned(), failures: AtomicU32::new(0) }
    }

    /// Notes a send that will be tried again.
    pub(super) fn failed(&self, error: &str) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILURES_MIN {
            let (transport, error) = (&*self.transport, one_line(error));
            tracing::warn!(transport, error, "sends keep failing; they are tried again");
        }
    }

    /// Notes a send that was accepted, answered or refused: the other side responds.
    pub(super) fn responded(&self) {
        let failures = self.failures.swap(0, Ordering::Relaxed);
        if failures >= FAILURES_MIN {
            tracing::warn!(transport = self.transport, failures, "sends succeed again");
        }
    }
}

/// A text of others, cut and on one line, for a line of the log.
pub(in crate::engine) fn one_line(text: &str) -> String {
    const CHARS_MAX: usize = 1_000;
    let mut chars = text.trim_end().chars();
    let mut line = String::new();
    for c in chars.by_ref().take(CHARS_MAX) {
        match c {
            '\n' => line.push_str("\\n"),
            c if c.is_control() => line.push(' '),
            c => line.push(c),
        }
    }
    if chars.next().is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn an_error_of_many_lines_is_one_line_of_the_log() {
        assert_eq!(one_line("no\nsuch\tthing\n"), "no\\nsuch thing");
        assert_eq!(one_line(&"x".repeat(5_000)).chars().count(), 1_001);
    }
}
