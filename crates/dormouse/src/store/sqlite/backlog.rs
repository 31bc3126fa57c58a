//! What waits, with ages, at a cost that does not grow with how much waits.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension};

use super::fault::readable;
use super::row::names;
use super::tx::timestamp;
use crate::store::{AWAITING_MAX, Awaited, Backlog, QUEUES_MAX, QueueDepth};
use crate::{InstanceId, Result};

/// Lines of claimable rows, and sets of awaited names, that are looked at; more are left out.
const HOPS_MAX: usize = 1_000;

pub(super) fn backlog(conn: &Connection, namespace: Option<&str>) -> Result<Backlog> {
    Ok(Backlog { queues: queues(conn, namespace)?, awaiting: awaiting(conn, namespace)? })
}

fn queues(conn: &Connection, namespace: Option<&str>) -> Result<Vec<QueueDepth>> {
    let mut queues: Vec<QueueDepth> = conn
        .prepare_cached(include_str!("backlog.sql"))?
        .query_map((namespace, QUEUES_MAX as i64), |row| {
            let (namespace, name, runnable) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(QueueDepth { namespace, name, runnable, oldest_runnable_at: None, paused: false })
        })?
        .collect::<rusqlite::Result<_>>()?;
    mark_paused(conn, namespace, &mut queues)?;
    mark_oldest(conn, &mut queues)?;
    queues.truncate(QUEUES_MAX);
    Ok(queues)
}

/// Where each queue is in the list, by namespace and name.
fn index(queues: &[QueueDepth]) -> HashMap<(String, String), usize> {
    let name = |(at, queue): (usize, &QueueDepth)| ((queue.namespace.clone(), queue.name.clone()), at);
    queues.iter().enumerate().map(name).collect()
}

fn mark_paused(conn: &Connection, namespace: Option<&str>, queues: &mut Vec<QueueDepth>) -> Result<()> {
    let mut sql = conn.prepare_cached(
        "select namespace, queue from paused_queues where ?1 is null or namespace = ?1
         order by namespace, queue limit ?2",
    )?;
    let places = index(queues);
    let mut rows = sql.query((namespace, QUEUES_MAX as i64))?;
    while let Some(row) = rows.next()? {
        let (namespace, name): (String, String) = (row.get(0)?, row.get(1)?);
        match places.get(&(namespace.clone(), name.clone())) {
            Some(at) => queues[*at].paused = true,
            None => {
                let oldest_runnable_at = None;
                queues.push(QueueDepth { namespace, name, runnable: 0, oldest_runnable_at, paused: true });
            }
        }
    }
    Ok(())
}

fn mark_oldest(conn: &Connection, queues: &mut [QueueDepth]) -> Result<()> {
    let mut sql = conn.prepare_cached(include_str!("backlog_oldest.sql"))?;
    let places = index(queues);
    let mut last = (String::new(), String::new(), 0_i64, String::new(), i64::MIN, String::new());
    for _ in 0..HOPS_MAX {
        let line = sql
            .query_row((&last.0, &last.1, last.2, &last.3, last.4, &last.5), |row| {
                let line = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
                Ok((line, timestamp(row.get(6)?)))
            })
            .optional()?;
        let Some((line, at)) = line else { break };
        last = line;
        if let Some(at_place) = places.get(&(last.3.clone(), last.0.clone())) {
            let oldest = queues[*at_place].oldest_runnable_at.get_or_insert(at);
            *oldest = at.min(*oldest);
        }
    }
    Ok(())
}

pub(super) fn awaiting(conn: &Connection, namespace: Option<&str>) -> Result<Vec<Awaited>> {
    let mut next = conn.prepare_cached(include_str!("backlog_names.sql"))?;
    let mut count = conn.prepare_cached(include_str!("backlog_awaiting.sql"))?;
    let mut longest = conn.prepare_cached(include_str!("backlog_longest.sql"))?;
    let mut awaiting = Vec::new();
    let mut last = String::new();
    for _ in 0..HOPS_MAX {
        let Some(set) = next.query_row([&last], |row| row.get::<_, Option<String>>(0))? else { break };
        let first = longest.query_row((&set, namespace), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        if let Some((oldest, since)) = first {
            let count = count.query_row((&set, namespace, AWAITING_MAX), |row| row.get(0))?;
            let (oldest, since) = (InstanceId(oldest), timestamp(since));
            let names = readable(Some(oldest.0), names(Some(&set)))?;
            awaiting.extend(names.map(|names| Awaited { names, count, oldest, since }));
        }
        last = set;
    }
    Ok(awaiting)
}
