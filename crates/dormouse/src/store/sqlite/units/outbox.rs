//! The outbox: requests to send, taken under a lease, and the results of sends.

use std::time::Duration;

use rusqlite::OptionalExtension;

use super::super::tx::{Tx, timestamp};
use super::query::read;
use super::resolve::{Output, load, resolve};
use crate::clock::later;
use crate::limits::storable;
use crate::rules::{self, Answered};
use crate::store::{Namespaces, Outbox, SendOutcome, SendReport, outbox_queue};
use crate::{InteractionId, Result};

pub(super) fn take(
    tx: &mut Tx<'_>,
    transport: &str,
    namespaces: &Namespaces,
    rows_max: usize,
    lease: Duration,
) -> Result<Outbox> {
    let mut outbox = Outbox { now: Some(tx.now()), ..Outbox::default() };
    let leased_until = later(tx.now(), lease).as_microsecond();
    for namespace in namespaces_of(tx, transport, namespaces)? {
        let left = rows_max - outbox.taken.len();
        let ids: Vec<i64> = tx
            .sql(include_str!("../outbox.sql"))?
            .query_map((transport, &namespace, tx.now_us(), left as i64), |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for id in ids {
            let mut sql = tx
                .sql("update interactions set send_at = ?2, sends = sends + 1, error = null where id = ?1")?;
            sql.execute((id, leased_until))?;
            outbox.taken.extend(read(tx.conn(), InteractionId(id))?);
        }
        let mut next = tx.sql(include_str!("../outbox_next.sql"))?;
        let next: Option<i64> = next.query_row((transport, &namespace), |row| row.get(0))?;
        outbox.next = outbox.next.into_iter().chain(next.map(timestamp)).min();
    }
    Ok(outbox)
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
            Ok(())
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
