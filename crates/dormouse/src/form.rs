//! What documents of a type look like, told by the type's own `Deserialize`: enough to make a form of it.

use std::cell::Cell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, EnumAccess, MapAccess, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, forward_to_deserialize_any};

/// What a document looks like, as far as its type tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "of", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Form {
    /// `true` or `false`.
    Flag,
    /// A number without a fraction.
    Whole,
    /// A number.
    Number,
    /// Text.
    Text,
    /// One of these texts.
    Choice(Vec<String>),
    /// An object.
    Fields(Vec<Field>),
    /// Anything else: what it looks like is not known.
    Any,
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it looks like.
    pub form: Form,
    /// Whether it may be left out, or `null`.
    pub optional: bool,
}

/// Objects that are looked into in each other.
const DEPTH_MAX: usize = 3;
/// Members of an object, or variants of an enum, that are looked into.
const NAMES_MAX: usize = 64;

impl Form {
    /// What documents of this type look like.
    ///
    /// ```
    /// # use dormouse::Form;
    /// #[derive(serde::Deserialize)]
    /// struct Decision { approved: bool, note: Option<String> }
    ///
    /// let Form::Fields(fields) = Form::of::<Decision>() else { panic!("a struct has fields") };
    /// assert_eq!((&*fields[0].name, &fields[0].form), ("approved", &Form::Flag));
    /// assert!(fields[1].optional);
    /// ```
    pub fn of<T: DeserializeOwned>() -> Self {
        look::<T>(&mut Vec::new()).form
    }
}

/// Looks at the place in a document that a path leads to. Each look decodes nothing: it follows the path, hears what
/// the type asks for there, and breaks off.
fn look<T: DeserializeOwned>(path: &mut Vec<usize>) -> Field {
    let optional = Cell::new(false);
    let told = match T::deserialize(Probe { path, optional: &optional }) {
        Err(told) => told,
        Ok(_) => Told::Other,
    };
    let form = match told {
        Told::Plain(form) => form,
        Told::Fields(names) if path.len() < DEPTH_MAX && names.len() <= NAMES_MAX => {
            let mut inside = |index| {
                path.push(index);
                let field = look::<T>(path);
                path.pop();
                field
            };
            Form::Fields(
                (0..names.len())
                    .map(|index| Field { name: names[index].to_owned(), ..inside(index) })
                    .collect(),
            )
        }
        Told::Variants(names) if names.len() <= NAMES_MAX => {
            let mut is_plain = |index| {
                path.push(index);
                let told = T::deserialize(Probe { path, optional: &Cell::new(false) }).err();
                path.pop();
                matches!(told, Some(Told::Unit))
            };
            if (0..names.len()).all(&mut is_plain) {
                Form::Choice(names.iter().map(ToString::to_string).collect())
            } else {
                Form::Any
            }
        }
        Told::Fields(_) | Told::Variants(_) | Told::Unit | Told::Other => Form::Any,
    };
    Field { name: String::new(), form, optional: optional.get() }
}

/// What a type asks for.
#[derive(Debug)]
enum Told {
    Plain(Form),
    Fields(&'static [&'static str]),
    Variants(&'static [&'static str]),
    /// The variant that was offered has no fields.
    Unit,
    Other,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Told {}

impl de::Error for Told {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Self::Other
    }
}

/// A deserializer that offers what a path leads to, and listens there.
struct Probe<'p> {
    path: &'p [usize],
    /// Whether the type at the end of the path is an `Option`.
    optional: &'p Cell<bool>,
}

macro_rules! plain {
    ($($method:ident => $form:ident,)+) => {
        $(
            fn $method<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Told> {
                Err(Told::Plain(Form::$form))
            }
        )+
    };
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Told;

    plain! {
        deserialize_bool => Flag,
        deserialize_i8 => Whole,
        deserialize_i16 => Whole,
        deserialize_i32 => Whole,
        deserialize_i64 => Whole,
        deserialize_i128 => Whole,
        deserialize_u8 => Whole,
        deserialize_u16 => Whole,
        deserialize_u32 => Whole,
        deserialize_u64 => Whole,
        deserialize_u128 => Whole,
        deserialize_f32 => Number,
        deserialize_f64 => Number,
        deserialize_char => Text,
        deserialize_str => Text,
        deserialize_string => Text,
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Told> {
        Err(Told::Other)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Told> {
        if self.path.is_empty() {
            self.optional.set(true);
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Told> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Told> {
        match self.path.split_first() {
            None => Err(Told::Fields(fields)),
            Some((index, path)) => {
                visitor.visit_map(Offered { name: fields[*index], inside: Probe { path, ..self } })
            }
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Told> {
        match self.path.split_first() {
            None => Err(Told::Variants(variants)),
            Some((index, path)) => {
                visitor.visit_enum(Offered { name: variants[*index], inside: Probe { path, ..self } })
            }
        }
    }

    forward_to_deserialize_any! {
        bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// One member of an object, or one variant.
struct Offered<'p> {
    name: &'static str,
    inside: Probe<'p>,
}

impl<'de> MapAccess<'de> for Offered<'_> {
    type Error = Told;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Told> {
        seed.deserialize(StrDeserializer::new(self.name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Told> {
        seed.deserialize(Probe { path: self.inside.path, optional: self.inside.optional })
    }
}

impl<'de> EnumAccess<'de> for Offered<'_> {
    type Error = Told;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Told> {
        Ok((seed.deserialize(StrDeserializer::<Told>::new(self.name))?, self))
    }
}

impl<'de> VariantAccess<'de> for Offered<'_> {
    type Error = Told;

    fn unit_variant(self) -> Result<(), Told> {
        Err(Told::Unit)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _seed: T) -> Result<T::Value, Told> {
        Err(Told::Other)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, _visitor: V) -> Result<V::Value, Told> {
        Err(Told::Other)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Told> {
        Err(Told::Other)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Order {
        #[serde(rename = "no")]
        number: u64,
        weight: f32,
        at: Timestamp,
        gift: bool,
        speed: Option<Speed>,
        address: Address,
        lines: Vec<u8>,
        price: Price,
        extra: serde_json::Value,
    }

    #[derive(Serialize, Deserialize)]
    struct Price(i32);

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Speed {
        Slow,
        VeryFast,
    }

    #[derive(Serialize, Deserialize)]
    enum Payment {
        Cash,
        Card { number: String },
    }

    #[derive(Serialize, Deserialize)]
    struct Address {
        street: String,
        next: Option<Box<Address>>,
    }

    fn choice() -> Form {
        Form::Choice(["slow", "very_fast"].map(str::to_owned).to_vec())
    }

    #[test]
    fn a_struct_tells_its_fields_and_what_each_takes() {
        let Form::Fields(fields) = Form::of::<Order>() else { panic!("a struct has fields") };
        let told: Vec<_> = fields.iter().map(|field| (&*field.name, &field.form, field.optional)).collect();
        assert_eq!(told[0], ("no", &Form::Whole, false));
        assert_eq!(told[1], ("weight", &Form::Number, false));
        assert_eq!((told[2].0, told[3]), ("at", ("gift", &Form::Flag, false)));
        assert_eq!(told[4], ("speed", &choice(), true));
        let Form::Fields(address) = told[5].1 else { panic!("a struct in it has fields too") };
        assert_eq!((&*address[0].name, &address[0].form), ("street", &Form::Text));
        assert!(address[1].optional, "and one that holds itself is looked into so far and no further");
        assert_eq!((told[6].1, told[7].1, told[8].1), (&Form::Any, &Form::Whole, &Form::Any));
    }

    #[test]
    fn what_is_no_object_is_told_too() {
        assert_eq!(Form::of::<bool>(), Form::Flag);
        assert_eq!(Form::of::<Price>(), Form::Whole);
        assert_eq!(Form::of::<String>(), Form::Text);
        assert_eq!(Form::of::<Speed>(), choice());
        for any in
            [Form::of::<Payment>(), Form::of::<Vec<u8>>(), Form::of::<()>(), Form::of::<serde_json::Value>()]
        {
            assert_eq!(any, Form::Any);
        }
    }
}
