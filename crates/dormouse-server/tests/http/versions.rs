//! Versions in flight: how many live instances they have, and which of them have no worker.

use dormouse::prelude::*;
use dormouse::store::Namespaces;
use dormouse::{At, Engine, InstanceId, Json};
use serde_json::{Value, json};

use crate::kit::*;

suite![
    machines_tell_the_versions_in_flight_and_who_runs_them,
    what_new_code_migrates_from_is_run_and_lifted,
    pages_name_the_versions_that_no_worker_runs,
    versions_of_another_namespace_are_not_told,
];

/// Started by a program that has been removed.
const OLD: u32 = 7;

async fn machines_tell_the_versions_in_flight_and_who_runs_them(database: Database) {
    let site = database.open().await;
    site.order(1).await;
    let old = old_orders(&site).await;
    site.client.cancel(old[0]).await.expect("a live instance");
    let shop = shop(&site).await;
    assert_eq!(shop["versions"], json!([1]), "what runs");
    let in_flight =
        json!([{ "version": 1, "live": 1, "workers": 1 }, { "version": OLD, "live": 2, "workers": 0 }]);
    assert_eq!(shop["in_flight"], in_flight);
    let places = json!([
        { "version": 1, "step": "Ship", "status": "awaiting_signal", "count": 1 },
        { "version": OLD, "step": "Start", "status": "cancelled", "count": 1 },
        { "version": OLD, "step": "Start", "status": "runnable", "count": 2 },
    ]);
    assert_eq!(shop["places"], places);
    let stats = site.get("/v1/stats").await.expect(200);
    let place =
        json!({ "machine": "shop", "version": OLD, "step": "Start", "status": "runnable", "count": 2 });
    assert!(stats["places"].as_array().expect("places").contains(&place), "{stats}");
    for id in &old[1..] {
        site.client.cancel(*id).await.expect("a live instance");
    }
    let in_flight = json!([{ "version": 1, "live": 1, "workers": 1 }]);
    assert_eq!(self::shop(&site).await["in_flight"], in_flight, "what has ended is not in flight");
}

async fn what_new_code_migrates_from_is_run_and_lifted(database: Database) {
    let site = database.open().await;
    let old = old_orders(&site).await;
    let builder = Engine::on(site.client.store().clone()).namespaces(Namespaces::All).machine(NewShop);
    let engine = builder.start().await.expect("it starts");
    for id in old {
        site.until(id.0, "awaiting_signal").await;
    }
    let shop = shop(&site).await;
    assert_eq!(shop["versions"], json!([1, OLD, NewShop::VERSION]), "and what is migrated from is run");
    assert_eq!(shop["in_flight"], json!([{ "version": NewShop::VERSION, "live": 3, "workers": 1 }]));
    engine.shutdown().await;
    let shop = self::shop(&site).await;
    assert_eq!(shop["in_flight"], json!([{ "version": NewShop::VERSION, "live": 3, "workers": 0 }]));
}

async fn pages_name_the_versions_that_no_worker_runs(database: Database) {
    let site = database.open().await;
    site.order(1).await;
    let old = old_orders(&site).await;
    let browser = site.browser();
    for path in ["/", "/machines", "/machines/shop"] {
        let page = browser.page(path).await;
        let warning = "No worker runs version 7 of <a href=\"/machines/shop\">shop</a> (3 instances).";
        assert!(page.contains(warning), "{path} lacks {warning:?}: {page}");
    }
    for path in ["/machines", "/machines/shop"] {
        let page = browser.page(path).await;
        for part in ["v1: 1 instance</div>", "v7: 3 instances, <span class=\"bad\">no worker runs it</span>"]
        {
            assert!(page.contains(part), "{path} lacks {part:?}: {page}");
        }
    }
    for id in old {
        site.client.cancel(id).await.expect("a live instance");
    }
    for path in ["/", "/machines", "/machines/shop"] {
        let page = browser.page(path).await;
        assert!(!page.contains("No worker runs") && !page.contains("v7"), "{path} warns of nothing: {page}");
    }
}

async fn versions_of_another_namespace_are_not_told(database: Database) {
    let site = database.open().await;
    site.order(1).await;
    let tenant = site.client.in_namespace("tenant").expect("a good name");
    tenant.start_many([old_order()]).await.expect("a start");
    assert_eq!(shop(&site).await["in_flight"], json!([{ "version": 1, "live": 1, "workers": 1 }]));
    assert!(!site.browser().page("/machines").await.contains("No worker runs"));
}

async fn shop(site: &Site) -> Value {
    let machines = site.get("/v1/machines").await.expect(200);
    let is_shop = |machine: &&Value| machine["name"] == "shop";
    machines["machines"].as_array().expect("machines").iter().find(is_shop).expect("the shop").clone()
}

async fn old_orders(site: &Site) -> Vec<InstanceId> {
    let started = site.client.start_many([old_order(), old_order(), old_order()]).await.expect("a start");
    started.iter().map(dormouse::Inserted::id).collect()
}

fn old_order() -> NewInstance {
    NewInstance::named("shop", OLD, At { step: "Start".into(), state: Json::from(json!({ "order": 1 })) })
}

/// A shop that reads the old one's states.
struct NewShop;

impl Machine for NewShop {
    const NAME: &'static str = "shop";
    const VERSION: u32 = OLD + 1;
    const MIGRATES_FROM: u32 = OLD;
    type State = Order;
    type Output = String;

    async fn step(&self, state: Order, _cx: &Context) -> StepResult<Self> {
        Ok(Outcome::await_signal(PAID, state))
    }

    fn migrate(&self, _from_version: u32, at: At) -> Result<At, BoxError> {
        Ok(at)
    }
}
