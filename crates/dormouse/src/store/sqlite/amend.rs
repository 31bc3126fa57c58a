//! Dropping and editing signals in an inbox: how people repair an instance that got one it cannot read.

use rusqlite::OptionalExtension;
use serde::Serialize;

use super::deliver::wake_by_signal;
use super::operate::{find, last_deadline};
use super::row::Row;
use super::tx::Tx;
use crate::signal::CANCEL;
use crate::store::{Amend, AmendRequest};
use crate::{Error, EventKind, InstanceId, Json, NewSignal, Result, Status, Target, Wake};

pub(super) fn amend(
    tx: &mut Tx<'_>,
    namespace: &str,
    target: &Target,
    request: &AmendRequest,
) -> Result<InstanceId> {
    let AmendRequest { signal: id, amend, expected_seq } = request;
    let mut row = find(tx, namespace, target, *expected_seq)?;
    if row.status == Status::Executing {
        let reason =
            "its step runs and may have read the signal; pause it, and try again when the step has ended";
        return Err(Error::WrongStatus { id: row.id, status: row.status, reason });
    }
    let read = |found: &rusqlite::Row<'_>| {
        Ok((found.get::<_, String>(0)?, found.get::<_, Box<str>>(1)?, found.get::<_, Option<String>>(2)?))
    };
    let found = tx.sql(include_str!("amend.sql"))?.query_row((id.0, row.id.0, CANCEL), read).optional()?;
    let Some((name, payload, dedup_key)) = found else {
        return Err(Error::NoSignal { id: row.id, signal: id.0 });
    };
    let was = Json::trusted(payload);
    let event = |payload, was| Amended { id: id.0, name: &name, payload, was }.to_text();
    match amend {
        Amend::Drop => {
            tx.sql("delete from signals where id = ?1 and instance = ?2")?.execute((id.0, row.id.0))?;
            row.let_out(1, was.as_str().len() as u64);
            wait_again(tx, &mut row)?;
            tx.record(&mut row, EventKind::SignalDropped, Some(event(&was, None)))?;
        }
        Amend::Edit(payload) => {
            tx.sql("update signals set payload = ?3 where id = ?1 and instance = ?2")?.execute((
                id.0,
                row.id.0,
                payload.as_str(),
            ))?;
            let others = row.inbox_bytes.saturating_sub(was.as_str().len() as u64);
            row.inbox_bytes = others + payload.as_str().len() as u64;
            tx.record(&mut row, EventKind::SignalEdited, Some(event(payload, Some(&was))))?;
            if row.status == Status::AwaitingSignal && row.awaited_names()?.contains(&name) {
                let signal = NewSignal { name: name.clone(), payload: payload.clone(), dedup_key };
                wake_by_signal(tx, &mut row, *id, &signal)?;
            }
        }
    }
    if row.status.is_terminal() {
        // Its end stays as it was.
        let wake = row.wake.map(Wake::as_str);
        tx.note_inbox(&row)?;
        tx.sql("update instances set wake = ?2, seq = ?3, changed_at = ?4 where id = ?1")?.execute((
            row.id.0,
            wake,
            row.seq,
            tx.now_us(),
        ))?;
    } else {
        tx.save(&mut row)?;
    }
    Ok(row.id)
}

/// Lets an instance wait again that was woken by what is no longer in its inbox.
fn wait_again(tx: &Tx<'_>, row: &mut Row) -> Result<()> {
    if row.wake != Some(Wake::Signal) {
        return Ok(());
    }
    let names = row.awaited_names()?;
    let mut sql = tx.sql("select name from signals where instance = ?1 and consumed = 0")?;
    let left: Vec<String> =
        sql.query_map([row.id.0], |left| left.get(0))?.collect::<rusqlite::Result<_>>()?;
    if names.is_empty() || left.iter().any(|name| names.contains(name) || name == CANCEL) {
        return Ok(());
    }
    row.wake = None;
    if !row.status.is_terminal() {
        let until = last_deadline(tx, row.id)?;
        row.park(Status::AwaitingSignal, until);
    }
    Ok(())
}

/// What an event tells of an amended signal.
#[derive(Serialize)]
struct Amended<'a> {
    id: i64,
    name: &'a str,
    payload: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<&'a Json>,
}

impl Amended<'_> {
    fn to_text(&self) -> String {
        serde_json::to_string(self).expect("names and valid JSON can be written")
    }
}
