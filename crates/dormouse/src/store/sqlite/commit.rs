//! Committing outcomes: load, look up what the rules ask for, decide, save.

use rusqlite::{OptionalExtension, params};

use super::barrier;
use super::counts::Place;
use super::insert::{Parentage, insert};
use super::mail;
use super::operate::end_or_undo_tree;
use super::query::{inbox, inbox_signal};
use super::row::{Row, run_columns};
use super::tx::Tx;
use super::units;
use crate::rules::{self, Consumed, Facts, Hold, Returned};
use crate::signal::CANCEL;
use crate::store::{Commit, Receipt};
use crate::{
    Delivered, Error, EventKind, InboxSignal, Inserted, InstanceId, Json, Result, SignalId, Spawn, Status,
    Transition, WorkerId,
};

/// Nothing will ever read the signals of a `done` instance: it cannot be retried. The inbox of one that failed or was cancelled
/// is only out of sight, so that a retry finds its inputs again.
const DROP_INBOX: &str = "delete from signals where instance = ?1";

pub(super) fn commit(tx: &mut Tx<'_>, worker: WorkerId, commit: &Commit) -> Result<Receipt> {
    if let Some(receipt) = run_ahead(tx, worker, commit)? {
        return Ok(receipt);
    }
    if let Some(receipt) = plain_end(tx, worker, commit)? {
        return Ok(receipt);
    }
    let Some(mut row) =
        tx.load(commit.head.id)?.filter(|row| rules::owns(row.head(), worker, commit.head.seq))
    else {
        return Ok(Receipt::Stale);
    };
    if row.head().cancel_requested {
        end_or_undo_tree(tx, row)?;
        return Ok(Receipt::Cancelled);
    }
    let Commit { transition, received, version, hold, mail, .. } = commit;
    let consumed = consume(tx, commit)?;
    let unseen = match transition {
        Transition::Await { names, .. } => unseen(tx, &row, received, names)?,
        _ => None,
    };
    let mut facts = Facts { unseen: unseen.as_ref(), consumed, ..Facts::default() };
    match transition {
        Transition::Spawn(spawn) => facts.inserted = insert_children(tx, &mut row, spawn)?,
        Transition::Dispatch(dispatch) => facts.unit = Some(units::open(tx, row.head(), commit, dispatch)?),
        Transition::Done { .. } if row.head().inbox as usize > received.len() => {
            facts.unread = unread(tx, commit.head.id, received)?;
        }
        _ => {}
    }
    let hold = if commit.lane.is_some() { Hold::Release } else { *hold };
    let returned = Returned { transition, version: *version, hold, received, mail, facts };
    row.change.run.clone_from(&commit.run);
    rules::outcome(&mut row.change, &returned, tx.now());
    if let Some(lane) = &commit.lane {
        tx.change_lane(&mut row, lane)?;
    }
    if row.change.drops_inbox {
        tx.sql(DROP_INBOX)?.execute([commit.head.id.0])?;
    }
    if let Transition::Spawn(spawn) = transition {
        barrier::raise(tx, row.head(), row.change.spare, spawn.on_release)?;
    }
    mail::send(tx, &row.change, commit.head.seq + 1)?;
    tx.save(&mut row)?;
    if row.head().status != Status::Executing {
        return Ok(Receipt::Released);
    }
    let inbox = if row.head().inbox > 0 { inbox(tx.conn(), row.id())? } else { Vec::new() };
    Ok(Receipt::Held { seq: row.head().seq, inbox, now: tx.now() })
}

/// The hot path: a `next` that keeps its claim and had nothing to consume is one guarded update.
/// Whatever is special about the row makes it match nothing, and the rules decide.
fn run_ahead(tx: &Tx<'_>, worker: WorkerId, commit: &Commit) -> Result<Option<Receipt>> {
    let Transition::Next { at, .. } = &commit.transition else { return Ok(None) };
    let moves = commit.lane.is_some() || !commit.mail.is_empty();
    if commit.hold == Hold::Release || !commit.received.is_empty() || moves {
        return Ok(None);
    }
    let (version, step, state) = (commit.version, &*at.step, at.state.as_str());
    let mut update = tx.sql(include_str!("commit_next.sql"))?;
    if update.execute(params![
        commit.head.id.0,
        commit.head.seq,
        worker.0,
        step,
        state,
        tx.now_us(),
        version
    ])? == 0
    {
        return Ok(None);
    }
    record_plain(tx, commit, EventKind::StepCompleted, version, step, Some(state))?;
    Ok(Some(Receipt::Held { seq: commit.head.seq + 1, inbox: Vec::new(), now: tx.now() }))
}

/// The other hot path: a `done` that no parent or key waits for. The head is not loaded, and few columns are written.
fn plain_end(tx: &mut Tx<'_>, worker: WorkerId, commit: &Commit) -> Result<Option<Receipt>> {
    let Transition::Done { output } = &commit.transition else { return Ok(None) };
    if !commit.mail.is_empty() {
        return Ok(None);
    }
    let id = commit.head.id;
    let mut read = tx.sql(include_str!("commit_done_read.sql"))?;
    let mut rows = read.query((id.0, commit.head.seq, worker.0, commit.received.len() as i64))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let text = |index: usize| Ok::<_, Error>(row.get_ref(index)?.as_str().map_err(rusqlite::Error::from)?);
    let (namespace, queue, machine, version, step) = (text(0)?, text(1)?, text(2)?, row.get(3)?, text(4)?);
    if let Some(lane) = row.get_ref(5)?.as_str_or_null().map_err(rusqlite::Error::from)? {
        tx.lanes.insert((namespace.to_owned(), lane.to_owned()));
    }
    let (now, output) = (tx.now_us(), output.as_str());
    tx.sql(include_str!("commit_done.sql"))?.execute((id.0, now, output))?;
    tx.sql(DROP_INBOX)?.execute([id.0])?;
    record_plain(tx, commit, EventKind::Done, version, step, None)?;
    tx.counts.add(Place { namespace, queue, machine, version, step, status: Status::Done }, 1);
    tx.effects.ended.push(id);
    Ok(Some(Receipt::Released))
}

/// Records the one event of a commit that was not decided by loading its row.
fn record_plain(
    tx: &Tx<'_>,
    commit: &Commit,
    kind: EventKind,
    version: u32,
    step: &str,
    state: Option<&str>,
) -> Result<()> {
    if !commit.head.keeps_history {
        return Ok(());
    }
    let (started_at, took, progress) = run_columns(commit.run.as_ref());
    let (id, seq, now, data) = (commit.head.id.0, commit.head.seq + 1, tx.now_us(), None::<&str>);
    let kind = kind.as_str();
    tx.sql(include_str!("record.sql"))?
        .execute(params![id, seq, kind, version, step, now, data, state, started_at, took, progress])?;
    Ok(())
}

/// The first awaited signal in the inbox that the parking step was not handed.
fn unseen(tx: &Tx<'_>, row: &Row, received: &[SignalId], names: &[String]) -> Result<Option<InboxSignal>> {
    if row.head().inbox as usize <= received.len() {
        return Ok(None);
    }
    let mut sql = tx.sql("select id, name from signals where instance = ?1 and consumed = 0 order by id")?;
    let mut rows = sql.query([row.id().0])?;
    while let Some(found) = rows.next()? {
        let (id, name): (i64, String) = (found.get(0)?, found.get(1)?);
        if let Some(id) = rules::unseen(std::iter::once((SignalId(id), &*name)), names, received) {
            return Ok(Some(tx.sql(include_str!("signal.sql"))?.query_row([id.0], inbox_signal)?));
        }
    }
    Ok(None)
}

/// Inserts the children of the next round, and returns how many there are.
fn insert_children(tx: &mut Tx<'_>, row: &mut Row, spawn: &Spawn) -> Result<u32> {
    let (parent, round) = (row.id(), row.head().round + 1);
    let parentage = Parentage { parent, round, on_cancel: spawn.on_cancel };
    let mut inserted = 0;
    let answers = insert(tx, &spawn.children, Some(parentage))?;
    for (child, answer) in spawn.children.iter().zip(answers) {
        match answer {
            Inserted::New(_) => inserted += 1,
            // This row is in our hands: what the store counted for it would be lost when we save it.
            Inserted::Taken { holder, signals } if holder == parent => {
                let sent = child.signals.iter().zip(&signals);
                let accepted = sent.filter(|(_, answer)| matches!(answer, Delivered::Accepted { .. }));
                accepted.for_each(|(signal, _)| {
                    rules::arrive(&mut row.change.head, signal.payload.as_str().len());
                });
            }
            Inserted::Taken { .. } => {}
        }
    }
    Ok(inserted)
}

/// Consumes what the step received, by id, if its outcome does. **Dedup outlives consumption**: a signal with a dedup key stays,
/// out of the inbox.
fn consume(tx: &Tx<'_>, commit: &Commit) -> Result<Option<Consumed>> {
    if commit.received.is_empty() || !rules::consumes(&commit.transition) {
        return Ok(None);
    }
    let (mut shown, mut bytes) = (Vec::with_capacity(commit.received.len()), 0);
    for id in &commit.received {
        let mut signal = None;
        for sql in [include_str!("consume.sql"), include_str!("consume_keep.sql")] {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Box<str>>(1)?));
            signal = tx.sql(sql)?.query_row((id.0, commit.head.id.0), read).optional()?;
            if signal.is_some() {
                break;
            }
        }
        let (name, payload) = signal.expect("a received signal stays until its own step consumes it");
        bytes += payload.len() as u64;
        shown.push(rules::signal_data(*id, &name, &Json::trusted(payload)));
    }
    let data = Some(Json::trusted(format!("[{}]", shown.join(","))));
    Ok(Some(Consumed { signals: shown.len() as u32, bytes, data }))
}

/// Signals that no step has read: names and counts, the most first, bounded; and how many in all.
fn unread(tx: &Tx<'_>, id: InstanceId, received: &[SignalId]) -> Result<Option<(Json, u64)>> {
    let received = serde_json::to_string(received).expect("numbers can be written");
    let mut sql = tx.sql(include_str!("unread.sql"))?;
    let (names, total): (String, Option<u64>) =
        sql.query_row((id.0, received, CANCEL), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(total.map(|total| (Json::trusted(names), total)))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::super::open;
    use super::*;

    #[test]
    fn dedup_outlives_consumption() {
        let (conn, _) = open::memory().expect("it opens");
        conn.execute_batch("pragma foreign_keys = off").expect("a pragma");
        let deliver = |dedup_key: Option<&str>| {
            let values = params![1, "paid", dedup_key, 0, "null", None::<&str>];
            conn.execute(include_str!("deliver.sql"), values).expect("a delivery")
        };
        let takes = |sql: &str, id: i64| conn.prepare(sql).expect("SQL").exists((id, 1)).expect("a write");
        assert_eq!((deliver(Some("d1")), deliver(None)), (1, 1));
        let (delete, keep) = (include_str!("consume.sql"), include_str!("consume_keep.sql"));
        assert!(!takes(delete, 1) && takes(keep, 1), "what has a dedup key is kept");
        assert!(takes(delete, 2), "what has none is not");
        assert!(!takes(keep, 1), "it is consumed once");
        assert_eq!(deliver(Some("d1")), 0, "its key is taken for the life of the instance");
        assert_eq!((deliver(Some("d2")), deliver(None)), (1, 1), "others come in");
        let in_inbox = |conn: &Connection| {
            let sql = "select count(*) from signals where instance = 1 and consumed = 0";
            conn.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a count")
        };
        assert_eq!(in_inbox(&conn), 2);
    }
}
