//! What the database's errors mean to a caller.

use crate::Error;

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let Some(code) = sqlstate(&error) else {
            return match error {
                sqlx::Error::PoolTimedOut => {
                    Self::Busy("no connection to the database became free in time".to_owned())
                }
                other => Self::Storage(Box::new(other)),
            };
        };
        match code.as_str() {
            // Lock and statement timeouts, deadlocks and serialization failures; too many connections; starting,
            // stopping or read-only: the same call may work later.
            "55P03" | "57014" | "40001" | "40P01" | "53300" | "57P01" | "57P02" | "57P03" | "25006" => {
                Self::Busy(error.to_string())
            }
            "53100" => Self::DiskFull(error.to_string()),
            _ => Self::Storage(Box::new(error)),
        }
    }
}

/// The SQLSTATE, if it was the database that said no.
pub(super) fn sqlstate(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Whether the database rolled the statement back for the sake of another one: it may be sent again at once.
pub(super) fn lost_a_race(error: &sqlx::Error) -> bool {
    matches!(sqlstate(error).as_deref(), Some("40001" | "40P01"))
}

/// Whether a row stayed locked by another transaction for longer than we wait.
pub(super) fn lock_timed_out(error: &sqlx::Error) -> bool {
    sqlstate(error).as_deref() == Some("55P03")
}
