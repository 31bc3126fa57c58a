//! How a command can fail, and the exit code it returns.

use std::fmt;
use std::process::ExitCode;

use dormouse::BoxError;
use serde_json::Value;

use super::output::{escaped, printable};

/// The exit codes, as `--help` lists them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  something failed; `result`: the instance failed or was cancelled
  2  the command line is wrong
  3  there is no such instance, API key or event
  4  refused: the request is invalid, or the current state does not allow it
  5  no access: an API key is missing, unknown, or its scope is too small
  6  the database or the server cannot be opened or reached, or is busy
  7  `doctor`, `check` or `diff` found something to repair; `result`: the instance has not ended";

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    told: String,
    /// The problem document that the API returned, for `--json`.
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

    /// The API returned an error.
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

    /// Adds what to do about it.
    pub(crate) fn with(mut self, advice: &str) -> Self {
        self.told = format!("{}; {advice}", self.told.trim_end_matches('.'));
        self
    }

    /// The same failure, and what had happened before it.
    pub(crate) fn after(mut self, before: &str) -> Self {
        self.told = format!("{}\n{before}", self.told);
        self
    }

    /// The `type` of the problem that the API returned; `None` if the failure is not from the API.
    pub fn problem_type(&self) -> Option<&str> {
        self.problem.as_ref()?.get("type")?.as_str()
    }

    /// Prints what went wrong and returns the exit code.
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
