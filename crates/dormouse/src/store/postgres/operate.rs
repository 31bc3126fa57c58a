//! What people and programs do to instances from outside: cancel, retry, pause.

use sqlx::postgres::PgRow;

use super::db::Db;
use super::deliver::address;
use super::types::Columns;
use crate::limits::check_tag_count;
use crate::limits::sorted;
use crate::store::{
    Amend, AmendRequest, Brake, Cancel, CancelRequest, Effects, TagChange, Written, share_id,
};
use crate::{At, Error, InstanceId, Json, Result, Status, Target, rules};

pub(super) async fn cancel(
    db: &Db,
    namespace: &str,
    target: &Target,
    request: &CancelRequest,
) -> Result<Written<Cancel>> {
    let (id, key) = address(target);
    let sql = "select v.id, v.answer, v.status, v.seq, v.descendants, (v.effects).* \
        from dormouse.cancel_one($1, $2, $3, $4, $5) v";
    let (reason, expected) = (&request.reason, expected(request.expected_seq));
    let query = || sqlx::query(sql).bind(namespace).bind(id).bind(key).bind(reason).bind(expected);
    let row = db.one(query).await?;
    let value = match row.value("answer")? {
        "requested" => Cancel::Requested,
        "cancelled" => Cancel::Done { descendants: row.number("descendants")? },
        "ended" => Cancel::AlreadyEnded(row.status("status")?),
        answer => return Err(refused(answer, &row, target, request.expected_seq, "")),
    };
    Ok(Written { value, effects: row.effects()? })
}

pub(super) async fn retry(
    db: &Db,
    namespace: &str,
    target: &Target,
    at: Option<&At>,
    expected_seq: Option<u64>,
) -> Result<Written<InstanceId>> {
    let (id, key) = address(target);
    let sql = "select v.id, v.answer, v.status, v.seq, v.key, v.holder, (v.effects).* \
        from dormouse.retry($1, $2, $3, $4, $5, $6) v";
    let (step, state) = (at.map(|at| &*at.step), at.map(|at| at.state.as_str()));
    let query = || sqlx::query(sql).bind(namespace).bind(id).bind(key).bind(step).bind(state);
    let row = db.one(|| query().bind(expected(expected_seq))).await?;
    match row.value("answer")? {
        "retried" => Ok(Written { value: InstanceId(row.value("id")?), effects: row.effects()? }),
        "key_taken" => {
            Err(Error::KeyTaken { key: row.value("key")?, holder: InstanceId(row.value("holder")?) })
        }
        answer => {
            let reason = "only a failed or cancelled instance can be retried";
            Err(refused(answer, &row, target, expected_seq, reason))
        }
    }
}

pub(super) async fn pause(
    db: &Db,
    namespace: &str,
    target: &Target,
    brake: Brake,
    expected_seq: Option<u64>,
) -> Result<Written<InstanceId>> {
    let (id, key) = address(target);
    let sql =
        "select v.id, v.answer, v.status, v.seq, (v.effects).* from dormouse.pause($1, $2, $3, $4, $5) v";
    let paused = brake == Brake::On;
    let query = || sqlx::query(sql).bind(namespace).bind(id).bind(key).bind(paused);
    let row = db.one(|| query().bind(expected(expected_seq))).await?;
    match row.value("answer")? {
        "ok" => {
            let effects = Effects { braked: paused, ..row.effects()? };
            Ok(Written { value: InstanceId(row.value("id")?), effects })
        }
        answer => {
            let reason = "only a live instance can be paused or resumed";
            Err(refused(answer, &row, target, expected_seq, reason))
        }
    }
}

pub(super) async fn amend(
    db: &Db,
    namespace: &str,
    target: &Target,
    request: &AmendRequest,
) -> Result<Written<InstanceId>> {
    let (id, key) = address(target);
    let sql =
        "select v.id, v.answer, v.status, v.seq, (v.effects).* from dormouse.amend($1, $2, $3, $4, $5, $6) v";
    let payload = match &request.amend {
        Amend::Drop => None,
        Amend::Edit(payload) => Some(payload.as_str()),
    };
    let query = || sqlx::query(sql).bind(namespace).bind(id).bind(key).bind(request.signal.0).bind(payload);
    let row = db.one(|| query().bind(expected(request.expected_seq))).await?;
    match row.value("answer")? {
        "amended" => Ok(Written { value: InstanceId(row.value("id")?), effects: row.effects()? }),
        "no_signal" => Err(Error::NoSignal { id: InstanceId(row.value("id")?), signal: request.signal }),
        answer => {
            let reason =
                "its step runs and may have read the signal; pause it, and try again when the step has ended";
            Err(refused(answer, &row, target, request.expected_seq, reason))
        }
    }
}

pub(super) async fn edit(
    db: &Db,
    namespace: &str,
    target: &Target,
    state: &Json,
    expected_seq: Option<u64>,
) -> Result<InstanceId> {
    let (id, key) = address(target);
    let sql = "select v.id, v.answer, v.status, v.seq from dormouse.edit($1, $2, $3, $4, $5) v";
    let query = || sqlx::query(sql).bind(namespace).bind(id).bind(key).bind(state.as_str());
    let row = db.one(|| query().bind(expected(expected_seq))).await?;
    match row.value("answer")? {
        "edited" => Ok(InstanceId(row.value("id")?)),
        answer => {
            let status: Option<Status> =
                row.value::<Option<&str>>("status")?.and_then(|word| word.parse().ok());
            let reason = status.and_then(rules::edit_refused).unwrap_or_default();
            Err(refused(answer, &row, target, expected_seq, reason))
        }
    }
}

pub(super) async fn tag(
    db: &Db,
    namespace: &str,
    target: &Target,
    change: &TagChange,
) -> Result<Vec<String>> {
    let (id, key) = address(target);
    let sql = "select v.answer, v.tags from dormouse.tag($1, $2, $3, $4, $5) v";
    let query = || sqlx::query(sql).bind(namespace).bind(id).bind(key).bind(&change.add).bind(&change.remove);
    let row = db.one(query).await?;
    let tags: Vec<String> = row.value("tags")?;
    match row.value("answer")? {
        "tagged" => Ok(tags),
        "too_many" => Err(check_tag_count(&sorted(&tags)).expect_err("the database counted them")),
        answer => Err(refused(answer, &row, target, None, "")),
    }
}

pub(super) async fn pause_queue(db: &Db, namespace: &str, queue: &str, brake: Brake) -> Result<Written<()>> {
    let mut effects = Effects { braked: brake == Brake::On, ..Effects::default() };
    let sql = match brake {
        Brake::On => {
            "insert into dormouse.paused_queues (namespace, queue, at) values ($1, $2, dormouse.now()) \
                on conflict do nothing"
        }
        Brake::Off => {
            effects.runnable(queue);
            "delete from dormouse.paused_queues where namespace = $1 and queue = $2"
        }
    };
    db.all(|| sqlx::query(sql).bind(namespace).bind(queue)).await?;
    Ok(Written { value: (), effects })
}

pub(super) async fn weigh(db: &Db, namespace: &str, share: &str, weight: u32) -> Result<()> {
    let id = share_id(namespace, Some(share));
    if weight == 1 {
        db.all(|| sqlx::query("delete from dormouse.shares where share = $1").bind(&id)).await?;
    } else {
        let sql = include_str!("weigh.sql");
        db.all(|| sqlx::query(sql).bind(&id).bind(namespace).bind(weight as i32)).await?;
    }
    Ok(())
}

/// An expected `seq` as the database takes it. One that is too large for it is one that no instance has.
fn expected(seq: Option<u64>) -> Option<i64> {
    seq.map(|seq| i64::try_from(seq).unwrap_or(i64::MAX))
}

fn refused(
    answer: &str,
    row: &PgRow,
    target: &Target,
    expected_seq: Option<u64>,
    reason: &'static str,
) -> Error {
    let id = || -> Result<InstanceId> { Ok(InstanceId(row.value("id")?)) };
    let wrong_status = || Ok(Error::WrongStatus { id: id()?, status: row.status("status")?, reason });
    let stale = |expected| Ok(Error::StaleSeq { id: id()?, expected, actual: row.number("seq")? });
    let told: Result<Error> = match (answer, expected_seq) {
        ("not_found", _) => Ok(Error::NotFound(target.clone())),
        ("wrong_status", _) => wrong_status(),
        ("stale_seq", Some(expected)) => stale(expected),
        (other, _) => panic!("{other:?} is no answer to an operator"),
    };
    told.unwrap_or_else(|unreadable| unreadable)
}
