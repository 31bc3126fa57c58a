//! Outlines: what documents of a type look like, as data, derived from the type's own `Deserialize`. A process without
//! the machine's code uses them to refuse documents that the code could not read.

mod fit;
mod offer;
mod probe;

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::probe::look;
use crate::Json;
use crate::sample::samples;

/// Describes what a document must look like so that its type can be read from it.
///
/// It is derived from the type, so its author has nothing to write, and it refuses only documents that certainly do not
/// decode. What a type does not reveal, such as which texts are dates, is let through: see
/// [`Context::unreadable`](crate::Context::unreadable).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "of", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outline {
    /// Anything: what the type accepts is unknown.
    Any,
    /// `null`.
    Null,
    /// `true` or `false`.
    Flag,
    /// A number without a fraction.
    Whole {
        /// The smallest, if there is one.
        min: Option<i64>,
        /// The largest, if there is one.
        max: Option<u64>,
    },
    /// A number.
    Number,
    /// A text of one character.
    Char,
    /// A text.
    Text,
    /// This, or `null`.
    Optional(Box<Outline>),
    /// A list of these.
    List(Box<Outline>),
    /// A list of exactly these.
    Tuple(Vec<Outline>),
    /// One of these, or a list of them.
    OneOrMany(Box<Outline>),
    /// An object with any names, whose values are these.
    Map(Box<Outline>),
    /// An object with these members.
    Object {
        /// Those that are known.
        members: Vec<Member>,
        /// Whether others are let through.
        open: bool,
    },
    /// A variant of an enum: its name, or an object that holds its fields under its name.
    Variants {
        /// Those that are known.
        variants: Vec<Variant>,
        /// Whether others are let through.
        open: bool,
    },
    /// One of these kinds of JSON values.
    OneOf {
        /// The kinds.
        kinds: Vec<Kind>,
        /// A member that an object must have.
        member: Option<String>,
    },
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Other names for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// What it looks like.
    pub outline: Outline,
    /// Whether it must be there.
    pub required: bool,
}

/// A variant of an enum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its content, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Outline>,
}

/// A kind of JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Flag,
    /// A number.
    Number,
    /// A text.
    Text,
    /// A list.
    List,
    /// An object.
    Object,
}

/// How many example values an outline is tested on.
const SAMPLES_MAX: usize = 24;

impl Outline {
    /// The outline of this type.
    ///
    /// ```
    /// # use dormouse::{Json, Outline};
    /// #[derive(serde::Deserialize)]
    /// struct Payment { cents: u64, note: Option<String> }
    ///
    /// let outline = Outline::of::<Payment>();
    /// assert!(outline.check(&Json::from(serde_json::json!({ "cents": 5 }))).is_ok());
    /// let refused = outline.check(&Json::from(serde_json::json!({ "cents": "five" })));
    /// assert_eq!(refused.unwrap_err(), "a text, where a whole number of at least 0 is expected (at cents)");
    /// ```
    pub fn of<T: DeserializeOwned>() -> Self {
        // This runs the author's code with made-up documents, so a panic is possible.
        let looked = catch_unwind(AssertUnwindSafe(|| {
            let outline = look::<T>();
            // If the type reads what its outline refuses, the outline is wrong, and nothing is known.
            let is_true = samples::<T>(SAMPLES_MAX).iter().all(|sample| outline.check(sample).is_ok());
            if is_true { outline } else { Self::Any }
        }));
        looked.unwrap_or(Self::Any)
    }

    /// Returns why a document cannot be read, and where in it.
    pub fn check(&self, document: &Json) -> Result<(), String> {
        if *self == Self::Any {
            return Ok(());
        }
        let value = crate::json::decode_text(document.as_str())?;
        fit::check(self, &value)
    }

    /// The paths of members that the type does not know and ignores; at most a few of them.
    pub(crate) fn strays(&self, document: &Json) -> Vec<String> {
        let value = crate::json::decode_text(document.as_str());
        value.map_or_else(|_| Vec::new(), |value| fit::strays(self, &value))
    }

    /// The content of a variant of this enum, as the state of a step; `None` if there is no such variant.
    pub(crate) fn state_at(&self, step: &str) -> Option<Self> {
        let Self::Variants { variants, .. } = self else { return None };
        let variant = variants.iter().find(|variant| variant.name == step)?;
        Some(variant.holds.clone().unwrap_or(Self::Null))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "it is only asked what it takes")]
    struct Payment {
        cents: u64,
        #[serde(alias = "when")]
        at: Timestamp,
        tries: u8,
        weight: f32,
        note: Option<String>,
        #[serde(default)]
        lines: Vec<Line>,
        rates: BTreeMap<String, i32>,
        way: Way,
        pair: (bool, Timestamp, u16),
        extra: Value,
        raw: Json,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is only asked what it takes")]
    struct Line {
        sku: String,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[expect(dead_code, reason = "it is only asked what it takes")]
    enum Way {
        Cash,
        Card(u64),
        Split(u8, u8),
        Bank { iban: String, on: Option<Timestamp> },
    }

    fn payment() -> Value {
        json!({
            "cents": 5, "at": "2030-01-01T00:00:00Z", "tries": 1, "weight": 1.5, "rates": { "eur": -1 }, "way": "cash",
            "pair": [true, "2030-01-01T00:00:00Z", 7], "extra": [null], "raw": {}, "unknown": "ignored",
        })
    }

    fn refuses(change: Value) -> Option<String> {
        let mut value = payment();
        for (name, part) in change.as_object().expect("changes") {
            match part {
                Value::String(gone) if gone == "-" => drop(value.as_object_mut().expect("it").remove(name)),
                part => value[name] = part.clone(),
            }
        }
        let document = Json::from(value);
        let refused = Outline::of::<Payment>().check(&document).err();
        // It refuses only what the type refuses as well.
        let read = document.decode::<Payment>("payment");
        assert!(refused.is_none() || read.is_err(), "{refused:?} {change}");
        refused
    }

    #[test]
    fn a_document_that_its_type_reads_fits() {
        for change in [
            json!({}),
            json!({ "note": null }),
            json!({ "note": "a", "lines": [{ "sku": "a" }] }),
            json!({ "at": "-", "when": "2030-01-01T00:00:00Z" }),
            json!({ "way": { "cash": null } }),
            json!({ "way": { "card": 1 } }),
            json!({ "way": { "split": [1, 2] } }),
            json!({ "way": { "bank": { "iban": "x" } } }),
            json!({ "weight": 2, "tries": 255 }),
        ] {
            assert_eq!(refuses(change.clone()), None, "{change}");
        }
    }

    #[test]
    fn a_document_that_its_type_cannot_read_is_refused_with_the_place() {
        for (change, told) in [
            (json!({ "cents": "oops" }), "a text, where a whole number of at least 0 is expected (at cents)"),
            (json!({ "cents": -1 }), "-1, where a whole number of at least 0 is expected (at cents)"),
            (json!({ "cents": 1.5 }), "1.5, where a whole number of at least 0 is expected (at cents)"),
            (json!({ "tries": 256 }), "256, where a whole number from 0 to 255 is expected (at tries)"),
            (json!({ "cents": "-" }), "missing member \"cents\""),
            (json!({ "at": "-" }), "missing member \"at\""),
            (json!({ "at": 1 }), "a number, where a text is expected (at at)"),
            (json!({ "note": 1 }), "a number, where a text is expected (at note)"),
            (
                json!({ "lines": [{ "sku": "a" }, { "sku": "b", "n": 1 }] }),
                "unknown member \"n\", expected one of sku (at lines[1])",
            ),
            (
                json!({ "rates": { "eur": "one" } }),
                "a text, where a whole number from -2147483648 to 2147483647 is expected (at rates.eur)",
            ),
            (json!({ "way": "gold" }), "a text, where one of cash, card, split, bank is expected (at way)"),
            (
                json!({ "way": "card" }),
                "only the name \"card\", where it and its fields are expected (at way)",
            ),
            (
                json!({ "way": { "card": true } }),
                "true or false, where a whole number of at least 0 is expected (at way.card)",
            ),
            (json!({ "way": { "bank": {} } }), "missing member \"iban\" (at way.bank)"),
            (json!({ "pair": [true] }), "a list of 1, where one of 3 is expected (at pair)"),
            (
                json!({ "pair": [true, "2030-01-01T00:00:00Z", -1] }),
                "-1, where a whole number from 0 to 65535 is expected (at pair[2])",
            ),
        ] {
            assert_eq!(refuses(change.clone()).as_deref(), Some(told), "{change}");
        }
        for top in ["null", "1", "\"a\"", "[]", "{}"] {
            let top = Json::parse("payment", top).expect("JSON");
            assert!(Outline::of::<Payment>().check(&top).is_err(), "{top}");
        }
    }

    #[test]
    fn what_a_type_does_not_tell_is_let_through() {
        #[derive(Deserialize)]
        #[serde(untagged)]
        #[expect(dead_code, reason = "it is only asked what it takes")]
        enum Either {
            Number(u64),
            Text(String),
        }
        #[derive(Deserialize)]
        #[expect(dead_code, reason = "it is only asked what it takes")]
        struct Flat {
            a: u64,
            #[serde(flatten)]
            rest: BTreeMap<String, Value>,
        }
        #[derive(Deserialize)]
        #[serde(tag = "kind")]
        #[expect(dead_code, reason = "it is only asked what it takes")]
        enum Tagged {
            One { n: u8 },
        }
        for any in [Outline::of::<Value>(), Outline::of::<Json>(), Outline::of::<Either>()] {
            assert_eq!(any, Outline::Any);
        }
        let fits = |outline: &Outline, value: Value| outline.check(&Json::from(value)).is_ok();
        let flat = Outline::of::<Flat>();
        assert!(fits(&flat, json!({ "a": 1, "b": "c" })) && !fits(&flat, json!(1)), "{flat:?}");
        let tagged = Outline::of::<Tagged>();
        assert!(fits(&tagged, json!({ "kind": "One", "n": 1 })), "{tagged:?}");
        assert!(!fits(&tagged, json!({ "n": 1 })) && !fits(&tagged, json!("One")), "{tagged:?}");
    }

    #[test]
    fn members_that_a_type_ignores_are_named_by_their_path() {
        let mut value = payment();
        value["way"] = json!({ "bank": { "iban": "x", "bic": "y" } });
        value["extra"] = json!({ "anything": 1 });
        assert_eq!(Outline::of::<Payment>().strays(&Json::from(value)), ["unknown", "way.bank.bic"]);
    }

    #[test]
    fn an_outline_survives_its_own_text() {
        let outline = Outline::of::<Payment>();
        let text = serde_json::to_string(&outline).expect("text");
        assert_eq!(serde_json::from_str::<Outline>(&text).expect("an outline"), outline);
    }
}
