//! How a picture is shown: 80 columns and 24 rows redrawn in place, or one line a second.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use dormouse::Status;
use dormouse::store::Stats;

use super::meter::Counts;
use super::news::ITEMS_MAX;
use super::picture::{Picture, count};

const COLUMNS: usize = 79;
const BAR_COLUMNS: usize = 10;
const LIVE: [(Status, &str); 5] = [
    (Status::Runnable, "runnable"),
    (Status::Executing, "executing"),
    (Status::AwaitingSignal, "parked on a signal"),
    (Status::AwaitingChildren, "parked on children"),
    (Status::Scheduled, "parked on the clock"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Live,
    Plain,
}

impl View {
    pub(super) fn every(self) -> Duration {
        match self {
            Self::Live => Duration::from_millis(250),
            Self::Plain => Duration::from_secs(1),
        }
    }

    /// Says what was found, and whether anyone still reads.
    pub(super) fn open(self, headline: &str) -> bool {
        match self {
            Self::Live => print("\x1b[2J"),
            Self::Plain => print(&format!("{headline}\n")),
        }
    }

    /// Shows one picture and says whether anyone still reads.
    pub(super) fn show(self, picture: &Picture) -> bool {
        match self {
            Self::Live => print(&frame(picture)),
            Self::Plain => print(&format!("{}\n", line(picture))),
        }
    }

    pub(super) fn close(self, summary: &str) {
        print(&format!("\n{summary}\n"));
    }
}

/// What sleeps in the database, and how to go on.
pub(super) fn summary(stats: &Stats, db: &Path) -> String {
    let orders = |is: fn(Status) -> bool| count(stats, "order", is);
    let parked: Vec<_> =
        stats.awaiting.iter().map(|(names, n)| format!("{n} on {}", names.join(" or "))).collect();
    format!(
        "Stopped. In {}: {} live orders ({}, {} on line items),\n{} done, {} failed, {} steps cut short. Run the same command again: it carries on.",
        db.display(),
        orders(|status| !status.is_terminal()),
        if parked.is_empty() { "none on a signal".to_owned() } else { parked.join(", ") },
        orders(|status| status == Status::AwaitingChildren),
        orders(|status| status == Status::Done),
        orders(|status| status == Status::Failed),
        stats.count(Status::Executing),
    )
}

fn line(picture: &Picture) -> String {
    let orders = |is: fn(Status) -> bool| count(&picture.stats, "order", is);
    let parked: Vec<_> =
        picture.parked().into_iter().map(|(what, count)| format!("{what} {count}")).collect();
    let rate = |pick: fn(&Counts) -> u64| picture.rates.per_second(pick);
    format!(
        "{} | orders: {} live, {} done, {} failed | runnable {}, executing {} | parked on {} | per second: {:.1} shipped, {:.0} steps, {:.1} signals, {:.1} duplicates refused",
        minutes(picture.up),
        orders(|status| !status.is_terminal()),
        orders(|status| status == Status::Done),
        orders(|status| status == Status::Failed),
        picture.stats.count(Status::Runnable),
        picture.stats.count(Status::Executing),
        parked.join(", "),
        rate(|counts| counts.shipped),
        rate(|counts| counts.commits),
        rate(|counts| counts.signals),
        rate(|counts| counts.duplicates),
    )
}

/// A frame leaves the terminal as a shell wants it, with the cursor shown below the picture. So there is
/// nothing to restore, not even after `kill -9`, which the picture invites its reader to try.
fn frame(picture: &Picture) -> String {
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
        let right = parked.next().map(|(what, count)| format!("{what:<27}{count:>4}")).unwrap_or_default();
        lines.push(
            Style::Plain.line(format!(" {word:<20}{orders:>7}{items:>7}  {bar:<BAR_COLUMNS$}  {right}")),
        );
    }
    let ended = [Status::Done, Status::Failed].map(|status| (of("order", status), of("line_item", status)));
    let [(done, done_items), (failed, _)] = ended;
    lines.push(Style::Plain.line(format!(
        " {:<20}{done:>7}{done_items:>7}  {:BAR_COLUMNS$}  {:<27}{failed:>4}",
        "done", "", "orders given up or declined"
    )));
    lines
}

fn rates(picture: &Picture) -> Line {
    let rate = |pick: fn(&Counts) -> u64| picture.rates.per_second(pick);
    Style::Bold.line(format!(
        " PER SECOND  {:.1} shipped   {:.0} steps committed   {:.1} signals   {:.1} duplicates refused",
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
    let mut lines = vec![Style::Bold.line(format!(" FOLLOWING {}: {}", order.key, order.trail.join(", ")))];
    let mut explained = wrap(&order.explanation, COLUMNS - 2).into_iter();
    lines.extend((0..2).map(|_| Style::Plain.line(format!(" {}", explained.next().unwrap_or_default()))));
    lines
}

/// Something is never shown as nothing.
fn bar(count: u64, most: u64) -> String {
    let columns = (count * BAR_COLUMNS as u64).div_ceil(most.max(1));
    "█".repeat(columns as usize)
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= columns {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn print(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}
