//! Enums whose variants have a word each: the same word in SQL, JSON, addresses and text.

use std::fmt;

/// The most of an unknown word that an error quotes.
const SHOWN_CHARS_MAX: usize = 60;

/// A word that is not one of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    what: &'static str,
    word: String,
    known: &'static [&'static str],
}

impl UnknownWord {
    pub(crate) fn new(what: &'static str, word: &str, known: &'static [&'static str]) -> Self {
        Self { what, word: word.chars().take(SHOWN_CHARS_MAX).collect(), known }
    }

    /// The words that would be understood.
    pub fn known(&self) -> &'static [&'static str] {
        self.known
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a {}: use one of {}", self.word, self.what, self.known.join(", "))
    }
}

impl std::error::Error for UnknownWord {}

/// Declares an enum with a word for each variant. The text after its name says what it is, for errors.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $name:ident: $what:literal { $($(#[doc = $doc:literal])+ $variant:ident => $word:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[doc = $doc])+ #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];

            /// All of them, in their order.
            pub const ALL: [Self; Self::WORDS.len()] = [$(Self::$variant),+];

            /// The word for it, in SQL, JSON and text.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::UnknownWord::new($what, word, &Self::WORDS)),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use crate::store::Scope;
    use crate::{EventKind, Status, Wake};

    #[test]
    fn a_word_is_read_back_as_what_it_stands_for() {
        for status in Status::ALL {
            assert_eq!(status.to_string().parse(), Ok(status));
            assert_eq!(serde_json::to_string(&status).expect("JSON"), format!("\"{status}\""));
        }
        for kind in EventKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert_eq!("timeout".parse(), Ok(Wake::Timeout));
    }

    #[test]
    fn an_unknown_word_is_refused_with_those_that_are_known() {
        let refused = "root".parse::<Scope>().expect_err("no such scope");
        assert_eq!(refused.to_string(), "\"root\" is not a scope: use one of read, operate, admin");
        let long = "x".repeat(1_000_000).parse::<Scope>().expect_err("no such scope");
        assert!(long.to_string().len() < 200, "it repeats at most the start");
    }
}
