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

/// Whether a connection on which an error of this number came should not be used any more.
pub fn mysql_breaks_connection(number: u16) -> bool {
    // 1053: shutting down; 1152, 1153, 1156–1161, 1184: the line; 1290, 1792, 1836: became read-only; 1317, 1927: killed;
    // 1880, 1969, 3024: a time limit of the server's; 2006, 2013: gone; 3169, 4031: killed, idle for too long.
    matches!(
        number,
        1053 | 1152
            ..=1161
                | 1184
                | 1290
                | 1317
                | 1792
                | 1836
                | 1880
                | 1927
                | 1969
                | 2006
                | 2013
                | 3024
                | 3169
                | 4031
    )
}

fn describe_number(number: u16, said: &str, grants: &str) -> (ErrorKind, String) {
    use ErrorKind as Kind;
    let text = |text: &str| text.to_owned();
    match number {
        1213 | 1020 | 3572 | 1412 => {
            (Kind::Conflict, text("the transaction lost against another one; run it again from its start"))
        }
        1205 => (Kind::Unavailable, text("a lock was not to be had in time")),
        1290 | 1792 | 1836 => {
            (Kind::ReadOnly, text("the server takes no writes now; it may have become a replica"))
        }
        1044 | 1142 | 1143 | 1227 | 1370 => {
            (Kind::PermissionDenied, format!("{said}; this takes {grants}, see docs/mysql.md"))
        }
        1045 | 1130 | 1131 | 1132 | 1133 | 1251 | 1396 | 1698 | 1820 | 1862 | 2054 | 2061 | 3118 | 3955
        | 4151 => (Kind::PermissionDenied, format!("the server refused the user ({said})")),
        1049 => (Kind::InvalidInput, format!("{said}; create it, or name another one in the URL")),
        1046 => (Kind::InvalidInput, format!("{said}; name one in the URL")),
        1146 => (Kind::NotMigrated, format!("a table is missing ({said}); run `posthaste migrate`")),
        1054 | 1072 | 1176 => (
            Kind::NotMigrated,
            format!("the tables are of another version ({said}); run `posthaste migrate`"),
        ),
        1153 | 1301 => {
            (Kind::PayloadTooLarge, format!("it is larger than the server's max_allowed_packet ({said})"))
        }
        3140 | 3141 | 3143 | 3144 | 4025 => {
            let text = "the payload is no JSON, which this outbox stores (see `posthaste migrate --payload binary`), \
                        or a value breaks a rule of the table";
            (Kind::InvalidMessage, format!("{text} ({said})"))
        }
        1264 | 1292 | 1300 | 1366 | 1406 | 3819 => {
            (Kind::InvalidMessage, format!("a value does not fit into its column ({said})"))
        }
        1526 => (Kind::Database, text("no partition takes the message; run `posthaste partitions`")),
        1317 | 1927 => (Kind::Unavailable, text("the statement or its connection was killed")),
        1969 | 3024 => (Kind::Unavailable, text("it took longer than the server's time limit")),
        1040 | 1203 | 1226 => (Kind::Unavailable, format!("the server has no connection left ({said})")),
        1021 | 1037 | 1038 | 1041 | 1114 | 1135 => {
            (Kind::Unavailable, format!("the server is short of memory or room ({said})"))
        }
        number if mysql_breaks_connection(number) => {
            (Kind::Unavailable, format!("the server cannot be used now ({said})"))
        }
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
