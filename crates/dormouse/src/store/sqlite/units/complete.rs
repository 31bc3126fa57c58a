//! Answers from outside: admitted once, or refused with the reason.

use std::time::Duration;

use rusqlite::OptionalExtension;
use serde_json::value::RawValue;

use super::super::tx::Tx;
use super::query::{by_correlation, interaction_row, read};
use super::resolve::{Output, load, resolve};
use crate::clock::later;
use crate::limits::storable;
use crate::rules::{self, Answered};
use crate::store::{Assigned, Completed, Completion, Proof, Refusal, Which};
use crate::{Interaction, InteractionId, InteractionStatus, Json, Result, UnitStatus};

pub(super) fn complete(tx: &mut Tx<'_>, completion: &Completion) -> Result<Completed> {
    let refused = |refusal| Ok(Completed::Refused(refusal));
    let interaction = match find(tx, completion)? {
        Ok(interaction) => interaction,
        Err(refusal) => return refused(refusal),
    };
    if completion.proof.is_some_and(|proof| !holds(proof, &interaction)) {
        return refused(Refusal::Forged);
    }
    let has_expired = completion.proof.is_some_and(|proof| proof.expires_at < tx.now());
    if let Some(first) = rules::first_answer(&interaction) {
        // A resume token reads back its holder's own answer, and only while it is good.
        if has_expired {
            return refused(Refusal::Expired);
        }
        if completion.proof.is_some() && interaction.answered_by.as_deref() != completion.answered_by() {
            return refused(Refusal::Answered);
        }
        return Ok(Completed::Repeat(first));
    }
    // After the repeat: a caller whose answer came in time may read it back as long as its token is valid.
    if is_late(tx, &interaction) {
        return refused(Refusal::Late);
    }
    if has_expired {
        return refused(Refusal::Expired);
    }
    if !interaction.status.is_open() {
        return refused(why_closed(tx, &interaction)?);
    }
    let claimed_by_other = interaction.assigned_until.is_some_and(|until| until > tx.now())
        && interaction.assignee != completion.assignee;
    if claimed_by_other {
        return refused(Refusal::Claimed);
    }
    let mut row = tx.load(interaction.instance)?.expect("an open interaction has its instance");
    let mut unit = load(tx, row.head())?;
    let by = completion.answered_by().map(storable);
    let (how, output) = match &completion.result {
        Ok(output) if unit.shape.answers_with_a_list() && !is_list(output, unit.outputs_max) => {
            return refused(Refusal::NotAList);
        }
        Ok(output) => (Answered::Completed, Some(output)),
        Err(reason) => (Answered::Failed(&storable(reason)), None),
    };
    let with = Output { output, by: by.as_deref() };
    resolve(tx, &mut row, &mut unit, (interaction.id, interaction.item), &how, with)?;
    tx.save(&mut row)?;
    Ok(Completed::Admitted { woke: unit.status != UnitStatus::Open })
}

fn find(tx: &Tx<'_>, completion: &Completion) -> Result<Result<Interaction, Refusal>> {
    let id = match &completion.to {
        Which::Id(id) => *id,
        Which::Correlation(id) => match by_correlation(tx.conn(), &completion.namespace, id, tx.now())?[..] {
            [] => return Ok(Err(Refusal::Unknown)),
            [(_, true), (_, true)] => return Ok(Err(Refusal::Ambiguous)),
            [(id, _), ..] => id,
        },
    };
    // One that has no place in flight was never asked.
    let Some(interaction) = read(tx.conn(), id)?.filter(|found| found.opened_at.is_some() || found.answered)
    else {
        return Ok(Err(Refusal::Unknown));
    };
    let own = interaction.namespace == completion.namespace;
    Ok(if own { Ok(interaction) } else { Err(Refusal::OtherNamespace) })
}

/// Whether a token was made for this interaction, and for a send that has been.
fn holds(proof: Proof, interaction: &Interaction) -> bool {
    proof.instance == interaction.instance
        && proof.unit == interaction.unit
        && proof.sends <= interaction.sends
}

/// Whether it still waits for its answer though its time is over: the clock has not looked at it yet.
fn is_late(tx: &Tx<'_>, interaction: &Interaction) -> bool {
    interaction.status.is_open() && interaction.deadline.is_some_and(|deadline| deadline <= tx.now())
}

fn why_closed(tx: &Tx<'_>, interaction: &Interaction) -> Result<Refusal> {
    if interaction.status != InteractionStatus::Cancelled {
        return Ok(Refusal::Late);
    }
    let mut sql = tx.sql("select status = 'cancelled' from units where id = ?1")?;
    let cancelled: bool = sql.query_row([interaction.unit.0], |row| row.get(0))?;
    Ok(if cancelled { Refusal::Cancelled } else { Refusal::Late })
}

fn is_list(output: &Json, outputs_max: usize) -> bool {
    let list: Result<Vec<&RawValue>, _> = serde_json::from_str(output.as_str());
    list.is_ok_and(|list| list.len() <= outputs_max)
}

/// Claims an open interaction for a while.
pub(super) fn assign(
    tx: &mut Tx<'_>,
    namespace: &str,
    id: InteractionId,
    assignee: &str,
    lease: Duration,
) -> Result<Assigned> {
    let found =
        tx.sql(include_str!("../interaction_get.sql"))?.query_row([id.0], interaction_row).optional()?;
    let asked = |found: &Interaction| {
        let is_open = found.status.is_open() && found.opened_at.is_some() && !is_late(tx, found);
        found.namespace == namespace && is_open
    };
    let Some(interaction) = found.filter(asked) else { return Ok(Assigned::NotOpen) };
    if let (Some(by), Some(until)) = (interaction.assignee, interaction.assigned_until)
        && until > tx.now()
        && by != assignee
    {
        return Ok(Assigned::Taken { by, until });
    }
    let until = later(tx.now(), lease);
    tx.sql("update interactions set assignee = ?2, assigned_until = ?3 where id = ?1")?.execute((
        id.0,
        assignee,
        until.as_microsecond(),
    ))?;
    Ok(Assigned::Until(until))
}
