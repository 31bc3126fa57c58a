//! dormouse beside sqlx: one program, two database files, one linked SQLite.
//!
//! The step writes to a table of its own and may run again after a crash, so the order's key makes the
//! write idempotent. Here the first try fails just after the write, to show it.

use std::time::Duration;

use dormouse::Engine;
use dormouse::prelude::*;
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

/// Books orders into a table that dormouse knows nothing of.
struct Orders {
    shop: SqlitePool,
}

#[derive(Serialize, Deserialize)]
enum Order {
    Book { item: String },
    Confirm { item: String },
}

impl Machine for Orders {
    const NAME: &'static str = "order";
    type State = Order;
    type Output = String;

    async fn step(&self, state: Order, cx: &Context) -> StepResult<Self> {
        let key = cx.key().ok_or("an order needs a key")?;
        match state {
            Order::Book { item } => {
                let inserted = sqlx::query("insert or ignore into orders (key, item) values (?, ?)")
                    .bind(key)
                    .bind(&item)
                    .execute(&self.shop)
                    .await?
                    .rows_affected();
                println!("try {}: {inserted} row inserted for {key}", cx.attempt());
                if cx.attempt() == 0 {
                    return Err("the connection broke after the write".into());
                }
                Ok(Outcome::next(Order::Confirm { item }))
            }
            Order::Confirm { item } => Ok(Outcome::done(format!("{item} is booked as {key}"))),
        }
    }

    fn retry(&self) -> Retry {
        Retry::times(3).backoff(Duration::from_millis(10), Duration::from_secs(1))
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let dir = tempfile::tempdir()?;
    let shop = open_shop(&dir.path().join("shop.db")).await?;
    let sqlite: String = sqlx::query_scalar("select sqlite_version()").fetch_one(&shop).await?;
    println!("SQLite {sqlite}, for both");

    let url = format!("sqlite:{}", dir.path().join("engine.db").display());
    let engine = Engine::open(&url).await?.machine(Orders { shop: shop.clone() }).start().await?;
    let client = engine.client();

    let id = client.start::<Orders>(Order::Book { item: "a teapot".to_owned() }).key("order-1").await?;
    let output = client.wait::<Orders>(id, Duration::from_secs(10)).await?;
    println!("instance {id} is done: {output}");

    let rows: i64 = sqlx::query_scalar("select count(*) from orders").fetch_one(&shop).await?;
    println!("the shop has {rows} order");
    assert_eq!(rows, 1, "a step that ran twice must have written once");

    engine.shutdown().await;
    shop.close().await;
    Ok(())
}

async fn open_shop(path: &std::path::Path) -> Result<SqlitePool, sqlx::Error> {
    let shop =
        SqlitePool::connect_with(SqliteConnectOptions::new().filename(path).create_if_missing(true)).await?;
    sqlx::query("create table orders (key text primary key, item text not null)").execute(&shop).await?;
    Ok(shop)
}
