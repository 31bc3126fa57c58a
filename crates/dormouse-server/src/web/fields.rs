//! The fields of a query or a form.

use crate::problem::{Cause, Problem};

/// Names and values, in the order of the request.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(super) fn parse(text: &[u8]) -> Self {
        Self(form_urlencoded::parse(text).into_owned().collect())
    }

    /// Parses a form. Counts its fields first and refuses more than this.
    pub(super) fn of_form(text: &[u8], fields_max: usize) -> Result<Self, Problem> {
        let fields = 1 + text.iter().filter(|byte| **byte == b'&').count();
        if fields > fields_max {
            let told = format!("the form has more than {fields_max} fields");
            return Err(Problem::new(Cause::TooLarge, told));
        }
        Ok(Self::parse(text))
    }

    /// A value that is not blank.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// Every value of a name that may repeat.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// A copy with some fields replaced.
    pub(super) fn with(&self, changes: &[(&str, Option<&str>)]) -> Self {
        let is_changed = |name: &str| changes.iter().any(|(changed, _)| *changed == name);
        let kept = self.0.iter().filter(|(name, value)| !is_changed(name) && !value.trim().is_empty());
        let new = changes.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?.to_owned())));
        Self(kept.cloned().chain(new).collect())
    }

    /// A copy with one more value of a name that may repeat.
    pub(super) fn and(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The fields of these names that are not blank.
    pub(super) fn only(&self, names: &[&str]) -> Self {
        let kept = self.0.iter().filter(|(name, value)| names.contains(&&**name) && !value.trim().is_empty());
        Self(kept.cloned().collect())
    }

    /// As a query string: empty, or starting with `?`.
    pub(super) fn query(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut text = form_urlencoded::Serializer::for_suffix(String::from("?"), 1);
        text.extend_pairs(&self.0);
        text.finish()
    }
}

/// Text as one part of a path.
pub(super) fn segment(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// A query with one name.
pub(super) fn query(name: &str, value: &str) -> String {
    Fields::default().with(&[(name, Some(value))]).query()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_changed_and_written() {
        let fields = Fields::parse(b"machine=a%26b&status=&cursor=1&id=1&id=2");
        assert_eq!((fields.get("machine"), fields.get("status")), (Some("a&b"), None));
        assert_eq!(fields.all("id").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(fields.with(&[("cursor", None), ("id", Some("x y"))]).query(), "?machine=a%26b&id=x+y");
        assert_eq!(fields.only(&["id", "status"]).and("id", "3").query(), "?id=1&id=2&id=3");
        assert_eq!(Fields::default().query(), "");
        assert_eq!(segment("a/b c?+"), "a%2Fb%20c%3F%2B");
    }
}
