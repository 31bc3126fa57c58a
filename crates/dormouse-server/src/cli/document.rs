//! JSON documents on the command line: they are sent as they were written.

use std::collections::BTreeMap;

use dormouse::Json;

use super::Failure;

/// JSON from an argument: the text itself, `@file`, or `-` for standard input.
pub(in crate::cli) fn json_argument(name: &str, text: &str) -> Result<Json, Failure> {
    let read = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}")),
        None if text == "-" => std::io::read_to_string(std::io::stdin()).map_err(|error| error.to_string()),
        None => Ok(text.to_owned()),
    };
    let text = read.map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{name} is not JSON: {error}")))
}

/// A body that contains a document exactly as it was written: numbers keep their digits, and the server decides whether
/// the document can be stored.
pub(crate) fn with_document(
    members: serde_json::Value,
    name: &str,
    document: Option<Json>,
) -> BTreeMap<String, Json> {
    let members = members.as_object().cloned().unwrap_or_default();
    let members = members.into_iter().map(|(name, value)| (name, Json::from(value)));
    members.chain(document.map(|document| (name.to_owned(), document))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_sent_as_it_was_written() {
        for written in [r#"{"b":123456789012345678901234567890,"a":1.10}"#, "1e400", r#""\ud800""#] {
            let document = json_argument("--state", written).expect("JSON");
            let body = with_document(serde_json::json!({ "machine": "m" }), "state", Some(document));
            let sent = serde_json::to_string(&body).expect("a body");
            assert_eq!(sent, format!(r#"{{"machine":"m","state":{written}}}"#));
        }
    }
}
