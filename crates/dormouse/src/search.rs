//! Conditions on the state of instances, as a search names them.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// How many rows a search looks at for one page. What it did not look at is on the pages after it.
pub const LOOKED_MAX: usize = 10_000;
/// How many characters of a text are in an index. Longer texts are compared by these.
pub const INDEXED_CHARS_MAX: usize = 200;
/// How many fields a machine may declare as indexed.
pub const INDEXES_MAX: usize = 16;
/// How many conditions on the state a search may have.
pub const CONDITIONS_MAX: usize = 8;
const FIELD_BYTES_MAX: usize = 128;
const NUMBER_BYTES_MAX: usize = 40;

/// A condition on a field of the state: `total > 1000`, `customer = "acme"`, `address.city = Bern`, `paid = true`.
///
/// A number is compared with numbers only, a text with texts, a flag with flags. An instance whose state does not have
/// the field, or has something else there, does not match, for `!=` neither.
///
/// ```
/// use dormouse::store::{Compare, Condition, Literal};
///
/// let condition: Condition = "total > 1000".parse().expect("a condition");
/// assert_eq!((condition.compare, condition.value), (Compare::More, Literal::Number("1000".to_owned())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The field, as a path of names that are separated by dots.
    pub field: String,
    /// How it is compared.
    pub compare: Compare,
    /// What it is compared with.
    pub value: Literal,
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `=`
    Is,
    /// `!=`
    IsNot,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

/// What a field is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// A number, as it is written.
    Number(String),
    /// A text.
    Text(String),
    /// `true` or `false`.
    Flag(bool),
}

impl Compare {
    /// The sign.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Is => "=",
            Self::IsNot => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::More => ">",
            Self::AtLeast => ">=",
        }
    }
}

impl Literal {
    /// What JSON calls its type.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Flag(_) => "boolean",
        }
    }

    /// The value as text.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Number(text) | Self::Text(text) => text,
            Self::Flag(true) => "true",
            Self::Flag(false) => "false",
        }
    }
}

/// The lowest and the highest value of an index that a condition can match; `None` where nothing bounds it.
pub(crate) struct Range {
    pub(crate) low: Option<String>,
    pub(crate) high: Option<String>,
}

impl Condition {
    /// The part of an index in which every match is; `None` if that is all of it.
    pub(crate) fn range(&self) -> Option<Range> {
        let value = || Some(indexed(self.value.text()));
        Some(match self.compare {
            Compare::Is => Range { low: value(), high: value() },
            Compare::IsNot => return None,
            Compare::Less | Compare::AtMost => Range { low: None, high: value() },
            Compare::More | Compare::AtLeast => Range { low: value(), high: None },
        })
    }

    /// Whether an index keeps it among the numbers.
    pub(crate) const fn is_of_number(&self) -> bool {
        matches!(self.value, Literal::Number(_))
    }
}

/// What of a text is in an index.
fn indexed(text: &str) -> String {
    text.chars().take(INDEXED_CHARS_MAX).collect()
}

impl FromStr for Condition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = |why: &str| {
            Error::InvalidCondition(format!(
                "the condition {text:?} {why}: write it like `total > 1000` or `customer = \"acme\"`"
            ))
        };
        let sign = text.find(['=', '!', '<', '>']).ok_or_else(|| invalid("has no comparison"))?;
        let (field, rest) = text.split_at(sign);
        let signs = [
            ("!=", Compare::IsNot),
            ("<=", Compare::AtMost),
            (">=", Compare::AtLeast),
            ("==", Compare::Is),
            ("=", Compare::Is),
            ("<", Compare::Less),
            (">", Compare::More),
        ];
        let compared = signs.iter().find_map(|(sign, compare)| Some((*compare, rest.strip_prefix(sign)?)));
        let (compare, value) = compared.ok_or_else(|| invalid("has no comparison"))?;
        let (field, value) = (field.trim(), value.trim());
        check_field(field).map_err(|why| invalid(&why))?;
        let value = literal(value).ok_or_else(|| invalid("has no value that can be read"))?;
        Ok(Self { field: field.to_owned(), compare, value })
    }
}

/// A number, `true` or `false`, a text in quotes as in JSON, or bare words.
fn literal(text: &str) -> Option<Literal> {
    match text {
        "" => None,
        "true" => Some(Literal::Flag(true)),
        "false" => Some(Literal::Flag(false)),
        quoted if quoted.starts_with('"') => serde_json::from_str(quoted).ok().map(Literal::Text),
        bare => Some(match serde_json::from_str::<serde_json::Number>(bare) {
            Ok(_) if bare.len() <= NUMBER_BYTES_MAX => Literal::Number(bare.to_owned()),
            _ => Literal::Text(bare.to_owned()),
        }),
    }
}

/// Why a text does not name a field of a state.
pub(crate) fn check_field(field: &str) -> Result<(), String> {
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    if field.len() > FIELD_BYTES_MAX || !field.split('.').all(is_name) {
        return Err(format!(
            "names the field {field:?}, but a field is letters, digits, `_` and `-`, with dots between"
        ));
    }
    Ok(())
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, compare, value } = self;
        match value {
            Literal::Text(text) => {
                write!(f, "{field} {} {}", compare.sign(), serde_json::Value::from(text.as_str()))
            }
            other => write!(f, "{field} {} {}", compare.sign(), other.text()),
        }
    }
}

/// How far a search looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// How many rows it looked at.
    pub rows: usize,
    /// Whether an index led it to them. If not, they are the newest, or the next ones.
    pub indexed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_read_as_people_write_it() {
        for (text, told) in [
            ("total > 1000", "total > 1000"),
            ("total>=-1.5e3", "total >= -1.5e3"),
            ("customer=acme inc", "customer = \"acme inc\""),
            ("customer = \"a \\\"b\\\"\"", "customer = \"a \\\"b\\\"\""),
            ("address.city != Bern", "address.city != \"Bern\""),
            ("paid == true", "paid = true"),
            ("code = \"12\"", "code = \"12\""),
        ] {
            let condition: Condition = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(condition.to_string(), told);
            assert_eq!(told.parse::<Condition>().expect("it can be read again"), condition);
        }
    }

    #[test]
    fn what_is_no_condition_is_refused_with_an_example() {
        for text in ["", "total", "= 3", "a b = 3", "a..b = 3", "total > ", "x = \"open", "$.a = 1", "x ! 3"]
        {
            let error = text.parse::<Condition>().expect_err(text).to_string();
            assert!(error.contains("`total > 1000`"), "{error}");
        }
    }
}
