//! Examples of any type that can be deserialized: whatever its `Deserialize` asks for is made up, the simplest first.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use serde::Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Visitor};
use serde_json::{Map, Value};

use crate::Json;

/// How many tries are made before giving up: some types refuse every made-up value.
const TRIES_MAX: usize = 512;
/// How deep values are; deeper ones belong to recursive types.
const DEPTH_MAX: usize = 12;

/// Returns at most this many different values of a type, in JSON. Those that differ least from the simplest come first.
pub(crate) fn samples<T: DeserializeOwned>(most: usize) -> Vec<Json> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    // Each try follows the given choices first, and then chooses the simplest.
    let mut tries = VecDeque::from([Vec::new()]);
    for _ in 0..TRIES_MAX {
        let Some(told) = tries.pop_front() else { break };
        let fixed = told.len();
        let mut choices = Choices { told, options: Vec::new(), text: None };
        let mut value = Value::Null;
        let made = T::deserialize(Maker { choices: &mut choices, value: &mut value, depth: 0 });
        for (at, &options) in choices.options.iter().enumerate().skip(fixed) {
            for option in 1..options {
                let mut told = choices.told[..at].to_vec();
                told.push(option);
                tries.push_back(told);
            }
        }
        let text = value.to_string();
        // A made-up value must also decode from its own JSON text.
        let readable = made.is_ok() && serde_json::from_str::<T>(&text).is_ok();
        if readable && seen.insert(text.clone()) {
            found.push(Json::trusted(text));
        }
        if found.len() == most {
            break;
        }
    }
    found
}

/// The texts that are tried where a text is asked for: common forms of timestamps, days, durations, addresses and ids.
const TEXTS: [&str; 6] = [
    "a",
    "2030-01-01T00:00:00Z",
    "2030-01-01",
    "PT1H",
    "http://example.com/",
    "00000000-0000-4000-8000-000000000000",
];
/// How many texts there are to choose from.
pub(crate) const TEXTS_MAX: usize = TEXTS.len();

/// The simplest value that a seed accepts with this one of the texts in it; `None` if it accepts none.
pub(crate) fn simplest<'de, S: DeserializeSeed<'de>>(seed: S, text: usize) -> Option<S::Value> {
    let mut choices = Choices { told: Vec::new(), options: Vec::new(), text: Some(TEXTS[text]) };
    let mut value = Value::Null;
    seed.deserialize(Maker { choices: &mut choices, value: &mut value, depth: 0 }).ok()
}

/// The choices of one try: what each was, and how many options it had.
struct Choices {
    told: Vec<usize>,
    options: Vec<usize>,
    /// The one text to use, if there is no choice.
    text: Option<&'static str>,
}

impl Choices {
    fn choose<T: Copy>(&mut self, options: &[T]) -> T {
        let at = self.options.len();
        self.options.push(options.len());
        if at == self.told.len() {
            self.told.push(0);
        }
        options[self.told[at]]
    }
}

struct Maker<'a> {
    choices: &'a mut Choices,
    value: &'a mut Value,
    depth: usize,
}

impl<'a> Maker<'a> {
    fn within<'b>(&'b mut self, value: &'b mut Value) -> Maker<'b> {
        Maker { choices: self.choices, value, depth: self.depth + 1 }
    }

    fn make<T: Into<Value>>(self, value: T) -> &'a Value {
        *self.value = value.into();
        self.value
    }

    fn whole<'de, V: Visitor<'de>>(self, options: &[i64], visitor: V) -> Result<V::Value, Refused> {
        let number = self.choices.choose(options);
        self.make(number);
        visitor.visit_i64(number)
    }

    fn list<'de, V: Visitor<'de>>(mut self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        let mut items = Vec::new();
        let made = visitor.visit_seq(Items { maker: &mut self, items: &mut items, left: len })?;
        self.make(items);
        Ok(made)
    }

    fn fields<'de, V: Visitor<'de>>(
        mut self,
        names: Vec<&'static str>,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let mut fields = Map::new();
        let left = names.into_iter().collect();
        let made = visitor.visit_map(Fields { maker: &mut self, fields: &mut fields, left, name: "" })?;
        self.make(fields);
        Ok(made)
    }
}

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no example could be made")
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self
    }
}

macro_rules! whole {
    ($($method:ident $options:expr;)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            self.whole(&$options, visitor)
        })+
    };
}

impl<'de> Deserializer<'de> for Maker<'_> {
    type Error = Refused;

    whole! {
        deserialize_i8 [1, 0, -1];
        deserialize_u8 [1, 0, 100];
        deserialize_i16 [1, 0, -1, 10_000];
        deserialize_u16 [1, 0, 10_000];
        deserialize_i32 [1, 0, -1, 1_000_000];
        deserialize_u32 [1, 0, 1_000_000];
        deserialize_i64 [1, 0, -1, 1_000_000];
        deserialize_u64 [1, 0, 1_000_000];
        deserialize_i128 [1, 0, -1, 1_000_000];
        deserialize_u128 [1, 0, 1_000_000];
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.choices.choose(&[0, 1, 2, 3]) {
            0 => self.deserialize_unit(visitor),
            1 => self.deserialize_bool(visitor),
            2 => self.deserialize_u32(visitor),
            _ => self.deserialize_str(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let flag = self.choices.choose(&[true, false]);
        self.make(flag);
        visitor.visit_bool(flag)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let number = self.choices.choose(&[1.0, 0.0, 1_000_000.0]);
        self.make(number);
        visitor.visit_f64(number)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.make("a");
        visitor.visit_char('a')
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let text = self.choices.text.unwrap_or_else(|| self.choices.choose(&TEXTS));
        self.make(text);
        visitor.visit_str(text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.list(0, visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.list(0, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.depth < DEPTH_MAX && self.choices.choose(&[false, true]) {
            return visitor.visit_some(self);
        }
        self.make(());
        visitor.visit_none()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.make(());
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let len = if self.depth < DEPTH_MAX { self.choices.choose(&[1, 0, 2]) } else { 0 };
        self.list(len, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        self.list(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.list(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let is_empty = self.depth >= DEPTH_MAX || self.choices.choose(&[true, false]);
        self.fields(if is_empty { vec![] } else { vec!["a"] }, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        if self.depth > DEPTH_MAX {
            return Err(Refused);
        }
        self.fields(fields.to_vec(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        if variants.is_empty() || self.depth > DEPTH_MAX {
            return Err(Refused);
        }
        let name = self.choices.choose(variants);
        visitor.visit_enum(Variant { maker: self, name })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_unit(visitor)
    }
}

struct Items<'a, 'b> {
    maker: &'a mut Maker<'b>,
    items: &'a mut Vec<Value>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Items<'_, '_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut value = Value::Null;
        let made = seed.deserialize(self.maker.within(&mut value))?;
        self.items.push(value);
        Ok(Some(made))
    }
}

struct Fields<'a, 'b> {
    maker: &'a mut Maker<'b>,
    fields: &'a mut Map<String, Value>,
    left: VecDeque<&'static str>,
    name: &'static str,
}

impl<'de> de::MapAccess<'de> for Fields<'_, '_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refused> {
        let Some(name) = self.left.pop_front() else { return Ok(None) };
        self.name = name;
        seed.deserialize(de::value::StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refused> {
        let mut value = Value::Null;
        let made = seed.deserialize(self.maker.within(&mut value))?;
        self.fields.insert(self.name.to_owned(), value);
        Ok(made)
    }
}

struct Variant<'a> {
    maker: Maker<'a>,
    name: &'static str,
}

impl Variant<'_> {
    /// Makes the content of the variant, and wraps it under the variant's name.
    fn hold<T>(self, make: impl FnOnce(Maker<'_>) -> Result<T, Refused>) -> Result<T, Refused> {
        let Self { mut maker, name } = self;
        let mut held = Value::Null;
        let made = make(maker.within(&mut held))?;
        maker.make(Map::from_iter([(name.to_owned(), held)]));
        Ok(made)
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_> {
    type Error = Refused;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Refused> {
        Ok((seed.deserialize(de::value::StrDeserializer::new(self.name))?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        self.maker.make(self.name);
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refused> {
        self.hold(|maker| seed.deserialize(maker))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        self.hold(|maker| maker.list(len, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.hold(|maker| maker.fields(fields.to_vec(), visitor))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    fn texts<T: DeserializeOwned>(most: usize) -> Vec<String> {
        samples::<T>(most).iter().map(|json| json.as_str().to_owned()).collect()
    }

    #[derive(Serialize, Deserialize)]
    struct Vote {
        by: String,
        yes: bool,
        note: Option<u8>,
    }

    #[derive(Serialize, Deserialize)]
    enum Answer {
        No,
        Yes(u32),
        Both(bool, bool),
        Of { a: Option<Box<Answer>> },
    }

    #[test]
    fn examples_are_made_of_any_type_the_simplest_first() {
        assert_eq!(texts::<()>(9), ["null"]);
        assert_eq!(texts::<bool>(9), ["true", "false"]);
        assert_eq!(texts::<u64>(9), ["1", "0", "1000000"]);
        let votes = texts::<Vote>(100);
        assert_eq!(votes[0], r#"{"by":"a","note":null,"yes":true}"#);
        assert!(votes.contains(&r#"{"by":"a","note":null,"yes":false}"#.to_owned()), "{votes:?}");
        assert!(votes.contains(&r#"{"by":"a","note":1,"yes":true}"#.to_owned()), "{votes:?}");
        let answers = texts::<Answer>(6);
        assert_eq!(answers[..3], [r#""No""#, r#"{"Yes":1}"#, r#"{"Both":[true,true]}"#]);
    }

    #[test]
    fn moments_are_found_among_texts_and_what_refuses_everything_has_no_examples() {
        assert_eq!(texts::<jiff::Timestamp>(9), [r#""2030-01-01T00:00:00Z""#]);
        struct Never;
        impl<'de> Deserialize<'de> for Never {
            fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
                Err(de::Error::custom("never"))
            }
        }
        assert!(samples::<Never>(9).is_empty());
    }
}
