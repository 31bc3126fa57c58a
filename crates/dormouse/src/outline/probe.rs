//! Finds out what a type accepts: the type is offered a path into a document that is made up on the way, and what it
//! asks for at the end of the path is its answer. Nothing is decoded.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::offer::{NO_NAME, Offer, Probe, Sample, Told};
use super::{Kind, Member, Outline, Variant};
use crate::sample::TEXTS_MAX;

/// How deep a type is examined: a recursive type has no end.
const DEPTH_MAX: usize = 8;
/// How many paths are examined.
const PLACES_MAX: usize = 1_024;
/// How many members of an object, variants of an enum, or items of a tuple are examined.
const NAMES_MAX: usize = 128;

/// What a type accepts.
pub(super) fn look<T: DeserializeOwned>() -> Outline {
    Asker::<T> { path: Vec::new(), places: 0, of: PhantomData }.look()
}

struct Asker<T> {
    path: Vec<Offer>,
    places: usize,
    of: PhantomData<fn() -> T>,
}

const KINDS: [(Kind, &[Sample]); 6] = [
    (Kind::Null, &[Sample::Null]),
    (Kind::Flag, &[Sample::Flag]),
    (Kind::Number, &[Sample::One, Sample::Negative, Sample::Fraction]),
    (
        Kind::Text,
        &[Sample::Text("a"), Sample::Text(""), Sample::Text("1"), Sample::Text("2030-01-01T00:00:00Z")],
    ),
    (Kind::List, &[Sample::List]),
    (Kind::Object, &[Sample::Object]),
];

impl<T: DeserializeOwned> Asker<T> {
    fn ask(&self) -> Told {
        T::deserialize(Probe { path: &self.path }).err().unwrap_or(Told::Complete)
    }

    fn ask_with(&mut self, offer: Offer) -> Told {
        self.path.push(offer);
        let told = self.ask();
        self.path.pop();
        told
    }

    fn look_into(&mut self, offer: Offer) -> Outline {
        self.path.push(offer);
        let outline = self.look();
        self.path.pop();
        outline
    }

    fn look(&mut self) -> Outline {
        self.places += 1;
        if self.path.len() > DEPTH_MAX || self.places > PLACES_MAX {
            return Outline::Any;
        }
        match self.ask() {
            Told::Plain(outline) => outline,
            Told::Whole(min, max) => match self.ask_with(Offer::Shown(Sample::Fraction)) {
                Told::InvalidType => Outline::Whole { min, max },
                _ => Outline::Number,
            },
            Told::Option => match self.look_into(Offer::Something) {
                Outline::Any => Outline::Any,
                outline => Outline::Optional(Box::new(outline)),
            },
            Told::List => {
                Outline::List(Box::new(self.look_into(Offer::Items { made: Vec::new(), then: true })))
            }
            Told::Map => Outline::Map(Box::new(self.look_into(Offer::Value))),
            Told::Tuple(len) if len <= NAMES_MAX => self.tuple(len),
            Told::Members(names) if names.len() <= NAMES_MAX => self.object(names),
            Told::Variants(names) if names.len() <= NAMES_MAX => self.variants(names),
            Told::Tuple(_) => Outline::List(Box::new(Outline::Any)),
            Told::Members(_) => Outline::OneOf { kinds: vec![Kind::Object], member: None },
            Told::Open => self.kinds(),
            _ => Outline::Any,
        }
    }

    fn tuple(&mut self, len: usize) -> Outline {
        if !matches!(self.ask_with(Offer::Items { made: Vec::new(), then: false }), Told::Length) {
            return Outline::List(Box::new(Outline::Any));
        }
        let (mut made, mut items) = (Vec::new(), Vec::new());
        while items.len() < len {
            items.push(self.look_into(Offer::Items { made: made.clone(), then: true }));
            let text = (0..TEXTS_MAX).find(|text| {
                let made = [&made[..], &[*text]].concat();
                !matches!(self.ask_with(Offer::Items { made, then: false }), Told::Unmade)
            });
            match text {
                Some(text) => made.push(text),
                None => items.resize(len, Outline::Any),
            }
        }
        Outline::Tuple(items)
    }

    fn object(&mut self, names: &'static [&'static str]) -> Outline {
        let required = self.required(names);
        let mut members = Vec::with_capacity(names.len());
        for name in names {
            let outline = self.look_into(Offer::Members { made: Vec::new(), then: Some(name) });
            let text = required.iter().find(|(known, _)| known == name).map(|(_, text)| *text);
            let aliases = text.map_or_else(Vec::new, |text| self.aliases(name, text, names, &required));
            members.push(Member { name: (*name).to_owned(), aliases, outline, required: text.is_some() });
        }
        let other = self.ask_with(Offer::Members { made: Vec::new(), then: Some(NO_NAME) });
        Outline::Object { members, open: !matches!(other, Told::UnknownField) }
    }

    /// The required members, each with a text that the type accepts for it. Given none, the type names the first
    /// missing member; given that one, the next.
    fn required(&mut self, names: &[&'static str]) -> Vec<(&'static str, usize)> {
        let mut made: Vec<(&'static str, usize)> = Vec::new();
        loop {
            match self.ask_with(Offer::Members { made: made.clone(), then: None }) {
                Told::Missing(name)
                    if names.contains(&name) && made.iter().all(|(known, _)| *known != name) =>
                {
                    made.push((name, 0));
                }
                Told::Unmade => match made.last_mut() {
                    Some((_, text)) if *text + 1 < TEXTS_MAX => *text += 1,
                    _ => return made,
                },
                _ => return made,
            }
        }
    }

    /// Other names of a member: if both are given, the type reports a duplicate.
    fn aliases(
        &mut self,
        name: &'static str,
        text: usize,
        names: &'static [&'static str],
        required: &[(&'static str, usize)],
    ) -> Vec<String> {
        let others = names.iter().filter(|other| required.iter().all(|(known, _)| known != *other));
        let twice = |other: &&&'static str| {
            let made = vec![(name, text), (**other, text)];
            matches!(self.ask_with(Offer::Members { made, then: None }), Told::Duplicate)
        };
        others.filter(twice).map(ToString::to_string).collect()
    }

    fn variants(&mut self, names: &'static [&'static str]) -> Outline {
        let mut variants = Vec::with_capacity(names.len());
        for name in names {
            let holds = match self.ask_with(Offer::Variant(name)) {
                Told::UnitVariant => None,
                _ => Some(self.look_into(Offer::Variant(name))),
            };
            variants.push(Variant { name: (*name).to_owned(), holds });
        }
        let other = self.ask_with(Offer::Variant(NO_NAME));
        Outline::Variants { variants, open: !matches!(other, Told::UnknownVariant) }
    }

    /// A type that accepts several kinds of values: it is offered some of each kind.
    fn kinds(&mut self) -> Outline {
        let mut takes = |samples: &[Sample]| {
            let mut told = samples.iter().map(|sample| self.ask_with(Offer::Shown(*sample)));
            told.any(|told| !matches!(told, Told::InvalidType))
        };
        let kinds: Vec<Kind> =
            KINDS.iter().filter(|(_, samples)| takes(samples)).map(|(kind, _)| *kind).collect();
        if kinds.is_empty() || kinds.len() == KINDS.len() {
            return Outline::Any;
        }
        let member = match self.ask_with(Offer::Shown(Sample::Object)) {
            Told::Missing(name) => Some(name.to_owned()),
            _ => None,
        };
        Outline::OneOf { kinds, member }
    }
}
