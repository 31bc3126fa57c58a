//! Dropping and editing signals in an inbox: how people repair an instance that got one it cannot read.

use rusqlite::OptionalExtension;

use super::operate::{find, last_deadline};
use super::tx::Tx;
use crate::rules::{self, Data, Head};
use crate::signal::CANCEL;
use crate::store::{Amend, AmendRequest};
use crate::{Error, EventKind, InboxSignal, InstanceId, Json, Result, Status, Target, Wake};

pub(super) fn amend(
    tx: &mut Tx<'_>,
    namespace: &str,
    target: &Target,
    request: &AmendRequest,
) -> Result<InstanceId> {
    let AmendRequest { signal: id, amend, expected_seq } = request;
    let mut row = find(tx, namespace, target, *expected_seq)?;
    let Head { id: instance, status, .. } = *row.head();
    if status == Status::Executing {
        let reason =
            "its step runs and may have read the signal; pause it, and try again when the step has ended";
        return Err(Error::WrongStatus { id: instance, status, reason });
    }
    let read = |found: &rusqlite::Row<'_>| {
        Ok((found.get::<_, String>(0)?, found.get::<_, Box<str>>(1)?, found.get::<_, Option<String>>(2)?))
    };
    let found = tx.sql(include_str!("amend.sql"))?.query_row((id.0, instance.0, CANCEL), read).optional()?;
    let Some((name, payload, dedup_key)) = found else {
        return Err(Error::NoSignal { id: instance, signal: *id });
    };
    let was = Json::trusted(payload);
    let event = |payload: &Json| {
        Data::new().with("id", id.0).with("name", &*name).with_json("payload", payload.clone())
    };
    match amend {
        Amend::Drop => {
            tx.sql("delete from signals where id = ?1 and instance = ?2")?.execute((id.0, instance.0))?;
            rules::leave(&mut row.change.head, 1, was.as_str().len() as u64);
            let (left, until) = (names_left(tx, instance)?, last_deadline(tx, instance)?);
            rules::wait_again(&mut row.change, &left, until, tx.now());
            row.change.record(EventKind::SignalDropped, Some(event(&was)));
        }
        Amend::Edit(payload) => {
            tx.sql("update signals set payload = ?3 where id = ?1 and instance = ?2")?.execute((
                id.0,
                instance.0,
                payload.as_str(),
            ))?;
            let head = &mut row.change.head;
            let others = head.inbox_bytes.saturating_sub(was.as_str().len() as u64);
            head.inbox_bytes = others + payload.as_str().len() as u64;
            row.change.record(EventKind::SignalEdited, Some(event(payload).with_json("was", was)));
            if rules::awaited_by(row.head(), &name) {
                let (payload, at) = (payload.clone(), tx.now());
                let signal = InboxSignal { id: *id, name: name.clone(), payload, dedup_key, at, trace: None };
                rules::wake_by_signal(&mut row.change, &signal, tx.now());
            }
        }
    }
    if status.is_terminal() {
        // Its end stays as it was.
        tx.record(&mut row.change)?;
        let head = row.head();
        tx.note_inbox(head)?;
        tx.sql("update instances set wake = ?2, seq = ?3, changed_at = ?4 where id = ?1")?.execute((
            instance.0,
            head.wake.map(Wake::as_str),
            head.seq,
            tx.now_us(),
        ))?;
    } else {
        tx.save(&mut row)?;
    }
    Ok(instance)
}

/// Replaces the state of an instance, which stays where it is.
pub(super) fn edit(
    tx: &mut Tx<'_>,
    namespace: &str,
    target: &Target,
    state: Json,
    expected_seq: Option<u64>,
) -> Result<InstanceId> {
    let mut row = find(tx, namespace, target, expected_seq)?;
    let Head { id, status, .. } = *row.head();
    if let Some(reason) = rules::edit(&mut row.change, state) {
        return Err(Error::WrongStatus { id, status, reason });
    }
    tx.record(&mut row.change)?;
    let (seq, state) = (row.head().seq, row.change.state.as_ref().map(Json::as_str));
    tx.sql("update instances set state = ?2, seq = ?3, changed_at = ?4 where id = ?1")?.execute((
        id.0,
        state,
        seq,
        tx.now_us(),
    ))?;
    Ok(id)
}

/// The names of the signals in an inbox.
fn names_left(tx: &Tx<'_>, id: InstanceId) -> Result<Vec<String>> {
    let mut sql = tx.sql("select name from signals where instance = ?1 and consumed = 0")?;
    Ok(sql.query_map([id.0], |left| left.get(0))?.collect::<rusqlite::Result<_>>()?)
}
