//! The machine that a flow becomes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::build::Finding;
use super::parts::{ActFn, AskKind, FanKind, Gives, Test, WaitKind};
use super::trail::{self, Trail};
use super::{ActResult, Cx, FlowState};
use crate::ahead::{Ahead, Foreseen};
use crate::graph::Graph;
use crate::outline::Member;
use crate::signal::CANCEL;
use crate::{
    Accepts, At, BoxError, Context, DynMachine, Fault, Final, Json, Outline, Retry, Running, Stated,
    StepError, Takes, Transition, Wake, When,
};

/// Where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Step(usize),
    Done,
}

/// A step: a part that runs code, by its path.
pub(super) struct Step<S, D> {
    pub(super) path: String,
    /// The outermost saga it is in.
    pub(super) saga: Option<String>,
    /// Whether a cancel here undoes what that saga did.
    pub(super) undoes_on_cancel: bool,
    pub(super) task: Task<S, D>,
}

pub(super) enum Task<S, D> {
    Act {
        run: ActFn<S, D>,
        retry: Retry,
        limit: Option<Duration>,
        undoes: bool,
        gives: Vec<Gives<S>>,
        next: To,
    },
    Undo {
        run: ActFn<S, D>,
        retry: Retry,
    },
    Wait {
        wait: WaitKind<S, D>,
        next: To,
    },
    Sleep {
        until: Arc<dyn Fn(&S) -> When + Send + Sync>,
        next: To,
    },
    Branch(Vec<(String, Option<Test<S>>, To)>),
    Repeat {
        goes_on: Test<S>,
        rounds_max: u32,
        body: To,
        next: To,
    },
    Fan {
        fan: FanKind<S>,
        next: To,
    },
    Dispatch {
        asking: AskKind<S>,
        next: To,
    },
    /// The end of a scene: nothing in it will be undone any more.
    Settle {
        scene: String,
        next: To,
    },
    /// The end of a saga that failed: all that it did is undone.
    Undone,
    Stop(Arc<dyn Fn(&S) -> String + Send + Sync>),
}

impl<S, D> Task<S, D> {
    /// Every place it may lead to.
    pub(super) fn each_target(&mut self, visit: &mut impl FnMut(&mut To)) {
        match self {
            Self::Act { next, .. }
            | Self::Wait { next, .. }
            | Self::Sleep { next, .. }
            | Self::Fan { next, .. }
            | Self::Dispatch { next, .. }
            | Self::Settle { next, .. } => visit(next),
            Self::Repeat { body, next, .. } => {
                visit(body);
                visit(next);
            }
            Self::Branch(ways) => ways.iter_mut().for_each(|(_, _, to)| visit(to)),
            Self::Undo { .. } | Self::Undone | Self::Stop(_) => {}
        }
    }
}

/// A flow that is well formed, as a machine. Register it with [`EngineBuilder::flow`](crate::EngineBuilder::flow) and
/// start it with [`Client::start_flow`](crate::Client::start_flow). A clone is cheap: it is the same flow.
pub struct FlowMachine<S, D> {
    name: String,
    version: u32,
    queue: String,
    pub(super) steps: Arc<[Step<S, D>]>,
    pub(super) first: usize,
    /// States it may start with.
    pub(super) examples: Vec<Json>,
    indexes: Vec<String>,
    warnings: Vec<Finding>,
    deps: Arc<D>,
}

// Not derived: neither the state nor the dependencies need to be cloned.
impl<S, D> Clone for FlowMachine<S, D> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            version: self.version,
            queue: self.queue.clone(),
            steps: self.steps.clone(),
            first: self.first,
            examples: self.examples.clone(),
            indexes: self.indexes.clone(),
            warnings: self.warnings.clone(),
            deps: self.deps.clone(),
        }
    }
}

impl<S, D> FlowMachine<S, D> {
    pub(super) fn new(
        (name, version, queue): (String, u32, String),
        (steps, first): (Vec<Step<S, D>>, usize),
        (examples, indexes): (Vec<Json>, Vec<String>),
        warnings: Vec<Finding>,
        deps: Arc<D>,
    ) -> Self {
        Self { name, version, queue, steps: steps.into(), first, examples, indexes, warnings, deps }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version.
    pub fn version(&self) -> u32 {
        self.version
    }

    pub(super) fn queue(&self) -> &str {
        &self.queue
    }

    /// The path of its first part.
    pub fn first(&self) -> &str {
        &self.steps[self.first].path
    }

    /// What looks wrong but may be right.
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    fn find(&self, path: &str) -> Option<&Step<S, D>> {
        self.steps.iter().find(|step| step.path == path)
    }
}

/// A run of a step: its state, and where it may go.
pub(super) struct Run<'a, S, D> {
    machine: &'a FlowMachine<S, D>,
    pub(super) step: &'a Step<S, D>,
    pub(super) trail: Trail,
}

impl<S: FlowState, D: Send + Sync + 'static> Run<'_, S, D> {
    pub(super) async fn go(mut self, state: S, cx: &Context) -> Result<Transition, BoxError> {
        if self.step.undoes_on_cancel
            && let Some(request) = cx.inbox().iter().find(|signal| signal.name == CANCEL)
        {
            let reason: Option<String> = request.payload.decode("reason").unwrap_or_default();
            let because = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            return Err(Final::new(format!("it was cancelled{because}")).into());
        }
        match &self.step.task {
            Task::Act { run, limit, .. } => {
                let state = timely(*limit, run(state, self.cx(cx))).await?;
                self.act_done(state)
            }
            Task::Undo { run, .. } => {
                let state = run(state, self.cx(cx)).await?;
                self.undone(&state)
            }
            Task::Wait { wait, next } => self.wait(wait, *next, state, cx).await,
            Task::Sleep { until, next } => {
                let until = until(&state);
                let at = self.at(*next, &state)?.expect("a sleep is followed by a step");
                Ok(Transition::Sleep { at, until })
            }
            Task::Branch(ways) => {
                let holds =
                    |(_, holds, _): &&(String, Option<Test<S>>, To)| holds.as_ref().is_none_or(|h| h(&state));
                let (way, _, to) = ways.iter().find(holds).expect("the last way has no condition");
                self.trail.chosen.insert(self.step.path.clone(), way.clone());
                self.next(*to, state)
            }
            Task::Repeat { goes_on, rounds_max, body, next } => {
                let round = self.trail.rounds.remove(&self.step.path).unwrap_or(0);
                if !goes_on(&state) {
                    return self.next(*next, state);
                }
                if round >= *rounds_max {
                    return Err(format!(
                        "it would go on after {rounds_max} rounds, which is its limit (`at_most`)"
                    )
                    .into());
                }
                self.trail.rounds.insert(self.step.path.clone(), round + 1);
                self.next(*body, state)
            }
            Task::Fan { fan, next } => self.fan(fan, *next, state, cx),
            Task::Dispatch { asking, next } if is_answered(cx) => {
                let state = (asking.hear)(state, cx.clone()).await?;
                self.next(*next, state)
            }
            Task::Dispatch { asking, .. } => {
                Ok(Transition::Dispatch((asking.ask)(&state, self.here(&state)?)?))
            }
            Task::Settle { scene, next } => {
                self.trail.undo.retain(|path| !is_within(path, scene));
                self.next(*next, state)
            }
            Task::Undone => Ok(self.fail()),
            Task::Stop(reason) => Err(reason(&state).into()),
        }
    }

    /// Goes on after an act, which can be undone from now on.
    pub(super) fn act_done(mut self, state: S) -> Result<Transition, BoxError> {
        let Task::Act { undoes, next, .. } = &self.step.task else { unreachable!("an act was done") };
        if *undoes {
            self.trail.undo.push(self.step.path.clone());
        }
        self.next(*next, state)
    }

    async fn wait(
        self,
        wait: &WaitKind<S, D>,
        next: To,
        state: S,
        cx: &Context,
    ) -> Result<Transition, BoxError> {
        // A signal that came counts, even if the deadline has passed.
        if let Some(received) = cx.take_first(wait.accepts.check) {
            let state = (wait.receive)(state, &received.payload)?;
            return self.next(next, state);
        }
        if cx.timed_out() {
            let Some(run) = &wait.on_timeout else {
                let (signal, limit) = (&wait.signal, wait.timeout.unwrap_or_default());
                return Err(format!("no signal {signal:?} came within {limit:?}").into());
            };
            let state = run(state, self.cx(cx)).await?;
            return self.next(next, state);
        }
        if wait.when.as_ref().is_some_and(|holds| !holds(&state)) {
            return self.skip(next, state);
        }
        self.park(wait, &state)
    }

    pub(super) fn skip(mut self, next: To, state: S) -> Result<Transition, BoxError> {
        self.trail.skipped.push(self.step.path.clone());
        self.next(next, state)
    }

    pub(super) fn park(self, wait: &WaitKind<S, D>, state: &S) -> Result<Transition, BoxError> {
        let mut names = vec![wait.signal.clone(), self.step.path.clone()];
        names.dedup();
        Ok(Transition::Await { at: self.here(state)?, names, timeout: wait.timeout.map(When::In) })
    }

    pub(super) fn next(self, to: To, state: S) -> Result<Transition, BoxError> {
        match self.at(to, &state)? {
            Some(at) => Ok(Transition::Next { at, ahead: true }),
            None => Ok(Transition::Done { output: Json::encode("output", &state)? }),
        }
    }

    fn at(&self, to: To, state: &S) -> Result<Option<At>, BoxError> {
        let To::Step(index) = to else { return Ok(None) };
        let step = self.machine.steps[index].path.clone().into();
        Ok(Some(At { step, state: trail::write(state, &self.trail)? }))
    }

    pub(super) fn here(&self, state: &S) -> Result<At, BoxError> {
        Ok(At { step: self.step.path.clone().into(), state: trail::write(state, &self.trail)? })
    }

    fn cx(&self, context: &Context) -> Cx<D> {
        Cx { deps: self.machine.deps.clone(), context: context.clone() }
    }
}

/// Whether the unit that a part dispatched is closed; a part that follows a sleep has just been woken too.
pub(super) fn is_answered(cx: &Context) -> bool {
    matches!(cx.wake(), Some(Wake::Unit | Wake::Timeout))
}

pub(super) fn is_within(path: &str, scene: &str) -> bool {
    path.strip_prefix(scene).is_some_and(|rest| rest.starts_with('/'))
}

async fn timely<S>(limit: Option<Duration>, run: impl Future<Output = ActResult<S>>) -> ActResult<S> {
    match limit {
        None => run.await,
        Some(limit) => match tokio::time::timeout(limit, run).await {
            Ok(done) => done,
            Err(_) => Err(format!("it ran longer than its limit of {limit:?}").into()),
        },
    }
}

impl<S: FlowState, D: Send + Sync + 'static> DynMachine for FlowMachine<S, D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn steps(&self) -> Vec<String> {
        let first = self.steps[self.first].path.clone();
        let others = self.steps.iter().map(|step| step.path.clone()).filter(|path| *path != first);
        std::iter::once(first.clone()).chain(others).collect()
    }

    fn queue(&self) -> &str {
        &self.queue
    }

    fn accepts(&self) -> Vec<Accepts> {
        let of = |step: &Step<S, D>| match &step.task {
            Task::Wait { wait, .. } => {
                let also = Some(&step.path).filter(|path| **path != wait.signal).cloned();
                Some(Accepts { also, ..wait.accepts.clone() })
            }
            _ => None,
        };
        self.steps.iter().filter_map(of).collect()
    }

    fn accepts_others(&self) -> bool {
        false
    }

    fn states(&self) -> Vec<Stated> {
        match Outline::of::<S>() {
            Outline::Any => Vec::new(),
            outline => vec![Stated { steps: self.steps(), outline: with_trail(outline) }],
        }
    }

    fn takes(&self) -> Vec<Takes> {
        let of = |step: &Step<S, D>| match &step.task {
            Task::Dispatch { asking, .. } => Some(asking.takes.moved_to(&step.path)),
            _ => None,
        };
        self.steps.iter().filter_map(of).collect()
    }

    fn undo_on_cancel(&self) -> Vec<String> {
        self.steps.iter().filter(|step| step.undoes_on_cancel).map(|step| step.path.clone()).collect()
    }

    fn indexes(&self) -> Vec<String> {
        self.indexes.clone()
    }

    fn graph(&self) -> Option<Graph> {
        Some(self.graph())
    }

    fn starts(&self) -> Vec<At> {
        self.start_places()
    }

    fn examples(&self, signal: &str) -> Vec<Json> {
        let of = |step: &Step<S, D>| match &step.task {
            Task::Wait { wait, .. } if wait.signal == signal => Some(wait.examples()),
            _ => None,
        };
        self.steps.iter().find_map(of).unwrap_or_default()
    }

    fn foresee(&self, ahead: &Ahead<'_>) -> Option<Vec<Foreseen>> {
        Some(self.foreseen(ahead))
    }

    fn migrate(&self, from_version: u32, _at: At) -> Result<At, BoxError> {
        Err(format!("flow {} does not migrate from version {from_version}", self.name).into())
    }

    fn check(&self, at: &At) -> Result<(), String> {
        self.find(&at.step).ok_or_else(|| format!("the flow has no part {:?}", at.step))?;
        trail::read::<S>(&at.state).map(drop)
    }

    fn step<'a>(&'a self, at: &'a At, cx: &'a Context) -> Running<'a> {
        Box::pin(async move {
            let (run, state) = self.run(at)?;
            run.go(state, cx).await.map_err(Fault::Failed)
        })
    }

    fn handle<'a>(&'a self, error: StepError, at: &'a At, cx: &'a Context) -> Running<'a> {
        Box::pin(async move {
            let (run, state) = self.run(at)?;
            let retry = match &run.step.task {
                Task::Act { retry, .. } | Task::Undo { retry, .. } => *retry,
                _ => Retry::never(),
            };
            match retry.delay_after(&error, cx.attempt()) {
                Some(delay) => {
                    Ok(Transition::Replay { at: at.clone(), delay, error: Some(error.to_string()) })
                }
                None if matches!(run.step.task, Task::Undo { .. }) => {
                    run.not_undone(error.to_string(), &state).map_err(Fault::Failed)
                }
                None => run.failed(error.to_string(), &state).map_err(Fault::Failed),
            }
        })
    }
}

/// The outline of a flow's state, including the flow's own field.
fn with_trail(outline: Outline) -> Outline {
    match outline {
        Outline::Object { mut members, open } => {
            let name = trail::FIELD.to_owned();
            members.push(Member { name, aliases: Vec::new(), outline: Outline::Any, required: false });
            Outline::Object { members, open }
        }
        other => other,
    }
}

impl<S: FlowState, D: Send + Sync + 'static> FlowMachine<S, D> {
    pub(super) fn run(&self, at: &At) -> Result<(Run<'_, S, D>, S), Fault> {
        let unknown = || Fault::Unreadable(format!("the flow has no part {:?}", at.step));
        let step = self.find(&at.step).ok_or_else(unknown)?;
        let (state, trail) = trail::read(&at.state).map_err(Fault::Unreadable)?;
        Ok((Run { machine: self, step, trail }, state))
    }
}

impl<S, D> fmt::Debug for FlowMachine<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowMachine({} version {}, {} steps)", self.name, self.version, self.steps.len())
    }
}
