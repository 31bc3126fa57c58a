//! Limits on names and documents, checked before anything is stored.

mod flaw;

use std::borrow::Cow;

use self::flaw::{Flaw, flaw};
use crate::{Error, Json, NewSignal, Result};

/// The longest key, name, queue, lane or namespace, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The longest reason of a cancel, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;

/// The longest tag, in bytes.
pub const TAG_BYTES_MAX: usize = 64;
/// The most tags on one instance.
pub const TAGS_MAX: usize = 8;

/// Limits on what callers and steps may store. Set them with [`EngineBuilder::limits`](crate::EngineBuilder::limits).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest state, payload or output, in bytes of JSON text (1 MiB by default).
    pub document_bytes_max: usize,
    /// How many objects and arrays may be inside each other in a state, payload or output (64 by default). Some parsers
    /// stop at 128.
    pub document_depth_max: usize,
    /// The most signals in one inbox (10,000 by default).
    pub inbox_max: usize,
    /// The most bytes of payloads in one inbox (16 MiB by default).
    pub inbox_bytes_max: usize,
    /// The most signals that are kept in one namespace for instances to come (10,000 by default).
    pub kept_max: usize,
    /// The most bytes of payloads that are kept in one namespace for instances to come (16 MiB by default).
    pub kept_bytes_max: usize,
    /// The most bytes that a step gets besides its state: its inbox, and its children's outputs and states (256 MiB by
    /// default). An instance whose step would get more fails. Retry it when there is less, or the limit is higher.
    pub reading_bytes_max: usize,
    /// The most children one spawn may insert (10,000 by default).
    pub children_max: usize,
    /// The most items in a unit's batch, or in a list that answers one (10,000 by default).
    pub items_max: usize,
    /// The most items of one `each` unit (100,000 by default).
    pub each_max: usize,
    /// The most pieces of mail that one outcome may send (1,000 by default).
    pub mail_max: usize,
    /// The most bytes of states and payloads in the mail of one outcome (16 MiB by default).
    pub mail_bytes_max: usize,
    /// How long a chain of instances may be of which each was started by mail of the one before (1,000 by default). So a
    /// machine that starts itself again and again comes to an end.
    pub mail_depth_max: u32,
}

/// How much one inbox may hold, by the sender's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxMax {
    /// Signals.
    pub signals: usize,
    /// Bytes of their payloads.
    pub bytes: usize,
}

impl InboxMax {
    /// Whether an inbox may hold this much.
    pub(crate) fn allows(self, signals: usize, bytes: u64) -> bool {
        signals <= self.signals && bytes <= self.bytes as u64
    }
}

/// How much may be kept in one namespace for instances to come, by the sender's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptMax {
    /// Signals.
    pub signals: usize,
    /// Bytes of their payloads.
    pub bytes: usize,
}

impl Default for KeptMax {
    fn default() -> Self {
        Limits::default().kept()
    }
}

impl Default for InboxMax {
    fn default() -> Self {
        Limits::default().inbox()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            document_bytes_max: 1024 * 1024,
            document_depth_max: 64,
            inbox_max: 10_000,
            inbox_bytes_max: 16 * 1024 * 1024,
            kept_max: 10_000,
            kept_bytes_max: 16 * 1024 * 1024,
            reading_bytes_max: 256 * 1024 * 1024,
            children_max: 10_000,
            items_max: 10_000,
            each_max: 100_000,
            mail_max: 1_000,
            mail_bytes_max: 16 * 1024 * 1024,
            mail_depth_max: 1_000,
        }
    }
}

impl Limits {
    /// Refuses a document over the limits, or one that some store or step could not read. Every document that is stored
    /// passes here, or through `dormouse.check_document` in SQL, which does the same.
    pub(crate) fn check_document(&self, what: &'static str, json: &Json) -> Result<()> {
        self.check_bytes(what, json.as_str().len())?;
        match flaw(json.as_str(), self.document_depth_max) {
            None => Ok(()),
            Some(Flaw::TooDeep) => Err(Error::TooDeep { what, depth_max: self.document_depth_max }),
            Some(Flaw::Nul) => Err(Error::HoldsNul { what }),
            Some(Flaw::LoneSurrogate) => {
                let holds = "half of a surrogate pair (\\uD800 to \\uDFFF), which is not a character";
                Err(Error::UnreadableDocument { what, holds })
            }
            Some(Flaw::HugeNumber) => {
                let holds = "a number beyond what a 64-bit float holds: send it as a text";
                Err(Error::UnreadableDocument { what, holds })
            }
        }
    }

    /// Refuses the signals of a start if they could not all be stored.
    pub(crate) fn check_signals(&self, signals: &[NewSignal]) -> Result<()> {
        signals.iter().try_for_each(|signal| signal.check(self))?;
        if signals.iter().any(|signal| signal.keep_for.is_some()) {
            let why = "it comes with the start of its instance, so there is nothing to keep it for";
            return Err(Error::NotKept(why.to_owned()));
        }
        let bytes = signals.iter().map(|signal| signal.payload.as_str().len() as u64).sum();
        if self.inbox().allows(signals.len(), bytes) {
            return Ok(());
        }
        Err(Error::InvalidState(format!(
            "it comes with {} signals of {bytes} bytes, but an inbox holds at most {} signals of {} bytes",
            signals.len(),
            self.inbox_max,
            self.inbox_bytes_max
        )))
    }

    /// How much an inbox may hold.
    pub(crate) fn inbox(&self) -> InboxMax {
        InboxMax { signals: self.inbox_max, bytes: self.inbox_bytes_max }
    }

    /// How much may be kept in one namespace.
    pub(crate) fn kept(&self) -> KeptMax {
        KeptMax { signals: self.kept_max, bytes: self.kept_bytes_max }
    }

    /// Refuses a document over the size limit.
    pub(crate) fn check_bytes(&self, what: &'static str, bytes: usize) -> Result<()> {
        if bytes > self.document_bytes_max {
            return Err(Error::TooLarge { what, bytes, limit_bytes: self.document_bytes_max });
        }
        Ok(())
    }
}

/// An error's text in a form that every store can keep. It comes from code that fails, so it is repaired, not refused.
pub(crate) fn storable(error: &str) -> Cow<'_, str> {
    if error.contains('\0') { error.replace('\0', "\u{FFFD}").into() } else { error.into() }
}

/// Refuses the reason of a cancel that is empty, too long, or holds control characters other than line breaks and tabs.
pub(crate) fn check_reason(text: &str) -> Result<()> {
    let reason = if text.trim().is_empty() {
        "it is empty"
    } else if text.len() > REASON_BYTES_MAX {
        "it is over 1,024 bytes"
    } else if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        "it holds control characters"
    } else {
        return Ok(());
    };
    Err(Error::InvalidName { what: "reason", value: text.chars().take(64).collect(), reason })
}

/// The largest version of a machine, as every store counts it.
const VERSION_MAX: u32 = i32::MAX as u32;

/// Refuses a machine's version that not every store could hold.
pub(crate) fn check_version(version: u32) -> std::result::Result<(), String> {
    if version > VERSION_MAX {
        return Err(format!("its version {version} is too large; the largest is {VERSION_MAX}"));
    }
    Ok(())
}

/// Refuses a `seq` that no instance can have.
pub(crate) fn check_seq(seq: u64) -> Result<()> {
    if i64::try_from(seq).is_err() {
        return Err(Error::OutOfRange { what: "seq", value: seq, max: i64::MAX.cast_unsigned() });
    }
    Ok(())
}

/// Refuses a name that is empty, too long, or holds control characters.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<()> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_BYTES_MAX {
        "it is over 255 bytes"
    } else if name.chars().any(char::is_control) {
        "it holds control characters"
    } else {
        return Ok(());
    };
    Err(Error::InvalidName { what, value: name.chars().take(64).collect(), reason })
}

/// Refuses too many tags, or one that is empty, too long, or holds control characters.
pub(crate) fn check_tags(tags: &[String]) -> Result<()> {
    for tag in tags {
        check_name("tag", tag)?;
        if tag.len() > TAG_BYTES_MAX {
            let value = tag.chars().take(64).collect();
            return Err(Error::InvalidName { what: "tag", value, reason: "it is over 64 bytes" });
        }
    }
    check_tag_count(&sorted(tags))
}

/// Refuses more tags than an instance can have. Each is there once.
pub(crate) fn check_tag_count(tags: &[&str]) -> Result<()> {
    if tags.len() <= TAGS_MAX {
        return Ok(());
    }
    let value = tags.join(", ").chars().take(64).collect();
    Err(Error::InvalidName { what: "list of tags", value, reason: "an instance has at most 8 tags" })
}

/// The name that is most like a misspelt one, if any is similar.
pub(crate) fn nearest(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    const LIKENESS_MIN: f64 = 0.7;
    let likeness = |known: String| (strsim::jaro_winkler(name, &known), known);
    let best = known.map(likeness).max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(likeness, _)| *likeness >= LIKENESS_MIN).map(|(_, known)| known)
}

/// Names as they are stored: in order, each once.
pub(crate) fn sorted(names: &[String]) -> Vec<&str> {
    let mut names: Vec<_> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}
