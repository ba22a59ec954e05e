//! What the driver reports, as [`Error`]: by SQLSTATE, never by text.

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

/// Maps an error of the driver.
pub(crate) fn map(doing: &str, grants: &str, source: tokio_postgres::Error) -> Error {
    let (kind, text) = describe(&source, grants);
    Error::new(kind, format!("{doing}: {text}")).with_source(source)
}

fn describe(error: &tokio_postgres::Error, grants: &str) -> (ErrorKind, String) {
    use ErrorKind as Kind;
    let Some(server) = error.as_db_error() else {
        return describe_without_server(error);
    };
    let (code, said) = (server.code(), server.message());
    let text = |text: &str| text.to_owned();
    match code.code() {
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
        "23514" => {
            let rule = server.constraint().unwrap_or("a rule of the table");
            (Kind::InvalidMessage, format!("a value breaks {rule}"))
        }
        "57014" => (Kind::Unavailable, text("it took longer than the time limit")),
        "55P03" => (Kind::Unavailable, text("a lock was not to be had in time")),
        "53300" => (Kind::Unavailable, text("the server has no connection left")),
        "53100" => (Kind::Unavailable, text("the server's disk is full")),
        "54000" | "53200" => (Kind::Unavailable, format!("the server is short of memory or room ({said})")),
        code if ["08", "57P", "53", "58"].iter().any(|class| code.starts_with(class)) => {
            (Kind::Unavailable, format!("the server cannot be used now ({said})"))
        }
        code => (Kind::Database, format!("the server reported an error ({code}: {said})")),
    }
}

fn describe_without_server(error: &tokio_postgres::Error) -> (ErrorKind, String) {
    let source = std::error::Error::source(error);
    if error.is_closed() {
        return (ErrorKind::Unavailable, "the connection is closed".to_owned());
    }
    if let Some(io) = source.and_then(|source| source.downcast_ref::<std::io::Error>()) {
        return (ErrorKind::Unavailable, format!("the server cannot be reached ({io})"));
    }
    match source {
        Some(source) => (ErrorKind::Database, format!("{error} ({source})")),
        None => (ErrorKind::Database, error.to_string()),
    }
}
