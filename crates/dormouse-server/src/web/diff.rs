//! What a transition changed in a state.

use serde_json::Value;

use super::json::READ_BYTES_MAX;

/// The most changes to list; a state that changes more than this is better read whole.
pub(super) const TOLD_MAX: usize = 12;

/// One change: where, from what, to what.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) path: String,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

/// The difference between two consecutive states.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changes {
    /// Up to one more than the page lists.
    Told(Vec<Change>),
    /// They differ, but are too long or too deep to compare for a page.
    Unread,
}

/// The changes from one state to the next. Long states are not parsed, because a page has many.
pub(super) fn changes(before: &str, after: &str) -> Changes {
    if before == after {
        return Changes::Told(Vec::new());
    }
    if before.len().max(after.len()) > READ_BYTES_MAX {
        return Changes::Unread;
    }
    let read = |text: &str| serde_json::from_str::<Value>(text);
    let (Ok(before), Ok(after)) = (read(before), read(after)) else { return Changes::Unread };
    let mut found = Vec::new();
    compare(String::new(), Some(&before), Some(&after), &mut found);
    Changes::Told(found)
}

fn compare(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    if before == after || found.len() > TOLD_MAX {
        return;
    }
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let new = after.keys().filter(|name| !before.contains_key(*name));
            for name in before.keys().chain(new) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare(path, before.get(name), after.get(name), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            for index in 0..before.len().max(after.len()) {
                compare(format!("{path}[{index}]"), before.get(index), after.get(index), found);
            }
        }
        _ => {
            let text = |value: Option<&Value>| value.map(ToString::to_string);
            found.push(Change { path, before: text(before), after: text(after) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_told_and_by_where_it_is() {
        let told = |before: &str, after: &str| -> Vec<String> {
            let line = |change: Change| {
                format!("{}: {:?} -> {:?}", change.path, change.before.as_deref(), change.after.as_deref())
            };
            match changes(before, after) {
                Changes::Told(changes) => changes.into_iter().map(line).collect(),
                Changes::Unread => vec!["unread".to_owned()],
            }
        };
        assert_eq!(
            told(r#"{"a":{"b":1,"c":2},"d":[1,2]}"#, r#"{"a":{"b":3,"c":2},"d":[1],"e":"x"}"#),
            [
                "a.b: Some(\"1\") -> Some(\"3\")",
                "d[1]: Some(\"2\") -> None",
                "e: None -> Some(\"\\\"x\\\"\")"
            ]
        );
        assert_eq!(told("1", "{}"), [": Some(\"1\") -> Some(\"{}\")"]);
        assert!(told(r#"{"a":1}"#, r#"{"a":1}"#).is_empty());
        let many: Vec<u32> = (0..1000).collect();
        assert_eq!(told("[]", &format!("{many:?}")).len(), TOLD_MAX + 1);
        let long = format!("\"{}\"", "x".repeat(READ_BYTES_MAX));
        assert_eq!(told(&long, "1"), ["unread"]);
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        assert_eq!(told("1", &deep), ["unread"]);
        assert!(told(&long, &long).is_empty());
    }
}
