//! Compiled JSON Schemas, and checking documents against them.

use serde_json::Value;

use crate::Json;
use crate::gate::Unfit;
use crate::unit::Refusal;

#[cfg(feature = "schema")]
type Validator = jsonschema::Validator;
/// Without the feature there is none.
#[cfg(not(feature = "schema"))]
type Validator = std::convert::Infallible;

/// A schema, or why it cannot be used here.
pub(crate) struct Schema(Result<Box<Validator>, String>);

impl Schema {
    pub(crate) fn compile(schema: &Value) -> Self {
        Self(compiled(schema).map(Box::new))
    }

    /// Itself, or why it cannot be used here.
    pub(crate) fn usable(self) -> Result<Self, String> {
        self.0.map(|compiled| Self(Ok(compiled)))
    }

    pub(crate) fn check(&self, document: &Json) -> Result<(), Unfit> {
        match &self.0 {
            Ok(schema) => fits(schema, document).map_err(|reason| Unfit { refusal: Refusal::Schema, reason }),
            Err(reason) => Err(Unfit {
                refusal: Refusal::Unchecked,
                reason: format!("the machine's schema cannot be used here: {reason}"),
            }),
        }
    }
}

#[cfg(feature = "schema")]
fn compiled(schema: &Value) -> Result<Validator, String> {
    // Offline, whatever features other crates turn on in the validator.
    jsonschema::options().offline().build(schema).map_err(|error| error.to_string())
}

#[cfg(feature = "schema")]
fn fits(schema: &Validator, document: &Json) -> Result<(), String> {
    let value = crate::json::decode_text::<Value>(document.as_str())?;
    schema.validate(&value).map_err(|error| {
        let path = error.instance_path().to_string();
        let place = if path.is_empty() { "at the top".to_owned() } else { format!("at {path}") };
        // The value is the sender's and may be long or private, so the error does not quote it.
        format!("{place}: {}", error.masked())
    })
}

#[cfg(not(feature = "schema"))]
fn compiled(_: &Value) -> Result<Validator, String> {
    Err("this program was built without dormouse's feature `schema`".to_owned())
}

#[cfg(not(feature = "schema"))]
fn fits(schema: &Validator, _: &Json) -> Result<(), String> {
    match *schema {}
}
