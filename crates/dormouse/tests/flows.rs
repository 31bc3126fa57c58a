//! What is found wrong with a flow before it runs, and how its graph is told.

use std::time::Duration;

use dormouse::flow::{ActResult, Cx, Flow, act, branch, fail, repeat, saga, scene, signal, sleep};
use dormouse::graph::{Graph, NodeKind, On};
use dormouse::prelude::*;

const GO: Signal<u32> = Signal::named("go");

#[derive(Default, Serialize, Deserialize)]
struct State {
    n: u32,
}

async fn step(state: State, _: Cx<()>) -> ActResult<State> {
    Ok(state)
}

async fn undo(state: State, _: Cx<()>) -> ActResult<State> {
    Ok(state)
}

fn take(state: State, n: u32) -> ActResult<State> {
    Ok(State { n: state.n + n })
}

fn flow() -> Flow<State> {
    Flow::new("f")
}

/// The one thing that is wrong with a flow.
#[track_caller]
fn wrong(flow: Flow<State>) -> String {
    let found = flow.build(()).expect_err("it is not well formed");
    assert_eq!(found.errors.len(), 1, "{found}");
    found.to_string()
}

#[test]
fn a_name_that_is_used_twice_is_found_with_both_places() {
    let told = wrong(flow().then(act(step)).then(act(step)));
    assert_eq!(told.matches("tests/flows.rs:").count(), 2, "{told}");
    assert!(told.contains("step: another part at"), "{told}");
    // In another scene it is another name.
    flow().then(scene("a", act(step))).then(scene("b", act(step))).build(()).expect("it is well formed");
}

#[test]
fn a_signal_that_two_parts_wait_for_is_found_with_both_places() {
    let wait = || signal(GO, take).sent_by("the test");
    let told = wrong(flow().then(scene("a", wait())).then(scene("b", wait())));
    assert!(
        told.contains("b/go: a/go at ") && told.contains("waits for the signal \"go\" already"),
        "{told}"
    );
    assert_eq!(told.matches("tests/flows.rs:").count(), 2, "{told}");
}

#[test]
fn a_part_that_is_never_reached_is_found() {
    let stop = || fail("stop", |_: &State| "no".to_owned());
    assert!(
        wrong(flow().then(stop()).then(act(step))).contains("step: it is never reached, as stop always ends")
    );
    let either = branch("either").case("a", |_: &State| true, stop()).otherwise(stop());
    assert!(
        wrong(flow().then(either).then(act(step))).contains("step: it is never reached, as either always")
    );
}

#[test]
fn a_signal_that_may_never_come_is_a_warning() {
    let warned = |flow: Flow<State>| flow.build(()).expect("it is well formed").warnings().len();
    assert_eq!(warned(flow().then(signal(GO, take))), 1);
    assert_eq!(warned(flow().then(signal(GO, take).sent_by("the bank"))), 0);
    assert_eq!(warned(flow().then(signal(GO, take).timeout(Duration::from_secs(1)))), 0);
}

#[test]
fn a_branch_without_a_way_out_is_found() {
    let told = wrong(flow().then(branch("way").case("a", |state: &State| state.n > 1, act(step))));
    assert!(told.contains("way: nothing follows if no case holds: add `otherwise`"), "{told}");
}

#[test]
fn a_repeat_without_a_bound_is_found() {
    let told = wrong(flow().then(repeat("again", |state: &State| state.n < 3, act(step))));
    assert!(told.contains("again: it may repeat forever: bound it with `at_most`"), "{told}");
}

#[test]
fn an_on_timeout_without_a_timeout_is_found() {
    let told = wrong(flow().then(signal(GO, take).on_timeout(step).sent_by("the test")));
    assert!(told.contains("go: it says what to do `on_timeout`, but has no `timeout`"), "{told}");
}

#[test]
fn a_part_without_a_name_and_a_flow_without_parts_are_found() {
    let told = wrong(flow().then(act(|state: State, _: Cx<()>| async move { Ok(state) })));
    assert!(told.contains("a closure has no name: give the part one with `named`"), "{told}");
    assert!(wrong(flow()).contains("it has no parts"));
    assert!(wrong(flow().then(act(step).named("a/b"))).contains("must not be empty, nor hold a slash"));
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let flow = flow().then(act(step)).then(act(step)).then(signal(GO, take).on_timeout(step));
    let found = flow.build(()).expect_err("it is not well formed");
    assert_eq!(found.errors.len(), 2, "{found}");
}

fn graph() -> Graph {
    let parts =
        (act(step).undo(undo), signal(GO, take).when(|state: &State| state.n > 0).sent_by("the test"));
    let way =
        branch("way").case("on", |state: &State| state.n > 1, sleep("rest", |_: &State| Duration::ZERO));
    let flow = flow().then(saga("trip", parts)).then(way.otherwise_nothing());
    flow.build(()).expect("it is well formed").graph()
}

#[test]
fn a_graph_has_a_node_for_each_step_and_an_edge_for_each_way() {
    let graph = graph();
    let steps: Vec<_> = graph.nodes.iter().map(|node| node.step.as_str()).collect();
    assert_eq!(
        steps,
        [
            "trip/step",
            "trip/step!undo",
            "trip/go",
            "trip!end",
            "trip!undone",
            "way",
            "way/on/rest",
            "way/on/rest!end",
            "done",
            "failed"
        ]
    );
    assert_eq!(graph.nodes[2].kind, NodeKind::Signal);
    let edge = |from: &str, to: &str, on: On| {
        let found = graph.edges.iter().find(|edge| edge.from == from && edge.to == to && edge.on == on);
        found.unwrap_or_else(|| panic!("{from} to {to} on {on:?} in {:#?}", graph.edges))
    };
    edge("trip/step", "trip/go", On::Next);
    edge("trip/go", "trip/step!undo", On::Failed);
    edge("trip/step!undo", "trip!undone", On::Undone);
    edge("trip!undone", "failed", On::Failed);
    let received = edge("trip/go", "trip!end", On::Signal("go".to_owned()));
    assert_eq!(received.by.as_deref(), Some("the test"));
    edge("trip/go", "trip!end", On::Skipped);
    edge("way", "way/on/rest", On::Case("on".to_owned()));
    edge("way", "done", On::Case("otherwise".to_owned()));
    edge("way/on/rest!end", "done", On::Next);
}

/// The ways out of a step, as they are drawn.
fn ways_from<'a>(graph: &'a Graph, step: &str) -> Vec<(&'a str, &'a On)> {
    let edges = graph.edges.iter().filter(|edge| edge.from == step);
    edges.map(|edge| (edge.to.as_str(), &edge.on)).collect()
}

#[test]
fn the_graph_of_a_saga_leads_from_what_fails_over_each_undo_to_the_failure() {
    let parts = (
        act(step).named("reserve").undo(undo),
        act(step).named("transfer").undo(undo),
        act(step).named("notify"),
    );
    let graph = flow().then(saga("booking", parts)).build(()).expect("it is well formed").graph();
    let of = |step: &str| ways_from(&graph, step);
    assert_eq!(
        of("booking/reserve"),
        [("booking/transfer", &On::Next)],
        "nothing is done that it could undo"
    );
    assert_eq!(
        of("booking/transfer"),
        [("booking/notify", &On::Next), ("booking/reserve!undo", &On::Failed)]
    );
    assert_eq!(of("booking/notify"), [("booking!end", &On::Next), ("booking/transfer!undo", &On::Failed)]);
    assert_eq!(of("booking/transfer!undo"), [("booking/reserve!undo", &On::Undone)]);
    assert_eq!(of("booking/reserve!undo"), [("booking!undone", &On::Undone)]);
    assert_eq!(of("booking!undone"), [("failed", &On::Failed)]);
}

#[test]
fn the_graph_of_a_saga_with_a_branch_leads_to_the_undo_of_either_way() {
    let way = branch("way")
        .case("by card", |state: &State| state.n > 1, act(step).named("charge").undo(undo))
        .otherwise_nothing();
    let late = signal(GO, take).timeout(Duration::from_secs(1));
    let parts = (act(step).named("reserve").undo(undo), way, late);
    let graph = flow().then(saga("booking", parts)).build(()).expect("it is well formed").graph();
    let mut late = ways_from(&graph, "booking/go");
    late.retain(|(_, on)| **on == On::Timeout);
    let undos: Vec<_> = late.into_iter().map(|(to, _)| to).collect();
    assert_eq!(undos.len(), 2, "{undos:?}");
    assert!(undos.contains(&"booking/way/by card/charge!undo") && undos.contains(&"booking/reserve!undo"));
    assert_eq!(ways_from(&graph, "booking/way/by card/charge!undo"), [("booking/reserve!undo", &On::Undone)]);
}

#[test]
fn a_graph_can_be_drawn_by_others() {
    let graph = graph();
    let mermaid = graph.mermaid();
    assert!(mermaid.starts_with("flowchart TD\n    n0[\"trip/step\"]\n"), "{mermaid}");
    assert!(mermaid.contains("n5 -->|\"on\"| n6"), "{mermaid}");
    assert!(graph.dot().contains(r#""way" -> "way/on/rest" [label = "on"];"#), "{}", graph.dot());
    let json = serde_json::to_string(&graph).expect("JSON");
    assert_eq!(serde_json::from_str::<Graph>(&json).expect("a graph"), graph);
}
