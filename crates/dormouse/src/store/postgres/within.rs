//! Verbs in a caller's own transaction. Pokes go out when that commits, so the database sends them.

use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use super::deliver::{self, address};
use super::insert::{arrivals, inserted};
use super::kept;
use super::types::Columns;
use crate::store::{Addressee, Delivery};
use crate::{Delivered, Inserted, NewInstance, Result, Target};

const INSERT: &str = "select v.ids, v.holders, v.signals::text, (v.effects).*, dormouse.poke(v.effects) \
    from dormouse.insert($1::json) v";
const DELIVER: &str = "select v.results, v.ids, v.wokes, (v.effects).*, dormouse.poke(v.effects) \
    from dormouse.deliver($1::json) v";
const KEEP: &str = "select v.results, v.ids, v.wokes, v.until_us, (v.effects).*, dormouse.poke(v.effects) \
    from dormouse.keep($1::json) v";

/// Inserts instances, each with its signals, and returns the result of each.
pub(crate) async fn insert_in(conn: &mut PgConnection, batch: Vec<NewInstance>) -> Result<Vec<Inserted>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let sent = arrivals(&batch)?;
    let row = sqlx::query(INSERT).bind(&sent).persistent(false).fetch_one(conn).await?;
    Ok(inserted(&row, &batch)?.value)
}

/// Delivers a signal and returns the result.
pub(crate) async fn deliver_in(conn: &mut PgConnection, delivery: Delivery) -> Result<Delivered> {
    let sent = deliver::deliveries(std::slice::from_ref(&delivery))?;
    if delivery.signal.keep_for.is_some() {
        let row = sqlx::query(KEEP).bind(&sent).persistent(false).fetch_one(conn).await?;
        return Ok(kept::answers(&row)?.pop().expect("one signal, one answer"));
    }
    let row = sqlx::query(DELIVER).bind(&sent).persistent(false).fetch_one(conn).await?;
    Ok(deliver::answers(&row)?.delivered().pop().flatten().expect("one signal, one answer"))
}

/// Whom a signal is for, as the transaction sees it.
pub(crate) async fn addressee_in(
    conn: &mut PgConnection,
    namespace: &str,
    target: &Target,
) -> Result<Option<Addressee>> {
    let (id, key) = address(target);
    let sql = "select machine, version, awaits from dormouse.instances where id = dormouse.find($1, $2, $3)";
    let query = sqlx::query(sql).bind(namespace).bind(id).bind(key).persistent(false);
    let row = query.fetch_optional(conn).await?;
    let addressee = |row: PgRow| {
        let awaits = row.value::<Option<_>>("awaits")?.unwrap_or_default();
        Ok(Addressee { machine: row.value("machine")?, version: row.number("version")?, awaits })
    };
    row.map(addressee).transpose()
}
