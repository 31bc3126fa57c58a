//! The names of operations, which become the names of functions and modules in generated clients.

use crate::route::Route;

/// The name of an operation: what it does, and to what. A route that changes something has both in its name in the audit log
/// (`instance.start` is `start_instance`). For a route that reads, they are the first word of its summary, and its path.
pub(super) fn operation_id(route: &Route) -> String {
    let Some(audit) = route.audit else {
        let verb = route.summary.split_whitespace().next().unwrap_or("get").to_lowercase();
        let mut nouns = nouns(route.path);
        // `/explain` is the verb, not a thing.
        nouns.retain(|noun| *noun != verb);
        return format!("{verb}_{}", nouns.join("_"));
    };
    match audit.split_once('.') {
        None => audit.to_owned(),
        Some((noun, verb)) => match verb.strip_suffix("_batch") {
            Some(verb) => format!("{verb}_{noun}_batch"),
            None => format!("{verb}_{noun}"),
        },
    }
}

/// What a path names: `/v1/instances/{instance}/history` is `instance`, `history`.
fn nouns(path: &str) -> Vec<String> {
    let parts: Vec<_> = parts(path).collect();
    let is_parameter = |part: Option<&&str>| part.is_some_and(|part| part.starts_with('{'));
    let named = parts.iter().enumerate().filter(|(at, _)| !is_parameter(parts.get(at + 1)));
    named.map(|(_, part)| part.trim_matches(['{', '}']).replace(['-', '.'], "_")).collect()
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != "v1")
}

/// The group that an operation is listed in.
pub(super) fn tag(route: &Route) -> &'static str {
    let first = parts(route.path).next().unwrap_or_default();
    match first {
        "signals" | "waiting" => "instances",
        "resume" => "interactions",
        "api-keys" | "audit" | "gc" => "administration",
        "about" | "stats" | "events" => "server",
        other if route.path.starts_with("/v1/") => other,
        _ => "server",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;

    #[test]
    fn every_operation_has_a_name_of_plain_words_that_no_other_has() {
        let mut names = std::collections::BTreeSet::new();
        for route in api::table() {
            let name = operation_id(&route);
            let is_plain = name
                .split('_')
                .all(|word| !word.is_empty() && word.chars().all(|character| character.is_ascii_lowercase()));
            assert!(is_plain, "{name} of {} {}", route.method, route.path);
            assert!(names.insert(name.clone()), "{name} is there twice: {} {}", route.method, route.path);
        }
        for name in [
            "start_instance",
            "start_instance_batch",
            "get_instance",
            "list_instance_history",
            "explain_instance",
        ] {
            assert!(names.contains(name), "{name} is not in {names:?}");
        }
    }
}
