//! How a picture is shown: 80 columns and 24 rows redrawn in place, or one line a second.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use dormouse::Status;
use dormouse::store::Stats;

use super::frame::{COLUMNS, frame};
use super::meter::Counts;
use super::picture::{Picture, count};

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

    /// Prints what was found, and returns whether anyone still reads.
    pub(super) fn open(self, headline: &str) -> bool {
        match self {
            Self::Live => print("\x1b[2J"),
            Self::Plain => print(&format!("{headline}\n")),
        }
    }

    /// Shows one picture, and returns whether anyone still reads.
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
    let mut live: Vec<_> =
        stats.awaiting.iter().map(|(names, count)| format!("{count} await {}", names.join(" or "))).collect();
    live.push(format!("{} await line items", orders(|status| status == Status::AwaitingChildren)));
    live.push(format!("{} can run on", orders(|status| status == Status::Runnable)));
    let mut summary = format!(
        "Stopped. {} keeps {} live orders: {}. {} are done, {} were given up or declined.",
        db.display(),
        orders(|status| !status.is_terminal()),
        live.join(", "),
        orders(|status| status == Status::Done),
        orders(|status| status == Status::Failed),
    );
    // Steps of this process have committed or were given back, so the rest run in another one.
    if let running @ 1.. = stats.count(Status::Executing) {
        let _ = write!(summary, " {running} steps run in another process.");
    }
    let lines = wrap(&summary, COLUMNS);
    format!("{}\nRun the same command again: it carries on.", lines.join("\n"))
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

pub(super) fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
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
