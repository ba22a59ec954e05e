//! What the driver reports, as [`Error`]: by error number, never by text.

use mysql_async::{DriverError, Error as Driver, IoError, ServerError};
use posthaste::{Error, ErrorKind};

/// Why a step did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The driver or the server reported an error.
    Driver(Driver),
    /// It took longer than it may.
    TimedOut,
    /// It is an error of this crate already.
    Ours(Error),
}

impl From<Driver> for Failure {
    fn from(error: Driver) -> Self {
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
            Self::Driver(error) => map(doing, grants, error),
            Self::TimedOut => {
                let text = format!("{doing}: the database did not answer in time");
                Error::new(ErrorKind::Unavailable, text)
            }
            Self::Ours(error) => error,
        }
    }

    /// Whether a connection on which this happened should not be used any more.
    pub(crate) fn is_fatal(&self) -> bool {
        match self {
            Self::Ours(_) => false,
            Self::Driver(Driver::Server(error)) => breaks_connection(error.code),
            Self::TimedOut | Self::Driver(_) => true,
        }
    }

    /// The number of the server's error.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Driver(error) => code(error),
            Self::TimedOut | Self::Ours(_) => None,
        }
    }
}

/// The number of the server's error.
pub(crate) fn code(error: &Driver) -> Option<u16> {
    match error {
        Driver::Server(error) => Some(error.code),
        _ => None,
    }
}

pub(crate) const DUPLICATE: u16 = 1062;
pub(crate) const DEADLOCK: u16 = 1213;

fn breaks_connection(code: u16) -> bool {
    // 1053: shutting down; 1152, 1153, 1156–1161: the line; 1290, 1792, 1836: became read-only; 1317, 1927: killed; 1880,
    // 1969, 3024: a time limit of the server's; 2006, 2013: gone; 4031: idle for too long.
    matches!(
        code,
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

/// Maps an error of the driver.
pub(crate) fn map(doing: &str, grants: &str, source: Driver) -> Error {
    let (kind, text) = match &source {
        Driver::Server(error) => describe(error, grants),
        Driver::Io(IoError::Io(error)) => {
            (ErrorKind::Unavailable, format!("the server cannot be reached ({error})"))
        }
        Driver::Io(IoError::Tls(error)) => {
            (ErrorKind::Unavailable, format!("an encrypted connection was not to be had ({error})"))
        }
        Driver::Driver(DriverError::ConnectionClosed | DriverError::PoolDisconnected) => {
            (ErrorKind::Unavailable, "the connection is closed".to_owned())
        }
        Driver::Driver(DriverError::NoClientSslFlagFromServer) => {
            (ErrorKind::InvalidInput, "the server offers no TLS, which ssl-mode asks for".to_owned())
        }
        other => (ErrorKind::Database, other.to_string()),
    };
    Error::new(kind, format!("{doing}: {text}")).with_source(source)
}

fn describe(error: &ServerError, grants: &str) -> (ErrorKind, String) {
    use ErrorKind as Kind;
    let said = &error.message;
    let text = |text: &str| text.to_owned();
    match error.code {
        1146 => (Kind::NotMigrated, format!("a table is missing ({said}); run `posthaste migrate`")),
        1054 | 1072 | 1176 => (
            Kind::NotMigrated,
            format!("the tables are of another version ({said}); run `posthaste migrate`"),
        ),
        1049 => (Kind::InvalidInput, format!("{said}; create it, or name another one in the URL")),
        1044 | 1142 | 1143 | 1227 | 1370 => {
            (Kind::PermissionDenied, format!("{said}; this takes {grants}, see docs/mysql.md"))
        }
        1045 | 1130 | 1131 | 1132 | 1133 | 1251 | 1396 | 1698 | 1820 | 1862 | 2054 | 2061 | 3118 | 3955
        | 4151 => (Kind::PermissionDenied, format!("the server refused the user ({said})")),
        1290 | 1792 | 1836 => {
            (Kind::ReadOnly, text("the server takes no writes now; it may have become a replica"))
        }
        1213 | 1020 | 3572 | 1412 => {
            (Kind::Conflict, text("the transaction lost against another one; run it again from its start"))
        }
        1205 => (Kind::Unavailable, text("a lock was not to be had in time")),
        1317 | 1927 => (Kind::Unavailable, text("the statement or its connection was killed")),
        1969 | 3024 => (Kind::Unavailable, text("it took longer than the server's time limit")),
        1040 | 1203 | 1226 => (Kind::Unavailable, format!("the server has no connection left ({said})")),
        1021 | 1114 | 1041 | 1037 | 1038 | 1135 => {
            (Kind::Unavailable, format!("the server is short of memory or room ({said})"))
        }
        1153 | 1301 => {
            (Kind::PayloadTooLarge, format!("it is larger than the server's max_allowed_packet ({said})"))
        }
        3140 | 3141 | 3144 | 3143 | 4025 => {
            let text = "the payload is no JSON, which this outbox stores (see `posthaste migrate --payload binary`), \
                        or a value breaks a rule of the table";
            (Kind::InvalidMessage, format!("{text} ({said})"))
        }
        1264 | 1292 | 1300 | 1366 | 1406 | 3819 => {
            (Kind::InvalidMessage, format!("a value does not fit into its column ({said})"))
        }
        1526 => (Kind::Database, text("no partition takes the message; run `posthaste partitions`")),
        code if breaks_connection(code) => {
            (Kind::Unavailable, format!("the server cannot be used now ({said})"))
        }
        code => (Kind::Database, format!("the server reported an error ({code}: {said})")),
    }
}
