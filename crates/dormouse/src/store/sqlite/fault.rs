//! What SQLite's errors mean to a caller.

use rusqlite::ErrorCode;
use rusqlite::types::Type;

use crate::Error;

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(Box::new(error)),
            Some(ErrorCode::DiskFull) => Self::DiskFull(Box::new(error)),
            // A text or a blob that is longer than SQLite takes.
            Some(ErrorCode::TooBig) => Self::RefusedValue(error.to_string()),
            _ if is_strange(&error) => Self::StrangeValue(error.to_string()),
            _ => Self::Storage(Box::new(error)),
        }
    }
}

/// Whether a stored value is not of the type that it is read as.
pub(super) fn is_strange(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    matches!(
        error,
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..)
    )
}

/// A value that no verb of ours writes.
pub(super) fn strange(what: &str, value: &str) -> rusqlite::Error {
    let reason = format!("{value:?} is not a valid {what}: it was changed by hand, or by a newer version");
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, reason.into())
}

/// A row of a list, unless it cannot be read: then it is left out and named in the log, so that it hides no other.
pub(super) fn readable<T>(id: Option<i64>, row: rusqlite::Result<T>) -> rusqlite::Result<Option<T>> {
    match row {
        Err(error) if is_strange(&error) => {
            tracing::error!(id, %error, "a stored row cannot be read and is skipped");
            Ok(None)
        }
        other => other.map(Some),
    }
}
