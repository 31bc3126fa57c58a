//! The OpenAPI document, generated from the table of routes and the handlers' own types.

mod names;
mod portable;

use std::collections::BTreeSet;

use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use self::names::{operation_id, tag};
use self::portable::portable;
use crate::api;
use crate::problem::{Cause, MEMBERS, TYPE_PREFIX};
use crate::route::{Described, Needs, Route, Schemas};

/// The document, of OpenAPI 3.1.
pub(crate) fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = Schemas {
        incoming: settings.clone().for_deserialize().into_generator(),
        outgoing: settings.for_serialize().into_generator(),
    };
    let (mut paths, mut tags) = (Map::new(), BTreeSet::new());
    for route in api::table() {
        tags.insert(tag(&route));
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(&route, &mut schemas);
    }
    let mut components = schemas.incoming.take_definitions(true);
    for (name, mut schema) in schemas.outgoing.take_definitions(true) {
        match components.get(&name) {
            Some(other) => {
                assert_eq!(*other, schema, "{name} is not the same both ways: give it two names");
            }
            None => {
                absent_instead_of_null(&mut schema);
                components.insert(name, schema);
            }
        }
    }
    components.values_mut().for_each(portable);
    components.insert("Problem".to_owned(), problem_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "dormouse", "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable state machines that sleep until something happens.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        // Relative to this document, so that it works under any prefix.
        "servers": [{ "url": "." }],
        "tags": tags.into_iter().map(|name| json!({ "name": name })).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": { "api_key": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let Described { query, body, answer, media } = (route.describe)(schemas);
    let mut parameters: Vec<Value> = path_names(route.path).map(path_parameter).collect();
    parameters.extend(query_parameters(&query));
    if route.is_repeatable {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
            "description": "Makes retries safe: a request that is sent again with the same key within a day is not done again.",
        }));
    }
    let mut operation = json!({
        "operationId": operation_id(route), "tags": [tag(route)], "summary": route.summary, "parameters": parameters,
        "responses": responses(route, media, answer),
    });
    if let Some(body) = body {
        operation["requestBody"] = json!({
            "required": has_required(&body, schemas), "content": { "application/json": { "schema": body } },
        });
    }
    if let Needs::Scope(scope) = route.needs {
        operation["security"] = json!([{ "api_key": [] }, {}]);
        operation["x-dormouse-scope"] = json!(scope.as_str());
        operation["description"] =
            json!(format!("Requires an API key of scope `{scope}` if the server requires API keys."));
    }
    if route.needs == Needs::Token {
        operation["security"] = json!([]);
        operation["description"] =
            json!("Requires no API key: the token in the path gives the right to answer.");
    }
    operation
}

/// Whether the body has a required field; if not, the body may be omitted.
fn has_required(body: &Schema, schemas: &Schemas) -> bool {
    let name = body.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let body = name.and_then(|name| schemas.incoming.definitions().get(name)).unwrap_or(body.as_value());
    body["required"].as_array().is_some_and(|required| !required.is_empty())
}

fn responses(route: &Route, media: &str, answer: Option<Schema>) -> Value {
    let content = match answer {
        Some(schema) => {
            let mut schema = schema.to_value();
            portable(&mut schema);
            json!({ media: { "schema": schema } })
        }
        None => json!({ media: {} }),
    };
    let mut responses = json!({
        "default": {
            "description": "A problem document (RFC 9457).",
            "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
        },
    });
    let done = [("200", "Done."), ("201", "Made."), ("202", "Not yet.")];
    for (status, description) in done.into_iter().filter(|(status, _)| answers(route, status)) {
        responses[status] = json!({ "description": description, "content": content });
    }
    responses
}

/// The success statuses of a route.
fn answers(route: &Route, status: &str) -> bool {
    let makes = ["instance.start", "instance.fork", "api_key.create", "schedule.create"].map(Some);
    match status {
        "201" => makes.contains(&route.audit),
        "202" => route.path.ends_with("/result") || route.path.ends_with("/settled"),
        _ => !matches!(route.audit, Some("instance.fork" | "api_key.create" | "schedule.create")),
    }
}

fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn path_parameter(name: &str) -> Value {
    let (schema, told) = match name {
        "instance" => (
            json!({ "type": "string", "pattern": "^(-?[0-9]{1,18}|key:.+)$" }),
            "Its id, or `key:` followed by its key.",
        ),
        "interaction" => (
            json!({ "type": "string", "pattern": "^(-?[0-9]{1,18}|correlation:.+)$" }),
            "Its id, or `correlation:` followed by its correlation id.",
        ),
        "signal" => (
            json!({ "type": "string", "pattern": "^-?[0-9]{1,18}$" }),
            "The signal's id, as the inbox shows it.",
        ),
        "kept" => (
            json!({ "type": "string", "pattern": "^-?[0-9]{1,18}$" }),
            "The kept signal's id, as the list shows it.",
        ),
        "queue" => (json!({ "type": "string", "minLength": 1, "maxLength": 255 }), "The queue's name."),
        "limit" => (
            json!({ "type": "string", "minLength": 1, "maxLength": 255 }),
            "The limit's name: a lane or a family. A `/` in it is `%2F` in the path.",
        ),
        "transport" => (
            json!({ "type": "string", "minLength": 1, "maxLength": 255 }),
            "The transport's name. A `/` in it is `%2F` in the path.",
        ),
        "share" => (
            json!({ "type": "string", "minLength": 1, "maxLength": 255 }),
            "The share's name; the namespace's own share has the name of the namespace.",
        ),
        "machine" => (json!({ "type": "string", "minLength": 1, "maxLength": 255 }), "The machine's name."),
        "schedule" => (json!({ "type": "string", "minLength": 1, "maxLength": 200 }), "The schedule's name."),
        "api_key" => (json!({ "type": "string" }), "The public part of the key."),
        "token" => {
            (json!({ "type": "string", "minLength": 1 }), "The signed token that came with the request.")
        }
        _ => unreachable!("a part of a path that is not described: {name}"),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema, "description": told })
}

/// Each field of a query is a parameter of its own.
fn query_parameters(query: &Schema) -> Vec<Value> {
    let Some(fields) = query.get("properties").and_then(Value::as_object) else { return Vec::new() };
    fields
        .iter()
        .map(|(name, schema)| {
            let mut schema = schema.clone();
            let told = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            without_null(&mut schema);
            portable(&mut schema);
            let mut parameter = json!({ "name": name, "in": "query", "schema": schema });
            if let Some(told) = told {
                parameter["description"] = told;
            }
            parameter
        })
        .collect()
}

/// A field of a response that may be missing is left out when it has no value, and never null.
fn absent_instead_of_null(schema: &mut Value) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let optional = fields.iter_mut().filter(|(name, _)| !required.iter().any(|field| field == *name));
    optional.for_each(|(_, field)| without_null(field));
}

/// A parameter is absent or has a value; a query has no null.
fn without_null(schema: &mut Value) {
    if let Some(types) = schema.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|name| name != "null");
    }
    if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        choices.retain(|choice| choice["type"] != "null");
    }
}

fn problem_schema() -> Value {
    let types: Vec<_> = Cause::ALL.iter().map(|cause| format!("{TYPE_PREFIX}{}", cause.word())).collect();
    let mut schema = json!({
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string", "enum": types, "description": "The cause. It is stable: programs can compare it." },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string", "description": "What is wrong with this request, and what to do." },
        },
    });
    for member in MEMBERS {
        let mut described = json!({ "type": member.json_type, "description": member.description });
        if member.json_type == "array" {
            described["items"] = json!({ "type": "string" });
        }
        schema["properties"][member.name] = described;
    }
    schema
}
