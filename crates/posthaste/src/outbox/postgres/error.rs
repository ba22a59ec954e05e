//! What PostgreSQL reports, as [`Error`]: by SQLSTATE, never by text.

use crate::error::{Error, ErrorKind};
use crate::outbox::failure::{DriverError, ErrorCode};

/// Maps an error of a driver. `doing` says what failed, as in "settling"; `grants` which rights that needs.
pub fn postgres_error(doing: &str, grants: &str, error: DriverError) -> Error {
    error.into_error(|error| {
        let (kind, text) = describe(error, grants);
        Error::new(kind, format!("{doing}: {text}"))
    })
}

fn describe(error: &DriverError, grants: &str) -> (ErrorKind, String) {
    let said = &error.said;
    match &error.code {
        ErrorCode::Connection => (ErrorKind::Unavailable, said.clone()),
        ErrorCode::SqlState(code) => describe_state(code, said, error.constraint.as_deref(), grants),
        _ => (ErrorKind::Database, said.clone()),
    }
}

fn describe_state(code: &str, said: &str, constraint: Option<&str>, grants: &str) -> (ErrorKind, String) {
    use ErrorKind as Kind;
    let text = |text: &str| text.to_owned();
    match code {
        "42P01" | "3F000" => {
            (Kind::NotMigrated, format!("a table is missing ({said}); run `posthaste migrate`"))
        }
        "42703" | "42883" | "42704" => (
            Kind::NotMigrated,
            format!("the tables are of another version ({said}); run `posthaste migrate`"),
        ),
        "42501" => (Kind::PermissionDenied, format!("{said}; this takes {grants}, see docs/postgres.md")),
        "28P01" | "28000" => (Kind::PermissionDenied, format!("the server refused the user ({said})")),
        "3D000" => (Kind::InvalidInput, format!("{said}; create it, or name another one in the URL")),
        "25006" => (Kind::ReadOnly, text("the server takes no writes now; it may have become a standby")),
        // A standby does not begin a transaction that is to write.
        "0A000" => {
            (Kind::ReadOnly, format!("the server refuses this ({said}); it may have become a standby"))
        }
        "40001" | "40P01" => {
            (Kind::Conflict, text("the transaction lost against another one; run it again from its start"))
        }
        "25P02" => (Kind::Database, text("an earlier statement of this transaction failed; roll it back")),
        "25P01" => (Kind::InvalidInput, text("no transaction is open on this connection; begin one first")),
        "23514" => {
            (Kind::InvalidMessage, format!("a value breaks {}", constraint.unwrap_or("a rule of the table")))
        }
        "57014" => (Kind::Unavailable, text("it took longer than the time limit")),
        "55P03" => (Kind::Unavailable, text("a lock was not to be had in time")),
        "53300" => (Kind::Unavailable, text("the server has no connection left")),
        "53100" => (Kind::Unavailable, text("the server's disk is full")),
        "54000" | "53200" => (Kind::Unavailable, format!("the server is short of memory or room ({said})")),
        // It was too long between two statements: the network or the machine is slow.
        "25P03" => (Kind::Unavailable, text("the server ended a transaction that did not go on")),
        code if ["08", "57P", "53", "58"].iter().any(|class| code.starts_with(class)) => {
            (Kind::Unavailable, format!("the server cannot be used now ({said})"))
        }
        code => (Kind::Database, format!("the server reported an error ({code}: {said})")),
    }
}
