//! The `what if` page: what an instance would do if something happened to it. It changes nothing.

use dormouse::{Client, Foresight, Happening, Instance, Json, Look, NewSignal, Status};
use maud::{Markup, html};

use super::Answered;
use super::layout::Shell;
use super::visit::Visit;
use super::{form, json, parts};
use crate::problem::Problem;

/// A link to the page, if there is something to show.
pub(super) fn link(s: &Shell, client: &Client, instance: &Instance) -> Markup {
    // Looking ahead runs parts of the machine's code.
    let code = client.registry().get(&instance.machine, instance.version);
    let is_told = code.is_some_and(|code| code.graph().is_some()) && !instance.status.is_terminal();
    html! {
        @if is_told { a.button href=(s.at(&format!("/instances/{}/what-if", instance.id))) { "What if…" } }
    }
}

pub(super) async fn show(visit: Visit) -> Answered {
    let instance = visit.instance().await?;
    let asked = asked(&visit, &instance).await?;
    let foresight = match asked {
        Some(happening) => Some(visit.client.what_if(instance.id, happening).await?),
        None => None,
    };
    let questions = questions(&visit, &instance).await?;
    let s = &visit.shell;
    let here = format!("/instances/{}", instance.id);
    visit.page(&format!("What if: {}", parts::name(&instance)), &html! {
        p.crumbs { a href=(s.at("/instances")) { "Instances" } " / " (parts::link(s, &instance)) }
        h1 { "What would it do?" }
        p { "It is at " code { (instance.step) } ", " (parts::status(instance.status)) ". This runs no act and changes nothing: each act is replaced by its declared result." }
        form.card #what-if method="get" action=(s.at(&format!("{here}/what-if"))) {
            (questions)
            div.buttons { button.primary type="submit" { "Show" } a href=(s.at(&here)) { "Back" } }
        }
        @if let Some(foresight) = &foresight { (ways(foresight)) }
    })
}

/// What may happen to the instance in its current status.
fn possible(instance: &Instance) -> Vec<(&'static str, String)> {
    let mut possible = Vec::new();
    possible.push(("signal", "a signal arrives".to_owned()));
    let waits = [Status::AwaitingSignal, Status::AwaitingChildren, Status::AwaitingCompletion];
    if instance.wake_at.is_some() && waits.contains(&instance.status) {
        possible.push(("deadline", "the deadline passes".to_owned()));
    }
    match instance.status {
        Status::Scheduled => possible.push(("clock", "its sleep is over".to_owned())),
        Status::AwaitingChildren => possible.push(("children", "its children end".to_owned())),
        Status::AwaitingCompletion => possible.push(("answers", "its questions are answered".to_owned())),
        _ => {}
    }
    possible
}

async fn questions(visit: &Visit, instance: &Instance) -> Result<Markup, Problem> {
    let asked = visit.query.get("happening").unwrap_or("signal");
    let signal =
        visit.query.get("signal").or(instance.awaits.first().map(String::as_str)).unwrap_or_default();
    let form = form::of_signal(&visit.client, instance, signal).await?;
    let payload = visit.query.text("payload").or_else(|| form.as_ref().map(form::sample));
    Ok(html! {
        fieldset.flag {
            legend { "What happens" }
            @for (word, told) in possible(instance) {
                label.check { input type="radio" name="happening" value=(word) checked[word == asked]; (told) }
            }
        }
        label for="what-if-signal" { "The signal" }
        input #what-if-signal name="signal" value=(signal) list="awaited" spellcheck="false";
        datalist #awaited { @for name in &instance.awaits { option value=(name) {} } }
        label for="what-if-payload" { "Its payload, as JSON" }
        textarea #what-if-payload name="payload" rows="3" spellcheck="false" { (payload.unwrap_or_default()) }
    })
}

/// The event in the address, if any.
async fn asked(visit: &Visit, instance: &Instance) -> Result<Option<Happening>, Problem> {
    Ok(Some(match visit.query.get("happening") {
        None => return Ok(None),
        Some("signal") => {
            let name = visit.query.text("signal");
            let name =
                name.ok_or_else(|| Problem::invalid("the signal has no name: write which signal arrives"))?;
            let form = form::of_signal(&visit.client, instance, &name).await?;
            let payload = form::read(&visit.query, form.as_ref(), "payload")?;
            Happening::Signal(NewSignal::new(name, payload.unwrap_or_else(Json::null)))
        }
        Some("deadline") => Happening::Deadline,
        Some("clock") => Happening::Clock,
        Some("children") => Happening::Children,
        Some("answers") => Happening::Answers,
        Some(_) => {
            return Err(Problem::invalid("`happening` must be signal, deadline, clock, children or answers"));
        }
    }))
}

fn ways(foresight: &Foresight) -> Markup {
    let count = foresight.ways.len();
    html! {
        section.card #ways aria-live="polite" {
            h2 { @if count == 1 { "It goes one way" } @else { "It may go " (count) " ways" } @if !foresight.is_complete { ", and more than these" } }
            @for (index, way) in foresight.ways.iter().enumerate() {
                h3 { "Way " (index + 1) }
                ol.way { @for look in way { (step(look)) } }
            }
        }
    }
}

fn step(look: &Look) -> Markup {
    html! {
        li data-status=(look.status.as_str()) {
            code { (look.step) } ": " (look.what) " " (parts::status(look.status))
            @if let Some(state) = &look.state {
                details { summary { "State after it" } (json::show(state.as_str())) }
            }
        }
    }
}
