//! What the database's errors mean to a caller.

use crate::Error;

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let Some(code) = sqlstate(&error) else {
            return match error {
                sqlx::Error::PoolTimedOut => {
                    Self::Busy("no connection to the database became free in time".into())
                }
                sqlx::Error::PoolClosed => Self::Closed,
                // A connection that was lost, wherever in an answer it was: no fault of the call.
                sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => Self::Busy(Box::new(error)),
                other => Self::Storage(Box::new(other)),
            };
        };
        match code.as_str() {
            "53100" => Self::DiskFull(Box::new(error)),
            // Lock and statement timeouts, deadlocks, serialization failures, a commit of which nothing is known, and
            // read-only: the same call may work later.
            "55P03" | "57014" | "40001" | "40003" | "40P01" | "25006" | "25P03" | "25P04" => {
                Self::Busy(Box::new(error))
            }
            // So it may where the connection was lost, resources are short, or the server starts or stops.
            class if ["08", "53", "57P"].iter().any(|start| class.starts_with(start)) => {
                Self::Busy(Box::new(error))
            }
            // Data that cannot be stored, such as a text that is not JSON, and limits of the server, such as the depth
            // of its stack: the same call fails again, and would hold up others behind it.
            class if ["22", "54"].iter().any(|start| class.starts_with(start)) => {
                Self::RefusedValue(error.to_string())
            }
            _ => Self::Storage(Box::new(error)),
        }
    }
}

/// The SQLSTATE, if it was the database that said no.
pub(super) fn sqlstate(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Whether the database rolled the statement back for the sake of another one: it may be sent again at once. A key that
/// another has taken since the statement looked is seen by the next try.
pub(super) fn lost_a_race(error: &sqlx::Error) -> bool {
    let took_the_key = || {
        let constraint = error.as_database_error().and_then(sqlx::error::DatabaseError::constraint);
        constraint == Some("instances_key_guard")
    };
    match sqlstate(error).as_deref() {
        Some("40001" | "40P01") => true,
        Some("23505") => took_the_key(),
        _ => false,
    }
}

/// Whether a row stayed locked by another transaction for longer than we wait.
pub(super) fn lock_timed_out(error: &sqlx::Error) -> bool {
    sqlstate(error).as_deref() == Some("55P03")
}

/// Whether the database said no, so that nothing of the statement happened. One that was stopped may have committed
/// before it could say so; and a pooler that loses the server answers in its place, whatever was under way.
pub(super) fn certainly_undone(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|code| says_no(&code))
}

/// Whether an answer with this SQLSTATE is the database's no, and not the end of a connection.
fn says_no(code: &str) -> bool {
    !(code.starts_with("08") || code.starts_with("57P") || code == "40003")
}

/// An answer that is not understood, as an error of the driver.
pub(super) fn unreadable(error: Error) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_is_certain() {
        for code in ["08P01", "08006", "08003", "57P01", "57P02", "57P03", "40003"] {
            assert!(!says_no(code), "{code}");
        }
        for code in ["23505", "55P03", "40001", "40P01", "22P02", "57014", "53200"] {
            assert!(says_no(code), "{code}");
        }
    }
}
