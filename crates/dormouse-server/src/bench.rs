//! `dormouse bench`: what a store does on this machine, every commit fsynced.
//!
//! The configurations take turns, round after round, so that a noisy neighbour falls on all of them; the
//! table shows the median round.

mod bed;
mod load;
mod report;

use dormouse::{BoxError, History};

use self::bed::Place;
use self::report::Figures;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often each configuration is measured; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// A tenth of the load, for a first impression.
    #[arg(long)]
    quick: bool,
    /// Where to put the files; they are removed afterwards.
    #[arg(long, default_value = ".")]
    dir: std::path::PathBuf,
}

/// Measures and prints. With the address of a database on a PostgreSQL server, it measures on new ones beside that,
/// which are removed afterwards.
pub(crate) async fn run(json: bool, server: Option<String>, args: Args) -> Result<(), BoxError> {
    let mut rounds: [Vec<Figures>; 2] = Default::default();
    for round in 1..=args.rounds.max(1) {
        for (history, figures) in [History::On, History::Off].into_iter().zip(&mut rounds) {
            if !json {
                eprintln!("round {round} of {}, history {}", args.rounds.max(1), report::word(history));
            }
            let place = match &server {
                Some(url) => Place::Server(url.clone()),
                None => Place::directory(&args.dir)?,
            };
            figures.push(load::measure(&place, history, if args.quick { 10 } else { 1 }).await?);
        }
    }
    let medians = rounds.map(|rounds| Figures::median(&rounds));
    if json { report::json(&medians) } else { report::table(&medians) }
}
