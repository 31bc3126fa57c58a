//! What people and programs do to instances from outside: cancel, retry, pause.

use sqlx::postgres::PgRow;

use super::db::Db;
use super::deliver::address;
use super::types::Columns;
use crate::store::{Brake, Cancel, Effects, Written};
use crate::{At, Error, InstanceId, Result, Target};

pub(super) async fn cancel(db: &Db, namespace: &str, target: &Target) -> Result<Written<Cancel>> {
    let (id, key) = address(target);
    let sql = "select v.id, v.answer, v.status, v.descendants, (v.effects).* \
        from dormouse.cancel_one($1, $2, $3) v";
    let row = db.one(|| sqlx::query(sql).bind(namespace).bind(id).bind(key)).await?;
    let value = match row.value("answer")? {
        "requested" => Cancel::Requested,
        "cancelled" => Cancel::Done { descendants: row.number("descendants")? },
        "ended" => Cancel::AlreadyEnded(row.status("status")?),
        answer => return Err(refused(answer, &row, target, "")),
    };
    Ok(Written { value, effects: row.effects()? })
}

pub(super) async fn retry(
    db: &Db,
    namespace: &str,
    target: &Target,
    at: Option<&At>,
) -> Result<Written<InstanceId>> {
    let (id, key) = address(target);
    let sql = "select v.id, v.answer, v.status, v.key, v.holder, (v.effects).* \
        from dormouse.retry($1, $2, $3, $4, $5) v";
    let (step, state) = (at.map(|at| &*at.step), at.map(|at| at.state.as_str()));
    let row = db.one(|| sqlx::query(sql).bind(namespace).bind(id).bind(key).bind(step).bind(state)).await?;
    match row.value("answer")? {
        "retried" => Ok(Written { value: InstanceId(row.value("id")?), effects: row.effects()? }),
        "key_taken" => {
            Err(Error::KeyTaken { key: row.value("key")?, holder: InstanceId(row.value("holder")?) })
        }
        answer => Err(refused(answer, &row, target, "only a failed or cancelled instance can be retried")),
    }
}

pub(super) async fn pause(
    db: &Db,
    namespace: &str,
    target: &Target,
    brake: Brake,
) -> Result<Written<InstanceId>> {
    let (id, key) = address(target);
    let sql = "select v.id, v.answer, v.status, (v.effects).* from dormouse.pause($1, $2, $3, $4) v";
    let paused = brake == Brake::On;
    let row = db.one(|| sqlx::query(sql).bind(namespace).bind(id).bind(key).bind(paused)).await?;
    match row.value("answer")? {
        "ok" => Ok(Written { value: InstanceId(row.value("id")?), effects: row.effects()? }),
        answer => Err(refused(answer, &row, target, "only a live instance can be paused or resumed")),
    }
}

pub(super) async fn pause_queue(db: &Db, namespace: &str, queue: &str, brake: Brake) -> Result<Written<()>> {
    let mut effects = Effects::default();
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

fn refused(answer: &str, row: &PgRow, target: &Target, reason: &'static str) -> Error {
    let wrong_status = || -> Result<Error> {
        Ok(Error::WrongStatus { id: InstanceId(row.value("id")?), status: row.status("status")?, reason })
    };
    match answer {
        "not_found" => Error::NotFound(target.clone()),
        "wrong_status" => wrong_status().unwrap_or_else(|unreadable| unreadable),
        other => panic!("{other:?} is no answer to an operator"),
    }
}
