//! API keys, the audit log, and answers that are kept for repeated requests.

use std::borrow::Cow;
use std::time::Duration;

use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::changes::changes;
use super::collect::AGE_US_MAX;
use super::db::Db;
use super::types::{Columns, readable, strange, when};
use crate::clock::micros;
use crate::store::{
    Admission, Answer, ApiKey, Audit, AuditFilter, Changes, NewApiKey, NewAudit, Repeatable, Reply,
    ServerStore,
};
use crate::{Error, Result};

impl ServerStore for PostgresStore {
    fn changes(&self, namespace: Option<String>, after: Option<i64>, rows_max: usize) -> Reply<'_, Changes> {
        Box::pin(async move { changes(&self.db, namespace.as_deref(), after, rows_max).await })
    }

    fn add_api_key(&self, new: NewApiKey) -> Reply<'_, ApiKey> {
        Box::pin(async move {
            if new.label.contains('\0') {
                return Err(Error::HoldsNul { what: "label" });
            }
            let (at_us, in_us) = when(new.expires);
            let statement = || {
                sqlx::query(include_str!("api_key_add.sql"))
                    .bind(&new.id)
                    .bind(new.hash.as_slice())
                    .bind(&new.label)
                    .bind(&new.namespace)
                    .bind(new.scope.as_str())
                    .bind(at_us)
                    .bind(in_us)
            };
            read_api_key(&self.db.one(statement).await?)
        })
    }

    fn api_key(&self, id: String) -> Reply<'_, Option<ApiKey>> {
        Box::pin(async move { Ok(api_keys(&self.db, None, Some(&id)).await?.pop()) })
    }

    fn api_keys(&self, namespace: Option<String>) -> Reply<'_, Vec<ApiKey>> {
        Box::pin(async move { api_keys(&self.db, namespace.as_deref(), None).await })
    }

    fn revoke_api_key(&self, namespace: Option<String>, id: String) -> Reply<'_, Option<ApiKey>> {
        Box::pin(async move {
            if id.contains('\0') {
                return Ok(None);
            }
            let sql = include_str!("api_key_revoke.sql");
            let rows = self.db.all(|| sqlx::query(sql).bind(&id).bind(&namespace)).await?;
            rows.first().map(read_api_key).transpose()
        })
    }

    fn record_audit(&self, entries: Vec<NewAudit>) -> Reply<'_, ()> {
        Box::pin(async move { record_audit(&self.db, &entries).await })
    }

    fn audit(&self, filter: AuditFilter) -> Reply<'_, Vec<Audit>> {
        Box::pin(async move { audit(&self.db, &filter).await })
    }

    fn admit(&self, request: Repeatable) -> Reply<'_, Admission> {
        Box::pin(async move { admit(&self.db, &request).await })
    }

    fn answer(&self, namespace: String, key: String, answer: Option<Answer>) -> Reply<'_, ()> {
        Box::pin(async move {
            let keep = "update dormouse.answers set status = $3, body = $4 where namespace = $1 and key = $2";
            let forget = "delete from dormouse.answers where namespace = $1 and key = $2 and status is null";
            let statement = || match &answer {
                Some(Answer { status, body }) => {
                    sqlx::query(keep).bind(&namespace).bind(&key).bind(i32::from(*status)).bind(body)
                }
                None => sqlx::query(forget).bind(&namespace).bind(&key),
            };
            self.db.all(statement).await.map(drop)
        })
    }

    fn tidy(&self, answers_for: Duration, audit_for: Duration, rows_max: usize) -> Reply<'_, usize> {
        Box::pin(async move {
            let sql = "select dormouse.tidy($1, $2, $3) as gone";
            let rows_max = i32::try_from(rows_max).unwrap_or(i32::MAX);
            let age = |kept_for: Duration| micros(kept_for).min(AGE_US_MAX);
            let (answers, audit) = (age(answers_for), age(audit_for));
            let statement = || sqlx::query(sql).bind(answers).bind(audit).bind(rows_max);
            self.db.one(statement).await?.number("gone")
        })
    }
}

async fn api_keys(db: &Db, namespace: Option<&str>, id: Option<&str>) -> Result<Vec<ApiKey>> {
    if [namespace, id].into_iter().flatten().any(|text| text.contains('\0')) {
        return Ok(Vec::new());
    }
    let sql = include_str!("api_keys.sql");
    let rows = db.all(|| sqlx::query(sql).bind(namespace).bind(id)).await?;
    readable(&rows, read_api_key)
}

fn read_api_key(row: &PgRow) -> Result<ApiKey> {
    let scope: &str = row.value("scope")?;
    let hash: Vec<u8> = row.value("hash")?;
    Ok(ApiKey {
        id: row.value("id")?,
        hash: hash.try_into().map_err(|hash: Vec<u8>| strange("hash", hash.len()))?,
        label: row.value("label")?,
        namespace: row.value("namespace")?,
        scope: scope.parse().map_err(|_| strange("scope", scope))?,
        created_at: row.moment("created_at")?,
        expires_at: row.moment_or_none("expires_at")?,
        revoked_at: row.moment_or_none("revoked_at")?,
        is_live: row.value("is_live")?,
    })
}

async fn record_audit(db: &Db, entries: &[NewAudit]) -> Result<()> {
    let column = |text: fn(&NewAudit) -> &str| -> Vec<Cow<'_, str>> {
        entries.iter().map(|entry| storable(text(entry))).collect()
    };
    let [namespaces, whos, whats, results] =
        [column(|e| &e.namespace), column(|e| &e.who), column(|e| &e.what), column(|e| &e.result)];
    let targets: Vec<_> = entries.iter().map(|entry| entry.target.as_deref().map(storable)).collect();
    let statement = || {
        sqlx::query(include_str!("audit_record.sql"))
            .bind(&namespaces)
            .bind(&whos)
            .bind(&whats)
            .bind(&targets)
            .bind(&results)
    };
    db.all(statement).await.map(drop)
}

async fn audit(db: &Db, filter: &AuditFilter) -> Result<Vec<Audit>> {
    let text = |text: &'_ Option<String>| text.as_deref().map(|text| storable(text).into_owned());
    let (who, what, target) = (text(&filter.who), text(&filter.what), text(&filter.target));
    let namespace = text(&filter.namespace);
    let sql = match namespace {
        Some(_) => include_str!("audit_of_namespace.sql"),
        None => include_str!("audit.sql"),
    };
    let limit = filter.limit.min(i64::MAX as usize) as i64;
    let statement = || {
        let common = sqlx::query(sql).bind(filter.before).bind(&who).bind(&what).bind(&target).bind(limit);
        match &namespace {
            Some(namespace) => common.bind(namespace),
            None => common,
        }
    };
    db.all(statement).await?.iter().map(read_audit).collect()
}

fn read_audit(row: &PgRow) -> Result<Audit> {
    Ok(Audit {
        id: row.value("id")?,
        at: row.moment("at")?,
        entry: NewAudit {
            namespace: row.value("namespace")?,
            who: row.value("who")?,
            what: row.value("what")?,
            target: row.value("target")?,
            result: row.value("result")?,
        },
    })
}

/// A text as the audit log takes it: attempts with a U+0000 are recorded too, and the database cannot store one.
fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{2400}").into() } else { text.into() }
}

async fn admit(db: &Db, request: &Repeatable) -> Result<Admission> {
    let sql = "select v.admission, v.status, v.body from dormouse.admit($1, $2, $3, $4, $5) v";
    let statement = || {
        sqlx::query(sql)
            .bind(&request.namespace)
            .bind(&request.key)
            .bind(request.fingerprint.as_slice())
            .bind(micros(request.kept_for).min(AGE_US_MAX))
            .bind(micros(request.given_up_after).min(AGE_US_MAX))
    };
    let row = db.one(statement).await?;
    Ok(match row.value("admission")? {
        "new" => Admission::New,
        "under_way" => Admission::UnderWay,
        "different" => Admission::Different,
        "answered" => Admission::Answered(Answer { status: row.number("status")?, body: row.value("body")? }),
        other => panic!("{other:?} is no admission"),
    })
}
