//! Filling an occurrence into the state of what it starts.

use super::Occurrence;
use crate::Json;

/// The state with `{{scheduled_at}}`, `{{schedule}}` and `{{number}}` in its texts replaced.
///
/// Two braces beside each other are in a text wherever they are in JSON, so that its text can be replaced as it is.
pub(super) fn filled(state: &Json, occurrence: &Occurrence) -> Json {
    let text = state.as_str();
    if !text.contains("{{") {
        return state.clone();
    }
    let name = serde_json::Value::from(&*occurrence.schedule).to_string();
    let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or_default();
    let text = text
        .replace("{{scheduled_at}}", &occurrence.scheduled_at.to_string())
        .replace("{{number}}", &occurrence.number.to_string())
        .replace("{{schedule}}", name);
    // Only texts in it were replaced, by texts without anything to escape.
    Json::parse("state", text).unwrap_or_else(|_| state.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_occurrence_is_filled_into_texts() {
        let occurrence = Occurrence {
            schedule: "a \"daily\" \\ one".to_owned(),
            scheduled_at: "2030-01-01T03:00:00Z".parse().expect("a moment"),
            number: 7,
            is_manual: false,
        };
        let of = |state: serde_json::Value| filled(&Json::from(state), &occurrence);
        let state = serde_json::json!({
            "day": "{{scheduled_at}}", "of": "{{schedule}}, no. {{number}}", "kept": [1.50, {"x": {}}], "{{other}}": null,
        });
        let expected = serde_json::json!({
            "day": "2030-01-01T03:00:00Z", "of": "a \"daily\" \\ one, no. 7", "kept": [1.50, {"x": {}}], "{{other}}": null,
        });
        assert_eq!(of(state), Json::from(expected));
        assert_eq!(of(serde_json::json!("plain")), Json::from(serde_json::json!("plain")));
    }
}
