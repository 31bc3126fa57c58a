//! Opening a unit: the unit, its interactions and the park are one commit.

use jiff::Timestamp;
use rusqlite::params;
use serde_json::json;

use super::super::commit::{consume, with_consumed};
use super::super::row::Row;
use super::super::tx::Tx;
use super::resolve::OpenUnit;
use crate::clock::{later, micros};
use crate::store::outbox_queue;
use crate::{Dispatch, EventKind, INTERACTION_API, Result, SignalId, Status, UnitId, UnitStatus};

pub(in crate::store::sqlite) fn park_on_unit(
    tx: &mut Tx<'_>,
    row: &mut Row,
    received: &[SignalId],
    dispatch: &Dispatch,
) -> Result<()> {
    let consumed = consume(tx, row, received)?;
    row.progress();
    row.go_to(&dispatch.at);
    row.round += 1;
    let deadline = dispatch.timeout.map(|timeout| timeout.moment(tx.now()));
    let mut unit = insert(tx, row, dispatch, deadline)?;
    ask(tx, row, &unit, dispatch)?;
    let data = json!({
        "unit": unit.id, "shape": dispatch.shape, "transport": dispatch.transport,
        "interactions": unit.interactions, "until": deadline.map(|at| at.to_string()),
    });
    tx.record(row, EventKind::UnitOpened, Some(with_consumed(data.to_string(), consumed)))?;
    if dispatch.asks.is_empty() {
        row.barrier = Some(0);
        return unit.close(tx, row, UnitStatus::Completed);
    }
    row.barrier = Some(unit.to_come());
    let first_late = dispatch.item_timeout.map(|timeout| later(tx.now(), timeout));
    row.park(Status::AwaitingCompletion, deadline.into_iter().chain(first_late).min());
    Ok(())
}

fn insert(tx: &Tx<'_>, row: &Row, dispatch: &Dispatch, deadline: Option<Timestamp>) -> Result<OpenUnit> {
    let interactions = dispatch.asks.len() as u32;
    let in_flight = dispatch.in_flight.unwrap_or(u32::MAX);
    let unit = OpenUnit {
        id: UnitId(0),
        transport: dispatch.transport.clone(),
        on_failure: dispatch.on_failure,
        shape: dispatch.shape,
        interactions,
        quorum: dispatch.needed(),
        completed: 0,
        failed: 0,
        next_item: interactions.min(in_flight),
        item_timeout_us: dispatch.item_timeout.map(micros),
        outputs_max: dispatch.outputs_max,
        deadline,
        status: UnitStatus::Open,
    };
    tx.sql(include_str!("../unit_insert.sql"))?.execute(params![
        row.id.0,
        row.round,
        dispatch.shape.as_str(),
        unit.transport,
        unit.on_failure.as_str(),
        interactions,
        unit.quorum,
        dispatch.in_flight,
        unit.next_item,
        unit.item_timeout_us,
        unit.outputs_max as i64,
        tx.now_us(),
        deadline.map(Timestamp::as_microsecond),
    ])?;
    Ok(OpenUnit { id: UnitId(tx.conn().last_insert_rowid()), ..unit })
}

fn ask(tx: &mut Tx<'_>, row: &Row, unit: &OpenUnit, dispatch: &Dispatch) -> Result<()> {
    let now = tx.now_us();
    let deadline = unit.item_deadline_us(tx.now());
    let send_at = (unit.transport != INTERACTION_API).then_some(now);
    let mut insert = tx.sql(include_str!("../unit_ask.sql"))?;
    for (item, ask) in dispatch.asks.iter().enumerate() {
        let in_flight = item < unit.next_item as usize;
        insert.execute(params![
            unit.id.0,
            item as i64,
            row.id.0,
            row.namespace,
            row.machine,
            row.version,
            row.step,
            unit.transport,
            ask.idempotency_key,
            ask.correlation_id,
            in_flight.then_some(now),
            deadline.filter(|_| in_flight),
            send_at.filter(|_| in_flight),
            ask.request.as_str(),
            ask.for_assignee,
            ask.for_group,
        ])?;
    }
    if send_at.is_some() && !dispatch.asks.is_empty() {
        tx.effects.runnable(&outbox_queue(&unit.transport));
    }
    Ok(())
}
