//! Mail that an instance has sent and that is not delivered yet.

use dormouse::jiff::Timestamp;
use dormouse::store::MailView;
use maud::{Markup, html};

use super::json;
use super::parts::time;

/// The part of the instance's page that shows its mail.
pub(super) fn card(mail: &[MailView], now: Timestamp) -> Markup {
    html! {
        section.card {
            h2 { "Mail" }
            ul.tree aria-label="Mail" {
                @for piece in mail {
                    li {
                        strong { (piece.kind) @if let Some(name) = &piece.name { " " (name) } }
                        @if let Some(to) = &piece.to { " to instance " (to) }
                        " " (time(piece.at, now))
                        @if let Some(reason) = &piece.undelivered {
                            p.bad { "Cannot be delivered: " (json::short(reason, 1_000)) }
                        } @else if piece.tries > 0 {
                            p.muted { "Put off " (piece.tries) " times, next try " (time(piece.deliver_at, now)) }
                        }
                    }
                }
            }
        }
    }
}
