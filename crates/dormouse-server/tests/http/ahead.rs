//! A machine's graph, and what an instance would do if something happened to it.

use serde_json::json;

use crate::kit::*;

suite![
    a_machine_tells_its_graph_and_another_is_not_found,
    what_an_instance_would_do_is_told_and_nothing_is_done,
    what_cannot_happen_is_refused,
];

async fn a_machine_tells_its_graph_and_another_is_not_found(database: Database) {
    let site = database.open().await;
    let graph = site.get("/v1/machines/shop/graph").await.expect(200);
    assert_eq!((&graph["machine"], &graph["version"]), (&json!("shop"), &json!(1)));
    assert_eq!(graph["nodes"][0], json!({ "step": "Start", "kind": "act" }));
    assert_eq!(graph["edges"][0], json!({ "from": "Start", "to": "Ship", "when": "paid", "by": "the bank" }));
    site.get("/v1/machines/shop/graph?version=2").await.expect_problem(404, "not-found");
    // It runs here, but declares no graph.
    site.get("/v1/machines/review/graph").await.expect_problem(404, "not-found");
    site.get("/v1/machines/none/graph").await.expect_problem(404, "not-found");
}

async fn what_an_instance_would_do_is_told_and_nothing_is_done(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    let before = site.get(&format!("/v1/instances/{id}")).await.expect(200);
    let told = site.get(&format!("/v1/instances/{id}/what-if?happening=signal&signal=paid&payload=5")).await;
    let told = told.expect(200);
    let ends: Vec<_> = told["ways"].as_array().expect("ways").iter().map(|way| &way[0]["status"]).collect();
    assert_eq!(ends, ["done", "failed"], "{told}");
    assert_eq!(told["is_complete"], true);
    assert_eq!(site.get(&format!("/v1/instances/{id}")).await.expect(200), before);
    assert_eq!(site.get(&format!("/v1/instances/{id}/inbox")).await.expect(200)["items"], json!([]));
}

async fn what_cannot_happen_is_refused(database: Database) {
    let site = database.open().await;
    let id = site.order(1).await;
    let what_if = |query: &'static str| {
        let path = format!("/v1/instances/{id}/what-if?{query}");
        let site = &site;
        async move { site.get(&path).await }
    };
    what_if("happening=deadline").await.expect_problem(409, "wrong-status");
    what_if("happening=signal").await.expect_problem(400, "invalid-request");
    what_if("happening=deadline&signal=paid").await.expect_problem(400, "invalid-request");
    what_if("happening=dance").await.expect_problem(400, "invalid-request");
    what_if("happening=signal&signal=paid&payload=%7B").await.expect_problem(400, "invalid-request");
    what_if("happening=signal&signal=paid&payload=true").await.expect_problem(422, "payload-refused");
    site.get("/v1/instances/999/what-if?happening=clock").await.expect_problem(404, "not-found");
    let other = json!({ "machine": "elsewhere", "step": "Start", "state": null, "even_if_unknown": true });
    let other = site.post("/v1/instances", other).await.expect(201)["id"].as_i64().expect("an id");
    let told = site.get(&format!("/v1/instances/{other}/what-if?happening=clock")).await;
    told.expect_problem(409, "unknown-machine");
}
