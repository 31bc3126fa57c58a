//! Which rows are next: priorities in order, and within a priority the turns of its shares.
//!
//! Rows that can run stand in lines, one for each machine, version, priority and share. Lines are found by hops in the
//! claim's index, from where the last claim stopped, and read no deeper than the claim needs: what is read does not grow
//! with how many shares there are, nor with how much they have.

use rusqlite::{CachedStatement, OptionalExtension};

use super::tx::Tx;
use crate::Result;
use crate::share::{after, after_namespace, round, share_namespace};
use crate::store::{Claim, Namespaces, Turn};

/// A row that can be claimed, and the turn it is served in.
pub(super) struct Next {
    pub(super) id: i64,
    pub(super) turn: Turn,
}

/// The first rows in order. Each machine is asked for its part of them, and for more only while what it has not shown
/// could be among the first.
pub(super) fn first(tx: &Tx<'_>, claim: &Claim) -> Result<Vec<Next>> {
    let asks = Asks::new(tx, claim)?;
    let mut sources = asks.sources()?;
    let (rows_max, sources_count) = (claim.rows_max, sources.len().max(1));
    let mut lines: Vec<Line> = Vec::with_capacity(rows_max);
    let mut lines_max = vec![rows_max.div_ceil(sources_count); sources.len()];
    loop {
        for (index, source) in sources.iter_mut().enumerate() {
            while source.lines < lines_max[index]
                && let Some(line) = source.next(&asks, index)?
            {
                lines.push(line);
            }
        }
        let each_max = rows_max.div_ceil(lines.len().max(1));
        for line in &mut lines {
            line.read(&asks, &sources[line.source], each_max)?;
        }
        let picked = pick(&lines, rows_max);
        let cut = picked.last().filter(|_| picked.len() == rows_max).map(|last| last.place);
        let deeper = lines.iter().map(|line| !line.is_read && cut.is_none_or(|cut| line.unread() < cut));
        let deeper: Vec<usize> = indexes(deeper);
        let further =
            sources.iter().map(|source| !source.is_over && cut.is_none_or(|cut| source.is_before(&cut)));
        let further: Vec<usize> = indexes(further);
        if deeper.is_empty() && further.is_empty() {
            return Ok(picked.into_iter().map(|picked| picked.next).collect());
        }
        deeper.into_iter().for_each(|line| lines[line].rows_max = (lines[line].rows_max * 4).min(rows_max));
        further.into_iter().for_each(|source| lines_max[source] = (lines_max[source] * 4).min(rows_max));
    }
}

fn indexes(are: impl Iterator<Item = bool>) -> Vec<usize> {
    are.enumerate().filter_map(|(index, is)| is.then_some(index)).collect()
}

/// What a claim asks for.
struct Asks<'a> {
    tx: &'a Tx<'a>,
    claim: &'a Claim,
    /// Whether a queue of this name is paused in some namespace.
    some_paused: bool,
    some_weighed: bool,
}

impl<'a> Asks<'a> {
    fn new(tx: &'a Tx<'_>, claim: &'a Claim) -> Result<Self> {
        let some_paused = tx.sql("select 1 from paused_queues where queue = ?1")?.exists([&claim.queue])?;
        let some_weighed = tx.sql("select 1 from shares limit 1")?.exists([])?;
        Ok(Self { tx, claim, some_paused, some_weighed })
    }

    fn is_paused(&self, namespace: &str) -> Result<bool> {
        let mut sql = self.tx.sql(include_str!("queue_paused.sql"))?;
        Ok(self.some_paused && sql.exists((namespace, &self.claim.queue))?)
    }

    fn weight(&self, share: &str) -> Result<u32> {
        if !self.some_weighed {
            return Ok(1);
        }
        let mut sql = self.tx.sql("select weight from shares where share = ?1")?;
        Ok(sql.query_row([share], |row| row.get(0)).optional()?.unwrap_or(1))
    }

    /// Where lines are found: each machine with rows, in all namespaces or in each that is served and not paused.
    fn sources(&self) -> Result<Vec<Source<'a>>> {
        let mut namespaces = Vec::new();
        match &self.claim.namespaces {
            Namespaces::All => namespaces.push(None),
            Namespaces::Only(names) => {
                for (index, name) in names.iter().enumerate() {
                    if !names[..index].contains(name) && !self.is_paused(name)? {
                        namespaces.push(Some(name.as_str()));
                    }
                }
            }
        }
        let past = self.claim.later_than.map_or(i64::MIN, i64::from);
        let mut sources = Vec::new();
        for namespace in namespaces {
            for (machine, version) in self.claim.machines.iter() {
                let mut source = Source::new(self, machine, *version, namespace, past)?;
                source.next_priority(self)?;
                // One without a row takes no part of the claim from the others.
                if !source.is_over {
                    sources.push(source);
                }
            }
        }
        Ok(sources)
    }
}

/// The rows of one machine in one namespace or in all, whose lines are found one after the other.
struct Source<'a> {
    machine: &'a str,
    version: u32,
    namespace: Option<&'a str>,
    /// How many lines were found.
    lines: usize,
    /// Whether there are no more.
    is_over: bool,
    /// Priorities up to this one are done with.
    past: i64,
    at: Option<Hop>,
    /// Finds its next share. It is kept, as a claim hops as often as it takes rows.
    hops: CachedStatement<'a>,
}

/// How far the shares of a priority were looked through: from where the last claim stopped to the last share, and then
/// from the first one on to there.
struct Hop {
    priority: i32,
    start: String,
    is_second_half: bool,
    from: String,
    last: String,
}

impl<'a> Source<'a> {
    fn new(
        asks: &Asks<'a>,
        machine: &'a str,
        version: u32,
        namespace: Option<&'a str>,
        past: i64,
    ) -> Result<Self> {
        let hops = match namespace {
            Some(_) => asks.tx.sql(include_str!("claim_share.sql"))?,
            None => asks.tx.sql(include_str!("claim_line_share.sql"))?,
        };
        Ok(Self { machine, version, namespace, lines: 0, is_over: false, past, at: None, hops })
    }

    /// The next line, with its first row.
    fn next(&mut self, asks: &Asks<'_>, source: usize) -> Result<Option<Line>> {
        while let Some(mut hop) = self.at.take() {
            match self.share(asks, &hop)? {
                Some(found) if !hop.is_second_half || found.share < hop.start => {
                    let namespace = share_namespace(&found.share);
                    if self.namespace.is_none() && asks.is_paused(namespace)? {
                        hop.from = after_namespace(namespace);
                        self.at = Some(hop);
                        continue;
                    }
                    hop.from = after(&found.share);
                    hop.last.clone_from(&found.share);
                    self.lines += 1;
                    let line = Line::new(asks, source, &hop, found)?;
                    self.at = Some(hop);
                    return Ok(Some(line));
                }
                _ if !hop.is_second_half && !hop.start.is_empty() => {
                    (hop.is_second_half, hop.from) = (true, String::new());
                    self.at = Some(hop);
                }
                _ => {
                    self.past = i64::from(hop.priority);
                    self.next_priority(asks)?;
                }
            }
        }
        Ok(None)
    }

    /// Goes on to the first share of the next priority with rows.
    fn next_priority(&mut self, asks: &Asks<'_>) -> Result<()> {
        let Self { machine, version, namespace, past, .. } = &*self;
        let queue = &asks.claim.queue;
        let priority: Option<i32> = match namespace {
            Some(namespace) => asks
                .tx
                .sql(include_str!("claim_priority.sql"))?
                .query_row((queue, machine, version, namespace, past), |row| row.get(0)),
            None => asks
                .tx
                .sql(include_str!("claim_line_priority.sql"))?
                .query_row((queue, machine, version, past), |row| row.get(0)),
        }
        .optional()?;
        self.is_over = priority.is_none();
        self.at = priority.map(|priority| Hop::new(priority, asks.claim.after.start(priority)));
        Ok(())
    }

    fn share(&mut self, asks: &Asks<'_>, hop: &Hop) -> Result<Option<Found>> {
        let (machine, version, hops) = (self.machine, self.version, &mut self.hops);
        let (queue, Hop { priority, from, .. }) = (&asks.claim.queue, hop);
        let read =
            |row: &rusqlite::Row<'_>| Ok(Found { share: row.get(0)?, first: (row.get(2)?, row.get(1)?) });
        Ok(match self.namespace {
            Some(namespace) => hops.query_row((queue, machine, version, namespace, priority, from), read),
            None => hops.query_row((queue, machine, version, priority, from), read),
        }
        .optional()?)
    }

    /// Whether lines that were not found yet may have rows before this place.
    fn is_before(&self, place: &Place<'_>) -> bool {
        match &self.at {
            Some(Hop { priority, is_second_half, last, .. }) => {
                (*priority, 0, *is_second_half, last.as_str())
                    < (place.priority, place.round, place.is_second_half, place.share)
            }
            None => true,
        }
    }
}

impl Hop {
    fn new(priority: i32, start: String) -> Self {
        Self { priority, from: start.clone(), start, is_second_half: false, last: String::new() }
    }
}

/// A share that a hop found.
struct Found {
    share: String,
    first: (i64, i64),
}

/// The rows of one source, priority and share, in order.
struct Line {
    source: usize,
    priority: i32,
    is_second_half: bool,
    share: String,
    weight: u32,
    /// What the turn under way has left for it.
    left: u32,
    /// Their times and ids, from the first on.
    rows: Vec<(i64, i64)>,
    rows_max: usize,
    /// Whether those are all.
    is_read: bool,
}

impl Line {
    fn new(asks: &Asks<'_>, source: usize, hop: &Hop, found: Found) -> Result<Self> {
        let Found { share, first } = found;
        Ok(Self {
            source,
            priority: hop.priority,
            is_second_half: hop.is_second_half,
            weight: asks.weight(&share)?,
            left: asks.claim.after.left(hop.priority, &share),
            share,
            rows: vec![first],
            rows_max: 1,
            is_read: false,
        })
    }

    /// Reads its first rows, as many as are asked for.
    fn read(&mut self, asks: &Asks<'_>, source: &Source<'_>, rows_max: usize) -> Result<()> {
        self.rows_max = self.rows_max.max(rows_max);
        if self.is_read || self.rows.len() >= self.rows_max {
            return Ok(());
        }
        let Source { machine, version, .. } = source;
        let Self { priority, share, rows_max, .. } = &*self;
        let namespace = share_namespace(share);
        let mut sql = asks.tx.sql(include_str!("claim.sql"))?;
        let line = (&asks.claim.queue, machine, version, namespace, priority, share, *rows_max as i64);
        let rows: Vec<(i64, i64)> =
            sql.query_map(line, |row| Ok((row.get(1)?, row.get(0)?)))?.collect::<rusqlite::Result<_>>()?;
        self.is_read = rows.len() < self.rows_max;
        self.rows = rows;
        Ok(())
    }

    /// The least place that a row has which was not read yet.
    fn unread(&self) -> Place<'_> {
        let Self { priority, is_second_half, share, .. } = self;
        let (round, _) = round(self.rows.len() as u32, self.left, self.weight);
        let row = *self.rows.last().expect("a line was found by its first row");
        Place { priority: *priority, round, is_second_half: *is_second_half, share, row }
    }
}

/// Where a row stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'l> {
    priority: i32,
    round: u32,
    is_second_half: bool,
    share: &'l str,
    row: (i64, i64),
}

struct Picked<'l> {
    place: Place<'l>,
    next: Next,
}

/// The first of the rows that were read. Those of one share count together, whatever their machines.
fn pick(lines: &[Line], rows_max: usize) -> Vec<Picked<'_>> {
    let mut rows: Vec<(i32, &str, (i64, i64), &Line)> = lines
        .iter()
        .flat_map(|line| line.rows.iter().map(move |row| (line.priority, line.share.as_str(), *row, line)))
        .collect();
    rows.sort_unstable_by_key(|(priority, share, row, _)| (*priority, *share, *row));
    let mut picked = Vec::with_capacity(rows.len());
    let (mut of, mut nth) = (None, 0);
    for (priority, share, row, line) in rows {
        nth = if of == Some((priority, share)) { nth + 1 } else { 0 };
        of = Some((priority, share));
        let (round, left) = round(nth, line.left, line.weight);
        let place = Place { priority, round, is_second_half: line.is_second_half, share, row };
        let turn = Turn { priority, share: share.to_owned(), left };
        picked.push(Picked { place, next: Next { id: row.1, turn } });
    }
    picked.sort_unstable_by_key(|picked| picked.place);
    picked.truncate(rows_max);
    picked
}
