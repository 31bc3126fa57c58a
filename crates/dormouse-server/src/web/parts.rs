//! Small components of pages.

use dormouse::jiff::Timestamp;
use dormouse::{Instance, Status};
use maud::{Markup, PreEscaped, html};

use super::fields::{Fields, query, segment};
use super::layout::Shell;

/// A status as a coloured word.
pub(super) fn status(status: Status) -> Markup {
    tagged(status.as_str())
}

/// The word of any status, coloured.
pub(super) fn tagged(word: &str) -> Markup {
    html! { span.status data-status=(word) { (words(word)) } }
}

/// An API word, formatted for people.
pub(super) fn words(word: &str) -> String {
    word.replace('_', " ")
}

/// A moment as relative time, with the exact time as its title.
pub(super) fn time(at: Timestamp, now: Timestamp) -> Markup {
    let shown = ago(now.duration_since(at).as_millis());
    html! { time datetime=(at) title=(absolute(at)) { (shown) } }
}

pub(super) fn absolute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn ago(ms: i128) -> String {
    match ms {
        -999..=1_999 => "just now".to_owned(),
        2_000.. => format!("{} ago", span(ms)),
        _ => format!("in {}", span(-ms)),
    }
}

/// A time span in its largest unit, or its two largest where that matters.
pub(super) fn span(ms: i128) -> String {
    let s = ms / 1_000;
    match s {
        ..1 => format!("{} ms", ms.max(0)),
        1..10 => format!("{}.{} s", s, ms % 1_000 / 100),
        10..120 => format!("{s} s"),
        120..7_200 => format!("{} min", s / 60),
        7_200..172_800 => format!("{} h", s / 3_600),
        _ => format!("{} days", s / 86_400),
    }
}

/// A number with separated thousands.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// The name of an instance: its key, or its id.
pub(super) fn name(instance: &Instance) -> String {
    instance.key.clone().unwrap_or_else(|| format!("#{}", instance.id))
}

pub(super) fn link(s: &Shell, instance: &Instance) -> Markup {
    let name = name(instance);
    html! { a href=(s.at(&format!("/instances/{}", instance.id))) title=[title(&name)] { (name) } }
}

pub(super) fn machine_link(s: &Shell, machine: &str) -> Markup {
    html! { a href=(s.at(&format!("/machines/{}", segment(machine)))) title=[title(machine)] { (machine) } }
}

/// A name in a table. A long one is cut by the style sheet, and is whole in its title.
pub(super) fn named(name: &str) -> Markup {
    html! { span.name title=[title(name)] { (name) } }
}

/// The title of a name that a table may cut.
fn title(name: &str) -> Option<&str> {
    name.chars().nth(NAME_CHARS_SHOWN).map(|_| name)
}

/// Names up to this long are shown whole everywhere.
const NAME_CHARS_SHOWN: usize = 24;

pub(super) fn waiting_link(s: &Shell, signal: &str) -> Markup {
    html! { a href=(s.at(&format!("/waiting{}", query("signal", signal)))) { (signal) } }
}

/// Tags, each a link to the instances that have it.
pub(super) fn tags(s: &Shell, tags: &[String]) -> Markup {
    html! {
        span.tags { @for tag in tags { a.tag href=(s.at(&format!("/instances{}", query("tag", tag)))) title=(tag) { (tag) } } }
    }
}

/// A field of a filter.
pub(super) fn filter(query: &Fields, name: &str, label: &str, hint: &str) -> Markup {
    let id = format!("filter-{name}");
    html! {
        div {
            label for=(id) { (label) }
            input id=(id) name=(name) value=[query.get(name)] placeholder=(hint) spellcheck="false";
        }
    }
}

/// The message of an empty list.
pub(super) fn empty(title: &str, hint: &Markup) -> Markup {
    html! { div.empty { p { strong { (title) } } p.muted { (hint) } } }
}

/// A form with one button.
pub(super) fn button(s: &Shell, action: &str, class: &str, word: &str, label: Option<&str>) -> Markup {
    html! {
        form.inline method="post" action=(s.at(action)) {
            (s.token())
            button type="submit" class=(class) aria-label=[label] { (word) }
        }
    }
}

/// A table that scrolls by keyboard, with a fixed head. On a narrow screen each row is a block, and each cell has the
/// name of its column before it.
pub(super) fn table(label: &str, head: &Markup, rows: &Markup) -> Markup {
    let rows = labelled(&rows.0, &names_of(&head.0));
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table { thead { tr { (head) } } tbody { (PreEscaped(rows)) } }
        }
    }
}

/// The text of each cell of a table's head, still escaped.
fn names_of(head: &str) -> Vec<String> {
    let cells = head.split("</th>").filter(|cell| cell.contains("<th"));
    let text = |cell: &str| {
        let parts = cell.split('<').filter_map(|part| part.split_once('>').map(|(_, text)| text));
        parts.collect::<String>().trim().to_owned()
    };
    cells.map(text).collect()
}

/// Puts the name of its column into each cell. In rendered markup a `<` begins a tag: text is escaped.
fn labelled(rows: &str, names: &[String]) -> String {
    let mut out = String::with_capacity(rows.len() + rows.len() / 8);
    let mut column = 0;
    for (index, part) in rows.split('<').enumerate() {
        if index > 0 {
            out.push('<');
        }
        let tag = part.split([' ', '>']).next().unwrap_or_default();
        if tag == "tr" {
            column = 0;
        }
        if !matches!(tag, "td" | "th") {
            out.push_str(part);
            continue;
        }
        let name = names.get(column).filter(|name| !name.is_empty());
        column += 1;
        match name {
            Some(name) => out.push_str(&format!("{tag} data-label=\"{name}\"{}", &part[tag.len()..])),
            None => out.push_str(part),
        }
    }
    out
}

/// The head of a table. A name that starts with `#` is the head of a column of numbers.
pub(super) fn columns(names: &[&str]) -> Markup {
    html! {
        @for name in names {
            @match name.strip_prefix('#') {
                Some(name) => th.num scope="col" { (name) },
                None => th scope="col" { (name) },
            }
        }
    }
}

/// Links to the other pages of a list.
pub(super) fn pager(first: Option<String>, next: Option<String>) -> Markup {
    html! {
        @if first.is_some() || next.is_some() {
            nav.pager aria-label="Pages of this list" {
                @if let Some(first) = first { a href=(first) { "First page" } }
                @if let Some(next) = next { a rel="next" href=(next) { "Next page" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_of_a_table_names_its_column() {
        let head = html! { th.choose scope="col" { input hidden; } th scope="col" { "A & B" } (columns(&["#Count"])) };
        let rows = html! { tr #one { td {} th scope="row" { "<td>" } td.num { b { "3" } } } tr { td {} td { "x" } } };
        let table = table("Things", &head, &rows).into_string();
        assert!(table.contains(
            "<tr id=\"one\"><td></td><th data-label=\"A &amp; B\" scope=\"row\">&lt;td&gt;</th>\
             <td data-label=\"Count\" class=\"num\"><b>3</b></td></tr><tr><td></td><td data-label=\"A &amp; B\">x</td></tr>"
        ), "{table}");
    }

    #[test]
    fn moments_and_numbers_are_told_as_people_tell_them() {
        for (ms, told) in [
            (500, "just now"),
            (2_500, "2.5 s ago"),
            (90_000, "90 s ago"),
            (600_000, "10 min ago"),
            (86_400_000, "24 h ago"),
            (864_000_000, "10 days ago"),
            (-30_000, "in 30 s"),
        ] {
            assert_eq!(ago(ms), told);
        }
        assert_eq!([number(7), number(1_234_567)], ["7", "1\u{202f}234\u{202f}567"]);
    }
}
