//! The one error type of the public interface.

use std::error::Error as StdError;
use std::fmt;

/// A boxed error of any kind.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// What a caller may want to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A message breaks a rule (empty event type, name too long, payload that is no JSON, …). Mend the message.
    InvalidMessage,
    /// A payload is larger than the limit allows. Send less, or raise the limit.
    PayloadTooLarge,
    /// The idempotency key is there already: the message was enqueued before. The transaction stays usable.
    DuplicateKey,
    /// A message with this id is there already. The transaction stays usable.
    DuplicateId,
    /// A setting or an argument makes no sense (zero duration, invalid table name, …).
    InvalidInput,
    /// The tables are missing or older than this version needs: run `posthaste migrate`.
    NotMigrated,
    /// The tables were made by a newer version: upgrade this program.
    SchemaTooNew,
    /// A table of that name exists, but it is not an outbox: choose another name.
    ForeignTable,
    /// The database, or this user, may not write (or read) here.
    PermissionDenied,
    /// The database cannot be written to now: a read-only file, or a server that became a standby.
    ReadOnly,
    /// The database cannot be reached, is locked for too long, or did not answer in time. Try again.
    Unavailable,
    /// The transaction lost against another one (serialization failure, deadlock). Run it again from its start.
    Conflict,
    /// Anything else that the database reported.
    Database,
}

/// What went wrong, and what to do about it.
///
/// Its text never holds a payload or a password. The driver's own error is its [`source`](StdError::source).
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<BoxError>,
}

impl Error {
    /// An error of a kind, with a text that says what was wrong and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), source: None }))
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub(crate) fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
