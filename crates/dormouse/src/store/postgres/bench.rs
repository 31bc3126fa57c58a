//! A database to measure on, and the floor under every figure: the bare statements of a run-ahead commit.

use std::time::Instant;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};

use super::connect::Address;
use super::schema;
use crate::Result;

/// Statements in one transaction.
const BATCH: u64 = 256;
/// Instances that the steps go round.
const INSTANCES: u64 = 1024;

/// A migrated database of its own on a server.
pub struct Bench {
    server: Address,
    name: String,
    url: String,
}

impl Bench {
    /// Creates it beside the one that an address names.
    pub async fn create(server_url: &str) -> Result<Self> {
        let server = Address::parse(server_url)?;
        let name = format!("dormouse_bench_{:08x}", fastrand::u32(..));
        let sql = format!("create database {name}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut server.connect().await?).await?;
        let url = with_database(server_url, &name);
        schema::migrate(&mut Address::parse(&url)?.connect().await?).await?;
        Ok(Self { server, name, url })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Removes it.
    pub async fn remove(self) -> Result<()> {
        let sql = format!("drop database {} with (force)", self.name);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.server.connect().await?).await?;
        Ok(())
    }

    /// What its tables and their indexes take on disk.
    pub async fn bytes(&self) -> Result<u64> {
        let sql = "select sum(pg_total_relation_size(oid))::bigint as n from pg_class \
            where relnamespace = 'dormouse'::regnamespace and relkind = 'r'";
        self.number(sql).await
    }

    /// How often the server has waited for its log to reach the disk, for whomever.
    pub async fn fsyncs(&self) -> Result<u64> {
        // Since version 18 it is counted elsewhere.
        let version = self.number("select current_setting('server_version_num')::bigint as n").await?;
        let sql = if version >= 180_000 {
            "select coalesce(sum(fsyncs), 0)::bigint as n from pg_stat_io where object = 'wal'"
        } else {
            "select wal_sync as n from pg_stat_wal"
        };
        self.number(sql).await
    }

    /// Commits guarded updates, each with a history row, in durable batches of 256 on one connection, and says how many
    /// there were in a second.
    pub async fn raw_steps_per_s(&self, steps: u64) -> Result<f64> {
        let mut conn = self.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(seed())).execute(&mut conn).await?;
        let started = Instant::now();
        let mut step = 0;
        while step < steps {
            let first = step % INSTANCES;
            let ids: Vec<i64> = (first..first + BATCH).map(|id| id as i64 + 1).collect();
            let seqs = vec![(step / INSTANCES) as i64 + 1; BATCH as usize];
            let row = sqlx::query(
                "select cardinality(held) as n from dormouse.commit_next(1, $1, $2, $3, $4, $5, $6, $6, $7)",
            )
            .bind(&ids)
            .bind(&seqs)
            .bind(vec![1_i32; BATCH as usize])
            .bind(vec!["Count"; BATCH as usize])
            .bind(vec![r#"{"left":19}"#; BATCH as usize])
            .bind(vec![None::<i64>; BATCH as usize])
            .bind(vec![None::<&str>; BATCH as usize])
            .fetch_one(&mut conn)
            .await?;
            assert_eq!(
                row.try_get::<i32, _>("n")?,
                BATCH as i32,
                "the limit is measured on updates that happen"
            );
            step += BATCH;
        }
        Ok(step as f64 / started.elapsed().as_secs_f64())
    }

    async fn connect(&self) -> Result<PgConnection> {
        Address::parse(&self.url)?.connect().await
    }

    async fn number(&self, sql: &'static str) -> Result<u64> {
        let mut conn = self.connect().await?;
        let row = sqlx::raw_sql(sql).fetch_one(&mut conn).await?;
        let number: i64 = row.try_get("n")?;
        conn.close().await?;
        Ok(number as u64)
    }
}

fn seed() -> String {
    format!(
        "insert into dormouse.instances (id, namespace, machine, version, status, step, seq, queue, priority,
            runnable_at, worker, created_at, changed_at, state)
        select id, 'default', 'chain', 1, 'executing', 'Count', 1, 'default', 0, now(), 1, now(), now(),
            '{{\"left\":20}}'
        from generate_series(1, {INSTANCES}) id"
    )
}

/// The same address with another database.
fn with_database(url: &str, name: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let host_at = base.find("://").map_or(0, |scheme| scheme + 3);
    let end = base[host_at..].find('/').map_or(base.len(), |slash| host_at + slash);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}/{name}{query}", &base[..end])
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn an_address_keeps_everything_but_its_database() {
        assert_eq!(
            with_database("postgres://u:p@h:5/d?sslmode=disable", "x"),
            "postgres://u:p@h:5/x?sslmode=disable"
        );
        assert_eq!(with_database("postgres://h", "x"), "postgres://h/x");
    }
}
