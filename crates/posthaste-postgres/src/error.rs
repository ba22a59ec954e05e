//! What the driver reports, as [`Error`]: by SQLSTATE, never by text.

use posthaste::dialect::postgres_error;
use posthaste::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

/// Why a step did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The driver or the server reported an error.
    Driver(tokio_postgres::Error),
    /// It took longer than it may.
    TimedOut,
    /// It is an error of this crate already.
    Ours(Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

impl Failure {
    /// As an error of the public interface. `doing` says what failed, as in "settling"; `grants` which rights that
    /// needs.
    pub(crate) fn into_error(self, doing: &str, grants: &str) -> Error {
        match self {
            Self::Driver(error) => postgres_error(doing, grants, error.into()),
            Self::TimedOut => {
                let text = format!("{doing}: the database did not answer in time");
                Error::new(ErrorKind::Unavailable, text)
            }
            Self::Ours(error) => error,
        }
    }

    /// Whether a statement that was prepared in the session is not there.
    pub(crate) fn is_of_another_session(&self) -> bool {
        matches!(self, Self::Driver(error) if error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME))
    }

    /// Whether a connection on which this happened should not be used any more.
    pub(crate) fn is_fatal(&self) -> bool {
        match self {
            Self::TimedOut => true,
            Self::Ours(_) => false,
            Self::Driver(error) => error.code().is_none_or(breaks_connection),
        }
    }
}

fn breaks_connection(code: &SqlState) -> bool {
    // Class 08: the connection; 57P: the server shuts down or restarts; 57014: a timeout, after which nobody knows
    // what the server is doing; 25006 and 0A000: the server became a standby, or what was prepared is not what it was; 26000:
    // it is not there; 58, XX, F0: its disk or memory is not sound.
    *code == SqlState::READ_ONLY_SQL_TRANSACTION
        || *code == SqlState::FEATURE_NOT_SUPPORTED
        || *code == SqlState::QUERY_CANCELED
        || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
        || ["08", "26000", "57P", "58", "XX", "F0"].iter().any(|class| code.code().starts_with(class))
}
