//! Cursors: where a list continues. They are opaque to callers, so that their content can change.

use dormouse::InstanceId;
use dormouse::jiff::Timestamp;
use dormouse::store::Page;

use crate::problem::{Cause, Problem};

/// Which list a cursor belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    Instances = 1,
    History = 2,
    Inbox = 3,
    Audit = 4,
    Interactions = 5,
    Kept = 6,
}

pub(crate) fn encode(list: List, position: i64) -> String {
    let mut text = format!("{:02x}{position:016x}", list as u8);
    text.push_str(&format!("{:02x}", check(text.as_bytes())));
    text
}

pub(crate) fn decode(list: List, cursor: &str) -> Result<i64, Problem> {
    read(list, cursor).ok_or_else(refused)
}

/// Where a list of instances continues: after which one, and the moment that its order goes by, if it is not in the order
/// of ids.
pub(crate) type After = (Option<InstanceId>, Option<Timestamp>);

/// The cursor of the page after this one.
pub(crate) fn next(page: &Page) -> Option<String> {
    let id = page.next?;
    let Some(at) = page.next_at else { return Some(encode(List::Instances, id.0)) };
    let mut text = format!("{:02x}{:016x}{:016x}", List::Instances as u8, id.0, at.as_microsecond());
    text.push_str(&format!("{:02x}", check(text.as_bytes())));
    Some(text)
}

pub(crate) fn after(cursor: Option<&str>) -> Result<After, Problem> {
    let Some(cursor) = cursor else { return Ok((None, None)) };
    // With a moment it is sixteen digits longer, and without those it is as any other.
    let (Some(first), Some(rest)) = (cursor.get(..18), cursor.get(18..)) else { return Err(refused()) };
    let (at, sum) = rest.split_at_checked(16).unwrap_or(("", rest));
    if at.is_empty() {
        return Ok((Some(InstanceId(decode(List::Instances, cursor)?)), None));
    }
    let is_ours = u8::from_str_radix(sum, 16) == Ok(check(format!("{first}{at}").as_bytes()));
    let moment =
        u64::from_str_radix(at, 16).ok().and_then(|us| Timestamp::from_microsecond(us.cast_signed()).ok());
    let id = decode(List::Instances, &format!("{first}{:02x}", check(first.as_bytes())))?;
    match moment.filter(|_| is_ours) {
        Some(moment) => Ok((Some(InstanceId(id)), Some(moment))),
        None => Err(refused()),
    }
}

fn refused() -> Problem {
    Problem::new(
        Cause::InvalidCursor,
        "the cursor is not from this list: pass the `next` of the previous page unchanged, to the same list",
    )
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
    fn a_cursor_of_instances_keeps_the_moment_that_their_order_goes_by() {
        let moment = "2030-01-01T00:00:00.000007Z".parse().expect("a moment");
        for next_at in [None, Some(moment)] {
            let page = Page { instances: Vec::new(), next: Some(InstanceId(7)), next_at, looked: None };
            let cursor = next(&page).expect("there is more");
            assert_eq!(after(Some(&cursor)).ok(), Some((Some(InstanceId(7)), next_at)));
            let mut changed = cursor.clone();
            changed.replace_range(10..11, "9");
            for other in [&changed, &cursor[1..], &format!("{cursor}0"), &encode(List::Inbox, 7)] {
                assert!(after(Some(other)).is_err(), "{other}");
            }
        }
        assert_eq!(next(&Page::default()), None);
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
