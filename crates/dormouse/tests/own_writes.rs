//! A step's own writes on SQLite: a closure that the one writer runs inside the commit of the step's outcome.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use dormouse::prelude::*;
use dormouse::store::sqlite::SqliteStore;
use dormouse::store::sqlite::rusqlite::{self, Connection, ffi, params};
use dormouse::{Client, Engine, Status};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(30);

static DISK_WAS_FULL: AtomicBool = AtomicBool::new(false);

/// Books a sale in its own table, with its own commit.
struct Till;

#[derive(Serialize, Deserialize)]
enum Sale {
    Book { order: i64 },
    Closed { order: i64 },
}

impl Machine for Till {
    const NAME: &'static str = "till";
    type State = Sale;
    type Output = i64;

    async fn step(&self, state: Sale, cx: &Context) -> StepResult<Self> {
        Ok(match state {
            Sale::Book { order } => {
                cx.in_commit(move |db| {
                    db.execute("insert into ledger (sale) values (?1)", params![order])?;
                    match order {
                        13 => Err("an unlucky number".into()),
                        14 => panic!("a broken drawer"),
                        16 if !DISK_WAS_FULL.swap(true, SeqCst) => {
                            Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None)
                                .into())
                        }
                        _ => Ok(()),
                    }
                })?;
                // A second one is run after the first.
                cx.in_commit(move |db| {
                    db.execute("update ledger set amount = 100 where sale = ?1", params![order])?;
                    Ok(())
                })?;
                if order == 15 {
                    return Err("the step fails after all".into());
                }
                Outcome::next(Sale::Closed { order })
            }
            Sale::Closed { order } => Outcome::done(order),
        })
    }
}

struct World {
    dir: TempDir,
    engine: Engine,
}

impl World {
    async fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = SqliteStore::open(dir.path().join("till.db")).await.expect("it opens");
        let db = Connection::open(dir.path().join("till.db")).expect("it opens");
        db.execute_batch("create table ledger (sale integer primary key, amount integer)").expect("a table");
        let engine = Engine::on(std::sync::Arc::new(store)).machine(Till).start().await.expect("it starts");
        Self { dir, engine }
    }

    fn client(&self) -> Client {
        self.engine.client()
    }

    fn booked(&self) -> Vec<(i64, Option<i64>)> {
        let db = Connection::open(self.dir.path().join("till.db")).expect("it opens");
        let mut sql = db.prepare("select sale, amount from ledger order by sale").expect("a statement");
        let rows = sql.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        rows.collect::<Result<_, _>>().expect("rows")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_step_writes_is_committed_with_its_outcome() {
    let world = World::new().await;
    let id = world.client().start::<Till>(Sale::Book { order: 1 }).await.expect("a start");
    assert_eq!(world.client().wait::<Till>(id, SOON).await.expect("it is done"), 1);
    assert_eq!(world.booked(), [(1, Some(100))]);
    world.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_fails_or_panics_undoes_the_outcome_and_fails_the_step_alone() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for order in 10..20 {
        ids.push(world.client().start::<Till>(Sale::Book { order }).await.expect("a start"));
    }
    for (order, id) in (10..20).zip(ids) {
        let ended = world.client().wait_end(id, SOON).await.expect("it ends");
        let error = ended.last_error.unwrap_or_default();
        let why = match order {
            13 => "an unlucky number",
            14 => "it panicked: a broken drawer",
            15 => "the step fails after all",
            _ => {
                assert_eq!(ended.status, Status::Done, "{order}: {error}");
                continue;
            }
        };
        assert_eq!(ended.status, Status::Failed);
        assert!(error.contains(why), "{order}: {error}");
    }
    assert!(DISK_WAS_FULL.load(SeqCst), "that is no failure of the step: it ran again");
    let booked: Vec<i64> = world.booked().into_iter().map(|(sale, _)| sale).collect();
    assert_eq!(booked, [10, 11, 12, 16, 17, 18, 19]);
    world.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_constraint_of_the_callers_own_is_the_steps_failure() {
    let world = World::new().await;
    for expected in [Status::Done, Status::Failed] {
        let id = world.client().start::<Till>(Sale::Book { order: 1 }).await.expect("a start");
        let ended = world.client().wait_end(id, SOON).await.expect("it ends");
        assert_eq!(ended.status, expected, "{ended:?}");
    }
    assert_eq!(world.booked(), [(1, Some(100))]);
    world.engine.shutdown().await;
}
