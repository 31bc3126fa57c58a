//! The outbox: requests to send, taken under a lease, and the results of sends.

use std::time::Duration;

use rusqlite::OptionalExtension;

use super::super::transports;
use super::super::tx::{Tx, timestamp};
use super::query::read;
use super::resolve::{Output, load, resolve};
use crate::clock::{later, micros};
use crate::limits::storable;
use crate::rules::{self, Answered, TransportHead};
use crate::store::{Gate, Namespaces, Outbox, SendOutcome, SendReport, outbox_queue};
use crate::{InteractionId, Result};

pub(super) fn take(
    tx: &mut Tx<'_>,
    transport: &str,
    namespaces: &Namespaces,
    rows_max: usize,
    lease: Duration,
) -> Result<Outbox> {
    let head = transports::load(tx.conn(), transport)?.map(|stored| stored.head).unwrap_or_default();
    let mut taking = Taking { transport, namespaces, lease, outbox: Outbox::default() };
    taking.outbox.now = Some(tx.now());
    taking.outbox.gate = Gate::of(&head, None);
    if head.is_limited() {
        taking.take_limited(tx, head, rows_max)?;
    } else {
        for namespace in namespaces_of(tx, transport, namespaces)? {
            taking.take_of(tx, &namespace, rows_max)?;
        }
    }
    Ok(taking.outbox)
}

/// Requests of one transport that are being handed out.
struct Taking<'a> {
    transport: &'a str,
    namespaces: &'a Namespaces,
    lease: Duration,
    outbox: Outbox,
}

impl Taking<'_> {
    /// Takes no more than the transport's limits let, and serves the namespaces in turn.
    fn take_limited(&mut self, tx: &mut Tx<'_>, mut head: TransportHead, wanted: usize) -> Result<()> {
        let stored = head.clone();
        let width = head.limits.in_flight;
        let flying = width.map(|width| transports::flying(tx.conn(), self.transport, width)).transpose()?;
        let allowed = head.allows(wanted, flying.unwrap_or(0), self.lease, tx.now());
        // Without a lease they would be due again at once.
        if width.is_some() && micros(self.lease) > 0 {
            // They have their places, and would keep them from others for as long as they are not reported.
            self.take_overdue(tx, allowed.sends)?;
        }
        let rows_max = allowed.sends.min(self.outbox.taken.len() + allowed.new);
        if self.outbox.taken.len() < rows_max {
            let mut names = namespaces_of(tx, self.transport, self.namespaces)?;
            names.sort_unstable();
            let served = names.partition_point(|name| *name <= head.turn);
            names.rotate_left(served);
            for namespace in names {
                let before = self.outbox.taken.len();
                self.take_of(tx, &namespace, rows_max)?;
                if self.outbox.taken.len() > before {
                    head.turn = namespace;
                }
                if self.outbox.taken.len() >= rows_max {
                    break;
                }
            }
        }
        head.spend(self.outbox.taken.len(), self.lease, tx.now());
        if self.outbox.taken.len() >= rows_max && allowed.held.is_some() {
            let until = allowed.held.and_then(|held| head.until(held, tx.now()));
            self.outbox.next = until.or(transports::next_overdue(tx.conn(), self.transport)?);
            self.outbox.gate.held = allowed.held;
        } else if self.outbox.taken.len() >= rows_max {
            // The namespaces behind were not looked at.
            self.outbox.next = Some(tx.now());
        }
        if head != stored {
            transports::save(tx, self.transport, &head)?;
        }
        Ok(())
    }

    /// Takes what is in flight and was not reported in time.
    fn take_overdue(&mut self, tx: &mut Tx<'_>, rows_max: usize) -> Result<()> {
        let only = match self.namespaces {
            Namespaces::All => None,
            Namespaces::Only(names) => Some(serde_json::json!(names).to_string()),
        };
        let ids: Vec<i64> = tx
            .sql(include_str!("../transport_overdue.sql"))?
            .query_map((self.transport, tx.now_us(), only, rows_max as i64), |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        self.lend(tx, ids)
    }

    /// Takes what is due in one namespace, until there are so many.
    fn take_of(&mut self, tx: &mut Tx<'_>, namespace: &str, rows_max: usize) -> Result<()> {
        let left = rows_max - self.outbox.taken.len();
        let ids: Vec<i64> = tx
            .sql(include_str!("../outbox.sql"))?
            .query_map((self.transport, namespace, tx.now_us(), left as i64), |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        self.lend(tx, ids)?;
        let mut next = tx.sql(include_str!("../outbox_next.sql"))?;
        let next: Option<i64> = next.query_row((self.transport, namespace), |row| row.get(0))?;
        self.outbox.next = self.outbox.next.into_iter().chain(next.map(timestamp)).min();
        Ok(())
    }

    fn lend(&mut self, tx: &mut Tx<'_>, ids: Vec<i64>) -> Result<()> {
        let leased_until = later(tx.now(), self.lease).as_microsecond();
        let sql = "update interactions set send_at = ?2, sends = sends + 1, error = null where id = ?1";
        for id in ids {
            tx.sql(sql)?.execute((id, leased_until))?;
            self.outbox.taken.extend(read(tx.conn(), InteractionId(id))?);
        }
        Ok(())
    }
}

fn namespaces_of(tx: &Tx<'_>, transport: &str, namespaces: &Namespaces) -> Result<Vec<String>> {
    if let Namespaces::Only(names) = namespaces {
        return Ok(names.clone());
    }
    let mut found = Vec::new();
    let mut last = String::new();
    let mut hop = tx.sql(include_str!("../outbox_namespace.sql"))?;
    while let Some(next) = hop.query_row((transport, &last), |row| row.get::<_, String>(0)).optional()? {
        found.push(next.clone());
        last = next;
    }
    Ok(found)
}

/// Notes what became of one send, unless its interaction was resolved or handed out again meanwhile.
pub(super) fn sent(tx: &mut Tx<'_>, report: &SendReport) -> Result<()> {
    let Some(interaction) = read(tx.conn(), report.id)? else { return Ok(()) };
    if !interaction.status.is_open() || interaction.sends != report.sends {
        return Ok(());
    }
    let id = interaction.id.0;
    match &report.outcome {
        SendOutcome::Retry { after, error } => {
            let send_at = later(tx.now(), *after).as_microsecond();
            tx.sql("update interactions set send_at = ?2, error = ?3 where id = ?1")?.execute((
                id,
                send_at,
                storable(error),
            ))?;
            tx.effects.runnable(&outbox_queue(&interaction.transport));
            transports::free_place(tx, &interaction.transport)
        }
        SendOutcome::Sent => {
            let mut sql = tx.sql(
                "update interactions set status = 'dispatched', dispatched_at = ?2, send_at = null, \
                    error = null where id = ?1",
            )?;
            sql.execute((id, tx.now_us()))?;
            let mut row = tx.load(interaction.instance)?.expect("an open interaction has its instance");
            let item = (interaction.id, interaction.item);
            rules::send_recorded(&mut row.change, interaction.unit, item, interaction.sends);
            tx.save(&mut row)
        }
        SendOutcome::Rejected(reason) => {
            let mut row = tx.load(interaction.instance)?.expect("an open interaction has its instance");
            let mut unit = load(tx, row.head())?;
            let item = (interaction.id, interaction.item);
            let refused = Answered::NotSent(&storable(reason));
            resolve(tx, &mut row, &mut unit, item, &refused, Output::default())?;
            tx.save(&mut row)
        }
    }
}
