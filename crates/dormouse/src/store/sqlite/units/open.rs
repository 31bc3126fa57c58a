//! Opening a unit: the unit and its interactions are written in the commit that parks their instance.

use jiff::Timestamp;
use rusqlite::params;

use super::super::tx::Tx;
use crate::rules::{Head, UnitHead};
use crate::store::{Commit, outbox_queue};
use crate::{Dispatch, INTERACTION_API, Result, UnitId};

/// Writes the unit of an instance's next round, and what it asks.
pub(in crate::store::sqlite) fn open(
    tx: &mut Tx<'_>,
    head: &Head,
    commit: &Commit,
    dispatch: &Dispatch,
) -> Result<UnitId> {
    let deadline = dispatch.timeout.map(|timeout| timeout.moment(tx.now()));
    let mut unit = UnitHead { deadline, ..UnitHead::opened(dispatch, None) };
    tx.sql(include_str!("../unit_insert.sql"))?.execute(params![
        head.id.0,
        head.round + 1,
        dispatch.shape.as_str(),
        unit.transport,
        unit.on_failure.as_str(),
        unit.interactions,
        unit.quorum,
        dispatch.in_flight,
        unit.next_item,
        unit.item_timeout_us,
        unit.outputs_max as i64,
        tx.now_us(),
        deadline.map(Timestamp::as_microsecond),
    ])?;
    unit.id = UnitId(tx.conn().last_insert_rowid());
    ask(tx, head, commit, &unit, dispatch)?;
    Ok(unit.id)
}

fn ask(tx: &mut Tx<'_>, head: &Head, commit: &Commit, unit: &UnitHead, dispatch: &Dispatch) -> Result<()> {
    let now = tx.now_us();
    let deadline = unit.item_deadline(tx.now()).map(Timestamp::as_microsecond);
    let send_at = (unit.transport != INTERACTION_API).then_some(now);
    let mut traced = tx.sql("select trace from instances where id = ?1")?;
    let trace: Option<String> = traced.query_row([head.id.0], |row| row.get(0))?;
    let mut insert = tx.sql(include_str!("../unit_ask.sql"))?;
    for (item, ask) in dispatch.asks.iter().enumerate() {
        let in_flight = item < unit.next_item as usize;
        insert.execute(params![
            unit.id.0,
            item as i64,
            head.id.0,
            head.namespace,
            head.machine,
            commit.version,
            dispatch.at.step,
            unit.transport,
            ask.idempotency_key,
            ask.correlation_id,
            in_flight.then_some(now),
            deadline.filter(|_| in_flight),
            send_at.filter(|_| in_flight),
            ask.request.as_str(),
            ask.for_assignee,
            ask.for_group,
            trace,
        ])?;
    }
    if send_at.is_some() && !dispatch.asks.is_empty() {
        tx.effects.runnable(&outbox_queue(&unit.transport));
    }
    Ok(())
}
