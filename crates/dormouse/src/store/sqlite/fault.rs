//! What SQLite's errors mean to a caller.

use rusqlite::ErrorCode;

use crate::Error;

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(error.to_string()),
            Some(ErrorCode::DiskFull) => Self::DiskFull(error.to_string()),
            _ => Self::Storage(Box::new(error)),
        }
    }
}
