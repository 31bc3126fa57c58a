//! What a flow notes for itself, beside the fields of its state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::FlowState;
use crate::{Error, Json, Result};

/// The field that holds it. No field of a Rust struct can have this name by itself.
const FIELD: &str = "$flow";

/// How an instance came to be where it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Trail {
    /// The case each branch took last.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) chosen: BTreeMap<String, String>,
    /// The signals whose condition was false.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<String>,
    /// How often each repeat that is under way has gone round.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) rounds: BTreeMap<String, u32>,
    /// The acts of sagas that are to be undone if something fails, the last one last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) undo: Vec<String>,
    /// Why acts are being undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<Failed>,
    /// How many children of a fan have been spawned in rounds before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) spawned: Option<usize>,
}

/// A failure that a saga answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failed {
    /// The part that failed.
    pub(super) at: String,
    pub(super) error: String,
    /// The saga whose acts are being undone.
    pub(super) saga: String,
}

/// Reads a state and its trail; a state that nobody has noted anything in has none.
pub(super) fn read<S: FlowState>(json: &Json) -> Result<(S, Trail), String> {
    let mut fields: Value = serde_json::from_str(json.as_str()).map_err(|error| error.to_string())?;
    let trail = fields.as_object_mut().and_then(|fields| fields.remove(FIELD));
    let trail = trail.map(serde_json::from_value).transpose().map_err(|error| error.to_string())?;
    let state = serde_json::from_value(fields).map_err(|error| error.to_string())?;
    Ok((state, trail.unwrap_or_default()))
}

/// Writes a state and its trail.
pub(super) fn write<S: FlowState>(state: &S, trail: &Trail) -> Result<Json> {
    let invalid = |source| Error::InvalidJson { what: "state", source };
    let mut fields = match serde_json::to_value(state).map_err(invalid)? {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        _ => {
            return Err(Error::InvalidState("a flow's state must be a struct with named fields".to_owned()));
        }
    };
    if *trail != Trail::default() {
        fields.insert(FIELD.to_owned(), serde_json::to_value(trail).map_err(invalid)?);
    }
    Json::encode("state", &fields)
}
