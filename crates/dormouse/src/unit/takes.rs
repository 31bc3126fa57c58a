//! What a step takes as the answer of its unit: checked before it is stored, and perhaps built from the answer that
//! came.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::gate::{Check, Projector};
use crate::json::decode_text;
use crate::machine::Taken;
use crate::{Form, Json, Outline};

/// The output of a unit, as the step that reads it declares it: see [`crate::Machine::takes`].
///
/// ```
/// use dormouse::Takes;
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Order { cents: u64 }
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Offer { cents: u64, for_order: u64 }
///
/// let takes = Takes::at::<Offer>("Decide")
///     .projector(|asked: Order, cents: u64| Ok::<_, String>(Offer { cents, for_order: asked.cents }));
/// ```
#[derive(Clone)]
pub struct Takes {
    pub(crate) step: Cow<'static, str>,
    pub(crate) reads: Check,
    pub(crate) schema: Option<serde_json::Value>,
    pub(crate) projector: Option<Projector>,
    form: fn() -> Form,
    outline: fn() -> Outline,
}

impl Takes {
    /// Declares the type of the answer to a unit that leads to this step; for a unit that expects a list, `Vec<T>`.
    pub fn at<T: DeserializeOwned>(step: &'static str) -> Self {
        Self {
            step: Cow::Borrowed(step),
            reads: |output| decode_text::<T>(output.as_str()).map(drop),
            schema: None,
            projector: None,
            form: Form::of::<T>,
            outline: Outline::of::<T>,
        }
    }

    /// The same for a unit whose shape is not known before it asks: `T`, or a list of it.
    pub(crate) fn one_or_many<T: DeserializeOwned>() -> Self {
        let reads: Check = |output| match decode_text::<T>(output.as_str()) {
            Err(_) if output.as_str().starts_with('[') => decode_text::<Vec<T>>(output.as_str()).map(drop),
            one => one.map(drop),
        };
        let outline = || match Outline::of::<T>() {
            Outline::Any => Outline::Any,
            one => Outline::OneOrMany(Box::new(one)),
        };
        Self { reads, outline, ..Self::at::<T>("") }
    }

    /// The same, at another step.
    pub(crate) fn moved_to(&self, step: &str) -> Self {
        Self { step: Cow::Owned(step.to_owned()), ..self.clone() }
    }

    /// The step that sees it.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// The outline of an answer as it comes in.
    pub fn form(&self) -> Form {
        (self.form)()
    }

    /// Refuses an answer that does not fit this JSON Schema, as it came in. The schema must contain everything that it
    /// refers to: nothing is fetched.
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn schema(mut self, schema: serde_json::Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Builds the output from the request and the answer: its result is what is stored, and what the step reads. Its
    /// error refuses the answer.
    ///
    /// It is called before the answer is admitted, and must only compute: of two answers that come at once, both are
    /// built and one is stored.
    #[must_use]
    pub fn projector<R, A, T, E>(self, build: impl Fn(R, A) -> Result<T, E> + Send + Sync + 'static) -> Self
    where
        R: DeserializeOwned,
        A: DeserializeOwned,
        T: Serialize,
        E: fmt::Display,
    {
        self.projector_with(move |request, answer, _| build(request, answer))
    }

    /// The same as [`Takes::projector`], for a projector that also needs to know who answers and when.
    #[must_use]
    pub fn projector_with<R, A, T, E>(
        mut self,
        build: impl Fn(R, A, &Answering) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self
    where
        R: DeserializeOwned,
        A: DeserializeOwned,
        T: Serialize,
        E: fmt::Display,
    {
        self.form = Form::of::<A>;
        self.outline = Outline::of::<A>;
        self.projector = Some(Arc::new(move |request, answer, answering| {
            let request = decode_text(request.as_str()).map_err(|error| format!("its request: {error}"))?;
            let answer = decode_text(answer.as_str())?;
            let built = build(request, answer, answering).map_err(|error| error.to_string())?;
            Json::encode("output", &built).map_err(|error| error.to_string())
        }));
        self
    }
}

/// Who answers an interaction, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answering {
    /// Who answers, if that is known: see [`crate::Interaction::answered_by`].
    pub by: Option<String>,
    /// The store's time as the answer came in.
    pub at: Timestamp,
}

impl fmt::Debug for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takes").field("step", &self.step).finish_non_exhaustive()
    }
}

impl From<&Takes> for Taken {
    fn from(takes: &Takes) -> Self {
        Self {
            step: takes.step.to_string(),
            form: takes.form(),
            schema: takes.schema.clone(),
            outline: (takes.outline)(),
            is_built: takes.projector.is_some(),
        }
    }
}
