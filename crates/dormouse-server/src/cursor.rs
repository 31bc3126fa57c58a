//! Cursors: where a list continues. They are opaque to callers, so that their content can change.

use crate::problem::{Cause, Problem};

/// Which list a cursor belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Instances = 1,
    History = 2,
    Inbox = 3,
    Audit = 4,
    Interactions = 5,
}

pub(crate) fn encode(list: List, position: i64) -> String {
    let mut text = format!("{:02x}{position:016x}", list as u8);
    text.push_str(&format!("{:02x}", check(text.as_bytes())));
    text
}

pub(crate) fn decode(list: List, cursor: &str) -> Result<i64, Problem> {
    read(list, cursor).ok_or_else(|| {
        Problem::new(
            Cause::InvalidCursor,
            "the cursor is not from this list: pass the \
            `next` of the previous page unchanged, to the same list",
        )
    })
}

fn read(list: List, cursor: &str) -> Option<i64> {
    let (text, sum) = cursor.is_ascii().then_some(cursor)?.split_at_checked(18)?;
    let is_hex = cursor.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_ours = is_hex && u8::from_str_radix(sum, 16) == Ok(check(text.as_bytes()));
    let is_of_list = u8::from_str_radix(text.get(..2)?, 16) == Ok(list as u8);
    let position = u64::from_str_radix(text.get(2..)?, 16).ok()?.cast_signed();
    (is_ours && is_of_list && position >= 0).then_some(position)
}

/// Detects a copying mistake. It is not a secret and protects nothing.
fn check(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0x5a, |sum, byte| sum.rotate_left(3) ^ byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went() {
        for position in [0, 1, 77, i64::MAX] {
            assert_eq!(decode(List::History, &encode(List::History, position)).ok(), Some(position));
        }
    }

    #[test]
    fn what_is_no_cursor_of_this_list_is_refused() {
        let other = encode(List::Inbox, 7);
        let mut changed = encode(List::History, 7);
        changed.replace_range(5..6, "9");
        for cursor in [
            "",
            "7",
            "zz",
            "\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}",
            &other,
            &changed,
            &"0".repeat(5000),
        ] {
            assert!(decode(List::History, cursor).is_err(), "{cursor}");
        }
    }
}
