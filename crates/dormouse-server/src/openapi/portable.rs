//! Schemas in the form that generators of clients understand. schemars writes valid JSON Schema, but generators differ in
//! how much of it they support.

use serde_json::{Map, Value};

/// Rewrites a schema and every schema in it:
///
/// - a schema that allows anything is `{}`, not `true`;
/// - a `default` becomes a part of the description, because a generator takes a field with a default for one that is always
///   there;
/// - the formats of unsigned integers, which only schemars knows, become `int64`;
/// - a list with one type, or with one choice, becomes that type or choice;
/// - a choice between words becomes an `enum`, with what each means in its description.
pub(super) fn portable(schema: &mut Value) {
    if *schema == Value::Bool(true) {
        *schema = Value::Object(Map::new());
    }
    let Value::Object(members) = schema else { return };
    describe_default(members);
    if members.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        members.insert("format".to_owned(), "int64".into());
    }
    for name in ["properties", "patternProperties", "$defs"] {
        if let Some(Value::Object(schemas)) = members.get_mut(name) {
            schemas.values_mut().for_each(portable);
        }
    }
    for name in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        if let Some(Value::Array(schemas)) = members.get_mut(name) {
            schemas.iter_mut().for_each(portable);
        }
    }
    if let Some(items) = members.get_mut("items") {
        portable(items);
    }
    // `additionalProperties: false` closes an object; generators know both booleans here.
    if let Some(others @ Value::Object(_)) = members.get_mut("additionalProperties") {
        portable(others);
    }
    unwrap_single(members);
    name_words(members);
}

/// schemars writes the words of an enum as constants if one of them is described, and mixes both forms.
fn name_words(members: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = members.get("oneOf") else { return };
    let mut words: Vec<Value> = Vec::new();
    let mut described =
        members.get("description").and_then(Value::as_str).map(str::to_owned).into_iter().collect::<Vec<_>>();
    for choice in choices {
        match (choice.get("const"), choice.get("enum").and_then(Value::as_array)) {
            (Some(Value::String(word)), _) => {
                let meaning = choice.get("description").and_then(Value::as_str);
                described.extend(meaning.map(|meaning| format!("`{word}`: {meaning}")));
                words.push(word.clone().into());
            }
            (None, Some(several)) if several.iter().all(Value::is_string) => {
                words.extend(several.iter().cloned());
            }
            _ => return,
        }
    }
    members.remove("oneOf");
    members.insert("type".to_owned(), "string".into());
    members.insert("enum".to_owned(), words.into());
    if !described.is_empty() {
        members.insert("description".to_owned(), described.join("\n").into());
    }
}

/// Says the default in words, unless it is the empty value that every reader expects.
fn describe_default(members: &mut Map<String, Value>) {
    let Some(default) = members.remove("default") else { return };
    let is_empty = match &default {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if is_empty {
        return;
    }
    let before = members.get("description").and_then(Value::as_str).unwrap_or_default();
    let described = format!("{before} By default {default}.").trim_start().to_owned();
    members.insert("description".to_owned(), described.into());
}

fn unwrap_single(members: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = members.get_mut("type")
        && types.len() == 1
    {
        let only = types.remove(0);
        members.insert("type".to_owned(), only);
    }
    if let Some(Value::Array(choices)) = members.get_mut("anyOf")
        && choices.len() == 1
        && let Value::Object(only) = choices.remove(0)
    {
        members.remove("anyOf");
        members.extend(only);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_generators_trip_over_is_written_in_another_way() {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "state": true,
                "priority": { "type": "integer", "format": "int32", "default": 0, "description": "Lower runs earlier." },
                "tags": { "type": "array", "items": { "type": ["string"] }, "default": [] },
                "seq": { "type": ["integer", "null"], "format": "uint64" },
                "scope": { "anyOf": [{ "$ref": "#/components/schemas/Scope" }] },
                "word": { "oneOf": [{ "const": "new", "type": "string", "description": "It is new." },
                    { "enum": ["old", "gone"], "type": "string" }] },
            },
            "additionalProperties": false,
        });
        portable(&mut schema);
        let expected = json!({
            "type": "object",
            "properties": {
                "state": {},
                "priority": { "type": "integer", "format": "int32", "description": "Lower runs earlier. By default 0." },
                "tags": { "type": "array", "items": { "type": "string" } },
                "seq": { "type": ["integer", "null"], "format": "int64" },
                "scope": { "$ref": "#/components/schemas/Scope" },
                "word": { "type": "string", "enum": ["new", "old", "gone"], "description": "`new`: It is new." },
            },
            "additionalProperties": false,
        });
        assert_eq!(schema, expected);
    }
}
