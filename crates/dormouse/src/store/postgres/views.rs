//! Typed views of machines, for SQL and BI tools.

use sqlx::postgres::PgConnection;

use super::types::Columns as _;
use crate::Result;

/// A view of a machine, or of one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// Its name, in the schema `dormouse_views`.
    pub name: String,
    /// The machine.
    pub machine: String,
    /// The version; `None` for the view of all of them.
    pub version: Option<u32>,
    /// `made`, `there`, `kept` if other objects depend on the old one, `busy` if somebody reads it at the moment.
    pub result: String,
}

/// Makes those that are missing or out of date.
pub(super) async fn make(conn: &mut PgConnection) -> Result<Vec<View>> {
    let sql = "select view, machine, version, result from dormouse.make_views()";
    let rows = sqlx::query(sql).fetch_all(conn).await?;
    let view = |row: &sqlx::postgres::PgRow| {
        Ok(View {
            name: row.value("view")?,
            machine: row.value("machine")?,
            version: row.value::<Option<i32>>("version")?.map(i32::unsigned_abs),
            result: row.value("result")?,
        })
    };
    rows.iter().map(view).collect()
}
