//! How a command can fail, and what the shell is told.

use std::fmt;
use std::process::ExitCode;

use dormouse::BoxError;
use serde_json::Value;

use super::output::{escaped, printable};

/// The exit codes, as `--help` tells them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  something failed
  2  the command line is wrong
  3  there is no such instance, API key or event
  4  refused: it cannot be done as things are, or as it was asked for
  5  no access: an API key is missing, unknown, or of too small a scope
  6  the database or the server cannot be opened or reached, or cannot answer just now
  7  `doctor`, `check` or `diff` found something to repair; `result`: it has not ended";

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    told: String,
    /// The problem as the API told it, for `--json`.
    problem: Option<Value>,
}

impl Failure {
    pub(crate) fn new(code: u8, told: impl Into<String>) -> Self {
        Self { code, told: told.into(), problem: None }
    }

    /// The command line is wrong.
    pub(crate) fn usage(told: impl Into<String>) -> Self {
        Self::new(2, told)
    }

    pub(crate) fn unreachable(told: impl Into<String>) -> Self {
        Self::new(6, told)
    }

    /// The API refused.
    pub(crate) fn problem(status: u16, body: &[u8]) -> Self {
        let code = match status {
            401 | 403 | 421 => 5,
            404 => 3,
            400..500 => 4,
            503 | 507 => 6,
            _ => 1,
        };
        let problem = serde_json::from_slice::<Value>(body).ok();
        let text = |member: &str| problem.as_ref()?.get(member)?.as_str().map(str::to_owned);
        let told = match (text("detail"), text("title")) {
            (Some(detail), _) => detail,
            (None, Some(title)) => title,
            (None, None) => format!("the server answered {status}"),
        };
        Self { code, told, problem }
    }

    /// The `type` of the problem that the API answered with, if it was the API that refused.
    pub fn problem_type(&self) -> Option<&str> {
        self.problem.as_ref()?.get("type")?.as_str()
    }

    /// Tells people or programs what went wrong.
    pub(crate) fn report(&self, as_json: bool) -> ExitCode {
        match (as_json, &self.problem) {
            (true, Some(problem)) => eprintln!("{}", escaped(&problem.to_string())),
            (true, None) => {
                eprintln!("{}", escaped(&serde_json::json!({ "detail": self.told }).to_string()));
            }
            (false, _) => eprintln!("error: {}", printable(&self.told)),
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told)
    }
}

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error: BoxError = error.into();
        let code = match error.downcast_ref::<dormouse::Error>() {
            Some(
                dormouse::Error::CannotOpen { .. }
                | dormouse::Error::NotDormouse { .. }
                | dormouse::Error::NewerSchema { .. }
                | dormouse::Error::OlderSchema { .. }
                | dormouse::Error::CannotConnect { .. }
                | dormouse::Error::Busy(_),
            ) => 6,
            Some(dormouse::Error::InvalidUrl { .. }) => 2,
            _ => 1,
        };
        Self::new(code, error.to_string())
    }
}
