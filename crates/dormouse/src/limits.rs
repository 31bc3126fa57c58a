//! What is checked at the door: names that can be addressed, documents that fit.

use crate::{Error, Json, Result};

/// The longest key, name, queue, lane or namespace, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Bounds on what callers and steps may hand in.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest state, payload or output, in bytes of JSON text (1 MiB unless set).
    pub document_bytes_max: usize,
    /// The most children one spawn may insert (10,000 unless set).
    pub children_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { document_bytes_max: 1024 * 1024, children_max: 10_000 }
    }
}

impl Limits {
    /// Refuses a document over the limit.
    pub(crate) fn check_document(&self, what: &'static str, json: &Json) -> Result<()> {
        let bytes = json.as_str().len();
        if bytes > self.document_bytes_max {
            return Err(Error::TooLarge { what, bytes, limit_bytes: self.document_bytes_max });
        }
        Ok(())
    }
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
