//! What a page shows, as commands: for a shell, a ticket, or a script.

use dormouse::Instance;
use maud::{Markup, html};

use super::fields::Fields;
use super::instances::FILTERS;
use super::layout::Shell;

/// The instance of a page.
pub(super) fn of_instance(s: &Shell, instance: &Instance) -> Markup {
    let id = instance.id;
    shown(&[
        format!("dormouse get {id}"),
        format!("dormouse explain {id}"),
        format!("dormouse history {id}"),
        curl(s, &format!("/v1/instances/{id}")),
    ])
}

/// The list of a page.
pub(super) fn of_list(s: &Shell, query: &Fields) -> Markup {
    let mut command = "dormouse ls".to_owned();
    for name in FILTERS {
        let values = query.all(name).map(str::trim).filter(|value| !value.is_empty());
        for value in values {
            match name {
                "roots" => command.push_str(" --roots"),
                "order" => command.push_str(" --oldest"),
                _ => command.push_str(&format!(" --{} {}", name.replace('_', "-"), quoted(value))),
            }
        }
    }
    shown(&[command, curl(s, &format!("/v1/instances{}", query.only(&FILTERS).query()))])
}

fn curl(s: &Shell, path: &str) -> String {
    format!("curl -H \"Authorization: Bearer $DORMOUSE_API_KEY\" {}", quoted(&s.absolute(path)))
}

fn shown(commands: &[String]) -> Markup {
    html! {
        details.commands {
            summary { "As commands" }
            @for command in commands {
                p.command { code { (command) } " " button type="button" data-copy=(command) hidden { "Copy" } }
            }
        }
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, told) in [
            ("order:7", "order:7"),
            ("total > 1000", "'total > 1000'"),
            ("it's", "'it'\\''s'"),
            ("$(rm -rf /)", "'$(rm -rf /)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), told);
        }
    }
}
