//! `dormouse dev`: the dashboard and the HTTP API over a running demo shop, with something to try.

use std::net::SocketAddr;

use dormouse::Client;
use dormouse_server::cli::{Failure, Globals};
use dormouse_server::{Exporter, Server, Stop, access_at, listen};

use crate::demo::Shopkeeper;

/// How to serve the shop.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address to listen on [default: 127.0.0.1:7878]
    #[arg(long, value_name = "ADDRESS", env = "DORMOUSE_BIND", hide_env_values = true)]
    bind: Option<SocketAddr>,
    /// How many orders a new database starts with
    #[arg(long, value_name = "N", default_value_t = 100)]
    orders: u64,
}

pub(crate) async fn run(globals: &Globals, args: Args) -> Result<(), Failure> {
    globals.log(false);
    let mut stop = Stop::listen()?;
    let exporter = Exporter::install().expect("this process has no other recorder");
    let client = Client::on(globals.open().await?);
    let bind = args.bind.unwrap_or_else(|| globals.bind());
    let access = access_at(&client, bind, globals.auth(), &[]).await?;
    let shop = Shopkeeper::open(globals, client, args.orders).await?;
    let server = Server::new(shop.client(), access)?.exporter(exporter);
    let db = globals.shown();
    let served = listen(server, bind, &mut stop, |address| {
        println!("An order shop runs on {db}. Open its dashboard:\n\n    http://{address}/\n");
        println!("Some refunds wait for you at http://{address}/inbox, and orders for an approval at");
        println!("http://{address}/waiting?signal=approval. The same through the API:\n");
        println!("    curl 'http://{address}/v1/interactions?status=pending'");
        println!("    curl -H 'Content-Type: application/json' -d '{{\"output\":{{\"approved\":true}}}}' \\");
        println!("        'http://{address}/v1/interactions/ID/complete'");
        println!("    curl -N 'http://{address}/v1/events'\n");
        println!(
            "Or with this program: `dormouse ls`, `dormouse watch`, `dormouse --help`. Ctrl-C stops it."
        );
    })
    .await;
    shop.close().await;
    served?;
    Ok(())
}
