//! What `dormouse check` finds: faults planted in flows and machines, each with the shortest way there; and nothing in the
//! examples.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dormouse::check::{self, Explorer, Problem, ProblemKind, Report};
use dormouse::flow::{
    ActResult, Cx, Flow, FlowMachine, act, branch, call, dispatch, fail, repeat, saga, signal, sleep,
};
use dormouse::graph::Graph;
use dormouse::prelude::*;
use dormouse::{Accepts, Answers, DynMachine, Engine, Registry};

#[allow(dead_code, reason = "only its flow is looked at")]
#[path = "../examples/nightly_import.rs"]
mod nightly_import;
#[allow(dead_code, reason = "only its flow is looked at")]
#[path = "../examples/order_approval.rs"]
mod order_approval;
#[allow(dead_code, reason = "only its flow is looked at")]
#[path = "../examples/review.rs"]
mod review;
#[allow(dead_code, reason = "only its flow is looked at")]
#[path = "../examples/travel.rs"]
mod travel;

const GO: Signal<u32> = Signal::named("go");
const STOP: Signal<()> = Signal::named("stop");
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Default, Serialize, Deserialize)]
struct State {
    n: u32,
}

async fn work(state: State, _: Cx<()>) -> ActResult<State> {
    Ok(state)
}

async fn more(state: State, _: Cx<()>) -> ActResult<State> {
    Ok(state)
}

async fn undo(state: State, _: Cx<()>) -> ActResult<State> {
    Ok(state)
}

fn add(state: State, n: u32) -> ActResult<State> {
    Ok(State { n: state.n + n })
}

fn flow() -> Flow<State> {
    Flow::new("f")
}

fn report(flow: Flow<State>) -> Report {
    let flow = flow.build(()).expect("it is well formed");
    check::machine(&flow, &Registry::default())
}

/// The one fault of a flow.
#[track_caller]
fn fault(flow: Flow<State>, kind: ProblemKind) -> Problem {
    only(report(flow), kind)
}

#[track_caller]
fn only(report: Report, kind: ProblemKind) -> Problem {
    let faults: Vec<_> = report.faults().cloned().collect();
    assert_eq!(faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(), [kind], "{report}");
    faults.into_iter().next().expect("one fault")
}

#[track_caller]
fn clean(report: &Report) {
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_flow_without_faults_is_clean() {
    let parts = (act(work).undo(undo), signal(GO, add).timeout(HOUR), act(more));
    clean(&report(flow().then(saga("trip", parts)).then(sleep("rest", |_: &State| HOUR))));
}

#[test]
fn a_wait_that_nobody_satisfies_is_found() {
    let found = fault(flow().then(act(work)).then(signal(GO, add)), ProblemKind::EndlessWait);
    assert_eq!(found.step, "go");
    assert!(found.what.contains("waits for \"go\" forever"), "{found}");
    assert_eq!(
        found.trace,
        ["starts at work with {\"n\":1}", "work: is done, goes on to go", "go: waits for \"go\""]
    );
}

#[test]
fn a_child_that_nothing_runs_is_found() {
    let child = || Flow::<State>::new("child").then(act(work)).build(()).expect("it is well formed");
    let calls =
        move || flow().then(call("child", move |state: &State| child().instance(state).expect("it is JSON")));
    let found = fault(calls(), ProblemKind::EndlessWait);
    assert!(found.what.contains("a child of child version 1, which is not registered here"), "{found}");
    // Where it is known, there is nothing to find.
    let mut known = Registry::default();
    let child = Flow::<State>::new("child").then(act(work)).build(()).expect("it is well formed");
    known.add(Arc::new(child)).expect("a machine");
    clean(&check::machine(&calls().build(()).expect("it is well formed"), &known));
}

#[test]
fn a_part_that_no_state_leads_to_is_found() {
    let never = |state: &State| state.n > 5_000_000;
    let found = fault(
        flow().then(branch("way").case("far", never, act(work)).otherwise(act(more))),
        ProblemKind::Unreached,
    );
    assert_eq!(found.step, "way/far/work");
    // An act may give any state, unless it tells which.
    let after =
        |first| flow().then(first).then(branch("way").case("far", never, act(work)).otherwise_nothing());
    clean(&report(after(act(more))));
    clean(&report(after(act(more).gives(|_| State { n: 6_000_000 }))));
    let found = fault(after(act(more).gives(|state| state)), ProblemKind::Unreached);
    assert_eq!(found.step, "way/far/work");
}

#[test]
fn a_signal_that_is_taken_and_never_read_is_found() {
    let never = |state: &State| state.n > 5_000_000;
    let found = fault(flow().then(signal(GO, add).when(never).timeout(HOUR)), ProblemKind::Unread);
    assert!(found.what.contains("the signal \"go\" is accepted, but no step ever reads it"), "{found}");
    assert!(found.trace.iter().any(|line| line.contains("the signal \"go\" 1 comes")), "{found}");
}

#[test]
fn a_signal_that_a_way_passes_by_is_noted() {
    let large = |state: &State| state.n > 10;
    let report = report(flow().then(signal(GO, add).when(large).timeout(HOUR)));
    clean(&report);
    let note = report.problems.iter().find(|problem| problem.kind == ProblemKind::LeftOver);
    assert!(note.expect("a note").what.contains("may be left unread"), "{report}");
}

#[test]
fn a_repeat_that_never_has_enough_is_found() {
    let ever = repeat("ever", |_: &State| true, act(work).gives(|state| state)).at_most(3);
    let found = fault(flow().then(ever), ProblemKind::NeverDone);
    assert!(found.trace.iter().any(|line| line.contains("work: fails for good")), "{found}");
    let enough =
        repeat("few", |state: &State| state.n < 3, act(work).gives(|state| State { n: state.n + 1 }));
    clean(&report(flow().then(enough.at_most(4))));
}

#[test]
fn a_flow_whose_every_way_fails_is_found() {
    let stop = || fail("stop", |_: &State| "no".to_owned());
    let found = fault(
        flow().then(branch("way").case("a", |state: &State| state.n > 0, stop()).otherwise(stop())),
        ProblemKind::NeverDone,
    );
    assert_eq!(found.trace.len(), 3, "{found}");
}

#[test]
fn a_condition_that_answers_differently_after_a_crash_is_found() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let coin = |_: &State| ASKED.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
    let found = fault(
        flow().then(branch("coin").case("heads", coin, act(work)).otherwise_nothing()),
        ProblemKind::Unrepeatable,
    );
    assert!(found.what.contains("runs again if the process dies before its commit"), "{found}");
}

#[test]
fn a_receiver_that_panics_is_found_with_the_payload_that_makes_it() {
    let refuse = |state: State, n: u32| {
        assert!(n != 0, "nothing to add");
        Ok(state)
    };
    let found = fault(flow().then(signal(GO, refuse).timeout(HOUR)), ProblemKind::Panic);
    assert!(found.trace.iter().any(|line| line.starts_with("the signal \"go\" 0 comes")), "{found}");
}

#[test]
fn answers_are_made_up_from_their_type() {
    let ask = |state: &State| Unit::one(state.n);
    let hear = |state: State, answers: Answers<bool>| match answers.one()? {
        true => Ok(State { n: state.n + 7 }),
        false => Ok(state),
    };
    let is_more = |state: &State| state.n >= 7;
    let asks = flow().then(dispatch("ask", ask, hear));
    clean(&report(asks.then(branch("way").case("more", is_more, act(more)).otherwise(act(work)))));
}

#[test]
fn what_is_too_large_to_be_explored_is_said_to_be() {
    let flow =
        flow().then(signal(GO, add).timeout(HOUR)).then(act(work)).build(()).expect("it is well formed");
    let known = Registry::default();
    let report = Explorer::new(&flow, &known).moments_max(5).explore();
    assert!(!report.is_exhaustive && !report.is_clean());
    assert!(report.to_string().contains("there are more than were visited"), "{report}");
}

/// Machines that are only their graphs.
mod declared {
    use super::*;

    #[derive(Serialize, Deserialize)]
    pub(super) enum Place {
        Start,
        Middle,
        Last,
    }

    macro_rules! machine {
        ($name:ident, $accepts:expr, $graph:expr) => {
            pub(super) struct $name;

            impl Machine for $name {
                const NAME: &'static str = stringify!($name);
                type State = Place;
                type Output = ();

                async fn step(&self, _: Place, _: &Context) -> StepResult<Self> {
                    unreachable!("exploring runs no step")
                }

                fn accepts() -> Vec<Accepts> {
                    $accepts
                }

                fn graph() -> Option<Graph> {
                    $graph
                }
            }
        };
    }

    machine!(
        Sound,
        vec![GO.into()],
        Some(
            Graph::new()
                .step("Start")
                .awaits("go", "Middle")
                .or_timeout()
                .step("Middle")
                .next("Last")
                .next("Start")
                .fails()
                .step("Last")
                .done()
        )
    );
    machine!(
        DeadEnd,
        vec![],
        Some(Graph::new().step("Start").next("Middle").next("Last").step("Middle").step("Last").done())
    );
    machine!(
        Round,
        vec![],
        Some(
            Graph::new()
                .step("Start")
                .next("Middle")
                .next("Last")
                .step("Middle")
                .next("Middle")
                .step("Last")
                .done()
        )
    );
    machine!(
        Forgets,
        vec![GO.into(), STOP.into()],
        Some(
            Graph::new()
                .step("Start")
                .awaits("go", "Middle")
                .sent_by("the shop")
                .step("Middle")
                .next("Last")
                .step("Last")
                .done()
        )
    );
    machine!(
        Lonely,
        vec![],
        Some(Graph::new().step("Start").sleeps("Last").step("Middle").next("Last").step("Last").done())
    );
    machine!(Silent, vec![], None);
    machine!(Mistaken, vec![], Some(Graph::new().step("Start").next("Nowhere")));
}

async fn declared<M: Machine>(machine: M) -> Report {
    let builder = Engine::open("sqlite::memory:").await.expect("a store").machine(machine);
    let client = builder.client();
    let known = client.registry();
    check::machine(&**known.get(M::NAME, 1).expect("it is registered"), known)
}

#[tokio::test]
async fn a_machine_is_explored_by_the_graph_it_declares() {
    clean(&declared(declared::Sound).await);
    let found = only(declared(declared::DeadEnd).await, ProblemKind::DeadEnd);
    assert_eq!((found.step.as_str(), found.trace.len()), ("Middle", 2));
    let found = only(declared(declared::Round).await, ProblemKind::NoWayOut);
    assert_eq!(found.step, "Middle");
    let found = only(declared(declared::Forgets).await, ProblemKind::Unread);
    assert!(found.what.contains("\"stop\""), "{found}");
    let found = only(declared(declared::Lonely).await, ProblemKind::Unreached);
    assert_eq!(found.step, "Middle");
    let found = only(declared(declared::Silent).await, ProblemKind::Unknown);
    assert!(found.what.contains("declares no graph"), "{found}");
}

#[tokio::test]
async fn a_graph_that_does_not_fit_its_machine_is_refused_when_it_is_registered() {
    let started =
        Engine::open("sqlite::memory:").await.expect("a store").machine(declared::Mistaken).start().await;
    let told = started.err().expect("it does not fit").to_string();
    assert!(told.contains("the graph does not describe step \"Middle\""), "{told}");
}

/// A machine that knows the others.
fn explored<S: dormouse::flow::FlowState, D: Send + Sync + 'static>(
    flow: FlowMachine<S, D>,
    others: Vec<Arc<dyn DynMachine>>,
) -> Report {
    let mut known = Registry::default();
    others.into_iter().for_each(|other| known.add(other).expect("another machine"));
    check::machine(&flow, &known)
}

#[test]
fn the_examples_are_clean() {
    let built = "it is well formed";
    clean(&explored(order_approval::approval().build(()).expect(built), vec![]));
    clean(&explored(travel::travel().build(travel::Agencies::default()).expect(built), vec![]));
    clean(&explored(review::review().build(()).expect(built), vec![]));
    let row = nightly_import::row().build(()).expect(built);
    clean(&explored(nightly_import::import(row.clone()).build(()).expect(built), vec![Arc::new(row)]));
    clean(&explored(nightly_import::row().build(()).expect(built), vec![]));
}
