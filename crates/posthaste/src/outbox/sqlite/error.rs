//! What SQLite reports, as [`Error`]: by result code, never by text.

use crate::error::{Error, ErrorKind};
use crate::outbox::failure::{DriverError, ErrorCode};

const ERROR: i32 = 1;
const BUSY_SNAPSHOT: i32 = 517;
const CONSTRAINT_CHECK: i32 = 275;
const CONSTRAINT_NOTNULL: i32 = 1299;

/// Maps an error of a driver. `doing` says what failed, as in "settling".
pub fn sqlite_error(doing: &str, error: DriverError) -> Error {
    error.into_error(|error| {
        let (kind, text) = match error.code {
            ErrorCode::Sqlite(code) => sqlite_code(code),
            _ => (ErrorKind::Database, "SQLite reported an error"),
        };
        Error::new(kind, format!("{doing}: {text}"))
    })
}

/// What an extended result code means.
pub fn sqlite_code(code: i32) -> (ErrorKind, &'static str) {
    if code == BUSY_SNAPSHOT {
        let text = "another transaction wrote since this one began, or is just writing; \
                    run it again from its start, and begin it with BEGIN IMMEDIATE";
        return (ErrorKind::Conflict, text);
    }
    match code & 0xff {
        // BUSY, LOCKED
        5 | 6 => (ErrorKind::Unavailable, "the database is locked by another connection for too long"),
        // INTERRUPT
        9 => (ErrorKind::Unavailable, "it took longer than the time limit"),
        // READONLY
        8 => (ErrorKind::ReadOnly, "the database file cannot be written to"),
        // PERM, AUTH
        3 | 23 => (ErrorKind::PermissionDenied, "access was denied"),
        // FULL
        13 => (ErrorKind::Unavailable, "the disk is full"),
        // CANTOPEN
        14 => (ErrorKind::Unavailable, "the database file cannot be opened"),
        // IOERR, PROTOCOL
        10 | 15 => (ErrorKind::Unavailable, "the database file could not be read or written"),
        // NOMEM
        7 => (ErrorKind::Unavailable, "there is not enough memory"),
        // TOOBIG
        18 => (ErrorKind::PayloadTooLarge, "the message is larger than SQLite can store"),
        _ if code == CONSTRAINT_CHECK => (ErrorKind::InvalidMessage, "a value breaks a rule of the table"),
        // NOTADB
        26 => (ErrorKind::InvalidInput, "the file is not an SQLite database"),
        // CORRUPT
        11 => (ErrorKind::Database, "the database file is damaged; restore it from a backup"),
        _ => (ErrorKind::Database, "SQLite reported an error"),
    }
}

impl DriverError {
    /// Whether a statement may not fit the schema (a missing table or column, say). A driver that does not pass on
    /// result codes leaves it open.
    pub(super) fn may_be_about_the_schema(&self) -> bool {
        match self.code {
            ErrorCode::Sqlite(code) => code & 0xff == ERROR,
            ErrorCode::Unknown => matches!(self.cause, crate::outbox::failure::Cause::Driver(_)),
            _ => false,
        }
    }

    /// How `enqueue.sql` reports that the schema has another version.
    pub(super) fn refuses_the_version(&self) -> bool {
        self.code == ErrorCode::Sqlite(CONSTRAINT_NOTNULL)
    }
}
