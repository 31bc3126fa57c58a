//! `dormouse bench`: measures a store on this machine, with every commit fsynced.
//!
//! The configurations take turns, round after round, so that a noisy neighbour affects all of them. The table shows the
//! median round.

mod bed;
mod beside;
mod load;
mod ratios;
mod report;
mod schedules;

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
    /// The directory for the files; they are removed afterwards.
    #[arg(long, default_value = ".")]
    dir: std::path::PathBuf,
    /// Measure only the ratios: figures that must not depend on places, tenants and processes.
    #[arg(long)]
    ratios: bool,
    /// The role of this process beside the one that measures.
    #[arg(long, hide = true, requires = "beside_url")]
    beside: Option<beside::Role>,
    /// The address of the store that it shares with that one.
    #[arg(long, hide = true)]
    beside_url: Option<String>,
}

/// Measures and prints. With the address of a database on a PostgreSQL server, it creates new databases on that server,
/// and removes them afterwards.
pub(crate) async fn run(json: bool, server: Option<String>, args: Args) -> Result<(), BoxError> {
    if let Some((role, url)) = args.beside.zip(args.beside_url.as_deref()) {
        return beside::run(role, url).await;
    }
    let less = if args.quick { 10 } else { 1 };
    let place = || match &server {
        Some(url) => Ok(Place::Server(url.clone())),
        None => Place::directory(&args.dir),
    };
    if !args.ratios {
        loads(json, &args, less, &place).await?;
    }
    let place = place()?;
    let ratios = ratios::measure(&place, less).await?;
    if json {
        println!("{}", serde_json::json!({ "store": place.store_name(), "ratios": ratios }));
    } else {
        ratios::table(place.store_name(), &ratios);
    }
    Ok(())
}

/// Runs all loads, in rounds, and prints their figures.
async fn loads(
    json: bool,
    args: &Args,
    less: u64,
    place: &impl Fn() -> Result<Place, BoxError>,
) -> Result<(), BoxError> {
    let mut rounds: [Vec<Figures>; 2] = Default::default();
    for round in 1..=args.rounds.max(1) {
        for (history, figures) in [History::On, History::Off].into_iter().zip(&mut rounds) {
            if !json {
                eprintln!("round {round} of {}, history {}", args.rounds.max(1), report::word(history));
            }
            figures.push(load::measure(&place()?, history, less).await?);
        }
    }
    let medians = rounds.map(|rounds| Figures::median(&rounds));
    if json { report::json(&medians) } else { report::table(&medians) }
}
