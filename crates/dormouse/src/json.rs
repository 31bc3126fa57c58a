//! JSON as the text it arrived in: states, payloads and outputs pass through unchanged.

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// A valid JSON document, kept as its text.
///
/// Numbers keep their digits, objects their order: what a caller sent is what a step receives.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Box<str>);

impl Json {
    /// The document `null`.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// Encodes a value; `what` names it in the error.
    pub fn encode<T: Serialize + ?Sized>(what: &'static str, value: &T) -> Result<Self> {
        let text = serde_json::to_string(value).map_err(|source| Error::InvalidJson { what, source })?;
        Ok(Self(text.into()))
    }

    /// Checks that text is one JSON document; `what` names it in the error.
    pub fn parse(what: &'static str, text: impl Into<Box<str>>) -> Result<Self> {
        let text = text.into();
        serde_json::from_str::<IgnoredAny>(&text).map_err(|source| Error::InvalidJson { what, source })?;
        Ok(Self(text))
    }

    /// Text that is known to be JSON because this library wrote it.
    pub(crate) fn trusted(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Decodes into a type; the error names the path at which it failed.
    pub fn decode<T: DeserializeOwned>(&self, what: &'static str) -> Result<T> {
        decode_text(&self.0).map_err(|reason| Error::Decode { what, reason })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Decodes, and only on failure decodes again with the path tracked, which costs more.
pub(crate) fn decode_text<T: DeserializeOwned>(text: &str) -> std::result::Result<T, String> {
    serde_json::from_str(text).map_err(|plain| {
        let deserializer = &mut serde_json::Deserializer::from_str(text);
        match serde_path_to_error::deserialize::<_, T>(deserializer) {
            Err(error) if error.path().iter().next().is_none() => plain.to_string(),
            Err(error) => format!("{} (at {})", error.inner(), error.path()),
            Ok(_) => plain.to_string(),
        }
    })
}

/// A fingerprint of texts, in 16 characters: the start of a SHA-256.
pub(crate) fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let hash = texts.into_iter().fold(Sha256::new(), Digest::chain_update).finalize();
    hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(Box::<str>::from(raw)))
    }
}
