//! A database in which somebody's transaction is open, and holds something.

#![allow(unreachable_pub, reason = "a test target has no outside")]

use std::sync::Arc;

use dormouse::store::{Claimed, Commit, Queries, Receipt};
use dormouse::{InstanceId, KeyScope, NewInstance, Status, Transition, WorkerId};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::database::Database;
use crate::verbs::{Verbs, commit, m};

/// What the open transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It has started an instance in a lane.
    Lane,
    /// It has started an instance with a key.
    Key,
    /// It has signalled an instance.
    Instance,
    /// It has signalled six hundred.
    Instances,
}

pub struct Scene {
    pub database: Database,
    pub verbs: Arc<Verbs>,
    pub worker: WorkerId,
    pub hold: Hold,
    /// What has to do with what is held.
    pub held: Vec<InstanceId>,
    /// What has not.
    pub free: Vec<InstanceId>,
}

impl Scene {
    /// `held_in` is the status that those which want the held key are about to enter.
    pub async fn new(hold: Hold, held_in: Status) -> Self {
        let database = Database::new("2030-01-01T00:00:00Z".parse().expect("a moment")).await;
        database.let_time_pass().await;
        let verbs = Arc::new(Verbs::on(&database.url).await);
        let worker = verbs.worker("w").await;
        let held = match hold {
            Hold::Lane => vec![m().lane("held")],
            Hold::Key => vec![m().key("held").key_scope(KeyScope::In(vec![held_in]))],
            Hold::Instance => vec![m().key("held:0")],
            Hold::Instances => (0..600).map(|n| m().key(format!("held:{n}"))).collect::<Vec<NewInstance>>(),
        };
        let held = verbs.insert(held).await.iter().map(dormouse::Inserted::id).collect();
        let free = vec![m(), m().lane("free"), m().key("free")];
        let free = verbs.insert(free).await.iter().map(dormouse::Inserted::id).collect();
        Self { database, verbs, worker, hold, held, free }
    }

    /// Claims all that there is.
    pub async fn claim_all(&self, worker: WorkerId) -> Vec<Claimed> {
        let claimed = self.verbs.claim(worker, 1_000).await;
        assert_eq!(claimed.len(), self.held.len() + self.free.len(), "{:?}", self.hold);
        claimed
    }

    /// Parks all that there is.
    pub async fn park(&self, outcome: &Transition) {
        let claimed = self.claim_all(self.worker).await;
        let commits: Vec<Commit> = claimed.iter().map(|row| commit(row, outcome.clone())).collect();
        let receipts = self.verbs.commit(self.worker, commits).await;
        assert!(receipts.iter().all(|receipt| matches!(receipt, Receipt::Released)), "{receipts:?}");
    }

    /// Opens the transaction.
    pub async fn take_hold(&self) -> PgConnection {
        let mut conn = PgConnection::connect(&self.database.url).await.expect("it connects");
        let start = |more: &str| {
            format!(
                "select dormouse.start('m', step => 'start', version => 1, even_if_unknown => true, {more})"
            )
        };
        let sql = match self.hold {
            Hold::Lane => start("lane => 'held'"),
            Hold::Key => start("key => 'held'"),
            Hold::Instance | Hold::Instances => {
                let ids: Vec<_> = self.held.iter().map(|id| id.0.to_string()).collect();
                format!(
                    "select dormouse.signal(id, 'other') from unnest(array[{}]::bigint[]) id",
                    ids.join(",")
                )
            }
        };
        sqlx::raw_sql(AssertSqlSafe(format!("begin; {sql}")))
            .execute(&mut conn)
            .await
            .expect("a transaction");
        conn
    }

    pub async fn let_go(mut conn: PgConnection) {
        sqlx::raw_sql("rollback").execute(&mut conn).await.expect("it is rolled back");
    }

    pub async fn status(&self, id: InstanceId) -> Status {
        let found = self.verbs.store.get("default".to_owned(), id.into()).await.expect("a read");
        found.expect("it is there").status
    }

    /// Whether all that has nothing to do with what is held is in this status.
    pub async fn free_are(&self, status: Status) -> bool {
        for id in &self.free {
            if self.status(*id).await != status {
                return false;
            }
        }
        true
    }
}
