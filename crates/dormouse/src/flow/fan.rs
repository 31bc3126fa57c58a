//! Parts that run children: which of them, a few at a time, and what is made of their ends.

use serde::{Deserialize, Serialize};

use super::FlowState;
use super::machine::{Run, To};
use super::parts::FanKind;
use crate::json::digest;
use crate::{BoxError, Children, Context, Json, NewInstance, Spawn, Status, Transition, Wake};

/// The most bytes of JSON that the children still to be spawned may take in the state; a longer list is made again, from
/// the state that the part was entered with.
const LEFT_BYTES_MAX: usize = 64 * 1024;

/// The children of a fan that are still to be spawned. They are fixed when the part is entered: changes that a round
/// makes to the state do not change the next round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Left {
    /// These.
    Children(Vec<NewInstance>),
    /// Those that the part makes of this state, from this place on.
    MadeOf {
        state: Json,
        from: usize,
        /// A fingerprint of the whole list, to detect that it has changed.
        digest: String,
    },
}

impl Left {
    /// What is left of a list after its first few, which are spawned now.
    fn after<S: FlowState>(state: &S, all: &mut Vec<NewInstance>, now: usize) -> Result<Self, BoxError> {
        if now == all.len() {
            return Ok(Self::Children(Vec::new()));
        }
        let list = Json::encode("list of children", all)?;
        let later = all.split_off(now);
        if list.as_str().len() <= LEFT_BYTES_MAX {
            return Ok(Self::Children(later));
        }
        Ok(Self::MadeOf { state: Json::encode("state", state)?, from: now, digest: digest([list.as_str()]) })
    }

    /// Takes the next few, and leaves the others.
    fn next<S: FlowState>(&mut self, fan: &FanKind<S>, cx: &Context) -> Result<Vec<NewInstance>, BoxError> {
        let next = |left: usize| fan.in_flight.map_or(left, |most| left.min(most));
        match self {
            Self::Children(left) => {
                let later = left.split_off(next(left.len()));
                Ok(std::mem::replace(left, later))
            }
            Self::MadeOf { state, from, digest: expected } => {
                let mut all = (fan.spawn)(&state.decode("state")?, cx);
                if digest([Json::encode("list of children", &all)?.as_str()]) != *expected {
                    return Err("its list of children is not the one it had when the part was entered: the code that \
                        makes it has changed, or does not make it of the state alone"
                        .into());
                }
                let mut children = all.split_off((*from).min(all.len()));
                children.truncate(next(children.len()));
                *from += children.len();
                Ok(children)
            }
        }
    }
}

impl<S: FlowState, D: Send + Sync + 'static> Run<'_, S, D> {
    /// Joins the children that have ended, if they woke it, and spawns the next, if there are any.
    pub(super) fn fan(
        mut self,
        fan: &FanKind<S>,
        next: To,
        state: S,
        cx: &Context,
    ) -> Result<Transition, BoxError> {
        let mut state = state;
        if cx.wake() == Some(Wake::Children) {
            if fan.fail_fast || fan.join.is_none() {
                all_done(cx)?;
            }
            if let Some(join) = &fan.join {
                state = join(state, cx.children())?;
            }
        }
        let children = match &mut self.trail.left {
            Some(left) => left.next(fan, cx)?,
            None => {
                let mut children = (fan.spawn)(&state, cx);
                let now = fan.in_flight.map_or(children.len(), |most| children.len().min(most));
                self.trail.left = Some(Left::after(&state, &mut children, now)?);
                children
            }
        };
        if children.is_empty() {
            self.trail.left = None;
            return self.next(next, state);
        }
        let at = self.here(&state)?;
        let fail_fast = fan.fail_fast;
        let on_release = if fail_fast { Children::Cancel } else { Children::Keep };
        let (timeout, quorum, on_cancel) = (None, None, Children::Cancel);
        Ok(Transition::Spawn(Spawn { at, children, timeout, quorum, fail_fast, on_release, on_cancel }))
    }
}

/// Fails for a child that is not done: for one that failed before one that was cancelled for it.
fn all_done(cx: &Context) -> Result<(), BoxError> {
    let not_done = cx.children().iter().filter(|child| child.output.is_none());
    match not_done.min_by_key(|child| child.status != Status::Failed) {
        None => Ok(()),
        Some(child) => {
            let why = child.error.as_deref().unwrap_or("no reason is known");
            Err(format!("its child {} is {}: {why}", child.id, child.status).into())
        }
    }
}
