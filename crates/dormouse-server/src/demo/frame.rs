//! One picture as 24 rows of 80 columns.

use std::fmt::Write as _;

use dormouse::Status;

use super::meter::Counts;
use super::news::ITEMS_MAX;
use super::picture::{Picture, count};
use super::view::{minutes, wrap};

pub(super) const COLUMNS: usize = 79;
const BAR_COLUMNS: usize = 10;
const LIVE: [(Status, &str); 5] = [
    (Status::Runnable, "runnable"),
    (Status::Executing, "executing"),
    (Status::AwaitingSignal, "parked on a signal"),
    (Status::AwaitingChildren, "parked on children"),
    (Status::Scheduled, "parked on the clock"),
];

/// A frame leaves the terminal ready for a shell, with a visible cursor below the picture. So there is nothing to
/// restore, not even after `kill -9`, which the picture invites its reader to try.
pub(super) fn frame(picture: &Picture) -> String {
    let mut text = String::from("\x1b[?25l\x1b[?7l\x1b[H");
    for Line { style, text: line } in lines(picture) {
        let line: String = line.chars().take(COLUMNS).collect();
        let _ = write!(text, "{}{line}\x1b[0m\x1b[K\r\n", style.code());
    }
    text + "\x1b[J\x1b[?7h\x1b[?25h"
}

struct Line {
    style: Style,
    text: String,
}

#[derive(Clone, Copy)]
enum Style {
    Plain,
    Bold,
    Dim,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Dim => "\x1b[2m",
        }
    }

    fn line(self, text: impl Into<String>) -> Line {
        Line { style: self, text: text.into() }
    }
}

/// At most 23 lines: the last row is the cursor's.
fn lines(picture: &Picture) -> Vec<Line> {
    let pid = std::process::id();
    let mut lines = vec![
        Style::Bold.line(format!(
            " dormouse demo: an order shop in {}, up {}",
            picture.db.display(),
            minutes(picture.up)
        )),
        Style::Dim.line(format!(" {}", picture.latest.headline)),
    ];
    lines.extend(counts(picture));
    lines.extend([Style::Plain.line(""), rates(picture), Style::Plain.line("")]);
    lines.extend(news(picture));
    lines.extend(followed(picture));
    lines.push(
        Style::Dim
            .line(format!(" Try: Ctrl-C and run it again: it carries on.  kill -9 {pid}: nothing is lost.")),
    );
    lines
}

fn counts(picture: &Picture) -> Vec<Line> {
    let stats = &picture.stats;
    let of = |machine: &str, status: Status| count(stats, machine, |is| is == status);
    let most = LIVE.iter().map(|(status, _)| stats.count(*status)).max().unwrap_or(0);
    let mut parked = picture.parked().into_iter();
    let mut lines = vec![
        Style::Bold.line(format!(" {:<20}{:>7}{:>7}{:14}{}", "NOW", "orders", "items", "", "PARKED ON")),
    ];
    for (status, word) in LIVE {
        let (orders, items) = (of("order", status), of("line_item", status));
        let bar = bar(stats.count(status), most);
        let right = parked.next().map(|(what, count)| format!("{what:<25}{count:>5}")).unwrap_or_default();
        lines.push(
            Style::Plain.line(format!(" {word:<20}{orders:>7}{items:>7}  {bar:<BAR_COLUMNS$}  {right}")),
        );
    }
    let ended = [Status::Done, Status::Failed].map(|status| (of("order", status), of("line_item", status)));
    let [(done, done_items), (failed, _)] = ended;
    lines.push(Style::Plain.line(format!(
        " {:<20}{done:>7}{done_items:>7}  {:BAR_COLUMNS$}  {:<25}{failed:>5}",
        "done", "", "given up or declined"
    )));
    lines
}

fn rates(picture: &Picture) -> Line {
    let rate = |pick: fn(&Counts) -> u64| picture.rates.per_second(pick);
    Style::Bold.line(format!(
        " PER SECOND  {:.1} orders shipped  {:.0} steps  {:.1} signals  {:.1} duplicates refused",
        rate(|counts| counts.shipped),
        rate(|counts| counts.commits),
        rate(|counts| counts.signals),
        rate(|counts| counts.duplicates),
    ))
}

fn news(picture: &Picture) -> Vec<Line> {
    let items = picture.latest.items.iter().map(|(at, text)| format!(" {:>6}  {text}", minutes(*at)));
    let mut lines = vec![Style::Bold.line(" WHAT HAPPENED")];
    lines.extend(
        items.chain(std::iter::repeat(String::new())).take(ITEMS_MAX).map(|item| Style::Plain.line(item)),
    );
    lines
}

fn followed(picture: &Picture) -> Vec<Line> {
    let Some(order) = &picture.followed else { return Vec::new() };
    let title = format!(" FOLLOWING {}  ", order.key);
    let trail = newest(&order.trail, COLUMNS - title.len());
    let mut lines = vec![Style::Bold.line(title + &trail)];
    let mut explained = wrap(&order.explanation, COLUMNS - 2).into_iter();
    lines.extend((0..2).map(|_| Style::Plain.line(format!(" {}", explained.next().unwrap_or_default()))));
    lines
}

/// As much of the end of a history as fits.
fn newest(trail: &[&str], columns: usize) -> String {
    let all = trail.join(" > ");
    if all.len() <= columns {
        return all;
    }
    let kept = &all[all.len() - (columns - 4)..];
    format!("... {}", kept.split_once(" > ").map_or(kept, |(_, whole_words)| whole_words))
}

/// A nonzero value is never shown as zero.
fn bar(count: u64, most: u64) -> String {
    let columns = (count * BAR_COLUMNS as u64).div_ceil(most.max(1));
    "█".repeat(columns as usize)
}
