//! What a driver reports.

use std::borrow::Cow;

use crate::error::{BoxError, Error};

/// An error of a driver, with what tells errors apart: never its text.
#[derive(Debug)]
pub struct DriverError {
    pub(super) code: ErrorCode,
    pub(super) said: String,
    pub(super) constraint: Option<String>,
    pub(super) cause: Cause,
}

#[derive(Debug)]
pub(super) enum Cause {
    Driver(BoxError),
    Ours(Error),
}

/// What a database or a driver tells errors apart by.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorCode {
    /// An SQLSTATE: PostgreSQL, and MySQL where the driver does not give its number.
    SqlState(Cow<'static, str>),
    /// An error number of MySQL or MariaDB.
    MySql(u16),
    /// An extended result code of SQLite.
    Sqlite(i32),
    /// The connection broke, or is closed.
    Connection,
    /// The driver does not say.
    Unknown,
}

impl DriverError {
    /// An error of the driver. `said` is what the database said, for people to read.
    pub fn new(code: ErrorCode, said: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self { code, said: said.into(), constraint: None, cause: Cause::Driver(source.into()) }
    }

    /// Adds the name of the constraint that was violated.
    pub fn with_constraint(mut self, constraint: Option<impl Into<String>>) -> Self {
        self.constraint = constraint.map(Into::into);
        self
    }

    /// The code.
    pub fn code(&self) -> &ErrorCode {
        &self.code
    }

    /// Whether a row was refused by a unique index.
    pub(super) fn is_duplicate(&self) -> bool {
        match &self.code {
            ErrorCode::MySql(number) => *number == 1062,
            // Also what adapters of drivers that know no more say of a duplicate.
            ErrorCode::SqlState(state) => state == "23505",
            // PRIMARYKEY, UNIQUE
            ErrorCode::Sqlite(code) => matches!(code, 1555 | 2067),
            ErrorCode::Connection | ErrorCode::Unknown => false,
        }
    }

    /// As an error of the public interface, of a kind and with a text; one that was ours stays as it is.
    pub(super) fn into_error(self, describe: impl FnOnce(&Self) -> Error) -> Error {
        let error = describe(&self);
        match self.cause {
            Cause::Driver(source) => error.with_source(source),
            Cause::Ours(error) => error,
        }
    }
}

/// An error that is none of the driver's.
impl From<Error> for DriverError {
    fn from(error: Error) -> Self {
        Self { code: ErrorCode::Unknown, said: String::new(), constraint: None, cause: Cause::Ours(error) }
    }
}
