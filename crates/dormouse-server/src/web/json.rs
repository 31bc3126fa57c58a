//! Documents for people: indented, and cut if they are too long to read.

use maud::{Markup, html};
use serde_json::Value;

/// How much of a document to show; the API has all of it.
pub(super) const SHOWN_BYTES_MAX: usize = 16 * 1024;
/// The longest document that a page parses to summarize or compare it.
pub(super) const READ_BYTES_MAX: usize = 64 * 1024;

/// A document with line breaks and indentation.
#[derive(Debug, PartialEq, Eq)]
enum Pretty {
    Whole(String),
    /// As much of a document as fits the limit.
    Cut(String),
}

pub(super) fn show(text: &str) -> Markup {
    let (shown, is_cut) = match pretty(text, SHOWN_BYTES_MAX) {
        Pretty::Whole(shown) => (shown, false),
        Pretty::Cut(shown) => (shown, true),
    };
    html! {
        pre.json tabindex="0" { code { (shown) } }
        @if is_cut { p.muted { "Cut after " (SHOWN_BYTES_MAX / 1024) " KiB. The API has the whole document." } }
    }
}

/// A document to edit, always complete: indented, unless that would make it much longer.
pub(super) fn to_edit(text: &str) -> String {
    match pretty(text, text.len().saturating_mul(4).saturating_add(SHOWN_BYTES_MAX)) {
        Pretty::Whole(indented) => indented,
        Pretty::Cut(_) => text.to_owned(),
    }
}

/// A document on one line, cut.
pub(super) fn short(text: &str, chars_max: usize) -> String {
    if text.chars().nth(chars_max).is_none() {
        return text.to_owned();
    }
    text.chars().take(chars_max).chain(['…']).collect()
}

/// A summary of a document for a list: its text, or the first text in it, before anything else.
pub(super) fn gist(text: &str, chars_max: usize) -> String {
    // Do not parse a long document: a list has many.
    let read = if text.len() <= READ_BYTES_MAX { serde_json::from_str::<Value>(text).ok() } else { None };
    let first = match read {
        Some(Value::String(text)) => Some(text),
        Some(Value::Object(members)) => {
            let named = ["question", "title", "text", "subject"].iter().find_map(|name| members.get(*name));
            let said = named.into_iter().chain(members.values()).find_map(Value::as_str);
            said.map(str::to_owned)
        }
        _ => None,
    };
    short(first.as_deref().filter(|first| !first.trim().is_empty()).unwrap_or(text), chars_max)
}

/// Indents JSON without parsing it, so numbers stay as they are. Stops after `bytes_max` bytes, so that the cost does
/// not grow with the size or depth of the document.
fn pretty(text: &str, bytes_max: usize) -> Pretty {
    let mut out = Within { text: String::with_capacity(bytes_max.min(text.len() * 2)), bytes_max };
    match indent(text, &mut out) {
        Some(()) => Pretty::Whole(out.text),
        None => Pretty::Cut(out.text),
    }
}

/// A buffer that takes a limited number of bytes.
struct Within {
    text: String,
    bytes_max: usize,
}

impl Within {
    /// `None` if there is no room for it.
    fn push(&mut self, letter: char) -> Option<()> {
        let fits = self.text.len() + letter.len_utf8() <= self.bytes_max;
        fits.then(|| self.text.push(letter))
    }

    fn line(&mut self, depth: usize) -> Option<()> {
        self.push('\n')?;
        (0..depth * 2).try_for_each(|_| self.push(' '))
    }
}

/// `None` if it was cut.
fn indent(text: &str, out: &mut Within) -> Option<()> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if in_string {
            out.push(letter)?;
            match letter {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match letter {
            '{' | '[' => {
                out.push(letter)?;
                while letters.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = letters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end)?;
                } else {
                    depth += 1;
                    out.line(depth)?;
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                out.line(depth)?;
                out.push(letter)?;
            }
            ',' => {
                out.push(letter)?;
                out.line(depth)?;
            }
            ':' => {
                out.push(letter)?;
                out.push(' ')?;
            }
            '"' => {
                in_string = true;
                out.push(letter)?;
            }
            _ if letter.is_ascii_whitespace() => {}
            _ => out.push(letter)?,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_indented_and_nothing_in_it_changes() {
        let text = r#"{"a":[1,{}, [ ]],"b":"x: \"{,","n":123456789012345678901234567890.10}"#;
        let told = "{\n  \"a\": [\n    1,\n    {},\n    []\n  ],\n  \"b\": \"x: \\\"{,\",\n  \"n\": 123456789012345678901234567890.10\n}";
        assert_eq!(pretty(text, 1024), Pretty::Whole(told.to_owned()));
        assert_eq!(pretty(text, told.len()), Pretty::Whole(told.to_owned()));
        assert_eq!(pretty(text, 11), Pretty::Cut(told[..11].to_owned()));
        assert_eq!(pretty("null", 4), Pretty::Whole("null".to_owned()));
        assert_eq!(gist(r#"{"claim":{"a":"x"},"question":"Pay back?"}"#, 80), "Pay back?");
        assert_eq!(
            [gist("\"Yes?\"", 80), gist("[1,2]", 80), gist(r#"{"a":" "}"#, 80)],
            ["Yes?", "[1,2]", r#"{"a":" "}"#]
        );
        assert_eq!([short("héllo", 3), short("hé", 3)], ["hél…", "hé"]);
    }

    #[test]
    fn what_is_written_of_a_document_ends_at_the_cut_however_deep_it_is() {
        let deep = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
        let wide = format!("{}{}{}", "[".repeat(60), vec!["1"; 500_000].join(","), "]".repeat(60));
        for text in [&deep, &wide] {
            let Pretty::Cut(shown) = pretty(text, 1000) else { panic!("it does not fit") };
            assert!((997..=1000).contains(&shown.len()) && shown.capacity() <= 1000);
        }
        assert_eq!(to_edit(&deep), deep, "what is to be edited is whole");
        let cut = pretty("\"ééé\"", 4);
        assert_eq!(cut, Pretty::Cut("\"é".to_owned()), "no letter is cut in two");
    }

    #[test]
    fn a_long_question_is_not_read_to_be_listed() {
        let long = format!(r#"{{"blob":"{}","question":"Pay?"}}"#, "x".repeat(READ_BYTES_MAX));
        assert!(gist(&long, 20).starts_with(r#"{"blob":"xxx"#));
    }
}
