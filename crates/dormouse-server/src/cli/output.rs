//! Output: tables for people, JSON for programs.

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
    /// Prints the document as JSON, or calls `people` to print it for people.
    pub(crate) fn show(self, value: &Value, people: impl FnOnce(&Value)) {
        if self.json { line(&escaped(&value.to_string())) } else { people(value) }
    }

    /// Shows the progress of long work, only on a terminal.
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

/// Prints one or more lines, without characters that would move the cursor. If the reader has gone away, the program
/// ends quietly, as pipes expect.
pub(crate) fn line(text: &str) {
    if writeln!(std::io::stdout(), "{}", printable(text)).is_err() {
        std::process::exit(0);
    }
}

/// Prints rows in columns, or a message when there are none.
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

/// A member as text on one line. Text from outside is made inert.
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

/// Text on one line, without characters that would move the cursor, colour the terminal or change the writing
/// direction.
pub(crate) fn inert(text: &str) -> String {
    let shown = |c| match c {
        '\n' | '\r' | '\t' => ' ',
        c if is_active(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Like [`inert`], but keeps line breaks and tabs.
pub(crate) fn printable(text: &str) -> String {
    let is_kept = |c| matches!(c, '\n' | '\t') || !is_active(c);
    text.replace("\r\n", "\n").chars().map(|c| if is_kept(c) { c } else { '\u{fffd}' }).collect()
}

/// JSON in which characters that would be active on a terminal are escaped. The document stays the same.
pub(crate) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        // Such characters are inside strings, except for the line breaks of an indented document.
        if is_active(c) && c != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text
}

/// Whether a terminal acts on a character: a control character, a line break, or an override of the writing direction.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Cuts text to at most this many characters.
pub(crate) fn short(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max - 1).chain(['\u{2026}']).collect()
}

/// How long ago a member's timestamp was, or how long it is until then.
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
        assert_eq!(text(&value, "name"), "a\u{fffd}[2Jb c");
        assert_eq!(printable("a\n\tb\r\nc\rd\u{9b}2J"), "a\n\tb\nc\u{fffd}d\u{fffd}2J");
    }

    #[test]
    fn nothing_turns_the_writing_around_and_json_is_the_same_document() {
        let hostile = "a\u{9b}b\u{202e}c\u{2067}d\u{2028}e\u{7f}f\u{85}g";
        assert_eq!(inert(hostile).chars().filter(|c| *c == '\u{fffd}').count(), 6);
        let document = serde_json::json!({ hostile: [hostile, "plain ä 日本"] });
        for text in [document.to_string(), format!("{document:#}")] {
            let escaped = escaped(&text);
            assert!(escaped.chars().all(|c| c == '\n' || !is_active(c)), "{escaped:?}");
            assert_eq!(serde_json::from_str::<Value>(&escaped).expect("JSON"), document);
        }
    }
}
