//! Retention: how much has ended and is still kept, and removing what ended long ago.

use dormouse::Status;
use maud::html;

use super::Answered;
use super::parts::{self, number};
use super::visit::Visit;
use crate::api::Overview;
use crate::problem::Problem;

pub(super) async fn show(visit: Visit) -> Answered {
    let overview = Overview::of(&visit.client).await?;
    let kept = [Status::Done, Status::Failed, Status::Cancelled]
        .map(|status| (status, overview.count(|is| is == status)));
    let s = &visit.shell;
    visit.page("Retention", &html! {
        h1 { "Retention" }
        p.muted { "Ended instances are kept, with their history, until an engine collects them or you remove them here. How long an engine keeps them is set in its program." }
        section.card #retention data-live data-live-every="5" {
            (parts::table("Ended instances", &parts::columns(&["Ended", "#Kept"]), &html! {
                @for (status, count) in kept {
                    tr data-status=(status.as_str()) {
                        th scope="row" { a href=(s.at(&format!("/instances?status={}&order=oldest", status.as_str()))) { (parts::status(status)) } }
                        td.num { (number(count)) }
                    }
                }
            }))
        }
        form.card #collect method="post" action=(s.at("/retention")) {
            (s.token())
            h2 { "Remove what ended long ago" }
            p { "Instances that ended longer ago than this are removed with their history. They cannot be brought back." }
            label for="ended-for" { "Ended longer ago than " span.muted { "(such as 90d or 12h)" } }
            input #ended-for name="ended_for" required spellcheck="false";
            button.danger type="submit" { "Remove them" }
        }
    })
}

pub(super) async fn collect(visit: Visit) -> Answered {
    let ended_for = visit.form.text("ended_for");
    let ended_for = ended_for.ok_or_else(|| Problem::invalid("say how long ago, such as 90d"))?;
    let gone = visit.act_on("/v1/gc", &[], &serde_json::json!({ "ended_for": ended_for })).await?;
    let count = gone["instances"].as_u64().unwrap_or_default();
    visit.go(&format!("/retention?notice=collected-{count}"))
}
