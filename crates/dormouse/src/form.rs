//! Forms: what documents of a type look like to a person who fills one in. It is the type's outline, as far as a form
//! can show it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Outline;
use crate::outline::Member;

/// Describes a document for a person who fills it in, as far as its type reveals it.
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
    /// Anything else; its content is unknown.
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

/// How many objects inside each other are shown as fields.
const DEPTH_MAX: usize = 3;

impl Form {
    /// The form of this type.
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
        Self::from(&Outline::of::<T>())
    }

    /// The form of an outline that is inside this many objects, and whether it may be `null`.
    fn within(outline: &Outline, depth: usize) -> (Self, bool) {
        let form = match outline {
            Outline::Optional(some) => return (Self::within(some, depth).0, true),
            Outline::Flag => Self::Flag,
            Outline::Whole { .. } => Self::Whole,
            Outline::Number => Self::Number,
            Outline::Text | Outline::Char => Self::Text,
            Outline::Object { members, .. } if depth < DEPTH_MAX => {
                let field = |member: &Member| {
                    let (form, optional) = Self::within(&member.outline, depth + 1);
                    Field { name: member.name.clone(), form, optional }
                };
                Self::Fields(members.iter().map(field).collect())
            }
            Outline::Variants { variants, .. } if variants.iter().all(|variant| variant.holds.is_none()) => {
                Self::Choice(variants.iter().map(|variant| variant.name.clone()).collect())
            }
            _ => Self::Any,
        };
        (form, false)
    }
}

impl From<&Outline> for Form {
    fn from(outline: &Outline) -> Self {
        Self::within(outline, 0).0
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
