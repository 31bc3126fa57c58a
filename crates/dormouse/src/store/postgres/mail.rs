//! Mail: what a commit writes of it, and its delivery.

use serde::{Deserialize, Serialize};

use super::PostgresStore;
use super::deliver::bounds;
use super::insert::Arrival;
use super::kept::{self, kept_bounds};
use super::types::{Columns, parse, strange, when};
use crate::clock::micros;
use crate::limits::storable;
use crate::store::mail::target;
use crate::store::{
    Bounds, DueMail, KeptCount, KeptFilter, MailBounds, MailDue, MailStore, MailView, Portion, Post, Posted,
    Posting, Reply, Written,
};
use crate::{InstanceId, Json, KeptId, KeptSignal, Mail, MailId, NewSignal, Result};

const DUE: &str = "select v.mail::text, v.next, v.at from dormouse.mail_due($1) v";
const POST: &str = "select v.results, (v.effects).* from dormouse.post($1, $2, $3, $4, $5, $6, $7, $8) v";

impl MailStore for PostgresStore {
    fn mail_due(&self, rows_max: usize) -> Reply<'_, MailDue> {
        Box::pin(async move {
            let rows_max = i32::try_from(rows_max).unwrap_or(i32::MAX);
            let row = self.engine.one(|| sqlx::query(DUE).bind(rows_max)).await?;
            self.note_time(row.moment("at")?);
            let mail: Option<&str> = row.value("mail")?;
            let mail: Vec<Found> = mail.map(|mail| parse("mail", mail)).transpose()?.unwrap_or_default();
            Ok(MailDue {
                mail: mail.into_iter().map(Found::due).collect(),
                next: row.moment_or_none("next")?,
            })
        })
    }

    fn post(&self, batch: Vec<Post>, bounds: MailBounds) -> Reply<'_, Written<Vec<Posted>>> {
        Box::pin(self.post_all(batch, bounds))
    }

    fn kept(&self, namespace: String, filter: KeptFilter, bounds: Bounds) -> Reply<'_, Portion<KeptSignal>> {
        Box::pin(kept::list(&self.db, namespace, filter, bounds))
    }

    fn kept_counts(&self, namespace: Option<String>) -> Reply<'_, Vec<KeptCount>> {
        Box::pin(kept::counts(&self.db, namespace))
    }

    fn drop_kept(&self, namespace: String, id: KeptId) -> Reply<'_, bool> {
        Box::pin(kept::drop_one(&self.db, namespace, id))
    }

    fn mail_of(&self, sender: InstanceId, rows_max: usize) -> Reply<'_, Vec<MailView>> {
        Box::pin(async move {
            let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
            let sql = include_str!("mail_of.sql");
            let rows = self.db.all(|| sqlx::query(sql).bind(sender.0).bind(rows_max)).await?;
            rows.iter().map(view).collect()
        })
    }
}

impl PostgresStore {
    async fn post_all(&self, batch: Vec<Post>, limits: MailBounds) -> Result<Written<Vec<Posted>>> {
        let ids: Vec<i64> = batch.iter().map(|post| post.id.0).collect();
        let how = |post: &Post| match &post.how {
            Posting::Deliver => ("deliver", None),
            Posting::Refuse(reason) => ("refuse", Some(storable(reason).into_owned())),
            Posting::PutOff => ("put_off", None),
        };
        let (hows, reasons): (Vec<&str>, Vec<Option<String>>) = batch.iter().map(how).unzip();
        let (inbox_max, inbox_bytes_max) = bounds(limits.inbox_max);
        let (kept_max, kept_bytes_max) = kept_bounds(limits.kept_max);
        let depth_max = i32::try_from(limits.depth_max).unwrap_or(i32::MAX);
        let statement = || {
            let query = sqlx::query(POST).bind(&ids).bind(&hows).bind(&reasons);
            let query = query.bind(inbox_max).bind(inbox_bytes_max).bind(depth_max);
            query.bind(kept_max).bind(kept_bytes_max)
        };
        let row = self.engine.one(statement).await?;
        let results: Vec<String> = row.value("results")?;
        let posted = |result: String| match result.as_str() {
            "delivered" => Ok(Posted::Delivered),
            "undelivered" => Ok(Posted::Undelivered),
            "put_off" => Ok(Posted::PutOff),
            "gone" => Ok(Posted::Gone),
            other => Err(strange("results", other)),
        };
        let value = results.into_iter().map(posted).collect::<Result<_>>()?;
        Ok(Written { value, effects: row.effects()? })
    }
}

/// A piece of mail that is due, as the database answers it.
#[derive(Deserialize)]
struct Found {
    id: i64,
    namespace: String,
    tries: u32,
    address: Option<String>,
    name: Option<String>,
    dedup_key: Option<String>,
    payload: Option<Box<str>>,
}

impl Found {
    fn due(self) -> DueMail {
        let Self { id, namespace, tries, address, name, dedup_key, payload } = self;
        let signal = name
            .zip(payload)
            .map(|(name, payload)| NewSignal { dedup_key, ..NewSignal::new(name, Json::trusted(payload)) });
        let signal = address.as_deref().and_then(target).zip(signal);
        DueMail { id: MailId(id), namespace, tries, signal }
    }
}

fn view(row: &sqlx::postgres::PgRow) -> Result<MailView> {
    let address: Option<&str> = row.value("address")?;
    Ok(MailView {
        id: MailId(row.value("id")?),
        sender: InstanceId(row.value("sender")?),
        seq: row.number("seq")?,
        kind: row.value("kind")?,
        name: row.value("name")?,
        to: address.and_then(target),
        at: row.moment("at")?,
        deliver_at: row.moment("deliver_at")?,
        tries: row.number("tries")?,
        undelivered: row.value("undelivered")?,
    })
}

/// A piece of mail as a commit takes it.
#[derive(Serialize)]
pub(super) struct Sent<'a> {
    kind: &'static str,
    address: Option<String>,
    name: Option<&'a str>,
    dedup_key: Option<&'a str>,
    keep_us: Option<i64>,
    in_us: Option<i64>,
    body: Body<'a>,
}

/// A document as a text.
enum Body<'a> {
    Start(Box<Arrival<'a>>),
    Payload(&'a str),
    Reason(Option<&'a str>),
}

impl Serialize for Body<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = match self {
            Self::Start(arrival) => serde_json::to_string(arrival),
            Self::Payload(payload) => return serializer.serialize_str(payload),
            Self::Reason(reason) => serde_json::to_string(reason),
        };
        serializer.serialize_str(&text.map_err(serde::ser::Error::custom)?)
    }
}

impl<'a> Sent<'a> {
    pub(super) fn new(mail: &'a Mail) -> Self {
        let (name, dedup_key, in_us, body) = match mail {
            Mail::Start(new) => {
                let (_, in_us) = when(new.start_at);
                (Some(&*new.machine), None, in_us, Body::Start(Box::new(Arrival::new((0, new)))))
            }
            Mail::Signal { signal, .. } => {
                let NewSignal { name, payload, dedup_key, .. } = signal;
                (Some(&**name), dedup_key.as_deref(), None, Body::Payload(payload.as_str()))
            }
            Mail::Cancel { reason, .. } => (None, None, None, Body::Reason(reason.as_deref())),
        };
        let keep_for = match mail {
            Mail::Signal { signal, .. } => signal.keep_for,
            _ => None,
        };
        let keep_us = keep_for.map(micros);
        Self { kind: mail.kind(), address: mail.address(), name, dedup_key, keep_us, in_us, body }
    }
}
