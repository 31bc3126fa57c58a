//! Figures, as a table and as JSON.

use dormouse::{BoxError, History};
use serde::Serialize;

/// One configuration, measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) store: &'static str,
    pub(super) history: &'static str,
    pub(super) jobs_inserted_per_s: f64,
    pub(super) jobs_drained_per_s: f64,
    pub(super) chain_steps_per_s: f64,
    pub(super) signal_p50_ms: f64,
    pub(super) signal_p99_ms: f64,
    pub(super) signal_storm_per_s: f64,
    pub(super) signal_batches_taken_per_s: f64,
    pub(super) signal_batches_per_s: f64,
    pub(super) fanout_1000_ms: f64,
    pub(super) timer_late_p50_ms: f64,
    pub(super) timer_late_p99_ms: f64,
    pub(super) schedule_late_p50_ms: f64,
    pub(super) schedules_started_ms: f64,
    pub(super) parked_bytes: f64,
    pub(super) parked_rss_bytes: f64,
    pub(super) parked_cpu_percent: f64,
    pub(super) fsyncs: u64,
    pub(super) raw_limit_steps_per_s: f64,
}

pub(super) fn word(history: History) -> &'static str {
    match history {
        History::On => "on",
        History::Off => "off",
    }
}

type Row = (&'static str, fn(&mut Figures) -> &mut f64);

const ROWS: [Row; 17] = [
    ("jobs inserted /s", |f| &mut f.jobs_inserted_per_s),
    ("jobs drained /s", |f| &mut f.jobs_drained_per_s),
    ("chained steps /s", |f| &mut f.chain_steps_per_s),
    ("  raw statements, the limit /s", |f| &mut f.raw_limit_steps_per_s),
    ("signal round trip p50, ms", |f| &mut f.signal_p50_ms),
    ("signal round trip p99, ms", |f| &mut f.signal_p99_ms),
    ("signals in a storm /s", |f| &mut f.signal_storm_per_s),
    ("signals in batches of 256, taken /s", |f| &mut f.signal_batches_taken_per_s),
    ("  to the last end /s", |f| &mut f.signal_batches_per_s),
    ("fan-out of 1,000, ms", |f| &mut f.fanout_1000_ms),
    ("timer late p50, ms (100,000 armed)", |f| &mut f.timer_late_p50_ms),
    ("timer late p99, ms", |f| &mut f.timer_late_p99_ms),
    ("10,000 schedules due at once: p50, ms", |f| &mut f.schedule_late_p50_ms),
    ("  the last has started, ms", |f| &mut f.schedules_started_ms),
    ("parked: bytes on disk each", |f| &mut f.parked_bytes),
    ("parked: bytes in memory each", |f| &mut f.parked_rss_bytes),
    ("parked: % of a core", |f| &mut f.parked_cpu_percent),
];

impl Figures {
    /// Each figure's median over the rounds.
    pub(super) fn median(rounds: &[Self]) -> Self {
        let mut median = rounds[0].clone();
        for (_, figure) in ROWS {
            let mut values: Vec<f64> = rounds.iter().map(|round| *figure(&mut round.clone())).collect();
            values.sort_by(f64::total_cmp);
            *figure(&mut median) = values[values.len() / 2];
        }
        median
    }
}

pub(super) fn json(configurations: &[Figures]) -> Result<(), BoxError> {
    for figures in configurations {
        println!("{}", serde_json::to_string(figures)?);
    }
    Ok(())
}

pub(super) fn table(configurations: &[Figures]) -> Result<(), BoxError> {
    print!("{:<36}", "");
    for figures in configurations {
        print!("{:>20}", format!("{}, history {}", figures.store, figures.history));
    }
    println!();
    for (name, figure) in ROWS {
        print!("{name:<36}");
        for figures in configurations {
            print!("{:>20}", number(*figure(&mut figures.clone())));
        }
        println!();
    }
    print!("{:<36}", "fsyncs in a round");
    for figures in configurations {
        print!("{:>20}", number(figures.fsyncs as f64));
    }
    println!();
    Ok(())
}

/// Three digits for small numbers, separated thousands for large ones.
pub(super) fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
