//! A deserializer that offers a type a path into a made-up document, and records what the type asks for at the end of
//! the path.

use std::fmt;

use serde::Deserializer;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::{Kind, Outline};
use crate::sample::simplest;

/// A name that no type has.
pub(super) const NO_NAME: &str = "\u{e000}none\u{e000}";

/// One step of a path.
#[derive(Clone)]
pub(super) enum Offer {
    /// A value where there may be none.
    Something,
    /// An object with made-up members, and then perhaps the one that the path leads to.
    Members { made: Vec<(&'static str, usize)>, then: Option<&'static str> },
    /// A list with made-up items, and then perhaps the one that the path leads to.
    Items { made: Vec<usize>, then: bool },
    /// The value of a name in an object of any names.
    Value,
    /// A variant.
    Variant(&'static str),
    /// A value.
    Shown(Sample),
}

#[derive(Clone, Copy)]
pub(super) enum Sample {
    Null,
    Flag,
    One,
    Negative,
    Fraction,
    Text(&'static str),
    List,
    Object,
}

/// What a type asks for, or its error about what it was offered.
#[derive(Debug)]
pub(super) enum Told {
    Plain(Outline),
    Whole(Option<i64>, Option<u64>),
    Option,
    List,
    Tuple(usize),
    Map,
    Members(&'static [&'static str]),
    Variants(&'static [&'static str]),
    UnitVariant,
    Open,
    /// It accepted the value at the end of the path.
    Complete,
    InvalidType,
    Missing(&'static str),
    Duplicate,
    UnknownField,
    UnknownVariant,
    Length,
    /// A value on the way could not be made up.
    Unmade,
    Other,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Told {}

impl de::Error for Told {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Other
    }

    fn invalid_type(_: de::Unexpected<'_>, _: &dyn de::Expected) -> Self {
        Self::InvalidType
    }

    fn invalid_length(_: usize, _: &dyn de::Expected) -> Self {
        Self::Length
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self::UnknownVariant
    }

    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self::UnknownField
    }

    fn missing_field(name: &'static str) -> Self {
        Self::Missing(name)
    }

    fn duplicate_field(_: &'static str) -> Self {
        Self::Duplicate
    }
}

/// A deserializer that follows a path and records what is asked for at its end.
#[derive(Clone, Copy)]
pub(super) struct Probe<'p> {
    pub(super) path: &'p [Offer],
}

impl Probe<'_> {
    fn show<'de, V: Visitor<'de>>(sample: Sample, visitor: V) -> Result<V::Value, Told> {
        match sample {
            Sample::Null => visitor.visit_unit(),
            Sample::Flag => visitor.visit_bool(true),
            Sample::One => visitor.visit_u64(1),
            Sample::Negative => visitor.visit_i64(-1),
            Sample::Fraction => visitor.visit_f64(0.5),
            Sample::Text(text) => visitor.visit_str(text),
            Sample::List => {
                visitor.visit_seq(de::value::SeqDeserializer::<_, Told>::new(std::iter::empty::<u8>()))
            }
            Sample::Object => {
                visitor.visit_map(de::value::MapDeserializer::<_, Told>::new(std::iter::empty::<(u8, u8)>()))
            }
        }
    }

    /// Follows the path one step, or returns what was asked for.
    fn follow<'de, V: Visitor<'de>>(self, asked: Told, visitor: V) -> Result<V::Value, Told> {
        let Some((offer, path)) = self.path.split_first() else { return Err(asked) };
        let rest = Probe { path };
        match offer {
            Offer::Shown(sample) => Self::show(*sample, visitor),
            Offer::Something => visitor.visit_some(rest),
            Offer::Items { made, then } => visitor.visit_seq(Listed { made, then: *then, rest }),
            Offer::Value => visitor.visit_map(Offered { made: &[], then: Some(NO_NAME), rest }),
            Offer::Members { made, then } => visitor.visit_map(Offered { made, then: *then, rest }),
            Offer::Variant(name) => visitor.visit_enum(Chosen { name, rest }),
        }
    }
}

macro_rules! ask {
    ($($method:ident => $told:expr;)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Told> {
            self.follow($told, visitor)
        })+
    };
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Told;

    ask! {
        deserialize_any => Told::Open;
        deserialize_ignored_any => Told::Plain(Outline::Any);
        deserialize_identifier => Told::Plain(Outline::Any);
        deserialize_bool => Told::Plain(Outline::Flag);
        deserialize_i8 => Told::Whole(Some(i8::MIN.into()), Some(i8::MAX as u64));
        deserialize_i16 => Told::Whole(Some(i16::MIN.into()), Some(i16::MAX as u64));
        deserialize_i32 => Told::Whole(Some(i32::MIN.into()), Some(i32::MAX as u64));
        deserialize_i64 => Told::Whole(Some(i64::MIN), Some(i64::MAX as u64));
        deserialize_i128 => Told::Whole(None, None);
        deserialize_u8 => Told::Whole(Some(0), Some(u8::MAX.into()));
        deserialize_u16 => Told::Whole(Some(0), Some(u16::MAX.into()));
        deserialize_u32 => Told::Whole(Some(0), Some(u32::MAX.into()));
        deserialize_u64 => Told::Whole(Some(0), Some(u64::MAX));
        deserialize_u128 => Told::Whole(Some(0), None);
        deserialize_f32 => Told::Plain(Outline::Number);
        deserialize_f64 => Told::Plain(Outline::Number);
        deserialize_char => Told::Plain(Outline::Char);
        deserialize_str => Told::Plain(Outline::Text);
        deserialize_string => Told::Plain(Outline::Text);
        deserialize_bytes => Told::Plain(bytes());
        deserialize_byte_buf => Told::Plain(bytes());
        deserialize_option => Told::Option;
        deserialize_unit => Told::Plain(Outline::Null);
        deserialize_seq => Told::List;
        deserialize_map => Told::Map;
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Told> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Told> {
        // serde_json hands out the text itself, or a number's digits, under names like this.
        if name.starts_with('$') {
            return Err(Told::Plain(Outline::Any));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Told> {
        self.follow(Told::Tuple(len), visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Told> {
        self.follow(Told::Tuple(len), visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Told> {
        if name.starts_with('$') {
            return Err(Told::Plain(Outline::Any));
        }
        self.follow(Told::Members(fields), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Told> {
        self.follow(Told::Variants(variants), visitor)
    }
}

fn bytes() -> Outline {
    Outline::OneOf { kinds: vec![Kind::Text, Kind::List], member: None }
}

/// Follows the path into what a seed reads. The value that it makes is dropped.
fn go_on<'de, S: DeserializeSeed<'de>>(seed: S, rest: Probe<'_>) -> Result<S::Value, Told> {
    seed.deserialize(rest)?;
    Err(Told::Complete)
}

fn make<'de, S: DeserializeSeed<'de>>(seed: S, text: usize) -> Result<S::Value, Told> {
    simplest(seed, text).ok_or(Told::Unmade)
}

/// The items of a list.
struct Listed<'p> {
    made: &'p [usize],
    then: bool,
    rest: Probe<'p>,
}

impl<'de> SeqAccess<'de> for Listed<'_> {
    type Error = Told;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Told> {
        match self.made.split_first() {
            Some((text, made)) => {
                self.made = made;
                make(seed, *text).map(Some)
            }
            None if self.then => go_on(seed, self.rest).map(Some),
            None => Ok(None),
        }
    }
}

/// The members of an object.
struct Offered<'p> {
    made: &'p [(&'static str, usize)],
    then: Option<&'static str>,
    rest: Probe<'p>,
}

impl<'de> MapAccess<'de> for Offered<'_> {
    type Error = Told;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Told> {
        let name = match self.made.first() {
            Some((name, _)) => name,
            None => match self.then.take() {
                Some(name) => name,
                None => return Ok(None),
            },
        };
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Told> {
        match self.made.split_first() {
            Some(((_, text), made)) => {
                self.made = made;
                make(seed, *text)
            }
            None => go_on(seed, self.rest),
        }
    }
}

/// A variant.
struct Chosen<'p> {
    name: &'static str,
    rest: Probe<'p>,
}

impl<'de> EnumAccess<'de> for Chosen<'_> {
    type Error = Told;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Told> {
        Ok((seed.deserialize(StrDeserializer::<Told>::new(self.name))?, self))
    }
}

impl<'de> VariantAccess<'de> for Chosen<'_> {
    type Error = Told;

    fn unit_variant(self) -> Result<(), Told> {
        Err(Told::UnitVariant)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Told> {
        go_on(seed, self.rest)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Told> {
        self.rest.follow(Told::Tuple(len), visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Told> {
        self.rest.follow(Told::Members(fields), visitor)
    }
}
