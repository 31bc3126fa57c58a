//! What people and programs read: tables, or JSON.

use std::io::{IsTerminal, Write as _};

use dormouse::jiff::Timestamp;
use serde_json::Value;

use crate::span;

/// How to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// The document for programs, or what `people` makes of it.
    pub(crate) fn show(self, value: &Value, people: impl FnOnce(&Value)) {
        if self.json { line(&value.to_string()) } else { people(value) }
    }

    /// How far a long work has come; only for people who watch.
    pub(crate) fn progress(self, told: &str) {
        if !self.json && std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K{told}");
        }
    }

    pub(crate) fn progress_is_over(self) {
        if !self.json && std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }
}

/// Prints a line; a reader that went away ends the program quietly, as pipes expect.
pub(crate) fn line(text: &str) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// Prints rows in columns, or what to say when there are none.
pub(crate) fn table(headers: &[&str], rows: &[Vec<String>], none: &str) {
    if rows.is_empty() {
        return line(none);
    }
    let widths: Vec<usize> = (0..headers.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([headers[column].len()]).max().unwrap_or(0)
        })
        .collect();
    let print = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        line(padded.collect::<Vec<_>>().join("  ").trim_end());
    };
    print(&headers.iter().map(ToString::to_string).collect::<Vec<_>>());
    rows.iter().for_each(|row| print(row));
}

/// A member as text: what comes from outside is printed inert, on one line.
pub(crate) fn text(value: &Value, member: &str) -> String {
    match value.get(member) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => inert(text),
        Some(Value::Array(items)) => {
            let items: Vec<_> =
                items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), inert)).collect();
            items.join(", ")
        }
        Some(other) => other.to_string(),
    }
}

/// Text without what would move the cursor or colour the terminal.
pub(crate) fn inert(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// At most so many characters.
pub(crate) fn short(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max - 1).chain(['\u{2026}']).collect()
}

/// How long ago a member's moment was, or how long it is until then.
pub(crate) fn age(value: &Value, member: &str) -> String {
    let Some(at) = value.get(member).and_then(Value::as_str).and_then(|at| at.parse::<Timestamp>().ok())
    else {
        return String::new();
    };
    let away = Timestamp::now().duration_since(at);
    let shown = span::show(away.unsigned_abs());
    if away.is_negative() { format!("in {shown}") } else { format!("{shown} ago") }
}

/// The items of a member that is a list.
pub(crate) fn items<'a>(value: &'a Value, member: &str) -> impl Iterator<Item = &'a Value> {
    value.get(member).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_outside_cannot_move_the_cursor() {
        let value = serde_json::json!({ "name": "a\u{1b}[2Jb\nc" });
        assert_eq!(text(&value, "name"), "a\u{fffd}[2Jb\u{fffd}c");
    }
}
