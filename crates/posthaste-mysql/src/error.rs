//! What the driver reports, as [`Error`]: by error number, never by text.

use mysql_async::{DriverError, Error as Driver, IoError};
use posthaste::dialect::{mysql_breaks_connection, mysql_error};
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
            Self::Driver(Driver::Server(error)) => mysql_breaks_connection(error.code),
            Self::TimedOut | Self::Driver(_) => true,
        }
    }

    /// The number of the server's error.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Driver(Driver::Server(error)) => Some(error.code),
            _ => None,
        }
    }
}

pub(crate) const DEADLOCK: u16 = 1213;
/// What the fence fails with.
pub(crate) const OUT_OF_RANGE: u16 = 1690;
/// A lock that is not waited for: 3572 on MySQL, 1205 on MariaDB.
pub(crate) const LOCKED: [u16; 2] = [3572, 1205];

/// Maps an error of the driver. What the driver itself says of TLS is told apart here, all else by the core.
fn map(doing: &str, grants: &str, source: Driver) -> Error {
    let (kind, text) = match &source {
        Driver::Io(IoError::Io(error)) => {
            (ErrorKind::Unavailable, format!("the server cannot be reached ({error})"))
        }
        Driver::Io(IoError::Tls(error)) => {
            (ErrorKind::Unavailable, format!("an encrypted connection was not to be had ({error})"))
        }
        Driver::Driver(DriverError::NoClientSslFlagFromServer) => {
            (ErrorKind::InvalidInput, "the server offers no TLS, which ssl-mode asks for".to_owned())
        }
        _ => return mysql_error(doing, grants, source.into()),
    };
    Error::new(kind, format!("{doing}: {text}")).with_source(source)
}
