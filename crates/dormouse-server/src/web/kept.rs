//! Kept signals: sent to keys that no instance has yet.

use dormouse::jiff::Timestamp;
use dormouse::store::{Bounds, KeptFilter};
use dormouse::{KeptId, KeptSignal};
use maud::{Markup, html};
use serde_json::json;

use super::Answered;
use super::json::short;
use super::layout::Shell;
use super::parts::{self, number, time};
use super::visit::Visit;
use crate::cursor::{self, List};

const ROWS: usize = 50;

pub(super) async fn show(visit: Visit) -> Answered {
    let after = visit.query.text("cursor");
    let position = after.as_deref().map(|cursor| cursor::decode(List::Kept, cursor)).transpose()?;
    let filter = KeptFilter { key: visit.query.text("key"), after: position.map(KeptId) };
    let (store, namespace) = (visit.client.store(), visit.client.namespace().to_owned());
    let kept = store.kept(namespace, filter, Bounds::rows(ROWS)).await?;
    let total = visit.client.count_kept().await?;
    let now = store.about().await?.now;
    let (s, query) = (&visit.shell, visit.query.with(&[("notice", None)]));
    let to = |after: Option<&str>| s.at(&format!("/kept{}", query.with(&[("cursor", after)]).query()));
    let last = kept.items.last().filter(|_| kept.more);
    let next = last.map(|last| to(Some(&cursor::encode(List::Kept, last.id.0))));
    let first = after.map(|_| to(None));
    visit.page("Kept signals", &html! {
        h1 { "Kept signals" }
        p.muted {
            "Signals to keys that no instance has yet. The instance that starts with the key has them in its inbox. "
            (number(total.signals)) " are kept, " (number(total.bytes)) " bytes."
        }
        section.card #kept data-live {
            @if kept.items.is_empty() {
                (parts::empty("No signal is kept.", &html! { "A signal is kept if it is sent with " code { "keep_for" } " before its instance starts." }))
            } @else {
                (parts::table("Kept signals", &html! {
                    (parts::columns(&["Key", "Signal", "Payload", "Dedup key", "Sent", "Expires"]))
                    @if s.may_operate() { th scope="col" { "Action" } }
                }, &html! { @for one in &kept.items { (row(s, one, now)) } }))
            }
        }
        (parts::pager(first, next))
    })
}

fn row(s: &Shell, one: &KeptSignal, now: Timestamp) -> Markup {
    html! {
        tr #{"kept-" (one.id)} data-kept=(one.id) {
            th scope="row" { (one.key) }
            td { (one.name) }
            td.wide { code { (short(one.payload.as_str(), 200)) } }
            td { @if let Some(key) = &one.dedup_key { (key) } }
            td { (time(one.at, now)) }
            td { (time(one.until, now)) }
            @if s.may_operate() {
                td {
                    form.inline method="post" action=(s.at(&format!("/kept/{}/drop", one.id))) {
                        (s.token())
                        button type="submit" aria-label=(format!("Drop kept signal {}", one.id)) { "Drop" }
                    }
                }
            }
        }
    }
}

pub(super) async fn drop(visit: Visit) -> Answered {
    let id = visit.path("kept").to_owned();
    visit.act("/v1/kept/{kept}/drop", ("kept", &id), &json!({})).await?;
    visit.go("/kept?notice=dropped_kept")
}
