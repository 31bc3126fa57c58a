//! Looking ahead: a machine's graph, and what an instance would do if something happened to it.

use dormouse::graph::{Edge, Graph, Node};
use dormouse::{Foresight, Happening, Json, Look, NewSignal, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::{Cause, Problem};
use crate::route::{Answer, Call};
use crate::sight::Sight;
use crate::view::StatusWord;

/// Which version of the graph.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GraphQuery {
    /// The version; by default the newest that this server knows.
    version: Option<u32>,
}

/// The steps of a machine and the edges between them.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Graph")]
pub(super) struct GraphView {
    machine: String,
    version: u32,
    /// The steps, the first one first.
    nodes: Vec<NodeView>,
    edges: Vec<EdgeView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Node")]
struct NodeView {
    step: String,
    /// The kind of step: `act`, `signal`, `sleep`, `branch`, `repeat`, `children`, `dispatch`, `undo`, `fail` or `end`.
    #[schemars(with = "String")]
    kind: dormouse::graph::NodeKind,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Edge")]
struct EdgeView {
    from: String,
    to: String,
    /// When this edge is taken, in a few words; absent if it is the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    /// Who makes that happen, if the graph names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

pub(super) async fn graph(call: Call<GraphQuery>) -> Result<Answer<GraphView>, Problem> {
    let name = call.path("machine");
    let is_seen = Sight::of(&call.caller, &call.client).await?.sees(name);
    let declared = match call.query.version {
        Some(version) => call.client.declaration(name, version).await?.filter(|told| told.version == version),
        None => call.client.declarations().await?.into_iter().find(|told| told.name == name),
    };
    let graph =
        declared.filter(|_| is_seen).and_then(|declared| Some((declared.version, declared.graph.clone()?)));
    let Some((version, Graph { nodes, edges })) = graph else {
        let told = "no worker has declared a graph for this machine and version";
        return Err(Problem::new(Cause::NotFound, told));
    };
    let node = |Node { step, kind }| NodeView { step, kind };
    let edge = |Edge { from, to, on, by, .. }| EdgeView { from, to, when: on.label().map(str::to_owned), by };
    Answer::ok(GraphView {
        machine: name.to_owned(),
        version,
        nodes: nodes.into_iter().map(node).collect(),
        edges: edges.into_iter().map(edge).collect(),
    })
}

/// The event to suppose.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WhatIfQuery {
    happening: HappeningWord,
    /// The name of the signal, with `happening=signal`.
    signal: Option<String>,
    /// The payload of the signal, in JSON.
    payload: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Happening")]
enum HappeningWord {
    /// A signal arrives.
    Signal,
    /// The deadline of its wait passes.
    Deadline,
    /// Its sleep is over.
    Clock,
    /// Its children end.
    Children,
    /// Its unit is answered.
    Answers,
}

impl TryFrom<WhatIfQuery> for Happening {
    type Error = Problem;

    fn try_from(WhatIfQuery { happening, signal, payload }: WhatIfQuery) -> Result<Self, Problem> {
        Ok(match (happening, signal, payload) {
            (HappeningWord::Signal, Some(signal), None) => Self::Signal(NewSignal::new(signal, Json::null())),
            (HappeningWord::Signal, Some(signal), Some(payload)) => {
                Self::Signal(NewSignal::new(signal, Json::parse("signal payload", payload)?))
            }
            (HappeningWord::Signal, None, _) => {
                return Err(Problem::invalid("`signal` is missing: set it to the signal's name"));
            }
            (_, Some(_), _) | (_, _, Some(_)) => {
                return Err(Problem::invalid(
                    "`signal` and `payload` are only allowed with `happening=signal`",
                ));
            }
            (HappeningWord::Deadline, ..) => Self::Deadline,
            (HappeningWord::Clock, ..) => Self::Clock,
            (HappeningWord::Children, ..) => Self::Children,
            (HappeningWord::Answers, ..) => Self::Answers,
        })
    }
}

/// What an instance would do.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Foresight")]
pub(super) struct ForesightView {
    /// Each way it may go, up to where it parks or ends.
    ways: Vec<Vec<LookView>>,
    /// Whether these are all of them.
    is_complete: bool,
}

/// A transition that it would make.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Look")]
struct LookView {
    step: String,
    /// What it would do, in a few words.
    what: String,
    /// The status after it.
    #[schemars(with = "StatusWord")]
    status: Status,
    /// The step after it.
    to: String,
    /// The state after it, or the output; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    state: Option<Json>,
}

pub(super) async fn what_if(call: Call<WhatIfQuery>) -> Result<Answer<ForesightView>, Problem> {
    let target = call.target()?;
    let Foresight { ways, is_complete, .. } = call.client.what_if(target, call.query.try_into()?).await?;
    let look = |Look { step, what, status, to, state, .. }| LookView { step, what, status, to, state };
    let ways = ways.into_iter().map(|way| way.into_iter().map(look).collect()).collect();
    Answer::ok(ForesightView { ways, is_complete })
}
