//! Mail: written with the outcome that sends it, and delivered in one transaction with what it does.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row as SqlRow, params};

use super::deliver::deliver;
use super::insert::{Sender, insert_sent};
use super::kept;
use super::operate::cancel;
use super::tx::{Tx, timestamp};
use super::{SqliteStore, quiet};
use crate::clock::{later, micros};
use crate::rules::{self, Change, Head, Undelivered};
use crate::store::mail::{reason, target};
use crate::store::{
    Bounds, CancelRequest, Delivery, DueMail, KeptCount, KeptFilter, MailBounds, MailDue, MailStore,
    MailView, Portion, Post, Posted, Posting, Reply, Written,
};
use crate::{
    Delivered, Error, Inserted, InstanceId, Json, KeptId, KeptSignal, Mail, MailId, NewInstance, NewSignal,
    Result, Status, When,
};

/// How long a piece is put off: four times as long each time, up to this. A lock of an instance that parks is over soon.
const PUT_OFF_MIN: Duration = Duration::from_millis(5);
const PUT_OFF_MAX: Duration = Duration::from_secs(5);

impl MailStore for SqliteStore {
    fn mail_due(&self, rows_max: usize) -> Reply<'_, MailDue> {
        let now = self.clock.now().as_microsecond();
        self.read(move |conn| due(conn, now, rows_max))
    }

    fn post(&self, batch: Vec<Post>, bounds: MailBounds) -> Reply<'_, Written<Vec<Posted>>> {
        self.write(move |tx| {
            // In the order in which it was sent: an earlier piece that stays holds up later ones to its address.
            let mut places: Vec<_> = (0..batch.len()).collect();
            places.sort_unstable_by_key(|place| batch[*place].id);
            let mut posted = vec![Posted::Gone; batch.len()];
            for place in places {
                posted[place] = post_one(tx, &batch[place], bounds)?;
            }
            Ok(posted)
        })
    }

    fn kept(&self, namespace: String, filter: KeptFilter, bounds: Bounds) -> Reply<'_, Portion<KeptSignal>> {
        self.read(move |conn| kept::list(conn, &namespace, &filter, bounds))
    }

    fn kept_counts(&self, namespace: Option<String>) -> Reply<'_, Vec<KeptCount>> {
        self.read(move |conn| kept::counts(conn, namespace.as_deref()))
    }

    fn drop_kept(&self, namespace: String, id: KeptId) -> Reply<'_, bool> {
        quiet(self.write(move |tx| kept::drop_one(tx, &namespace, id)))
    }

    fn mail_of(&self, sender: InstanceId, rows_max: usize) -> Reply<'_, Vec<MailView>> {
        self.read(move |conn| {
            let mut sql = conn.prepare_cached(include_str!("mail_of.sql"))?;
            let rows = sql.query_map((sender.0, rows_max as i64), view)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }
}

/// Writes the mail of a change, which the event of this number sends.
pub(super) fn send(tx: &mut Tx<'_>, change: &Change, seq: u64) -> Result<()> {
    for mail in &change.mail {
        let (name, dedup_key, body, keep_for) = match mail {
            Mail::Start(new) => {
                // A start after a while counts from the commit, however long its delivery takes.
                let start_at = new.start_at.map(|when| When::At(when.moment(tx.now())));
                let new = NewInstance { start_at, ..(**new).clone() };
                let body = serde_json::to_string(&new).expect("an instance can be written");
                (Some(new.machine), None, body, None)
            }
            Mail::Signal { signal, .. } => {
                let NewSignal { name, payload, dedup_key, keep_for, .. } = signal.clone();
                (Some(name), dedup_key, payload.as_str().to_owned(), keep_for)
            }
            Mail::Cancel { reason, .. } => {
                (None, None, serde_json::to_string(reason).expect("a text can be written"), None)
            }
        };
        tx.sql(include_str!("mail_send.sql"))?.execute(params![
            change.head.id.0,
            seq,
            change.head.namespace,
            mail.kind(),
            mail.address(),
            name,
            dedup_key,
            tx.now_us(),
            body,
            keep_for.map(micros)
        ])?;
        tx.effects.mail = true;
    }
    Ok(())
}

fn due(conn: &Connection, now_us: i64, rows_max: usize) -> Result<MailDue> {
    let mut sql = conn.prepare_cached(include_str!("mail_due.sql"))?;
    let rows = sql.query_map((now_us, rows_max as i64), |row| {
        let address: Option<String> = row.get("address")?;
        let signal = match (row.get::<_, Option<String>>("name")?, address.as_deref().and_then(target)) {
            (Some(name), Some(to)) => {
                let payload = Json::trusted(row.get::<_, Box<str>>("body")?);
                let signal = NewSignal::new(name, payload);
                Some((to, NewSignal { dedup_key: row.get("dedup_key")?, ..signal }))
            }
            _ => None,
        };
        let (id, namespace) = (MailId(row.get("id")?), row.get("namespace")?);
        Ok(DueMail { id, namespace, tries: row.get("tries")?, signal })
    })?;
    let mail: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
    let next = if mail.len() < rows_max {
        let sql = "select deliver_at from mail where deliver_at > ?1 order by deliver_at limit 1";
        conn.prepare_cached(sql)?.query_row([now_us], |row| row.get(0)).optional()?.map(timestamp)
    } else {
        None
    };
    Ok(MailDue { mail, next })
}

/// A piece of mail as it is stored.
struct Piece {
    view: MailView,
    namespace: String,
    address: Option<String>,
    dedup_key: Option<String>,
    keep_for: Option<Duration>,
    depth: u32,
    body: Box<str>,
}

/// Delivers, refuses or puts off a piece.
fn post_one(tx: &mut Tx<'_>, post: &Post, bounds: MailBounds) -> Result<Posted> {
    let Some(piece) = tx.sql(include_str!("mail_get.sql"))?.query_row([post.id.0], piece).optional()? else {
        return Ok(Posted::Gone);
    };
    if waits_behind(tx, &piece)? {
        put_off(tx, &piece)?;
        return Ok(Posted::PutOff);
    }
    let refused = match (&piece.view.undelivered, &post.how) {
        (Some(reason), _) => Some(reason.clone()),
        (None, Posting::Refuse(reason)) => Some(reason.clone()),
        (None, Posting::PutOff) => {
            put_off(tx, &piece)?;
            return Ok(Posted::PutOff);
        }
        (None, Posting::Deliver) => delivered(tx, &piece, bounds)?,
    };
    match refused {
        Some(reason) => give_up(tx, &piece, &reason),
        None => {
            remove(tx, post.id)?;
            Ok(Posted::Delivered)
        }
    }
}

/// Whether an earlier piece to the same address is still to be delivered.
fn waits_behind(tx: &Tx<'_>, piece: &Piece) -> Result<bool> {
    let sql =
        "select 1 from mail where sender = ?1 and address = ?2 and id < ?3 and undelivered is null limit 1";
    Ok(tx.sql(sql)?.exists((piece.view.sender.0, &piece.address, piece.view.id.0))?)
}

/// Does what a piece of mail says; or returns why that cannot be done.
fn delivered(tx: &mut Tx<'_>, piece: &Piece, bounds: MailBounds) -> Result<Option<String>> {
    let Piece { view: MailView { kind, to, name, .. }, namespace, .. } = piece;
    if kind == "start" {
        return started(tx, piece, bounds);
    }
    let to = to.clone().ok_or_else(|| strange(piece))?;
    if kind == "signal" {
        let payload = Json::trusted(piece.body.clone());
        let name = name.clone().ok_or_else(|| strange(piece))?;
        // It is sent in the trace of its sender, unless that is gone.
        let trace = tx
            .sql("select trace from instances where id = ?1")?
            .query_row([piece.view.sender.0], |row| row.get(0))
            .optional()?
            .flatten();
        let (dedup_key, keep_for) = (piece.dedup_key.clone(), piece.keep_for);
        let signal = NewSignal { name, payload, dedup_key, trace, keep_for };
        let MailBounds { inbox_max, kept_max, .. } = bounds;
        let (namespace, target) = (namespace.clone(), to);
        let answers = deliver(tx, &[Delivery { namespace, target, signal, inbox_max, kept_max }])?;
        return Ok(answers.into_iter().find_map(why_not));
    }
    let reason: Option<String> = serde_json::from_str(&piece.body).map_err(|_| strange(piece))?;
    match cancel(tx, namespace, &to, &CancelRequest { reason, expected_seq: None }) {
        Ok(_) => Ok(None),
        Err(Error::NotFound(_)) => Ok(Some(reason::NO_TARGET.to_owned())),
        Err(error) => Err(error),
    }
}

/// Starts the instance of a piece of mail. If its key is taken, its signals go to the holder, as with every start.
fn started(tx: &mut Tx<'_>, piece: &Piece, bounds: MailBounds) -> Result<Option<String>> {
    if piece.depth > bounds.depth_max {
        return Ok(Some(reason::TOO_DEEP.to_owned()));
    }
    let mut new: NewInstance = serde_json::from_str(&piece.body).map_err(|_| strange(piece))?;
    new.inbox_max = bounds.inbox_max;
    let MailView { sender, seq, .. } = piece.view;
    let sender = Sender { id: sender, seq, depth: piece.depth };
    Ok(match insert_sent(tx, new, sender)? {
        Inserted::New(_) => None,
        Inserted::Taken { holder, signals } if signals.is_empty() => Some(reason::key_taken(holder.0)),
        Inserted::Taken { signals, .. } => signals.into_iter().find_map(why_not),
    })
}

fn why_not(delivered: Delivered) -> Option<String> {
    match delivered {
        Delivered::Accepted { .. } | Delivered::Duplicate | Delivered::Kept { .. } => None,
        Delivered::NoTarget => Some(reason::NO_TARGET.to_owned()),
        Delivered::InboxFull => Some(reason::INBOX_FULL.to_owned()),
        Delivered::KeptFull => Some(reason::KEPT_FULL.to_owned()),
    }
}

/// Records in the sender's history that a piece cannot be delivered. While its step runs, the piece stays.
fn give_up(tx: &mut Tx<'_>, piece: &Piece, reason: &str) -> Result<Posted> {
    let sender = tx.load(piece.view.sender)?;
    if sender.as_ref().is_some_and(|sender| sender.head().status == Status::Executing) {
        let sql = "update mail set undelivered = ?2 where id = ?1";
        tx.sql(sql)?.execute((piece.view.id.0, reason))?;
        put_off(tx, piece)?;
        return Ok(Posted::PutOff);
    }
    if let Some(mut sender) = sender {
        let what = Json::from(piece.view.told());
        rules::undelivered(&mut sender.change, &Undelivered { seq: piece.view.seq, what, reason });
        tx.record(&mut sender.change)?;
        let Head { id, seq, .. } = sender.head();
        let sql = "update instances set seq = ?2, changed_at = ?3 where id = ?1";
        tx.sql(sql)?.execute((id.0, seq, tx.now_us()))?;
    }
    remove(tx, piece.view.id)?;
    Ok(Posted::Undelivered)
}

fn put_off(tx: &Tx<'_>, piece: &Piece) -> Result<()> {
    let pause = PUT_OFF_MIN.saturating_mul(1 << (2 * piece.view.tries).min(10)).min(PUT_OFF_MAX);
    let until = later(tx.now(), pause);
    let sql = "update mail set deliver_at = ?2, tries = tries + 1 where id = ?1";
    tx.sql(sql)?.execute((piece.view.id.0, until.as_microsecond()))?;
    Ok(())
}

fn remove(tx: &Tx<'_>, id: MailId) -> Result<()> {
    tx.sql("delete from mail where id = ?1")?.execute([id.0])?;
    Ok(())
}

fn strange(piece: &Piece) -> Error {
    Error::StrangeValue(format!("mail {} cannot be read: it was changed by hand", piece.view.id))
}

fn piece(row: &SqlRow<'_>) -> rusqlite::Result<Piece> {
    Ok(Piece {
        view: view(row)?,
        namespace: row.get("namespace")?,
        address: row.get("address")?,
        dedup_key: row.get("dedup_key")?,
        keep_for: row.get::<_, Option<i64>>("keep_us")?.map(|us| Duration::from_micros(us.unsigned_abs())),
        depth: row.get("depth")?,
        body: row.get("body")?,
    })
}

fn view(row: &SqlRow<'_>) -> rusqlite::Result<MailView> {
    let address: Option<String> = row.get("address")?;
    Ok(MailView {
        id: MailId(row.get("id")?),
        sender: InstanceId(row.get("sender")?),
        seq: row.get("seq")?,
        kind: row.get("kind")?,
        name: row.get("name")?,
        to: address.as_deref().and_then(target),
        at: timestamp(row.get("at")?),
        deliver_at: timestamp(row.get("deliver_at")?),
        tries: row.get("tries")?,
        undelivered: row.get("undelivered")?,
    })
}
