//! Forms for documents: a field for each member of the type if the type is known, and JSON if it is not.

use dormouse::{Client, Field, Form, Instance, Interaction, Json};
use maud::{Markup, html};
use serde_json::Number;

use super::fields::Fields;
use super::json::short;
use super::visit::Visit;
use crate::problem::Problem;
use crate::sight::Sight;

/// The field that marks the others as fields of the type.
const TYPED: &str = "typed";

/// The form of a signal's payload, if the instance's machine declares it.
pub(super) async fn of_signal(
    client: &Client,
    instance: &Instance,
    signal: &str,
) -> Result<Option<Form>, Problem> {
    let declared = client.declaration(&instance.machine, instance.version).await?;
    Ok(declared.and_then(|declared| Some(declared.accepted(signal)?.form.clone())))
}

/// The form of a signal's payload, from any machine that declares it.
pub(super) async fn of_any_signal(visit: &Visit, signal: &str) -> Result<Option<Form>, Problem> {
    let sight = Sight::of(&visit.caller, &visit.client).await?;
    let declared = visit.client.declarations().await?;
    let mut seen = declared.iter().filter(|declared| sight.sees(&declared.name));
    Ok(seen.find_map(|declared| declared.accepted(signal)).map(|accepted| accepted.form.clone()))
}

/// The form of the answer that a step takes, if its machine declares it.
pub(super) async fn of_answer(client: &Client, asked: &Interaction) -> Result<Option<Form>, Problem> {
    let declared = client.declaration(&asked.machine, asked.version).await?;
    Ok(declared.and_then(|declared| Some(declared.taken(&asked.step)?.form.clone())))
}

/// The inputs for a document: by its type if that is known, with JSON as an alternative. On a page with several such
/// forms, `of` keeps their ids distinct.
pub(super) fn inputs(form: Option<&Form>, of: &str, name: &str, label: &str) -> Markup {
    let id = format!("{of}{name}");
    let as_json = |hint: &str| {
        html! {
            label for=(id) { (label) ", as JSON" }
            textarea id=(id) name=(name) rows="4" spellcheck="false" placeholder=(hint) {}
        }
    };
    match form {
        None | Some(Form::Any) => as_json("null"),
        Some(form) => html! {
            input type="hidden" name=(TYPED) value="yes";
            (input(form, of, name, label, false))
            details.aside { summary { "Write JSON instead" } (as_json(&sample(form))) }
        },
    }
}

fn input(form: &Form, of: &str, name: &str, label: &str, optional: bool) -> Markup {
    let id = format!("{of}{name}-field");
    let hint = optional.then_some("optional");
    let number = |step: &str| {
        html! { label for=(id) { (label) } input id=(id) name={(name) ".is"} type="number" step=(step) placeholder=[hint]; }
    };
    match form {
        Form::Flag => html! {
            fieldset.flag {
                legend { (label) }
                @for (value, word) in [("true", "yes"), ("false", "no")] {
                    label.check { input type="radio" name={(name) ".is"} value=(value); (word) }
                }
            }
        },
        Form::Whole => number("1"),
        Form::Number => number("any"),
        Form::Text => {
            html! { label for=(id) { (label) } input id=(id) name={(name) ".is"} placeholder=[hint]; }
        }
        Form::Choice(words) => html! {
            label for=(id) { (label) }
            select.choice id=(id) name={(name) ".is"} {
                @if optional { option value="" { "none" } }
                @for word in words { option value=(word) { (word) } }
            }
        },
        Form::Fields(fields) => html! {
            @for Field { name: member, form, optional, .. } in fields { (input(form, of, &format!("{name}.{member}"), member, *optional)) }
        },
        _ => html! {
            label for=(id) { (label) ", as JSON" }
            textarea id=(id) name={(name) ".is"} rows="2" spellcheck="false" placeholder=[hint] {}
        },
    }
}

/// The document from the form; `None` if it was left blank.
pub(super) fn read(sent: &Fields, form: Option<&Form>, name: &str) -> Result<Option<Json>, Problem> {
    let written = sent.get(name).map(str::to_owned);
    let text = match (written, form) {
        (Some(text), _) => Some(text),
        (None, Some(form)) if sent.get(TYPED).is_some() => value(sent, form, name, false)?,
        _ => None,
    };
    let read = |text: String| {
        let shown = short(&text, 60);
        let told = format!("`{name}` is not JSON: {shown} (text goes in quotes, like \"this\")");
        Json::parse("document", text).map_err(|_| Problem::invalid(told))
    };
    text.map(read).transpose()
}

/// A value as JSON; `None` if it was left out.
fn value(sent: &Fields, form: &Form, name: &str, optional: bool) -> Result<Option<String>, Problem> {
    let field = format!("{name}.is");
    let said = sent.get(&field);
    let text = |text: &str| serde_json::to_string(text).expect("text can be written");
    let short_name = name.split_once('.').map_or(name, |(_, name)| name);
    Ok(match (form, said) {
        (Form::Fields(fields), _) => {
            let mut members = Vec::new();
            for Field { name: member, form, optional, .. } in fields {
                if let Some(value) = value(sent, form, &format!("{name}.{member}"), *optional)? {
                    members.push(format!("{}:{value}", text(member)));
                }
            }
            // An optional object with no members counts as left out.
            (!optional || !members.is_empty()).then(|| format!("{{{}}}", members.join(",")))
        }
        (Form::Text, said) if !optional => Some(text(said.unwrap_or_default())),
        (Form::Flag | Form::Whole | Form::Number | Form::Choice(_), None) if !optional => {
            return Err(Problem::invalid(format!("`{short_name}` is missing: fill it in")));
        }
        (_, None) => None,
        (Form::Whole | Form::Number, Some(said)) => {
            let refuse = |_| Problem::invalid(format!("`{short_name}` is a number, not {}", short(said, 60)));
            Some(serde_json::from_str::<Number>(said).map(|_| said.to_owned()).map_err(refuse)?)
        }
        (Form::Flag, Some(said @ ("true" | "false"))) => Some(said.to_owned()),
        (Form::Text | Form::Choice(_) | Form::Flag, Some(said)) => Some(text(said)),
        (_, Some(said)) => Some(said.to_owned()),
    })
}

/// A sample document to start from.
pub(super) fn sample(form: &Form) -> String {
    match form {
        Form::Flag => "true".to_owned(),
        Form::Whole | Form::Number => "0".to_owned(),
        Form::Text => "\"\"".to_owned(),
        Form::Choice(words) => format!("{:?}", words.first().map_or("", String::as_str)),
        Form::Fields(fields) => {
            let needed = fields.iter().filter(|field| !field.optional);
            let members: Vec<_> =
                needed.map(|field| format!("{:?}: {}", field.name, sample(&field.form))).collect();
            format!("{{ {} }}", members.join(", "))
        }
        _ => "null".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Decision {
        approved: bool,
        cents: u64,
        note: Option<String>,
        by: Person,
    }

    #[derive(Deserialize)]
    struct Person {
        name: String,
    }

    #[test]
    fn what_is_filled_in_is_what_the_type_takes() {
        let form = Form::of::<Decision>();
        let read = |text: &str| read(&Fields::parse(text.as_bytes()), Some(&form), "output");
        let whole =
            "typed=yes&output.approved.is=true&output.cents.is=5&output.note.is=&output.by.name.is=Ada%22";
        let json = read(whole).expect("it is read").expect("a document");
        assert_eq!(json.as_str(), r#"{"approved":true,"cents":5,"by":{"name":"Ada\""}}"#);
        let decision: Decision = json.decode("decision").expect("it decodes");
        assert!(
            decision.approved
                && decision.cents == 5
                && decision.note.is_none()
                && decision.by.name == "Ada\""
        );
        let written = read("typed=yes&output=%5B1%5D&output.cents.is=x").expect("it is read");
        assert_eq!(written.expect("a document").as_str(), "[1]", "JSON goes before the fields");
        assert!(
            read("typed=yes&output.approved.is=true&output.cents.is=many")
                .is_err_and(|problem| problem.detail.contains("`cents` is a number"))
        );
        assert!(
            read("typed=yes&output.cents.is=5")
                .is_err_and(|problem| problem.detail.contains("`approved` is missing"))
        );
        assert!(read("output=yes").is_err_and(|problem| problem.detail.contains("text goes in quotes")));
        assert!(read("").expect("it is read").is_none());
        assert_eq!(sample(&form), r#"{ "approved": true, "cents": 0, "by": { "name": "" } }"#);
    }
}
