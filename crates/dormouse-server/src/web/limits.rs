//! Limits: how many instances of a lane run at a time, and how many of its steps start in a period.

use dormouse::jiff::Timestamp;
use dormouse::store::LimitView;
use dormouse::{RATE_MAX, Rate, WIDTH_MAX};
use maud::{Markup, html};
use serde_json::json;

use super::Answered;
use super::layout::Shell;
use super::parts::{self, number, time};
use super::visit::Visit;
use crate::problem::Problem;
use crate::span;

const ROWS: usize = 50;

pub(super) async fn show(visit: Visit) -> Answered {
    let after = visit.query.text("after");
    let store = visit.client.store();
    let mut limits = store.limits(visit.client.namespace().to_owned(), after.clone(), ROWS + 1).await?;
    let now = store.about().await?.now;
    let has_more = limits.len() > ROWS;
    limits.truncate(ROWS);
    let (s, query) = (&visit.shell, visit.query.with(&[("notice", None)]));
    let to = |after: Option<&str>| s.at(&format!("/limits{}", query.with(&[("after", after)]).query()));
    let next = limits.last().filter(|_| has_more).map(|last| to(Some(&last.name)));
    let first = after.map(|_| to(None));
    visit.page("Limits", &html! {
        h1 { "Limits" }
        p.muted {
            "How many instances of a lane run at a time, and how many of its steps start in a period. The limit of a family holds for each of its lanes: "
            code { "partner" } " for each of " code { "partner/acme" } " and " code { "partner/globex" }
            ". A lane without a limit runs one at a time."
        }
        section.card #limits data-live {
            @if limits.is_empty() {
                (parts::empty("No limit is set.", &html! { "Every lane runs one instance at a time, in order." }))
            } @else {
                (parts::table("Limits", &html! {
                    (parts::columns(&["Limit", "#Width", "Rate", "#In use", "#Waiting", "#Lanes", "Changed"]))
                    @if s.may_operate() { th scope="col" { "Action" } }
                }, &html! { @for limit in &limits { (row(s, limit, now)) } }))
            }
        }
        @if s.may_operate() { (set_form(s)) }
        (parts::pager(first, next))
    })
}

fn row(s: &Shell, limit: &LimitView, now: Timestamp) -> Markup {
    html! {
        tr #{"limit-" (limit.name)} data-limit=(limit.name) {
            th scope="row" { (limit.name) }
            td.num { @if limit.limit.width == WIDTH_MAX && limit.limit.rate.is_some() { "any" } @else { (limit.limit.width) } }
            td { @match limit.limit.rate { Some(rate) => (words(rate)), None => "any" } }
            td.num { (number(limit.held)) }
            td.num { (number(limit.waiting)) }
            td.num { (limit.lanes) @if limit.more_lanes { " or more" } }
            td { (time(limit.changed_at, now)) }
            @if s.may_operate() {
                td {
                    form.inline method="post" action=(s.at("/limits/remove")) {
                        (s.token())
                        input type="hidden" name="name" value=(limit.name);
                        button type="submit" aria-label=(format!("Remove limit {}", limit.name)) { "Remove" }
                    }
                }
            }
        }
    }
}

fn set_form(s: &Shell) -> Markup {
    html! {
        form.card #set method="post" action=(s.at("/limits")) {
            h2 { "Set a limit" }
            p.muted { "It holds at once. If it is narrower than before, instances that run go on to their end." }
            (s.token())
            label for="name" { "Lane or family" }
            input #name name="name" required maxlength="255";
            label for="width" { "How many run at a time (empty: any number, with a rate)" }
            input #width name="width" type="number" min="1" max=(WIDTH_MAX);
            label for="rate" { "How many start in each period (empty: any number)" }
            input #rate name="rate" type="number" min="1" max=(RATE_MAX);
            label for="period" { "Period, such as 1s or 1m" }
            input #period name="period" value="1s" maxlength="50";
            label for="burst" { "How many may start together after a rest" }
            input #burst name="burst" type="number" min="1" max=(RATE_MAX) value="1";
            button.primary type="submit" { "Set" }
        }
    }
}

/// A rate as people read it.
fn words(rate: Rate) -> String {
    format!("{} in {}, burst {}", rate.count, span::exact(rate.period), rate.burst)
}

pub(super) async fn set(visit: Visit) -> Answered {
    let (width, rate) = (field(&visit, "width")?, field(&visit, "rate")?);
    // The form has a period and a burst, whether or not there is a rate.
    let burst = field(&visit, "burst")?.filter(|_| rate.is_some());
    let period =
        visit.form.get("period").map(str::trim).filter(|period| !period.is_empty() && rate.is_some());
    let name = visit.form.get("name").unwrap_or_default();
    let body = json!({ "width": width, "rate": rate, "period": period, "burst": burst });
    visit.act("/v1/limits/{limit}", ("limit", name), &body).await?;
    visit.go("/limits?notice=limited")
}

/// A number of the form, if it was filled in.
fn field(visit: &Visit, name: &str) -> Result<Option<u32>, Problem> {
    let Some(text) = visit.form.get(name).map(str::trim).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let refused = |_| {
        let short = super::json::short(text, 40);
        Problem::invalid(format!("{short:?} is not a {name}: write a number from 1 on"))
    };
    text.parse().map(Some).map_err(refused)
}

pub(super) async fn remove(visit: Visit) -> Answered {
    let name = visit.form.get("name").unwrap_or_default();
    visit.act("/v1/limits/{limit}/remove", ("limit", name), &json!({})).await?;
    visit.go("/limits?notice=unlimited")
}
