//! What a flow records for itself, beside the fields of its state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::FlowState;
use super::fan::Left;
use crate::{Error, Json, Result};

/// The field that holds it. No field of a Rust struct can have this name by itself.
pub(super) const FIELD: &str = "$flow";

/// How an instance got where it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Trail {
    /// The case each branch took last.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) chosen: BTreeMap<String, String>,
    /// The signals whose condition was false.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<String>,
    /// How many rounds each repeat that is under way has done.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) rounds: BTreeMap<String, u32>,
    /// The acts of sagas that will be undone if something fails, the last one last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) undo: Vec<String>,
    /// Why acts are being undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<Failed>,
    /// The children of the fan that is under way that are still to be spawned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<Left>,
}

/// A failure after which a saga is undone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failed {
    /// The part that failed.
    pub(super) at: String,
    pub(super) error: String,
    /// The saga whose acts are being undone.
    pub(super) saga: String,
    /// The acts that could not be undone, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) not_undone: Vec<(String, String)>,
}

/// A trail within a state, read and written as the text it is: what is left to be spawned keeps its digits.
#[derive(Serialize, Deserialize)]
struct Noted {
    #[serde(rename = "$flow")]
    trail: Trail,
    #[serde(flatten, skip_deserializing)]
    fields: Map<String, Value>,
}

/// Reads a state and its trail; a state without the field has an empty trail.
pub(super) fn read<S: FlowState>(json: &Json) -> Result<(S, Trail), String> {
    let mut fields: Value = serde_json::from_str(json.as_str()).map_err(|error| error.to_string())?;
    let trail = match fields.as_object_mut().and_then(|fields| fields.remove(FIELD)) {
        Some(_) => serde_json::from_str::<Noted>(json.as_str()).map_err(|error| error.to_string())?.trail,
        None => Trail::default(),
    };
    let state = serde_json::from_value(fields).map_err(|error| error.to_string())?;
    Ok((state, trail))
}

/// Writes a state and its trail.
pub(super) fn write<S: FlowState>(state: &S, trail: &Trail) -> Result<Json> {
    let invalid = |source| Error::InvalidJson { what: "state", source };
    let fields = match serde_json::to_value(state).map_err(invalid)? {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        _ => {
            return Err(Error::InvalidState("a flow's state must be a struct with named fields".to_owned()));
        }
    };
    if *trail == Trail::default() {
        return Json::encode("state", &fields);
    }
    Json::encode("state", &Noted { trail: trail.clone(), fields })
}
