//! What MySQL and MariaDB report, as [`Error`]: by error number, or else by SQLSTATE; never by text.

use crate::error::{Error, ErrorKind};
use crate::outbox::failure::{DriverError, ErrorCode};

/// Maps an error of a driver. `doing` says what failed, as in "settling"; `grants` which rights that needs.
pub fn mysql_error(doing: &str, grants: &str, error: DriverError) -> Error {
    error.into_error(|error| {
        let (kind, text) = describe(error, grants);
        Error::new(kind, format!("{doing}: {text}"))
    })
}

fn describe(error: &DriverError, grants: &str) -> (ErrorKind, String) {
    let said = &error.said;
    match &error.code {
        ErrorCode::Connection => (ErrorKind::Unavailable, said.clone()),
        ErrorCode::MySql(number) => describe_number(*number, said, grants),
        ErrorCode::SqlState(state) => describe_state(state, said),
        _ => (ErrorKind::Database, said.clone()),
    }
}

fn describe_number(number: u16, said: &str, grants: &str) -> (ErrorKind, String) {
    use ErrorKind as Kind;
    let text = |text: &str| text.to_owned();
    match number {
        1213 => {
            (Kind::Conflict, text("the transaction lost against another one; run it again from its start"))
        }
        1205 => (Kind::Unavailable, text("a lock was not to be had in time")),
        1290 | 1792 | 1836 => {
            (Kind::ReadOnly, text("the server takes no writes now; it may have become a replica"))
        }
        1044 | 1142 | 1143 => {
            (Kind::PermissionDenied, format!("{said}; this takes {grants}, see docs/mysql.md"))
        }
        1045 | 1698 => (Kind::PermissionDenied, format!("the server refused the user ({said})")),
        1049 => (Kind::InvalidInput, format!("{said}; create it, or name another one in the URL")),
        1046 => (Kind::InvalidInput, format!("{said}; name one in the URL")),
        1146 => (Kind::NotMigrated, format!("a table is missing ({said}); run `posthaste migrate`")),
        1054 => (
            Kind::NotMigrated,
            format!("the tables are of another version ({said}); run `posthaste migrate`"),
        ),
        1153 | 1301 => {
            (Kind::PayloadTooLarge, text("the message is larger than the server's max_allowed_packet"))
        }
        3140 | 3141 | 3819 | 4025 | 1406 => {
            (Kind::InvalidMessage, format!("a value breaks a rule of the table ({said})"))
        }
        1317 | 1969 | 3024 => (Kind::Unavailable, text("it took longer than the time limit")),
        1040 | 1203 | 1226 => (Kind::Unavailable, text("the server has no connection left")),
        1021 | 1114 => (Kind::Unavailable, text("the server's disk is full")),
        1053 | 1927 | 3169 => (Kind::Unavailable, format!("the server cannot be used now ({said})")),
        number => (Kind::Database, format!("the server reported an error ({number}: {said})")),
    }
}

/// What is left to tell where the driver does not give the number.
fn describe_state(state: &str, said: &str) -> (ErrorKind, String) {
    use ErrorKind as Kind;
    match state {
        "40001" => describe_number(1213, said, ""),
        "42S02" => describe_number(1146, said, ""),
        "42S22" => describe_number(1054, said, ""),
        "25006" => describe_number(1792, said, ""),
        "70100" => describe_number(1317, said, ""),
        "28000" => describe_number(1045, said, ""),
        state if state.starts_with("08") => {
            (Kind::Unavailable, format!("the server cannot be used now ({said})"))
        }
        state => (Kind::Database, format!("the server reported an error (SQLSTATE {state}: {said})")),
    }
}
