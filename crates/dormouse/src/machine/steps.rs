//! The bridge between an enum and (step, state): the variant is the step, its fields are the state.
//!
//! serde's default form of an enum is `{"Variant": fields}`, or `"Variant"` without fields. The text is
//! split at the name, and put together again, so that a state is serialized once and never becomes a tree.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeOwned, Visitor};
use serde::{Deserializer, Serialize, forward_to_deserialize_any};

use crate::json::decode_text;
use crate::{At, Error, Json, Result};

/// The names of an enum's variants, from its own `Deserialize`.
pub(super) fn steps_of<S: DeserializeOwned>() -> Result<&'static [&'static str], String> {
    let told = match S::deserialize(Probe) {
        Err(Told::Variants(variants)) => variants,
        Err(Told::Nothing) | Ok(_) => {
            return Err("its State must be an enum with serde's default (external) tagging, \
                 so that the variant is the step"
                .to_owned());
        }
    };
    if let Some(odd) =
        told.iter().find(|name| name.contains(['"', '\\']) || name.chars().any(char::is_control))
    {
        return Err(format!("the step name {odd:?} holds a quote, a backslash or a control character"));
    }
    Ok(told)
}

/// Splits a state enum into its step and state.
pub(crate) fn encode_at<S: Serialize + DeserializeOwned>(state: &S) -> Result<At> {
    let steps = steps_of::<S>().map_err(Error::InvalidState)?;
    let text = serde_json::to_string(state).map_err(|source| Error::InvalidJson { what: "state", source })?;
    let split = text.strip_prefix("{\"").map_or_else(
        || Some((text.strip_prefix('"')?.strip_suffix('"')?, "null")),
        |rest| rest.strip_suffix('}')?.split_once("\":"),
    );
    split
        .and_then(|(name, state)| {
            let step = steps.iter().find(|step| **step == name)?;
            Some(At { step: Cow::Borrowed(step), state: Json::trusted(state) })
        })
        .ok_or_else(|| Error::InvalidState("it does not serialize as one of its own variants".to_owned()))
}

/// Joins a step and its state to an enum again; the error says what does not fit and where.
pub(crate) fn decode_at<S: DeserializeOwned>(at: &At) -> Result<S, String> {
    let state = at.state.as_str();
    let mut text = String::with_capacity(at.step.len() + state.len() + 5);
    text.push_str("{\"");
    text.push_str(&at.step);
    text.push_str("\":");
    text.push_str(state);
    text.push('}');
    decode_text(&text)
}

/// A deserializer that only records which variants it is asked for.
struct Probe;

#[derive(Debug)]
enum Told {
    Variants(&'static [&'static str]),
    Nothing,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Told {}

impl de::Error for Told {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self::Nothing
    }
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Told;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Told> {
        Err(Told::Nothing)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Told> {
        Err(Told::Variants(variants))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Place {
        Nowhere,
        Number(u64),
        Pair(u8, String),
        Fields {
            a: Option<u8>,
            b: Vec<String>,
        },
        Nested(Box<Option<Place>>),
        #[serde(rename = "with space: and é")]
        Renamed {},
    }

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Here { a: u8 },
    }

    #[test]
    fn every_kind_of_variant_survives_the_split() {
        for (place, step, state) in [
            (Place::Nowhere, "Nowhere", "null"),
            (Place::Number(u64::MAX), "Number", "18446744073709551615"),
            (Place::Pair(1, "\":}{".into()), "Pair", r#"[1,"\":}{"]"#),
            (Place::Fields { a: None, b: vec!["}".into()] }, "Fields", r#"{"a":null,"b":["}"]}"#),
            (Place::Nested(Box::new(Some(Place::Nowhere))), "Nested", r#""Nowhere""#),
            (Place::Nested(Box::new(None)), "Nested", "null"),
            (Place::Renamed {}, "with space: and é", "{}"),
        ] {
            let at = encode_at(&place).expect("it encodes");
            assert_eq!((at.step.as_ref(), at.state.as_str()), (step, state));
            assert_eq!(decode_at::<Place>(&at).expect("it decodes"), place);
        }
    }

    #[test]
    fn a_state_that_no_longer_decodes_says_where() {
        let at = At { step: "Fields".into(), state: Json::trusted(r#"{"a":1,"b":[true]}"#) };
        let reason = decode_at::<Place>(&at).expect_err("a bool is no string");
        assert!(reason.contains("Fields.b[0]"), "{reason}");
        let at = At { step: "Gone".into(), state: Json::null() };
        assert!(decode_at::<Place>(&at).expect_err("no such step").contains("unknown variant `Gone`"));
    }

    #[test]
    fn a_state_that_is_no_plain_enum_is_refused() {
        assert!(steps_of::<Tagged>().is_err());
        assert!(steps_of::<Vec<u8>>().is_err());
        assert_eq!(steps_of::<Place>().expect("a plain enum").len(), 6);
    }
}
