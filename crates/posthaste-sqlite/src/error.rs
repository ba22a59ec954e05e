//! What the driver reports, as [`Error`]: by result code, never by text.

use std::path::Path;

use posthaste::dialect::sqlite_code;
use posthaste::{Error, ErrorKind};
use rusqlite::ffi;

/// Maps an error of the driver. `doing` says what failed, as in "settling".
pub(crate) fn map(doing: &str, source: rusqlite::Error) -> Error {
    let (kind, text) = match extended_code(&source) {
        Some(code) => sqlite_code(code),
        None => (ErrorKind::Database, "SQLite reported an error"),
    };
    Error::new(kind, format!("{doing}: {text}")).with_source(source)
}

/// The extended result code, where there is one.
pub(crate) fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    match error {
        rusqlite::Error::SqliteFailure(error, _) | rusqlite::Error::SqlInputError { error, .. } => {
            Some(error.extended_code)
        }
        _ => None,
    }
}

/// The driver's error behind an error, if there is one.
pub(crate) fn driver_error(error: &Error) -> Option<&rusqlite::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// Whether the error says that a statement does not fit the schema (a missing table or column, say).
pub(crate) fn is_about_the_schema(error: &Error) -> bool {
    driver_error(error).and_then(extended_code).is_some_and(|code| code & 0xff == ffi::SQLITE_ERROR)
}

/// Whether a connection that reported the error should not be used any more.
pub(crate) fn is_fatal(error: &Error) -> bool {
    if error.kind() == ErrorKind::ReadOnly {
        return true;
    }
    let Some(code) = driver_error(error).and_then(extended_code) else { return false };
    matches!(
        code & 0xff,
        ffi::SQLITE_IOERR
            | ffi::SQLITE_CORRUPT
            | ffi::SQLITE_NOTADB
            | ffi::SQLITE_CANTOPEN
            | ffi::SQLITE_FULL
            | ffi::SQLITE_NOMEM
            | ffi::SQLITE_PROTOCOL
            | ffi::SQLITE_INTERNAL
    )
}

/// Says why a database file could not be opened.
pub(crate) fn opening(path: &Path, source: rusqlite::Error) -> Error {
    let shown = path.display();
    let Err(io) = std::fs::File::open(path) else {
        let (kind, text) =
            extended_code(&source).map_or((ErrorKind::Database, "SQLite reported an error"), sqlite_code);
        return Error::new(kind, format!("opening {shown}: {text}")).with_source(source);
    };
    match io.kind() {
        std::io::ErrorKind::NotFound if path.parent().is_some_and(|parent| !parent.is_dir()) => {
            let text = format!("opening {shown}: its directory does not exist");
            Error::new(ErrorKind::InvalidInput, text).with_source(source)
        }
        std::io::ErrorKind::NotFound => missing(path),
        std::io::ErrorKind::PermissionDenied => {
            let text = format!("opening {shown}: this user may not read the file");
            Error::new(ErrorKind::PermissionDenied, text).with_source(io)
        }
        _ => Error::new(ErrorKind::Unavailable, format!("opening {shown} failed")).with_source(io),
    }
}

/// There is no database file.
pub(crate) fn missing(path: &Path) -> Error {
    let text = format!("no database at {}; run `posthaste migrate` to create it", path.display());
    Error::new(ErrorKind::NotMigrated, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: i32) -> ErrorKind {
        map("testing", rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).kind()
    }

    #[test]
    fn errors_are_told_apart_by_their_codes() {
        for (code, expected) in [
            (ffi::SQLITE_BUSY, ErrorKind::Unavailable),
            (ffi::SQLITE_BUSY_RECOVERY, ErrorKind::Unavailable),
            (ffi::SQLITE_BUSY_SNAPSHOT, ErrorKind::Conflict),
            (ffi::SQLITE_LOCKED, ErrorKind::Unavailable),
            (ffi::SQLITE_INTERRUPT, ErrorKind::Unavailable),
            (ffi::SQLITE_FULL, ErrorKind::Unavailable),
            (ffi::SQLITE_IOERR_WRITE, ErrorKind::Unavailable),
            (ffi::SQLITE_CANTOPEN, ErrorKind::Unavailable),
            (ffi::SQLITE_READONLY, ErrorKind::ReadOnly),
            (ffi::SQLITE_READONLY_DIRECTORY, ErrorKind::ReadOnly),
            (ffi::SQLITE_PERM, ErrorKind::PermissionDenied),
            (ffi::SQLITE_TOOBIG, ErrorKind::PayloadTooLarge),
            (ffi::SQLITE_CONSTRAINT_CHECK, ErrorKind::InvalidMessage),
            (ffi::SQLITE_CONSTRAINT_TRIGGER, ErrorKind::Database),
            (ffi::SQLITE_NOTADB, ErrorKind::InvalidInput),
            (ffi::SQLITE_CORRUPT, ErrorKind::Database),
            (ffi::SQLITE_ERROR, ErrorKind::Database),
        ] {
            assert_eq!(kind(code), expected, "{code}");
        }
        assert_eq!(map("testing", rusqlite::Error::QueryReturnedNoRows).kind(), ErrorKind::Database);
    }

    #[test]
    fn the_drivers_error_is_the_source() {
        let error = map("testing", rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None));
        assert_eq!(error.to_string(), "testing: the disk is full");
        assert!(driver_error(&error).is_some());
        assert!(is_fatal(&error));
        assert!(!is_about_the_schema(&error));
    }
}
