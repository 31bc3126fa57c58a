//! What a step takes as the answer of its unit: checked at the door, and perhaps built from what came.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::json::decode_text;
use crate::store::Refusal;
use crate::{Form, Json, Limits};

type Check = fn(&Json) -> Result<(), String>;
type Projector = Arc<dyn Fn(&Json, &Json) -> Result<Json, String> + Send + Sync>;

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
    step: &'static str,
    reads: Check,
    #[cfg(feature = "schema")]
    schema: Option<serde_json::Value>,
    projector: Option<Projector>,
    form: fn() -> Form,
}

impl Takes {
    /// What a unit that leads to this step is answered with: for a unit that asks for a list, `Vec<T>`.
    pub fn at<T: DeserializeOwned>(step: &'static str) -> Self {
        Self {
            step,
            reads: |output| decode_text::<T>(output.as_str()).map(drop),
            #[cfg(feature = "schema")]
            schema: None,
            projector: None,
            form: Form::of::<T>,
        }
    }

    /// The step that sees it.
    pub const fn step(&self) -> &'static str {
        self.step
    }

    /// What an answer looks like as it comes in.
    pub fn form(&self) -> Form {
        (self.form)()
    }

    /// Refuses an answer that does not fit this JSON Schema, as it came in. The schema holds all that it refers to:
    /// nothing is fetched.
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn schema(mut self, schema: serde_json::Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Builds the output from the request and the answer: its result is what is stored, and what the step reads. Its
    /// error refuses the answer.
    ///
    /// It is called at the door, before the answer is admitted, and must do nothing but compute: of two answers that
    /// come at once, both are built and one is stored.
    #[must_use]
    pub fn projector<R, A, T, E>(
        mut self,
        build: impl Fn(R, A) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self
    where
        R: DeserializeOwned,
        A: DeserializeOwned,
        T: Serialize,
        E: fmt::Display,
    {
        self.form = Form::of::<A>;
        self.projector = Some(Arc::new(move |request, answer| {
            let request = decode_text(request.as_str()).map_err(|error| format!("its request: {error}"))?;
            let answer = decode_text(answer.as_str())?;
            let built = build(request, answer).map_err(|error| error.to_string())?;
            Json::encode("output", &built).map_err(|error| error.to_string())
        }));
        self
    }

    /// The gate that this declares, or what is wrong with it.
    pub(crate) fn gate(self) -> Result<Gate, String> {
        Ok(Gate {
            #[cfg(feature = "schema")]
            schema: self.schema.as_ref().map(|schema| compiled(self.step, schema)).transpose()?,
            step: self.step,
            reads: self.reads,
            projector: self.projector,
        })
    }
}

#[cfg(feature = "schema")]
fn compiled(step: &str, schema: &serde_json::Value) -> Result<jsonschema::Validator, String> {
    // Offline, whatever features others give the validator.
    let built = jsonschema::options().offline().build(schema);
    built.map_err(|error| format!("the schema of what it takes at {step:?} cannot be used: {error}"))
}

impl fmt::Debug for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takes").field("step", &self.step).finish_non_exhaustive()
    }
}

/// Why an answer was not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub(crate) refusal: Refusal,
    pub(crate) reason: String,
}

/// A declaration, ready to check answers.
pub(crate) struct Gate {
    pub(crate) step: &'static str,
    reads: Check,
    #[cfg(feature = "schema")]
    schema: Option<jsonschema::Validator>,
    projector: Option<Projector>,
}

impl Gate {
    /// Whether it lets every answer of this text through as it is, whatever was asked.
    pub(crate) fn is_open_for(&self, answer: &Json) -> bool {
        self.projector.is_none() && self.fits(answer).is_ok() && (self.reads)(answer).is_ok()
    }

    /// The output that is stored for an answer: checked as it came, built, and checked as the step will read it.
    pub(crate) fn admit(&self, limits: &Limits, request: &Json, answer: Json) -> Result<Json, Unfit> {
        let unfit = |refusal| move |reason| Unfit { refusal, reason };
        self.fits(&answer).map_err(unfit(Refusal::Schema))?;
        let output = match &self.projector {
            None => answer,
            Some(project) => {
                let built = catch_unwind(AssertUnwindSafe(|| project(request, &answer)));
                let built = built.unwrap_or_else(|_| Err("it panicked".to_owned()));
                let fits = |built: Json| limits.check_document("output", &built).map(|()| built);
                let built = built.and_then(|built| fits(built).map_err(|error| error.to_string()));
                built.map_err(unfit(Refusal::Projection))?
            }
        };
        (self.reads)(&output).map_err(unfit(Refusal::Malformed))?;
        Ok(output)
    }

    #[cfg(feature = "schema")]
    fn fits(&self, answer: &Json) -> Result<(), String> {
        let Some(schema) = &self.schema else { return Ok(()) };
        let value = decode_text::<serde_json::Value>(answer.as_str())?;
        schema.validate(&value).map_err(|error| {
            let path = error.instance_path().to_string();
            let place = if path.is_empty() { "at the top".to_owned() } else { format!("at {path}") };
            // What came in is the sender's, and may be long or private: it is not repeated.
            format!("{place}: {}", error.masked())
        })
    }

    #[cfg(not(feature = "schema"))]
    fn fits(&self, _: &Json) -> Result<(), String> {
        Ok(())
    }
}
