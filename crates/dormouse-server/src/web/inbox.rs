//! The inbox for people: interactions to claim and answer.

use dormouse::jiff::Timestamp;
use dormouse::store::{InteractionFilter, Which};
use dormouse::{Form, Interaction, InteractionId};
use maud::{Markup, html};
use serde_json::json;

use super::Answered;
use super::fields::Fields;
use super::layout::Shell;
use super::parts::{self, time};
use super::visit::Visit;
use super::{form, json, overview};
use crate::cursor::{self, List};
use crate::problem::{Cause, Problem};

const ROWS: usize = 50;
/// How long a claim from the dashboard lasts.
const CLAIM_S: u32 = 900;

pub(super) async fn show(visit: Visit) -> Answered {
    let after =
        visit.query.get("cursor").map(|cursor| cursor::decode(List::Interactions, cursor)).transpose()?;
    let filter = InteractionFilter {
        machine: visit.query.text("machine"),
        assignee: visit.query.text("assignee"),
        group: visit.query.text("group"),
        after: after.map(InteractionId),
        ..overview::open_questions(ROWS)
    };
    let asked = visit.client.interactions(filter).await?;
    let (asked, has_more) = (asked.items, asked.more);
    let now = visit.client.store().about().await?.now;
    let s = &visit.shell;
    let next = asked.last().filter(|_| has_more).map(|last| cursor::encode(List::Interactions, last.id.0));
    let next = next.map(|next| {
        s.at(&format!("/inbox{}", visit.query.with(&[("notice", None), ("cursor", Some(&next))]).query()))
    });
    visit.page("Inbox", &html! {
        h1 { "Inbox" }
        p.muted { "Questions that instances ask people, oldest first. The first answer counts." }
        (filters(s, &visit.query))
        section.card #questions data-live {
            @if asked.is_empty() {
                (parts::empty("No questions.", &html! {
                    "A step asks a question with " code { "Outcome::dispatch(Unit::one(question), next)" }
                    ", sleeps, and wakes with the answer that you give here."
                }))
            } @else {
                @let count = if has_more { format!("{}+", asked.len()) } else { asked.len().to_string() };
                p.muted data-announce=(count) { (count) (if asked.len() == 1 { " question waits." } else { " questions wait." }) }
                (parts::table("Questions", &parts::columns(&["Question", "Asked by", "Asked of", "Since", "Until", "Claimed by"]), &html! {
                    @for one in &asked { (row(s, one, now)) }
                }))
            }
        }
        (parts::pager(after.map(|_| s.at("/inbox")), next))
    })
}

fn row(s: &Shell, one: &Interaction, now: Timestamp) -> Markup {
    html! {
        tr #{"question-" (one.id)} data-interaction=(one.id) data-instance=(one.instance) {
            th.wide scope="row" { a href=(s.at(&format!("/inbox/{}", one.id))) { (json::gist(one.request.as_str(), 120)) } }
            td { (parts::machine_link(s, &one.machine)) " " a href=(s.at(&format!("/instances/{}", one.instance))) { "#" (one.instance) } }
            td { @if let Some(whom) = asked_of(one) { (whom) } @else { span.muted { "anyone" } } }
            td { @if let Some(at) = one.opened_at { (time(at, now)) } }
            td { @if let Some(at) = one.deadline { (time(at, now)) } @else { span.muted { "—" } } }
            td { @if let Some(who) = holder(one, now) { (who) } @else { span.muted { "nobody" } } }
        }
    }
}

fn filters(s: &Shell, query: &Fields) -> Markup {
    html! {
        form.filters method="get" action=(s.at("/inbox")) role="search" aria-label="Filter questions" {
            (parts::filter(query, "machine", "Machine", "any"))
            (parts::filter(query, "assignee", "Asked of, or claimed by", "anyone"))
            (parts::filter(query, "group", "Asked of group", "any"))
            button type="submit" { "Filter" }
        }
    }
}

/// The person and the group that it is addressed to.
fn asked_of(one: &Interaction) -> Option<String> {
    let named: Vec<_> = [&one.for_assignee, &one.for_group].into_iter().flatten().cloned().collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// Who has claimed it now.
fn holder(one: &Interaction, now: Timestamp) -> Option<&str> {
    one.assignee.as_deref().filter(|_| one.assigned_until.is_some_and(|until| until > now))
}

pub(super) async fn one(visit: Visit) -> Answered {
    let one = interaction(&visit).await?;
    let now = visit.client.store().about().await?.now;
    let (s, id) = (&visit.shell, one.id);
    let holder = holder(&one, now);
    let is_mine = holder == Some(visit.caller.who.as_str());
    let is_free = holder.is_none() || is_mine;
    let form = form::of_answer(&visit.client, &one).await?;
    visit.page(&format!("Question {id}"), &html! {
        p.crumbs { a href=(s.at("/inbox")) { "Inbox" } " / " (parts::machine_link(s, &one.machine)) }
        article #question data-interaction=(id) data-status=(one.status.as_str()) {
            div #head data-live {
                h1 { (json::gist(one.request.as_str(), 200)) " " (parts::tagged(one.status.as_str())) }
                p.why data-announce={ (one.status.as_str()) " " (holder.unwrap_or_default()) } {
                    @if one.status.is_open() {
                        @match holder {
                            None => "It waits for an answer, and nobody has claimed it.",
                            Some(_) if is_mine => "You have claimed it.",
                            Some(who) => { (who) " has claimed it" @if let Some(at) = one.assigned_until { ", until " (time(at, now)) } "." },
                        }
                    } @else { "It is " (parts::words(one.status.as_str())) "." }
                }
                dl.facts {
                    @let asker = s.at(&format!("/instances/{}", one.instance));
                    div { dt { "Asked by" } dd { a href=(asker) { "#" (one.instance) } " (" (one.machine) ")" } }
                    div { dt { "Answer goes to" } dd { (one.step) } }
                    div { dt { "By" } dd { (one.transport) } }
                    @if let Some(whom) = asked_of(&one) { div { dt { "Asked of" } dd { (whom) } } }
                    @if let Some(at) = one.opened_at { div { dt { "Asked" } dd { (time(at, now)) } } }
                    @if let Some(at) = one.deadline { div { dt { "Deadline" } dd { (time(at, now)) } } }
                    @if let Some(at) = one.resolved_at { div { dt { "Resolved" } dd { (time(at, now)) } } }
                    @if let Some(who) = &one.answered_by { div { dt { "Answered by" } dd { (who) } } }
                    @if let Some(correlation) = &one.correlation_id { div { dt { "Correlation" } dd { (correlation) } } }
                }
            }
            section.card { h2 { "Question" } (json::show(one.request.as_str())) }
            div #answer data-live {
                @if one.status.is_open() && s.may_operate() && is_free {
                    (answer_forms(s, &one, is_mine, form.as_ref()))
                }
                @if let Some(output) = &one.output { section.card { h2 { "Answer" } (json::show(output.as_str())) } }
                @if let Some(error) = &one.error { section.card { h2 { "Reason for failure" } p.bad { (json::short(error, 2_000)) } } }
            }
        }
    })
}

fn answer_forms(s: &Shell, one: &Interaction, is_mine: bool, form: Option<&Form>) -> Markup {
    let here = format!("/inbox/{}", one.id);
    html! {
        div.columns {
            form.card #complete method="post" action=(s.at(&format!("{here}/complete"))) {
                h2 { "Answer" }
                (s.token())
                (form::inputs(form, "", "output", "Answer"))
                button.primary type="submit" { "Answer" }
            }
            div {
                form.card #claim method="post" action=(s.at(&format!("{here}/claim"))) {
                    h2 { "Claim" }
                    (s.token())
                    @if is_mine {
                        p.muted { "Only you can answer it until fifteen minutes after your last claim." }
                        div.buttons {
                            button type="submit" name="seconds" value=(CLAIM_S) { "Claim for longer" }
                            button type="submit" name="seconds" value="0" { "Release it" }
                        }
                    } @else {
                        p.muted { "Nobody else can answer it while you have claimed it. You can also answer without a claim." }
                        button type="submit" name="seconds" value=(CLAIM_S) { "Claim" }
                    }
                }
                form.card #fail method="post" action=(s.at(&format!("{here}/fail"))) {
                    h2 { "Cannot be answered" }
                    (s.token())
                    label for="reason" { "Why" }
                    input #reason name="reason" required;
                    button type="submit" { "Fail it" }
                }
            }
        }
    }
}

async fn interaction(visit: &Visit) -> Result<Interaction, Problem> {
    let text = visit.path("interaction");
    let unknown = || Problem::new(Cause::NotFound, "there is no such question");
    let id = text.parse().map_err(|_| unknown())?;
    visit.client.interaction(Which::Id(InteractionId(id))).await?.ok_or_else(unknown)
}

pub(super) async fn claim(visit: Visit) -> Answered {
    let seconds: u32 = visit.form.get("seconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(CLAIM_S);
    let body = json!({ "assignee": visit.caller.who, "seconds": seconds });
    on(&visit, "/v1/interactions/{interaction}/claim", &body).await?;
    back(&visit, if seconds == 0 { "released" } else { "claimed" })
}

/// The body of an answer to the API.
#[derive(serde::Serialize)]
struct CompleteBody<'a> {
    output: Option<dormouse::Json>,
    assignee: &'a str,
}

pub(super) async fn complete(visit: Visit) -> Answered {
    let asked = interaction(&visit).await?;
    let form = form::of_answer(&visit.client, &asked).await?;
    let output = form::read(&visit.form, form.as_ref(), "output")?;
    let body = CompleteBody { output, assignee: &visit.caller.who };
    let told = on(&visit, "/v1/interactions/{interaction}/complete", &body).await?;
    back(&visit, if told["completed"] == "repeat" { "repeat" } else { "answered" })
}

pub(super) async fn fail(visit: Visit) -> Answered {
    let reason = visit.form.get("reason").ok_or_else(|| Problem::invalid("say why it cannot be answered"))?;
    let body = json!({ "reason": reason, "assignee": visit.caller.who });
    on(&visit, "/v1/interactions/{interaction}/fail", &body).await?;
    back(&visit, "answered")
}

async fn on(
    visit: &Visit,
    route: &'static str,
    body: &impl serde::Serialize,
) -> Result<serde_json::Value, Problem> {
    visit.act(route, ("interaction", visit.path("interaction")), body).await
}

fn back(visit: &Visit, notice: &str) -> Answered {
    let interaction = super::fields::segment(visit.path("interaction"));
    visit.go(&format!("/inbox/{interaction}?notice={notice}"))
}
