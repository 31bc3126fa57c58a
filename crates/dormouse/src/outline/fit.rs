//! Checks a document against an outline.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::{Kind, Member, Outline, Variant};

/// Returns why a value does not fit, and where.
pub(super) fn check(outline: &Outline, value: &Value) -> Result<(), String> {
    let mut place = Vec::new();
    let misfit = fits(outline, value, &mut place).err();
    misfit.map_or(Ok(()), |reason| Err(format!("{reason}{}", told(&place))))
}

/// How many unknown members are reported.
const STRAYS_MAX: usize = 32;

/// The members of a value that its outline lets through without knowing them.
pub(super) fn strays(outline: &Outline, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    stray(outline, value, "", &mut found);
    found
}

fn stray(outline: &Outline, value: &Value, path: &str, found: &mut Vec<String>) {
    let within = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (outline, value) {
        (Outline::Optional(some) | Outline::OneOrMany(some), value) => stray(some, value, path, found),
        (Outline::List(item), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                stray(item, value, &format!("{path}[{index}]"), found);
            }
        }
        (Outline::Tuple(outlines), Value::Array(items)) => {
            for (index, (item, value)) in outlines.iter().zip(items).enumerate() {
                stray(item, value, &format!("{path}[{index}]"), found);
            }
        }
        (Outline::Map(item), Value::Object(members)) => {
            members.iter().for_each(|(name, value)| stray(item, value, &within(name), found));
        }
        (Outline::Variants { variants, .. }, Value::Object(members)) => {
            for (name, value) in members {
                if let Some(Variant { holds: Some(held), .. }) = named(variants, name) {
                    stray(held, value, &within(name), found);
                }
            }
        }
        (Outline::Object { members, .. }, Value::Object(object)) => {
            for (name, value) in object {
                match members.iter().find(|member| member.name == *name) {
                    Some(member) => stray(&member.outline, value, &within(name), found),
                    None if found.len() < STRAYS_MAX => found.push(within(name)),
                    None => {}
                }
            }
        }
        _ => {}
    }
}

/// One step into a document.
enum Into<'a> {
    Member(&'a str),
    Item(usize),
}

type Place<'a> = Vec<Into<'a>>;

fn told(place: &Place<'_>) -> String {
    if place.is_empty() {
        return String::new();
    }
    let mut text = " (at ".to_owned();
    for (nth, step) in place.iter().enumerate() {
        match step {
            Into::Member(name) if nth > 0 => write!(text, ".{name}"),
            Into::Member(name) => write!(text, "{name}"),
            Into::Item(index) => write!(text, "[{index}]"),
        }
        .expect("text can be written to");
    }
    text.push(')');
    text
}

fn fits<'a>(outline: &Outline, value: &'a Value, place: &mut Place<'a>) -> Result<(), String> {
    let wrong = || Err(format!("{}, where {} is expected", kind_of(value).told(), expected(outline)));
    match (outline, value) {
        (Outline::Any, _)
        | (Outline::Null | Outline::Optional(_), Value::Null)
        | (Outline::Flag, Value::Bool(_))
        | (Outline::Number, Value::Number(_))
        | (Outline::Text, Value::String(_)) => Ok(()),
        (Outline::Whole { min, max }, Value::Number(number)) => {
            let is_whole = match (number.as_i64(), number.as_u64()) {
                (Some(low), _) if low < 0 => min.is_none_or(|min| low >= min),
                (_, Some(high)) => max.is_none_or(|max| high <= max),
                _ => max.is_none() && number.as_f64().is_some_and(|number| number.fract() == 0.0),
            };
            if is_whole { Ok(()) } else { Err(format!("{number}, where {} is expected", expected(outline))) }
        }
        (Outline::Char, Value::String(text)) if text.chars().count() == 1 => Ok(()),
        (Outline::Optional(some), value) => fits(some, value, place),
        (Outline::List(item), Value::Array(items)) => all(items, |_| item, place),
        (Outline::Tuple(outlines), Value::Array(items)) if outlines.len() == items.len() => {
            all(items, |index| &outlines[index], place)
        }
        (Outline::Tuple(outlines), Value::Array(items)) => {
            Err(format!("a list of {}, where one of {} is expected", items.len(), outlines.len()))
        }
        (Outline::OneOrMany(item), Value::Array(items)) => {
            fits(item, value, &mut Vec::new()).or_else(|_| all(items, |_| item, place))
        }
        (Outline::OneOrMany(item), value) => fits(item, value, place),
        (Outline::Map(item), Value::Object(members)) => {
            members.iter().try_for_each(|(name, value)| inside(Into::Member(name), item, value, place))
        }
        (Outline::Object { members, open }, Value::Object(object)) => {
            members_fit(members, *open, object, place)
        }
        (Outline::Variants { variants, open }, Value::String(name)) => match named(variants, name) {
            Some(Variant { holds: None, .. }) => Ok(()),
            None if *open => Ok(()),
            Some(_) => Err(format!("only the name {name:?}, where it and its fields are expected")),
            None => wrong(),
        },
        (Outline::Variants { variants, open }, Value::Object(object)) if object.len() == 1 => {
            let (name, held) = object.iter().next().expect("it has one member");
            match named(variants, name) {
                Some(Variant { holds: Some(outline), .. }) => {
                    inside(Into::Member(name), outline, held, place)
                }
                Some(_) => inside(Into::Member(name), &Outline::Null, held, place),
                None if *open => Ok(()),
                None => Err(format!("{:?}, where {} is expected", short(name), expected(outline))),
            }
        }
        (Outline::OneOf { kinds, member }, value) if kinds.contains(&kind_of(value)) => match (member, value)
        {
            (Some(name), Value::Object(object)) if !object.contains_key(name) => Err(missing(name)),
            _ => Ok(()),
        },
        _ => wrong(),
    }
}

fn inside<'a>(
    step: Into<'a>,
    outline: &Outline,
    value: &'a Value,
    place: &mut Place<'a>,
) -> Result<(), String> {
    place.push(step);
    fits(outline, value, place)?;
    place.pop();
    Ok(())
}

fn all<'a, 's>(
    items: &'a [Value],
    outline: impl Fn(usize) -> &'s Outline,
    place: &mut Place<'a>,
) -> Result<(), String> {
    let mut items = items.iter().enumerate();
    items.try_for_each(|(index, item)| inside(Into::Item(index), outline(index), item, place))
}

fn members_fit<'a>(
    members: &[Member],
    open: bool,
    object: &'a Map<String, Value>,
    place: &mut Place<'a>,
) -> Result<(), String> {
    for (name, value) in object {
        match members.iter().find(|member| member.name == *name) {
            Some(member) => inside(Into::Member(name), &member.outline, value, place)?,
            None if open => {}
            None => {
                let known: Vec<_> = members.iter().map(|member| &*member.name).collect();
                return Err(format!(
                    "unknown member {:?}, expected one of {}",
                    short(name),
                    known.join(", ")
                ));
            }
        }
    }
    let is_there = |member: &Member| {
        object.contains_key(&member.name) || member.aliases.iter().any(|alias| object.contains_key(alias))
    };
    match members.iter().find(|member| member.required && !is_there(member)) {
        Some(absent) => Err(missing(&absent.name)),
        None => Ok(()),
    }
}

fn missing(name: &str) -> String {
    format!("missing member {name:?}")
}

fn named<'s>(variants: &'s [Variant], name: &str) -> Option<&'s Variant> {
    variants.iter().find(|variant| variant.name == name)
}

/// A value is the sender's and may be long, so only its beginning is quoted.
fn short(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    text.chars().take(CHARS_MAX).collect()
}

fn expected(outline: &Outline) -> String {
    match outline {
        Outline::Any => "anything".to_owned(),
        Outline::Null => "null".to_owned(),
        Outline::Flag => "true or false".to_owned(),
        Outline::Whole { min: Some(min), max: Some(u64::MAX) } => {
            format!("a whole number of at least {min}")
        }
        Outline::Whole { min: Some(min), max: Some(max) } => format!("a whole number from {min} to {max}"),
        Outline::Whole { .. } => "a whole number".to_owned(),
        Outline::Number => "a number".to_owned(),
        Outline::Char => "a text of one character".to_owned(),
        Outline::Text => "a text".to_owned(),
        Outline::Optional(some) => format!("{} or null", expected(some)),
        Outline::List(_) | Outline::Tuple(_) => "a list".to_owned(),
        Outline::OneOrMany(item) => format!("{} or a list of them", expected(item)),
        Outline::Map(_) | Outline::Object { .. } => "an object".to_owned(),
        Outline::Variants { variants, .. } => {
            let names: Vec<_> = variants.iter().map(|variant| &*variant.name).collect();
            format!("one of {}", names.join(", "))
        }
        Outline::OneOf { kinds, .. } => {
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.told()).collect();
            kinds.join(" or ")
        }
    }
}

fn kind_of(value: &Value) -> Kind {
    match value {
        Value::Null => Kind::Null,
        Value::Bool(_) => Kind::Flag,
        Value::Number(_) => Kind::Number,
        Value::String(_) => Kind::Text,
        Value::Array(_) => Kind::List,
        Value::Object(_) => Kind::Object,
    }
}

impl Kind {
    fn told(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Flag => "true or false",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }
}
