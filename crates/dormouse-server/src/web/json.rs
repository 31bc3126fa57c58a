//! Documents for people: indented, and cut where they are too long to read.

use maud::{Markup, html};
use serde_json::Value;

/// What is shown of a document; the API has the whole.
const SHOWN_BYTES_MAX: usize = 16 * 1024;

pub(super) fn show(text: &str) -> Markup {
    let mut shown = pretty(text);
    let is_cut = shown.len() > SHOWN_BYTES_MAX;
    if is_cut {
        let end = (0..=SHOWN_BYTES_MAX).rev().find(|end| shown.is_char_boundary(*end));
        shown.truncate(end.unwrap_or(0));
    }
    html! {
        pre.json tabindex="0" { code { (shown) } }
        @if is_cut { p.muted { "Cut after " (SHOWN_BYTES_MAX / 1024) " KiB. The API has the whole document." } }
    }
}

/// A document on one line, cut.
pub(super) fn short(text: &str, chars_max: usize) -> String {
    if text.chars().nth(chars_max).is_none() {
        return text.to_owned();
    }
    text.chars().take(chars_max).chain(['…']).collect()
}

/// What a document says first, for a list: its text, or the first text in it, before all else.
pub(super) fn gist(text: &str, chars_max: usize) -> String {
    let first = match serde_json::from_str::<Value>(text) {
        Ok(Value::String(text)) => Some(text),
        Ok(Value::Object(members)) => {
            let named = ["question", "title", "text", "subject"].iter().find_map(|name| members.get(*name));
            let said = named.into_iter().chain(members.values()).find_map(Value::as_str);
            said.map(str::to_owned)
        }
        _ => None,
    };
    short(first.as_deref().filter(|first| !first.trim().is_empty()).unwrap_or(text), chars_max)
}

/// Indents JSON as it stands: no number is read, so none is changed.
pub(super) fn pretty(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut letters = text.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(letter) = letters.next() {
        if in_string {
            out.push(letter);
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
                out.push(letter);
                while letters.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = letters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(letter);
            }
            ',' => {
                out.push(letter);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => {
                in_string = true;
                out.push(letter);
            }
            _ if letter.is_ascii_whitespace() => {}
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_indented_and_nothing_in_it_changes() {
        let text = r#"{"a":[1,{}, [ ]],"b":"x: \"{,","n":123456789012345678901234567890.10}"#;
        let told = "{\n  \"a\": [\n    1,\n    {},\n    []\n  ],\n  \"b\": \"x: \\\"{,\",\n  \"n\": 123456789012345678901234567890.10\n}";
        assert_eq!(pretty(text), told);
        assert_eq!(pretty("null"), "null");
        assert_eq!(gist(r#"{"claim":{"a":"x"},"question":"Pay back?"}"#, 80), "Pay back?");
        assert_eq!(
            [gist("\"Yes?\"", 80), gist("[1,2]", 80), gist(r#"{"a":" "}"#, 80)],
            ["Yes?", "[1,2]", r#"{"a":" "}"#]
        );
        assert_eq!([short("héllo", 3), short("hé", 3)], ["hél…", "hé"]);
    }
}
