//! Versions in flight: how many live instances they have, and which of them have no worker.

use maud::{Markup, html};

use super::layout::Shell;
use super::parts::{self, number};
use crate::api::InFlight;

/// How many versions a warning names.
const SHOWN: usize = 5;
/// How many versions of one machine are shown.
const VERSIONS: usize = 20;

pub(super) fn in_flight(versions: &[InFlight]) -> Markup {
    html! {
        @if versions.is_empty() { span.muted { "none" } }
        @for InFlight { version, live, workers } in versions.iter().take(VERSIONS) {
            div data-version=(version) {
                "v" (version) ": " (instances(*live))
                @if *workers == 0 { ", " span.bad { "no worker runs it" } }
            }
        }
        @if versions.len() > VERSIONS { div.muted { "and " (versions.len() - VERSIONS) " more" } }
    }
}

/// A warning that names the versions without a worker: the first few, and a link to the others.
pub(super) fn warning(s: &Shell, unserved: &[(&str, InFlight)]) -> Markup {
    html! {
        @if !unserved.is_empty() {
            p.warning {
                "No worker runs "
                @for (index, (name, InFlight { version, live, .. })) in unserved.iter().take(SHOWN).enumerate() {
                    @if index > 0 { ", " }
                    "version " (version) " of " (parts::machine_link(s, name)) " (" (instances(*live)) ")"
                }
                @if unserved.len() > SHOWN { ", and " a href=(s.at("/machines")) { (unserved.len() - SHOWN) " more" } }
                ". Their instances do not move until one does: start a program that has this version, or one that migrates from it."
            }
        }
    }
}

fn instances(count: u64) -> String {
    format!("{} {}", number(count), if count == 1 { "instance" } else { "instances" })
}
