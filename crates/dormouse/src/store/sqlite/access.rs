//! API keys, the audit log, and answers that are kept for repeated requests.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row as SqlRow, named_params, params};

use super::changes::changes;
use super::fault::strange;
use super::tx::{Tx, timestamp};
use super::{SqliteStore, quiet};
use crate::Result;
use crate::store::{
    Admission, Answer, ApiKey, Audit, AuditFilter, Changes, NewApiKey, NewAudit, Repeatable, Reply,
    ServerStore,
};

impl ServerStore for SqliteStore {
    fn changes(&self, namespace: Option<String>, after: Option<i64>, rows_max: usize) -> Reply<'_, Changes> {
        self.read(move |conn| changes(conn, namespace.as_deref(), after, rows_max))
    }

    fn add_api_key(&self, new: NewApiKey) -> Reply<'_, ApiKey> {
        quiet(self.write(move |tx| {
            let expires_at = new.expires.map(|when| when.moment(tx.now()).as_microsecond());
            tx.sql(include_str!("api_key_add.sql"))?.execute(params![
                new.id,
                new.hash,
                new.label,
                new.namespace,
                new.scope.as_str(),
                tx.now_us(),
                expires_at,
            ])?;
            let added = api_key(tx.conn(), &new.id, tx.now())?;
            Ok(added.expect("it was just inserted"))
        }))
    }

    fn api_key(&self, id: String) -> Reply<'_, Option<ApiKey>> {
        let now = self.clock.now();
        self.read(move |conn| api_key(conn, &id, now))
    }

    fn api_keys(&self, namespace: Option<String>) -> Reply<'_, Vec<ApiKey>> {
        let now = self.clock.now();
        self.read(move |conn| {
            let mut sql = conn.prepare_cached(include_str!("api_keys.sql"))?;
            let keys = sql.query_map([&namespace], |row| read_api_key(row, now))?;
            Ok(keys.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn revoke_api_key(&self, namespace: Option<String>, id: String) -> Reply<'_, Option<ApiKey>> {
        quiet(self.write(move |tx| {
            let is_asked_for = |key: &ApiKey| namespace.as_ref().is_none_or(|name| *name == key.namespace);
            let Some(key) = api_key(tx.conn(), &id, tx.now())?.filter(is_asked_for) else { return Ok(None) };
            tx.sql("update api_keys set revoked_at = coalesce(revoked_at, ?2) where id = ?1")?
                .execute((&key.id, tx.now_us()))?;
            api_key(tx.conn(), &id, tx.now())
        }))
    }

    fn record_audit(&self, entries: Vec<NewAudit>) -> Reply<'_, ()> {
        quiet(self.write(move |tx| {
            let mut sql = tx.sql(include_str!("audit_record.sql"))?;
            for NewAudit { namespace, who, what, target, result } in &entries {
                sql.execute(params![tx.now_us(), namespace, who, what, target, result])?;
            }
            Ok(())
        }))
    }

    fn audit(&self, filter: AuditFilter) -> Reply<'_, Vec<Audit>> {
        self.read(move |conn| audit(conn, &filter))
    }

    fn admit(&self, request: Repeatable) -> Reply<'_, Admission> {
        quiet(self.write(move |tx| admit(tx, &request)))
    }

    fn answer(&self, namespace: String, key: String, answer: Option<Answer>) -> Reply<'_, ()> {
        quiet(self.write(move |tx| {
            match &answer {
                Some(Answer { status, body }) => tx
                    .sql("update answers set status = ?3, body = ?4 where namespace = ?1 and key = ?2")?
                    .execute((&namespace, &key, status, body))?,
                None => tx
                    .sql("delete from answers where namespace = ?1 and key = ?2 and status is null")?
                    .execute((&namespace, &key))?,
            };
            Ok(())
        }))
    }

    fn tidy(&self, answers_for: Duration, audit_for: Duration, rows_max: usize) -> Reply<'_, usize> {
        quiet(self.sweep(move |tx| {
            let before = |age: Duration| {
                let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
                tx.now().checked_sub(age).map_or(i64::MIN, Timestamp::as_microsecond)
            };
            let rows_max = rows_max as i64;
            let answers =
                tx.sql(include_str!("tidy_answers.sql"))?.execute((before(answers_for), rows_max))?;
            let audit = tx.sql(include_str!("tidy_audit.sql"))?.execute((before(audit_for), rows_max))?;
            Ok(answers + audit)
        }))
    }
}

fn api_key(conn: &Connection, id: &str, now: Timestamp) -> Result<Option<ApiKey>> {
    let mut sql = conn.prepare_cached("select * from api_keys where id = ?1")?;
    Ok(sql.query_row([id], |row| read_api_key(row, now)).optional()?)
}

fn read_api_key(row: &SqlRow<'_>, now: Timestamp) -> rusqlite::Result<ApiKey> {
    let at = |name: &str| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(name)?.map(timestamp));
    let scope: String = row.get("scope")?;
    let (expires_at, revoked_at) = (at("expires_at")?, at("revoked_at")?);
    Ok(ApiKey {
        id: row.get("id")?,
        hash: row.get("hash")?,
        label: row.get("label")?,
        namespace: row.get("namespace")?,
        scope: scope.parse().map_err(|_| strange("scope", &scope))?,
        created_at: timestamp(row.get("created_at")?),
        expires_at,
        revoked_at,
        is_live: revoked_at.is_none() && expires_at.is_none_or(|at| at > now),
    })
}

fn audit(conn: &Connection, filter: &AuditFilter) -> Result<Vec<Audit>> {
    let mut sql = conn.prepare_cached(match filter.namespace {
        Some(_) => include_str!("audit_of_namespace.sql"),
        None => include_str!("audit.sql"),
    })?;
    let all = named_params! {
        ":namespace": filter.namespace, ":who": filter.who, ":what": filter.what, ":target": filter.target,
        ":before": filter.before, ":limit": filter.limit as i64,
    };
    let used: Vec<_> =
        all.iter().filter(|(name, _)| matches!(sql.parameter_index(name), Ok(Some(_)))).copied().collect();
    let entries = sql.query_map(&used[..], |row| {
        Ok(Audit {
            id: row.get(0)?,
            at: timestamp(row.get(1)?),
            entry: NewAudit {
                namespace: row.get(2)?,
                who: row.get(3)?,
                what: row.get(4)?,
                target: row.get(5)?,
                result: row.get(6)?,
            },
        })
    })?;
    Ok(entries.collect::<rusqlite::Result<_>>()?)
}

fn admit(tx: &mut Tx<'_>, request: &Repeatable) -> Result<Admission> {
    let Repeatable { namespace, key, fingerprint, .. } = request;
    let known = tx
        .sql("select fingerprint, at, status, body from answers where namespace = ?1 and key = ?2")?
        .query_row((namespace, key), Known::read)
        .optional()?;
    if let Some(Known { fingerprint: known, at, answer }) = known {
        let age = tx.now().duration_since(at);
        let is_over = |after: Duration| age >= SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
        let is_forgotten = is_over(request.kept_for) || (answer.is_none() && is_over(request.given_up_after));
        match answer {
            _ if is_forgotten => {}
            _ if known != *fingerprint => return Ok(Admission::Different),
            Some(answer) => return Ok(Admission::Answered(answer)),
            None => return Ok(Admission::UnderWay),
        }
    }
    tx.sql(include_str!("answer_admit.sql"))?.execute(params![namespace, key, fingerprint, tx.now_us()])?;
    Ok(Admission::New)
}

/// What is kept of a request; no answer means that it is under way.
struct Known {
    fingerprint: [u8; 32],
    at: Timestamp,
    answer: Option<Answer>,
}

impl Known {
    fn read(row: &SqlRow<'_>) -> rusqlite::Result<Self> {
        let (status, body): (Option<u16>, Option<String>) = (row.get(2)?, row.get(3)?);
        let answer = status.zip(body).map(|(status, body)| Answer { status, body });
        Ok(Self { fingerprint: row.get(0)?, at: timestamp(row.get(1)?), answer })
    }
}
