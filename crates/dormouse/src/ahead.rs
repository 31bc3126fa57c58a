//! What a step may do, described without doing it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::context::Own;
use crate::graph::{After, DONE, Edge, FAILED, Graph, On};
use crate::{
    At, Children, Context, Dispatch, InboxSignal, InstanceId, Json, OnFailure, Shape, Spawn, Transition,
    Wake, When,
};

/// A step that is explored without running it.
#[derive(Debug)]
pub struct Ahead<'a> {
    /// Where it is.
    pub at: &'a At,
    /// The context that it would get.
    pub cx: &'a Context,
    /// Whether the state is known. After an act that does not declare its result it is not, and every way counts as
    /// possible.
    pub is_known: bool,
}

/// One thing that a step may do.
#[derive(Clone, Debug)]
pub struct Foreseen {
    /// A short description.
    pub what: String,
    /// What it would return.
    pub transition: Transition,
    /// Whether the state is still known.
    pub is_known: bool,
}

impl Foreseen {
    pub(crate) fn new(what: impl Into<String>, transition: Transition, is_known: bool) -> Self {
        Self { what: what.into(), transition, is_known }
    }
}

/// The context of a step, without a database behind it.
pub(crate) fn context(
    id: InstanceId,
    key: Option<String>,
    wake: Option<Wake>,
    awaits: Vec<String>,
    inbox: Vec<InboxSignal>,
) -> Context {
    Context {
        id,
        namespace: crate::DEFAULT_NAMESPACE.to_owned(),
        share: None,
        trace: None,
        key,
        parent: None,
        attempt: 0,
        seq: 1,
        wake,
        awaits,
        inbox,
        children: Vec::new(),
        consumption: Arc::default(),
        now: Timestamp::UNIX_EPOCH,
        cancel: CancellationToken::new(),
        own: Arc::new(Own::nowhere()),
        progress: Arc::default(),
        lane: Arc::default(),
        mail: Arc::default(),
    }
}

/// What a machine's declared graph says of a step that was woken like this. A graph has no states, so they are empty.
pub(crate) fn by_graph(graph: &Graph, step: &str, cx: &Context) -> Vec<Foreseen> {
    let ways = possible(graph.edges.iter().filter(|edge| edge.from == step).collect(), cx);
    let at = |to: &str| At { step: to.to_owned().into(), state: Json::null() };
    let has_deadline = |to: &str| ways.iter().any(|way| way.to == to && way.on == On::Timeout);
    let timeout = |to: &str| has_deadline(to).then_some(When::In(std::time::Duration::ZERO));
    let mut waits: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut foreseen = Vec::new();
    for Edge { to, on, .. } in &ways {
        let transition = match on {
            // The signals that lead to one step are one wait.
            On::Signal(name) => {
                waits.entry(to).or_default().push(name.clone());
                continue;
            }
            // It is described together with the wait whose deadline it is.
            On::Timeout => continue,
            On::Later => Transition::Sleep { at: at(to), until: When::In(std::time::Duration::ZERO) },
            On::Children => Transition::Spawn(Spawn {
                at: at(to),
                children: Vec::new(),
                timeout: timeout(to),
                quorum: None,
                fail_fast: false,
                on_release: Children::Keep,
                on_cancel: Children::Cancel,
            }),
            On::Answers => Transition::Dispatch(Dispatch {
                at: at(to),
                shape: Shape::One,
                asks: Vec::new(),
                items: 0,
                transport: String::new(),
                timeout: timeout(to),
                item_timeout: None,
                in_flight: None,
                on_failure: OnFailure::Report,
                quorum: None,
                outputs_max: 0,
            }),
            _ if to == DONE => Transition::Done { output: Json::null() },
            _ if to == FAILED => Transition::Fail { error: "as declared".to_owned() },
            _ => Transition::Next { at: at(to), ahead: true },
        };
        let what = match on.label() {
            Some(label) if matches!(on, On::Case(_)) => format!("goes on to {to} ({label})"),
            _ => told(&transition),
        };
        foreseen.push(Foreseen::new(what, transition, true));
    }
    for (to, names) in waits {
        let transition = Transition::Await { at: at(to), names, timeout: timeout(to) };
        foreseen.push(Foreseen::new(told(&transition), transition, true));
    }
    foreseen
}

/// The ways that what woke the step does not rule out.
fn possible<'a>(ways: Vec<&'a Edge>, cx: &Context) -> Vec<&'a Edge> {
    let was_waiting = matches!(cx.wake(), Some(Wake::Signal | Wake::Timeout));
    let is_possible = |edge: &&&Edge| match &edge.after {
        None => true,
        Some(After::Signal(name)) => cx.received_all().any(|signal| signal.name == *name),
        Some(After::Timeout) => cx.timed_out() && cx.received_all().next().is_none(),
    };
    let possible: Vec<&Edge> = ways.iter().filter(is_possible).copied().collect();
    // A graph that leaves nothing over does not fit what happened: then it says nothing about it.
    if was_waiting && !possible.is_empty() { possible } else { ways }
}

/// An outcome in a few words.
pub(crate) fn told(transition: &Transition) -> String {
    match transition {
        Transition::Next { at, .. } => format!("goes on to {}", at.step),
        Transition::Replay { .. } => "runs again".to_owned(),
        Transition::Sleep { at, .. } => format!("sleeps, then goes on to {}", at.step),
        Transition::Await { names, timeout, .. } => {
            let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
            let deadline = if timeout.is_some() { ", with a deadline" } else { "" };
            format!("waits for {}{deadline}", names.join(" or "))
        }
        Transition::Spawn(Spawn { children, .. }) if children.is_empty() => "waits for children".to_owned(),
        Transition::Spawn(Spawn { children, .. }) if children.len() == 1 => {
            format!("waits for a child of {}", children[0].machine)
        }
        Transition::Spawn(Spawn { children, .. }) => format!("waits for {} children", children.len()),
        Transition::Dispatch(_) => "waits for answers from outside".to_owned(),
        Transition::Done { .. } => "is done".to_owned(),
        Transition::Fail { error } => format!("fails: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the step may do, woken like this, with these signals in its inbox.
    fn foreseen(graph: &Graph, wake: Wake, signals: &[&str]) -> Vec<String> {
        let inbox = signals.iter().enumerate().map(|(place, name)| InboxSignal {
            id: crate::SignalId(place as i64),
            name: (*name).to_owned(),
            payload: Json::null(),
            dedup_key: None,
            at: Timestamp::UNIX_EPOCH,
            trace: None,
        });
        let awaits = vec!["payment".to_owned(), "approval".to_owned()];
        let cx = context(InstanceId(1), None, Some(wake), awaits, inbox.collect());
        by_graph(graph, "Paid", &cx).into_iter().map(|foreseen| foreseen.what).collect()
    }

    #[test]
    fn a_way_that_what_happened_rules_out_is_not_foreseen() {
        let graph = Graph::new().step("Paid");
        let graph = graph.case("small", "Pick").after_signal("payment");
        let graph = graph.awaits("approval", "Approval").or_timeout().after_signal("payment");
        let graph = graph.fails().after_timeout();
        let paid = ["goes on to Pick (small)", "waits for \"approval\", with a deadline"];
        assert_eq!(foreseen(&graph, Wake::Signal, &["payment"]), paid);
        assert_eq!(foreseen(&graph, Wake::Timeout, &[]), ["fails: as declared"]);
        // A signal that came with the deadline counts.
        assert_eq!(foreseen(&graph, Wake::Timeout, &["payment"]), paid);
        // Neither is declared for another signal, so nothing is ruled out.
        assert_eq!(foreseen(&graph, Wake::Signal, &["approval"]).len(), 3);
        // A step that did not wait may do anything.
        assert_eq!(foreseen(&graph, Wake::Clock, &[]).len(), 3);
    }
}
