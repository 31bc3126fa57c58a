//! `mail`: shows what an instance has sent to others and is not delivered yet.

use serde_json::Value;

use super::conn::Conn;
use super::instances::One;
use super::output::{Output, age, items, table, text};
use super::{Failure, instance_path};

pub(super) async fn mail(conn: &Conn, output: Output, args: &One) -> Result<(), Failure> {
    let waiting = conn.get(&format!("{}/mail", instance_path(&args.instance))).await?;
    output.show(&waiting, |waiting| {
        let row = |piece: &Value| {
            ["id", "kind", "name", "to"]
                .map(|field| text(piece, field))
                .into_iter()
                .chain([age(piece, "at"), text(piece, "tries"), text(piece, "undelivered")])
                .collect::<Vec<_>>()
        };
        let rows: Vec<_> = items(waiting, "items").map(row).collect();
        table(&["ID", "KIND", "NAME", "TO", "SENT", "TRIES", ""], &rows, "no mail of it waits");
    });
    Ok(())
}
