//! What the adapters have in common.
#![allow(dead_code, reason = "which of it is used depends on the features")]

use crate::error::{Error, ErrorKind};
use crate::outbox::{Dialect, ErrorCode};

/// What `InTransaction` says of a connection that is in none.
pub(super) fn no_transaction() -> Error {
    let text = "the connection is in no transaction: begin one, and enqueue in it";
    Error::new(ErrorKind::InvalidInput, text)
}

/// The dialect, by the name that sqlx gives a database.
pub(super) fn dialect_of(name: &str) -> Result<Dialect, Error> {
    match name {
        "PostgreSQL" => Ok(Dialect::Postgres),
        "MySQL" => Ok(Dialect::MySql),
        "SQLite" => Ok(Dialect::Sqlite),
        other => Err(other_database(other)),
    }
}

pub(super) fn other_database(name: &str) -> Error {
    let text = format!("{name} is no database that messages can be enqueued in");
    Error::new(ErrorKind::InvalidInput, text)
}

/// The code as sqlx gives it: an SQLSTATE, or on SQLite a result code in decimal.
pub(super) fn code_of(dialect: Dialect, code: Option<&str>, is_duplicate: bool) -> ErrorCode {
    match (dialect, code) {
        (Dialect::Sqlite, Some(code)) => code.parse().map_or(ErrorCode::Unknown, ErrorCode::Sqlite),
        // MySQL has one SQLSTATE for all constraints; PostgreSQL's says which.
        (Dialect::MySql, _) if is_duplicate => ErrorCode::SqlState("23505".into()),
        (_, Some(code)) => ErrorCode::SqlState(code.to_owned().into()),
        (_, None) => ErrorCode::Unknown,
    }
}
