//! Parts made of parts: scenes and sagas, branches, repeats.

use std::panic::Location;
use std::sync::Arc;

use super::parts::{CaseOf, Kind, Part, Parts, Place, Test, list};

/// What a cancel does to a saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnCancel {
    /// It ends, and what it did stays done.
    End,
    /// What it did is undone first.
    Undo,
}

/// A group of parts. Its name becomes part of their paths.
#[track_caller]
pub fn scene<S, D>(name: impl Into<String>, parts: impl Parts<S, D>) -> Scene<S, D> {
    Scene { name: name.into(), place: Location::caller(), parts: list(parts), saga: None }
}

/// A group of parts that is undone if one of them fails: the undos of its acts run in reverse order.
#[track_caller]
pub fn saga<S, D>(name: impl Into<String>, parts: impl Parts<S, D>) -> Scene<S, D> {
    let saga = Some(OnCancel::End);
    Scene { name: name.into(), place: Location::caller(), parts: list(parts), saga }
}

/// See [`scene`] and [`saga`].
pub struct Scene<S, D> {
    name: String,
    place: Place,
    parts: Vec<Part<S, D>>,
    saga: Option<OnCancel>,
}

impl<S, D> Scene<S, D> {
    /// Adds the next part.
    #[must_use]
    pub fn then(mut self, parts: impl Parts<S, D>) -> Self {
        parts.add_to(&mut self.parts);
        self
    }

    /// Undoes what this saga did when its instance is cancelled in the middle of it; a scene that is asked to becomes a
    /// saga. Without this, a cancel undoes nothing. A second cancel ends the instance at once.
    #[must_use]
    pub fn undo_on_cancel(mut self) -> Self {
        self.saga = Some(OnCancel::Undo);
        self
    }
}

impl<S, D> From<Scene<S, D>> for Part<S, D> {
    fn from(Scene { name, place, parts, saga }: Scene<S, D>) -> Self {
        Self { name, place, kind: Kind::Scene { parts, saga } }
    }
}

/// Goes one of several ways: that of the first case that holds.
#[track_caller]
pub fn branch<S, D>(name: impl Into<String>) -> Branch<S, D> {
    Branch { name: name.into(), place: Location::caller(), cases: Vec::new(), otherwise: None }
}

/// See [`branch`].
pub struct Branch<S, D> {
    name: String,
    place: Place,
    cases: Vec<CaseOf<S, D>>,
    otherwise: Option<Vec<Part<S, D>>>,
}

impl<S, D> Branch<S, D> {
    /// A way to go if this holds.
    #[must_use]
    pub fn case(
        mut self,
        name: impl Into<String>,
        holds: impl Fn(&S) -> bool + Send + Sync + 'static,
        parts: impl Parts<S, D>,
    ) -> Self {
        self.cases.push(CaseOf { name: name.into(), holds: Arc::new(holds), parts: list(parts) });
        self
    }

    /// The way to go if no case holds.
    #[must_use]
    pub fn otherwise(self, parts: impl Parts<S, D>) -> Self {
        Self { otherwise: Some(list(parts)), ..self }
    }

    /// Goes on after the branch if no case holds.
    #[must_use]
    pub fn otherwise_nothing(self) -> Self {
        Self { otherwise: Some(Vec::new()), ..self }
    }
}

impl<S, D> From<Branch<S, D>> for Part<S, D> {
    fn from(Branch { name, place, cases, otherwise }: Branch<S, D>) -> Self {
        Self { name, place, kind: Kind::Branch { cases, otherwise } }
    }
}

/// Runs parts again and again while something holds, looked at before each round.
#[track_caller]
pub fn repeat<S, D>(
    name: impl Into<String>,
    goes_on: impl Fn(&S) -> bool + Send + Sync + 'static,
    parts: impl Parts<S, D>,
) -> Repeat<S, D> {
    let (name, goes_on) = (name.into(), Arc::new(goes_on));
    Repeat { name, place: Location::caller(), goes_on, rounds_max: None, parts: list(parts) }
}

/// See [`repeat`].
pub struct Repeat<S, D> {
    name: String,
    place: Place,
    goes_on: Test<S>,
    rounds_max: Option<u32>,
    parts: Vec<Part<S, D>>,
}

impl<S, D> Repeat<S, D> {
    /// The most rounds there may be; one more fails the part. A repeat must have such a bound.
    #[must_use]
    pub fn at_most(self, rounds: u32) -> Self {
        Self { rounds_max: Some(rounds), ..self }
    }
}

impl<S, D> From<Repeat<S, D>> for Part<S, D> {
    fn from(Repeat { name, place, goes_on, rounds_max, parts }: Repeat<S, D>) -> Self {
        Self { name, place, kind: Kind::Repeat { goes_on, rounds_max, parts } }
    }
}
