//! Starting an instance from a form.

use std::collections::BTreeSet;

use dormouse::outline::Outline;
use dormouse::{Declaration, Json};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Answered;
use super::layout::Shell;
use super::visit::Visit;
use super::{form, parts};
use crate::problem::Problem;
use crate::sight::Sight;

/// How deep an example of a state goes.
const EXAMPLE_DEPTH_MAX: usize = 4;

pub(super) async fn show(visit: Visit) -> Answered {
    let sight = Sight::of(&visit.caller, &visit.client).await?;
    let declared = visit.client.declarations().await?;
    let declared: Vec<_> = declared.into_iter().filter(|declared| sight.sees(&declared.name)).collect();
    let names: BTreeSet<&str> = declared.iter().map(|declared| declared.name.as_str()).collect();
    let s = &visit.shell;
    let chosen = visit.query.get("machine").map(|name| {
        let newest = declared.iter().filter(|declared| declared.name == name).max_by_key(|one| one.version);
        newest.ok_or_else(|| Problem::invalid(format!("no worker has declared a machine {name:?}")))
    });
    let chosen = chosen.transpose()?;
    visit.page("Start", &html! {
        h1 { "Start an instance" }
        @if names.is_empty() {
            section.card { (parts::empty("No machine is known.", &html! { "A machine can be started once a worker has declared it." })) }
        } @else {
            form.card #choose-machine method="get" action=(s.at("/start")) {
                label for="start-machine" { "Machine" }
                select.choice #start-machine name="machine" {
                    @for name in names { option value=(name) selected[chosen.is_some_and(|chosen| chosen.name == name)] { (name) } }
                }
                div.buttons { button type="submit" { "Choose" } }
            }
            @if let Some(chosen) = chosen { (fields(s, chosen, visit.query.get("step"))) }
        }
    })
}

fn fields(s: &Shell, declared: &Declaration, step: Option<&str>) -> Markup {
    let first = step.or(declared.steps.first().map(String::as_str)).unwrap_or_default();
    let example = declared.state(first).map(|outline| example(outline, 0)).unwrap_or_default();
    let example = serde_json::to_string_pretty(&example).unwrap_or_default();
    html! {
        form.card #start method="post" action=(s.at("/start")) {
            (s.token())
            input type="hidden" name="machine" value=(declared.name);
            h2 { (declared.name) " v" (declared.version) }
            label for="start-step" { "Step" }
            select.choice #start-step name="step" {
                @for step in &declared.steps { option value=(step) selected[step == first] { (step) } }
            }
            label for="start-state" { "State, as JSON" }
            textarea #start-state name="state" rows="10" spellcheck="false" { (example) }
            label for="start-key" { "Key " span.muted { "(none unless you write one)" } }
            input #start-key name="key" spellcheck="false";
            label for="start-queue" { "Queue" }
            input #start-queue name="queue" placeholder=(declared.queue) spellcheck="false";
            div.buttons { button.primary type="submit" { "Start" } a href=(s.at("/instances")) { "Back" } }
        }
    }
}

/// A document that has the members of an outline, to be filled in.
fn example(outline: &Outline, depth: usize) -> Value {
    match outline {
        Outline::Flag => Value::Bool(false),
        Outline::Whole { .. } | Outline::Number => Value::from(0),
        Outline::Char | Outline::Text => Value::from(""),
        Outline::List(_) | Outline::Tuple(_) => Value::Array(Vec::new()),
        Outline::Object { members, .. } if depth < EXAMPLE_DEPTH_MAX => {
            let required = members.iter().filter(|member| member.required);
            let member = |member: &dormouse::outline::Member| {
                (member.name.clone(), example(&member.outline, depth + 1))
            };
            Value::Object(required.map(member).collect::<Map<_, _>>())
        }
        _ => Value::Null,
    }
}

/// The body of a start request to the API.
#[derive(Serialize)]
struct StartBody {
    machine: Option<String>,
    step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Json>,
    key: Option<String>,
    queue: Option<String>,
}

pub(super) async fn start(visit: Visit) -> Answered {
    let body = StartBody {
        machine: visit.form.text("machine"),
        step: visit.form.text("step"),
        state: form::read(&visit.form, None, "state")?,
        key: visit.form.text("key"),
        queue: visit.form.text("queue"),
    };
    let told = visit.act_on("/v1/instances", &[], &body).await?;
    visit.go(&format!("/instances/{}?notice=started", told["id"].as_i64().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_has_what_a_state_needs() {
        #[derive(Serialize, serde::Deserialize)]
        struct Order {
            number: u64,
            customer: String,
            lines: Vec<u64>,
            note: Option<String>,
        }
        let example = example(&Outline::of::<Order>(), 0);
        assert_eq!(example, serde_json::json!({ "number": 0, "customer": "", "lines": [] }));
    }
}
